"""Tells errors of the caller's own functions from errors of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tilewright.schedules.record import TuningRecord
from tilewright.schedules.related import RelatedRecords, StoredModel
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ..session.report import RecordSink

Event = TypeVar("Event")


@dataclass
class OutsideErrors:
    """The exceptions that handlers of events and the store of records raised.

    They concern the whole run: a database that cannot be written fails for every task.
    """

    _raised: list[Exception] = field(default_factory=list)

    def has_raised(self, error: Exception) -> bool:
        return any(error is known for known in self._raised)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note an exception that leaves the block."""
        try:
            yield
        except Exception as error:
            self._raised.append(error)
            raise

    def handler(self, function: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return `function` with its exceptions noted."""

        def handle(event: Event) -> None:
            with self.noted():
                function(event)

        return handle


@dataclass(frozen=True, slots=True)
class NotedSink:
    """A `RecordSink` whose exceptions are noted."""

    sink: RecordSink
    errors: OutsideErrors

    def add(self, records: Sequence[TuningRecord]) -> None:
        with self.errors.noted():
            self.sink.add(records)

    def records(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        with self.errors.noted():
            return self.sink.records(workload_key, target_key)

    def related(
        self, workload: Workload, target: Target, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        with self.errors.noted():
            return self.sink.related(workload, target, count, before)

    def model(self, target: Target, timings: str, before: str = "") -> StoredModel | None:
        with self.errors.noted():
            return self.sink.model(target, timings, before)

    def promote(self, record: TuningRecord) -> bool:
        with self.errors.noted():
            return self.sink.promote(record)
