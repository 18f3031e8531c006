"""Makes a Dask worker a machine of a fleet: `dask worker --preload tuner.measure.fleet.preload`.

What the machine is comes in `TILEWRIGHT_MACHINE`, as `Description.to_bytes` made it;
`tilewright worker` sets both.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from .machines import LABEL
from .task import Host, set_up
from .wire import Description

ENVIRONMENT = "TILEWRIGHT_MACHINE"
PARENT = "TILEWRIGHT_MACHINE_PARENT"
"""The process that keeps this one running: without it, this one ends."""

_LEAVE_SECS = 2.0
_LOOK_SECS = 1.0


def dask_setup(worker: Any) -> None:
    """Called by Dask before the worker registers."""
    description = os.environ[ENVIRONMENT]
    host = set_up(Description.from_bytes(description))
    worker.startup_information[LABEL] = lambda _: description
    worker.metrics[LABEL] = lambda _: {"busy": host.busy, "measured": host.measured}
    parent = os.environ.get(PARENT)
    watch = threading.Thread(target=_watch, args=(host, int(parent or 0)), daemon=True)
    watch.start()


def dask_teardown(worker: Any) -> None:
    """The worker closes, by request or because its scheduler is gone. What it measures is of no
    use to anybody, so it is not waited for: its processes end with this one."""
    leaving = threading.Timer(_LEAVE_SECS, os._exit, args=(0,))
    leaving.daemon = True
    leaving.start()


def _watch(host: Host, parent: int) -> None:
    """Close what is idle, and leave when nobody keeps this process any more."""
    while True:
        time.sleep(_LOOK_SECS)
        host.close_idle()
        if parent and os.getppid() != parent:
            os._exit(0)
