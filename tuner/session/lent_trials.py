"""What other tasks of the database lent to a run, for its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.costmodel.base import BorrowedSample
from tilewright.schedules.record import Toolchain
from tilewright.schedules.related import RelatedRecords
from tilewright.schedules.space import Candidate, ScheduleSpace

from ..search.adaptation import RelatedTrial, borrowed_samples, proven_elsewhere
from ..search.related import comparable, origin_of, related_trials
from ..search.setting_grid import setting_grids
from ..search.spellings import samples_of_spellings
from .trials import Trial


@dataclass(frozen=True, slots=True)
class LentTrials:
    """The related tasks whose records a run uses, and their `trials`, whose `source` is the
    position of the task from 1 on. `spelled` are the trials of other spellings."""

    tasks: tuple[RelatedRecords, ...] = ()
    trials: tuple[RelatedTrial, ...] = ()
    spelled: tuple[BorrowedSample, ...] = ()

    @property
    def spelled_trials(self) -> int:
        """The number of trials of the other spelling with the most of them, 0 without one."""
        tasks = [self.tasks[number - 1] for number in {sample.source for sample in self.spelled}]
        return max((len({r.trace_key for r in task.records}) for task in tasks), default=0)

    def to_json(self, space: ScheduleSpace, made: Sequence[Trial]) -> list[dict[str, Any]]:
        """Return the tasks as they are reported. `tried` has the trials of the run, among `made`,
        that are settings of this workload which were fast elsewhere, or in another spelling."""
        tried: dict[int, list[dict[str, Any]]] = {}
        elsewhere = self._proven(space)
        sources = [t.source for t in self.trials] + [t.source for t in self.spelled]
        for trial in made:
            if trial.candidate in elsewhere:
                secs = trial.record.result.run_secs_estimate
                status = str(trial.record.result.status)
                found = {"trial": trial.number, "status": status, "run_secs": secs}
                tried.setdefault(elsewhere[trial.candidate], []).append(found)
        return [
            {
                "workload": task.name,
                "origin": origin_of(task),
                "distance": task.distance,
                "trials": sources.count(number),
                "is_same_workload": task.is_same_workload,
                "is_spelling": task.spelling is not None,
                "tried": tried.get(number, []),
            }
            for number, task in enumerate(self.tasks, start=1)
        ]

    def _proven(self, space: ScheduleSpace) -> dict[Candidate, int]:
        others = self.trials if any(not trial.work for trial in self.trials) else ()
        borrowed = borrowed_samples(setting_grids(space), others) if others else []
        proven = proven_elsewhere([*self.spelled, *borrowed])
        return {sample.candidate: sample.source for sample in proven}


def lent_trials(
    space: ScheduleSpace,
    found: Sequence[RelatedRecords],
    toolchain: Toolchain,
    check: Callable[[], None],
) -> tuple[ScheduleSpace, LentTrials]:
    """Return what the related tasks `found` lend to a run with `toolchain`, and `space` with the
    sketches that schedules of other spellings need. `check` is called repeatedly and may raise an
    exception to stop."""
    tasks = tuple(task for task, _ in comparable(found, toolchain))
    space, spelled = samples_of_spellings(space, found, toolchain, check)
    return space, LentTrials(tasks, tuple(related_trials(found, toolchain)), tuple(spelled))
