"""What a database knows about other workloads: records of the same structure, and learned
models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .record import TuningRecord


@dataclass(frozen=True, slots=True)
class RelatedRecords:
    """Successful records of one related workload on one target, fastest first. `distance` is the
    distance of the two workloads, see `workload.structure`; `name` is the workload's name."""

    name: str
    distance: float
    records: tuple[TuningRecord, ...]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A learned model. `document` is the model itself, `quality` what it was trained on and its
    held-out error; both are JSON data. `key` is a hash of `document`."""

    key: str
    created_at: str
    document: dict[str, Any]
    quality: dict[str, Any]

    @property
    def trials(self) -> int:
        """The number of trials of the target when the model was trained."""
        found = self.quality.get("trials_stored", 0)
        return found if isinstance(found, int) else 0
