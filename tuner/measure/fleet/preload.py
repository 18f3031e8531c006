"""A Dask preload module that makes a worker (`dask worker --preload`) a machine of a fleet.

`TILEWRIGHT_MACHINE` has the machine's description (`MachineDescription.to_bytes`); `tilewright
worker` sets both.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ... import timeouts
from .host import set_up
from .machines import LABEL
from .messages import MachineDescription
from .parent_watch import watch_parent

ENVIRONMENT = "TILEWRIGHT_MACHINE"


def dask_setup(worker: Any) -> None:
    """Called by Dask before the worker registers."""
    description = os.environ[ENVIRONMENT]
    host = set_up(MachineDescription.from_bytes(description))
    worker.startup_information[LABEL] = lambda _: description
    worker.metrics[LABEL] = lambda _: {"busy": host.busy, "measured": host.measured}
    watch_parent(host.close_idle)


def dask_teardown(worker: Any) -> None:
    """The worker closes, by request or because its scheduler is gone. No one will read what it
    measures, so it does not wait for that: its child processes end with this one."""
    leaving = threading.Timer(timeouts.LEAVE_SECS, os._exit, args=(0,))
    leaving.daemon = True
    leaving.start()
