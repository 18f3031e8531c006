"""Values of learned models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedules.record import TuningRecord

MIN_TRIALS = 200
NEW_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ModelState:
    """The numbers of a target's trials now, and at its last training (0 without one), and the
    version of the features of that training."""

    trials: int
    trained_on: int
    version: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether a new model is worth its cost: there are at least `MIN_TRIALS` trials, and a
        share of `NEW_SHARE` more than the newest model was trained on."""
        new = self.trials - self.trained_on
        return self.trials >= MIN_TRIALS and new >= max(NEW_SHARE * self.trained_on, 1)

    def is_due_for(self, version: int) -> bool:
        """Return whether a new model with features of this version is worth its cost."""
        return self.is_due or (self.trials >= MIN_TRIALS and self.version != version)


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Successful trials of one workload on one target, fastest first. `workload` and `target` are
    JSON documents. `origin` names the target, with a part of its key; "" if it is the target for
    which a model is trained. `has_same_vectors` is whether it has vectors like that target."""

    workload: dict[str, Any]
    target: dict[str, Any]
    origin: str
    has_same_vectors: bool
    records: tuple[TuningRecord, ...]

    @property
    def is_own(self) -> bool:
        return not self.origin
