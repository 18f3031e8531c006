"""A Dask preload module that ends its process when its parent process ends.

A killed parent cannot end its children: a scheduler would keep its port, and a machine would
continue to measure.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ... import timeouts

PARENT = "TILEWRIGHT_FLEET_PARENT"
"""The environment variable with the parent's process id."""


def dask_setup(server: object) -> None:
    watch_parent()


def watch_parent(also: Callable[[], None] = lambda: None) -> None:
    """Exit once the process that `PARENT` names has ended; call `also` before each check."""
    parent = int(os.environ.get(PARENT) or 0)
    threading.Thread(target=_watch, args=(parent, also), daemon=True).start()


def _watch(parent: int, also: Callable[[], None]) -> None:
    while True:
        time.sleep(timeouts.PARENT_POLL_SECS)
        also()
        if parent and os.getppid() != parent:
            os._exit(0)
