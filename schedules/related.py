"""What a database knows about other workloads: records of the same structure, and learned
models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .record import TuningRecord

if TYPE_CHECKING:
    from .workload.workload import Workload

# Start-up: what a query of a stored answer loads needs no workloads.

MAX_WORKLOADS = 4
"""Number of related tasks whose trials a search or a default schedule uses."""


@dataclass(frozen=True, slots=True)
class RelatedRecords:
    """Successful records of one related task, fastest first. `distance` is the distance of the two
    workloads, see `workload.structure`; `name` is the workload's name, `flops` its useful
    operations per call. `origin` is "" if the records were measured on this target, otherwise it
    names the machine for users. `is_same_workload` is whether it is this workload itself.
    `spelling` is the other workload if it is another spelling of the same computation, else None.
    """

    name: str
    distance: float
    records: tuple[TuningRecord, ...]
    flops: int = 0
    origin: str = ""
    is_same_workload: bool = False
    spelling: Workload | None = None


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A learned model. `document` is the model itself, `quality` what it was trained on and its
    held-out error; both are JSON data. `key` is a hash of `document`. `origin` names another
    machine for users if the model is not of the target that asked."""

    key: str
    created_at: str
    document: dict[str, Any]
    quality: dict[str, Any]
    origin: str = ""

    @property
    def trials(self) -> int:
        """The number of trials of the target when the model was trained."""
        found = self.quality.get("trials_stored", 0)
        return found if isinstance(found, int) else 0


def usable(records: Iterable[TuningRecord]) -> tuple[TuningRecord, ...]:
    """Return the records from which a search for another workload can learn."""
    return tuple(r for r in records if r.setting is not None and r.prior_secs is not None)
