"""A Dask preload module that makes a worker a machine of a fleet (`dask worker --preload`).

The environment variable `TILEWRIGHT_MACHINE` has its description (`MachineDescription.to_bytes`).
`tilewright worker` sets the variable and the option.
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
    """Set up the machine. Dask calls this before the worker registers."""
    description = os.environ[ENVIRONMENT]
    host = set_up(MachineDescription.from_bytes(description))
    worker.startup_information[LABEL] = lambda _: description
    worker.metrics[LABEL] = lambda _: {"busy": host.busy, "measured": host.measured}
    watch_parent(host.close_idle)


def dask_teardown(worker: Any) -> None:
    """End the process `timeouts.LEAVE_SECS` after the worker closes.

    No process will read the pending results, so the worker does not wait for them. Its child
    processes end with it.
    """
    leaving = threading.Timer(timeouts.LEAVE_SECS, os._exit, args=(0,))
    leaving.daemon = True
    leaving.start()
