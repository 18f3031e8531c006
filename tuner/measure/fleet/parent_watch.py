"""A Dask preload module that ends its process when its parent process ends.

A parent that is killed cannot end its children. A scheduler would then keep its port, and a machine
would continue to measure.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ... import timeouts

PARENT = "TILEWRIGHT_FLEET_PARENT"
"""The environment variable that contains the parent's process id."""


def dask_setup(server: object) -> None:
    watch_parent()


def watch_parent(also: Callable[[], None] = lambda: None) -> None:
    """Exit when the process whose id is in `PARENT` has ended. Call `also` before each check."""
    parent = int(os.environ.get(PARENT) or 0)
    threading.Thread(target=_watch, args=(parent, also), daemon=True).start()


def _watch(parent: int, also: Callable[[], None]) -> None:
    while True:
        time.sleep(timeouts.PARENT_POLL_SECS)
        also()
        if parent and os.getppid() != parent:
            os._exit(0)
