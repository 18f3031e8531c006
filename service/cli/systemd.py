"""What a service manager is told: that we are ready, alive, stopping. Nothing where there is none.

The protocol is sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names. A dozen lines that
need no library, and no systemd: podman and others speak it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"


def tell(word: str) -> None:
    """Send `word` to the manager that started this process, if one did. Never fails or waits: a
    service is not to end because its manager is deaf."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name in the kernel, not in a file system
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.setblocking(False)
        sender.connect(address)
        sender.send(word.encode())


def watchdog_secs() -> float | None:
    """How long the manager (`WatchdogSec=`) lets this process be silent; None: for ever."""
    asked, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not asked.isdigit() or not int(asked) or pid not in ("", str(os.getpid())):
        return None
    return int(asked) / 1e6


async def stay_alive() -> None:
    """Say that the event loop runs, twice in the time allowed, for good: a task of that loop, so
    that a process that answers nobody is started again."""
    allowed = watchdog_secs()
    while allowed is not None:
        tell(ALIVE)
        await asyncio.sleep(allowed / 2)
