"""Notifies a service manager that the service is ready, alive or stopping. Does nothing without
one.

The protocol is sd_notify(3): datagrams to the socket in `NOTIFY_SOCKET`. It needs no library, and
not systemd in particular: podman and others implement it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"


def notify(word: str) -> None:
    """Send `word` to the manager that started this process, if there is one. Never fails or blocks:
    the service must not end because its manager does not read."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract name, not a path
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.setblocking(False)
        sender.connect(address)
        sender.send(word.encode())


def watchdog_secs() -> float | None:
    """Return how many seconds this process may be silent (`WatchdogSec=`), or None for no limit."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or not int(microseconds) or pid not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6


async def stay_alive() -> None:
    """Report twice per watchdog period that the event loop runs. This is a task of the loop itself,
    so that a process whose loop hangs is restarted."""
    allowed = watchdog_secs()
    while allowed is not None:
        notify(ALIVE)
        await asyncio.sleep(allowed / 2)
