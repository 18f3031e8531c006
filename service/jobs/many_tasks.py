"""The tasks of a job of many workloads: their latest states, and the numbers of their trials.

The trials of all tasks are numbered in the order in which they were first reported. A job that is
resumed reports its trials again, in another order; each keeps its number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tilewright.tuner.many.report import DONE, FAILED, TUNING, TaskStatus

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.db.values.jobs import StoredJob

_PAGE = 1000


@dataclass
class ManyTasks:
    """`count`: the number of tasks. `numbers`: the number of each trial by its record key.
    `told`: the state of each task of which followers know, by its name. `trials_before`: the
    number of trials that the progress of the job already counts."""

    count: int
    numbers: dict[str, int]
    told: dict[str, str]
    trials_before: int
    statuses: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of_job(cls, store: Store, job: StoredJob, count: int) -> Self:
        """Return the tasks of `job` with what earlier leases stored of them."""
        numbers: dict[str, int] = {}
        last = 0
        while lines := store.catalogue.trials(job.id, last, _PAGE):
            numbers |= {line.record_key: line.trial for line in lines}
            last = lines[-1].trial
        told = {task["name"]: task["state"] for task in job.progress.get("tasks") or ()}
        return cls(count, numbers, told, int(job.progress.get("trials_done", 0)))

    def number_of(self, record_key: str) -> int:
        """Return the number of a trial in the job."""
        return self.numbers.setdefault(record_key, len(self.numbers) + 1)

    def update(self, task: TaskStatus) -> dict[str, Any] | None:
        """Enter the state of a task. Return it if followers do not know the state yet.

        A task that an earlier lease ended is tuned again from its records: this is no news.
        """
        document = asdict(task)
        self.statuses[task.number] = document
        before = self.told.get(task.name)
        if task.state == before or (task.state == TUNING and before in (DONE, FAILED)):
            return None
        self.told[task.name] = task.state
        return document

    def progress(self) -> dict[str, Any] | None:
        """Return the progress fields of the job, or None while a resumed job has entered fewer
        trials than it had."""
        seen = [status for _, status in sorted(self.statuses.items())]
        trials = sum(one["trials"] for one in seen)
        if trials < self.trials_before and not self._all_ended(seen):
            return None
        times = [one["weighted_secs"] for one in seen]
        timed = None not in times and len(times) == self.count
        return {
            "trials_done": trials,
            "best_run_secs": sum(times) if timed else None,
            "tasks": seen,
        }

    def _all_ended(self, seen: list[dict[str, Any]]) -> bool:
        return len(seen) == self.count and all(one["state"] in (DONE, FAILED) for one in seen)
