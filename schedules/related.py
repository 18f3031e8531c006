"""Records of workloads with the same structure as another workload."""

from __future__ import annotations

from dataclasses import dataclass

from .record import TuningRecord


@dataclass(frozen=True, slots=True)
class RelatedRecords:
    """Successful records of one related workload on one target, fastest first. `distance` is the
    distance of the two workloads, see `workload.structure`; `name` is the workload's name."""

    name: str
    distance: float
    records: tuple[TuningRecord, ...]
