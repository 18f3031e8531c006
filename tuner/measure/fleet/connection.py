"""The coordinator's connection to a Dask scheduler. No other module of the coordinator uses Dask.

Dask stores nothing. A scheduler that was restarted has lost every request, and a client that lost
its connection has lost its futures. Therefore a broken connection (`Line.broken`) is not repaired.
It is closed, and a new one is opened. The caller then sends the candidates without a result again.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import timeouts
from .address import FleetError, check_listens
from .heartbeat import HeartbeatMonitor
from .host import run
from .machines import FleetMachine, machines_of, resource_name
from .messages import WIRE_VERSION

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger("tilewright.fleet")

WAKE = b""
"""A message in `Line.received` whose only purpose is to wake the reader."""

_TOPICS = 16
_CHANGES = "all"
"""The topic of Dask's events about workers that join or leave."""

_DASK_LOGGERS = (
    "distributed.batched",
    "distributed.client",
    "distributed.comm",
    "distributed.core",
)


@dataclass(slots=True)
class Line:
    """An open connection to a scheduler."""

    client: Client
    topic: str
    received: queue.SimpleQueue[bytes | None]
    """The received notes as bytes, `WAKE`, and None when the list of machines changed."""
    scheduler_id: str
    futures: dict[str, Future] = field(default_factory=dict)
    _machines: list[FleetMachine] = field(default_factory=list)
    _looked: float = float("-inf")
    _silence: HeartbeatMonitor = field(default_factory=HeartbeatMonitor)

    @property
    def broken(self) -> bool:
        """Return whether the scheduler or the connection to it was lost."""
        lost = any(future.status == "cancelled" for future in self.futures.values())
        return lost or self.client.status != "running"

    def machines(self) -> list[FleetMachine]:
        """Return the machines with a recent heartbeat. The list was read at most
        `timeouts.FLEET_POLL_SECS` ago.

        Raise FleetError if the connection is broken.
        """
        if self.broken:
            raise FleetError("the connection to the scheduler was lost")
        if time.monotonic() - self._looked < timeouts.FLEET_POLL_SECS:
            return self._machines
        try:
            identity: dict[str, Any] = self.client.sync(
                self.client.scheduler.identity,
                n_workers=-1,
                callback_timeout=timeouts.FLEET_CALL_SECS,
            )
        except Exception as error:  # Dask raises various types when the connection breaks
            raise FleetError(f"the scheduler does not answer: {error!r}") from error
        if identity["id"] != self.scheduler_id:
            raise FleetError("the scheduler was restarted")
        self._looked = time.monotonic()
        silent = self._silence.of(identity, self._looked)
        self._machines = [m for m in machines_of(identity) if m.address not in silent]
        return self._machines

    def wake(self) -> None:
        """Wake the reader of `received`. Any thread may call this."""
        self.received.put(WAKE)

    def look_again(self) -> None:
        """Make the next call of `machines` read the list again."""
        self._looked = float("-inf")

    def submit(self, task: str, machine: FleetMachine, payload: bytes) -> None:
        """Send a request to `machine`, where it waits in a queue. Dask never moves it to another
        machine."""
        self.futures[task] = self.client.submit(
            run,
            payload,
            key=f"tilewright-{task}",
            workers=[machine.address],
            allow_other_workers=False,
            resources={resource_name(machine.target): 1},
            retries=0,
            pure=False,
        )

    def failure(self, task: str) -> BaseException | None:
        """Return the exception of a request that failed without a note of its machine. Return None
        if there is none."""
        future = self.futures.get(task)
        if future is None or future.status not in ("error", "lost"):
            return None
        found = future.exception(timeout=timeouts.FLEET_CALL_SECS)
        return found if isinstance(found, BaseException) else FleetError(str(found))

    def is_over(self, task: str) -> bool:
        """Return whether the machine has finished a request."""
        future = self.futures.get(task)
        return future is not None and future.status == "finished"

    def release(self, task: str) -> None:
        self.futures.pop(task, None)

    def forget(self, tasks: list[str]) -> None:
        """Cancel requests. A machine that measures one of them stops before its next candidate."""
        futures = [self.futures.pop(task) for task in tasks if task in self.futures]
        if futures and self.client.status == "running":
            with suppress(Exception):  # if the connection breaks now, the requests are lost as well
                self.client.cancel(futures, reason="not needed any more")

    def close(self) -> None:
        """Cancel all requests and close the connection, without waiting for a lost scheduler."""
        self.futures.clear()
        with suppress(Exception):  # the connection is closed anyway, so errors do not matter
            for topic in (self.topic, _CHANGES):
                self.client.unsubscribe_topic(topic)
            self.client.close(timeout=2)


def open_line(address: str) -> Line:
    """Return a connection to the scheduler at `address`. Raise FleetError if there is none."""
    check_listens(address, timeouts.FLEET_CONNECT_SECS)
    from distributed import Client

    _hush()
    received: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    try:
        client = Client(address, timeout=timeouts.FLEET_CONNECT_SECS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise FleetError(f"no scheduler answers at {address}: {error}") from error
    # A scheduler never deletes the last events of a topic. Therefore jobs use a fixed number of
    # topics.
    topic = f"tilewright-notes-{WIRE_VERSION}-{zlib.crc32(uuid.uuid4().bytes) % _TOPICS}"
    client.subscribe_topic(topic, lambda event: received.put(event[1]))
    client.subscribe_topic(_CHANGES, lambda event: _on_change(event[1], received))
    line = Line(client, topic, received, scheduler_id="")
    try:
        identity = client.sync(
            client.scheduler.identity, n_workers=0, callback_timeout=timeouts.FLEET_CALL_SECS
        )
        line.scheduler_id = identity["id"]
    except Exception as error:  # Dask raises various types here
        line.close()
        raise FleetError(f"no scheduler answers at {address}: {error!r}") from error
    return line


def _on_change(event: Any, received: queue.SimpleQueue[bytes | None]) -> None:
    if isinstance(event, dict) and event.get("action") in ("add-worker", "remove-worker"):
        received.put(None)


def _hush() -> None:
    """Silence Dask's log of lost connections, which contains tracebacks. This package logs one line
    for each."""
    for name in _DASK_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
