"""A fleet on this machine: simulated machines, each a real Dask worker in a process of its own."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.fleet.simulated import write_machine
from tilewright.service.fleet import processes
from tilewright.service.fleet.restarting_process import RestartingProcess
from tilewright.tuner.measure.fleet.address import FleetError
from tilewright.tuner.measure.fleet.describe import describe
from tilewright.tuner.measure.fleet.machines import FleetMachine, fleet_status


@dataclass
class LocalFleet:
    """A scheduler and its machines."""

    folder: Path
    address: str
    stack: ExitStack
    scheduler: RestartingProcess
    machines: dict[str, RestartingProcess] = field(default_factory=dict)

    def join(self, name: str, target: str = "", **settings: float) -> RestartingProcess:
        """A simulated machine, of the synthetic target or that of a file."""
        measurer, synthetic = write_machine(self.folder, name, settings)
        description = describe(measurer, target or synthetic, name)
        keeper = self.stack.enter_context(processes.machine(self.address, description))
        self.machines[name] = keeper
        return keeper

    def leave(self, name: str) -> None:
        self.machines.pop(name).stop()

    def wait_for(self, count: int, timeout_secs: float = 60) -> list[FleetMachine]:
        """The machines, once there are `count`."""
        end = time.monotonic() + timeout_secs
        found: list[FleetMachine] = []
        while time.monotonic() < end:
            try:
                found = fleet_status(self.address)
            except FleetError:
                found = []
            if len(found) == count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{len(found)} of {count} machines joined")


@contextmanager
def local_fleet(folder: Path) -> Iterator[LocalFleet]:
    """A scheduler on a free port of loopback, without machines; all of it ends with the block."""
    address = f"tcp://127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        scheduler = stack.enter_context(processes.scheduler(address))
        yield LocalFleet(folder, address, stack, scheduler)


def free_port() -> int:
    """A port that nobody has. None of those the system gives to whoever asks for any: another test
    could be given it before we listen."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
