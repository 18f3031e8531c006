"""A `RecordSink` in memory, for tests and for tuning runs whose results are not stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.schedules.record import TuningRecord
from tilewright.schedules.related import RelatedRecords, StoredModel
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload


class MemorySink:
    """Stores records in the order of their arrival, until the process ends."""

    def __init__(self, records: Iterable[TuningRecord] = ()) -> None:
        self._records: dict[str, TuningRecord] = {}
        self._best: dict[tuple[str, str], TuningRecord] = {}
        self.add(list(records))

    def add(self, records: Sequence[TuningRecord]) -> None:
        for record in records:
            self._records.setdefault(record.key, record)

    def records(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        return [
            record
            for record in self._records.values()
            if (record.workload_key, record.target_key) == (workload_key, target_key)
        ]

    def related(
        self, workload: Workload, target: Target, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        """Return an empty list: workloads are not stored in memory."""
        return []

    def model(self, target: Target, timings: str, before: str = "") -> StoredModel | None:
        """Return None: nothing is learned in memory."""
        return None

    def promote(self, record: TuningRecord) -> bool:
        """Make `record` the best unless a faster one is stored; return whether it is the best.
        Raise ValueError for a record that is not stored, is not verified in full, or has no time.
        """
        secs = record.result.run_secs_estimate
        if record.key not in self._records or record.verified_level != "full" or secs is None:
            raise ValueError("promote: the record must be stored, OK and fully verified")
        key = (record.workload_key, record.target_key)
        known = self._best.get(key)
        if known is not None and (known.result.run_secs_estimate or 0.0) < secs:
            return False
        self._best[key] = record
        return True

    def best(self, workload_key: str, target_key: str) -> TuningRecord | None:
        return self._best.get((workload_key, target_key))
