"""Values of learned models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.schedules.full_checks import MOCKED
from tilewright.schedules.record import Toolchain, TuningRecord


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


@dataclass(frozen=True, slots=True)
class ModelState:
    """The numbers of a target's trials now, and when its newest model was trained (0 without a
    model)."""

    trials: int
    trained_on: int


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Successful trials of one workload on one target, fastest first. `workload` and `target` are
    JSON documents; `is_own` is whether it is the target for which a model is trained."""

    workload: dict[str, Any]
    target: dict[str, Any]
    is_own: bool
    records: tuple[TuningRecord, ...]


def timings_of(toolchain: Toolchain) -> str:
    """Return the name of the timings of a toolchain: "" for kernels that were run, otherwise the
    name of the mocked ones."""
    if toolchain.codegen_version != MOCKED:
        return ""
    return f"{toolchain.llvmlite}:{toolchain.llvm}"
