"""A fleet of simulated machines, each a real Dask worker in a process of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from service.fleet import processes
from service.fleet.keeper import Keeper
from tests.fleet.simulated import write_machine
from tuner.measure.fleet.describe import describe
from tuner.measure.fleet.errors import FleetError
from tuner.measure.fleet.machines import Machine, fleet_status


@pytest.fixture(scope="session", autouse=True)
def _needs_dask() -> None:
    if find_spec("distributed") is None:
        pytest.skip("needs Dask distributed: pip install 'tilewright[fleet]'")


@dataclass
class LocalFleet:
    """A scheduler and its machines on this one."""

    folder: Path
    port: int
    stack: ExitStack
    scheduler: Keeper
    machines: dict[str, Keeper] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def join(self, name: str, **settings: float) -> Keeper:
        """A simulated machine of the synthetic target."""
        measurer, target = write_machine(self.folder, name, settings)
        description = describe(measurer, target, name)
        keeper = self.stack.enter_context(processes.machine(self.address, description))
        self.machines[name] = keeper
        return keeper

    def leave(self, name: str) -> None:
        self.machines.pop(name).stop()

    def wait_for(self, count: int, timeout_secs: float = 60) -> list[Machine]:
        """The machines, once there are `count`."""
        end = time.monotonic() + timeout_secs
        found: list[Machine] = []
        while time.monotonic() < end:
            try:
                found = fleet_status(self.address)
            except FleetError:
                found = []
            if len(found) == count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{len(found)} of {count} machines joined")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """Two machines, `one` and `two`, that take 20 ms a candidate."""
    port = free_port()
    with ExitStack() as stack:
        scheduler = stack.enter_context(processes.scheduler("127.0.0.1", port))
        fleet = LocalFleet(tmp_path_factory.mktemp("fleet"), port, stack, scheduler)
        for name in ("one", "two"):
            fleet.join(name, latency_secs=0.02)
        fleet.wait_for(2)
        yield fleet
