"""What a service manager is told, as it hears it: over a datagram socket of its own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.service.cli import systemd


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield ear


def test_it_hears_that_the_service_is_ready(manager: socket.socket) -> None:
    systemd.notify(systemd.READY)
    assert manager.recv(100) == b"READY=1"


def test_names_outside_of_file_systems_work_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"tilewright-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("\0" + name)
        ear.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        systemd.notify(systemd.STOPPING)
        assert ear.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "x" * 200])
def test_a_manager_that_is_not_there_ends_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.notify(systemd.READY)


def test_signs_of_life_come_twice_in_the_time_allowed(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

    async def live() -> None:
        task = asyncio.create_task(systemd.stay_alive())
        for _ in range(3):
            assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
        assert not task.done()
        task.cancel()

    asyncio.run(live())


@pytest.mark.parametrize(("usec", "pid"), [("", ""), ("0", ""), ("many", ""), ("1000", "1")])
def test_nothing_is_sent_where_nobody_watches_this_process(
    usec: str, pid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid)
    assert systemd.watchdog_secs() is None
    asyncio.run(systemd.stay_alive())
