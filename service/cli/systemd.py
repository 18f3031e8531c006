"""Notifies a service manager, if there is one, that the service is ready, alive or stopping.

The protocol is sd_notify(3): datagrams to the socket in `NOTIFY_SOCKET`. It needs no library.
Besides systemd, podman and others implement it.
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
    """Send `word` to the manager that started this process, if there is one. Never fail or block:
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
    """Return for how many seconds this process may be silent (`WatchdogSec=`), or None for no
    limit."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or not int(microseconds) or pid not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6


async def stay_alive() -> None:
    """Notify the manager twice per watchdog period. This is a task of the event loop, so that a
    process with a hanging loop is restarted."""
    allowed = watchdog_secs()
    while allowed is not None:
        notify(ALIVE)
        await asyncio.sleep(allowed / 2)
