"""Records of workloads with the same structure as another workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .record import TuningRecord
from .workload.structure import Structure, distance, structure_of
from .workload.workload import Workload

MAX_WORKLOADS = 4
"""Number of related workloads whose trials a search or a default schedule uses."""


@dataclass(frozen=True, slots=True)
class RelatedRecords:
    """Successful records of one related workload on one target, fastest first. `distance` is the
    distance of the two workloads, see `workload.structure`; `name` is the workload's name."""

    name: str
    distance: float
    records: tuple[TuningRecord, ...]


@dataclass(frozen=True, slots=True, order=True)
class NearWorkload:
    """A workload of the same structure at `distance`."""

    distance: float
    key: str
    name: str


def nearest(
    own: Structure, entries: Iterable[tuple[str, str, dict[str, Any]]], count: int
) -> list[NearWorkload]:
    """Return the `count` nearest of `entries` (key, name, document), which all have the structure
    `own`, nearest first."""
    near = [
        NearWorkload(distance(own, structure_of(Workload.from_json(document))), key, name)
        for key, name, document in entries
    ]
    return sorted(near)[:count]


def usable(records: Iterable[TuningRecord]) -> tuple[TuningRecord, ...]:
    """Return the records from which a search for another workload can learn."""
    return tuple(r for r in records if r.setting is not None and r.prior_secs is not None)
