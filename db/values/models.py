"""Values of learned models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedules.record import TuningRecord

MIN_TRIALS = 200
NEW_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ModelState:
    """The numbers of a target's trials now, and when its newest model was trained (0 without a
    model)."""

    trials: int
    trained_on: int

    @property
    def is_due(self) -> bool:
        """Whether a new model is worth its cost: there are at least `MIN_TRIALS` trials, and a
        share of `NEW_SHARE` more than the newest model was trained on."""
        new = self.trials - self.trained_on
        return self.trials >= MIN_TRIALS and new >= max(NEW_SHARE * self.trained_on, 1)


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Successful trials of one workload on one target, fastest first. `workload` and `target` are
    JSON documents; `is_own` is whether it is the target for which a model is trained."""

    workload: dict[str, Any]
    target: dict[str, Any]
    is_own: bool
    records: tuple[TuningRecord, ...]
