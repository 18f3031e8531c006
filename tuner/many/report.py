"""The events and the report of a run over many workloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..session.report import BestFound, TrialEvent, TuneReport

WAITING, TUNING, DONE, FAILED = "waiting", "tuning", "done", "failed"
"""The states of a task."""

BUG = "bug"
"""The code of an error that is none of the user's or the machine's."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of one task: a row of a live table.

    `number` counts tasks from 0. `weighted_secs` is the weight times the best time per call, and
    `left_to_gain` the fraction of that time that the search may still gain; both are None before
    the first success. `eta_secs` is the time of the task's remaining trials at most. `reason` says
    why a task ended.
    """

    number: int
    name: str
    workload_key: str
    weight: float
    state: str
    trials: int
    of_trials: int
    best_run_secs: float | None = None
    weighted_secs: float | None = None
    fraction_of_bound: float | None = None
    left_to_gain: float | None = None
    eta_secs: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ManyEvent:
    """A trial of one task, or with `trial` None a change of the task's state.

    `eta_secs` is the remaining time of all tasks at most, or None if unknown.
    """

    task: TaskStatus
    trial: TrialEvent | None
    eta_secs: float | None


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why a task has no result, or ended early: a stable `code`, and a `message` for users.

    The code is `BUG` if Tilewright itself failed.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task. `entries` are the positions of its workload in the call, from 0, and
    `trials` is the number of its trials.

    `report` is None if the task failed before its report, or never began.
    """

    name: str
    workload_key: str
    weight: float
    entries: tuple[int, ...]
    trials: int
    report: TuneReport | None
    stopped_because: str
    error: TaskError | None = None

    @property
    def best(self) -> BestFound | None:
        return None if self.report is None else self.report.best

    @property
    def weighted_secs(self) -> float | None:
        """The weight times the time per call of the best, or None without a best."""
        return None if self.best is None else self.weight * self.best.run_secs

    def to_json(self) -> dict[str, Any]:
        """Return the document of `tune --json` for this workload, with the fields of the task."""
        own = {
            "name": self.name,
            "workload_key": self.workload_key,
            "weight": self.weight,
            "entries": list(self.entries),
            "weighted_secs": self.weighted_secs,
            "stopped_because": self.stopped_because,
            "error": None
            if self.error is None
            else {"code": self.error.code, "message": self.error.message},
        }
        if self.report is None:
            return {**own, "trials": {"total": self.trials}, "best": None}
        return {**self.report.to_json(), **own}


@dataclass(frozen=True, slots=True)
class ManyReport:
    """The results of all tasks, in the order of their first entries.

    `weighted_secs` is the sum of weight times best time over the tasks that have a best.
    """

    tasks: tuple[TaskReport, ...]
    wall_secs: float
    stopped_because: str

    @property
    def weighted_secs(self) -> float:
        return sum(task.weighted_secs or 0.0 for task in self.tasks)

    @property
    def complete(self) -> bool:
        """Whether every task has a best."""
        return all(task.best is not None for task in self.tasks)

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": [task.to_json() for task in self.tasks],
            "wall_secs": self.wall_secs,
            "weighted_secs": self.weighted_secs,
            "stopped_because": self.stopped_because,
        }
