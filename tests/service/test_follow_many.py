"""A job of many workloads at the terminal: what is shown of its tasks while it runs."""

from __future__ import annotations

from io import StringIO
from typing import Any, cast

from rich.console import Console

from tilewright.service.cli.follow_many import ManyFollower, tasks_of, tasks_table
from tilewright.service.client import Client, Event, Job
from tilewright.tuner.many.report import DONE, TUNING, WAITING, ManyEvent
from tilewright.tuner.process.control import Activity

BEGUN = {
    "number": 1, "name": "b", "workload_key": "k1", "weight": 2.0, "state": "tuning", "trials": 3,
    "of_trials": 8, "best_run_secs": 1e-3, "weighted_secs": 2e-3, "fraction_of_bound": 0.5,
    "left_to_gain": 0.25, "eta_secs": 4.0, "reason": "", "of_a_newer_service": 1,
}  # fmt: skip
JOB: dict[str, Any] = {
    "id": "J", "state": "RUNNING", "done": False, "workload": {}, "target": {}, "best": None,
    "error": None,
    "request": {
        "tasks": [
            {"name": "a", "workload_key": "k0", "weight": 1.0, "flops": 10},
            {"name": "b", "workload_key": "k1", "weight": 2.0, "flops": 10},
        ]
    },
    "progress": {"tasks": [BEGUN], "eta_secs": 9.0},
}  # fmt: skip
TRIAL = {
    "task": "a", "trial": 4, "task_trial": 1, "of_trials": 8, "best_run_secs": 3e-3,
    "fraction_of_bound": 0.1, "eta_secs": 7.0,
}  # fmt: skip


class Answers:
    """A service that answers with one document."""

    def __init__(self) -> None:
        self.calls = 0

    def status(self, job_id: str) -> Job:
        self.calls += 1
        return Job.from_json(JOB)


class Seen:
    def __init__(self) -> None:
        self.events: list[ManyEvent] = []
        self.activities: list[Activity] = []

    def on_event(self, event: ManyEvent) -> None:
        self.events.append(event)

    def on_activity(self, activity: Activity) -> None:
        self.activities.append(activity)


def test_tasks_that_were_not_begun_are_waiting() -> None:
    tasks = tasks_of(JOB)
    assert [(task.name, task.state) for task in tasks.statuses] == [("a", WAITING), ("b", TUNING)]
    assert tasks.eta_secs == 9.0
    out = StringIO()
    Console(file=out, width=120).print(tasks_table(JOB))
    assert "waiting" in out.getvalue()
    assert "25" in out.getvalue()


def test_events_of_a_job_become_events_of_its_tasks() -> None:
    secs, service, seen = [100.0], Answers(), Seen()
    follower = ManyFollower(cast(Client, service), "J", tasks_of(JOB), seen, lambda: secs[0])
    follower.on_event(Event("1", "trial", TRIAL))
    first, read = (event.task for event in seen.events)
    assert (first.name, first.state, first.trials, first.weighted_secs) == ("a", TUNING, 1, 3e-3)
    assert (read.name, read.left_to_gain) == ("b", 0.25), "what is left to gain is read"
    follower.on_event(Event("2", "trial", TRIAL))
    assert service.calls == 1, "not for every trial"
    follower.on_event(Event("3", "task", {**BEGUN, "state": "done"}))
    assert seen.events[-1].task.state == DONE
    follower.on_event(Event("4", "activity", {"phase": "full check", "text": "the best"}))
    assert seen.activities[-1].phase == "full check"
    count = len(seen.events)
    follower.on_event(Event("5", "state", {"state": "RUNNING"}))
    assert len(seen.events) == count
