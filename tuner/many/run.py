"""One run over many workloads: its tasks, their measurers and the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target

from ..measure.protocol import MeasurerFactory
from ..process.control import Control, Controllable
from ..session.options import SessionOptions
from ..session.report import Budget, RecordSink
from ..session.roofline_bound import MeasuringMachine
from ..session.run import TuningSession, begin_session
from .costs import TaskCosts
from .entries import TaskSpec
from .outside import NotedSink, OutsideErrors
from .report import ManyEvent, ManyReport
from .scheduler import Scheduler
from .task import Task
from .task_control import TaskControl
from .threads import TaskThreads

FLOPS_PER_BYTE = 8.0
"""Operations in the time of one byte from memory, roughly, to order tasks before their first
trial."""


def run_many(
    specs: Sequence[TaskSpec],
    target: Target,
    *,
    measurers: MeasurerFactory,
    sink: RecordSink,
    strategy: str,
    budget: Budget,
    seed: int,
    on_event: Callable[[ManyEvent], None],
    should_stop: Callable[[], bool],
    fresh: bool,
    machine: MeasuringMachine | None,
    control: Control,
) -> ManyReport:
    """Tune all tasks and return the report. `budget.trials` limits each task, `budget.seconds` the
    whole run."""
    errors = OutsideErrors()
    noted_sink = NotedSink(sink, errors)
    costs = TaskCosts()
    threads = TaskThreads()
    tasks = [
        Task(number, spec, TaskControl(control, spec.name, costs, threads), budget.trials)
        for number, spec in enumerate(specs)
    ]

    def open_session(task: Task, closing: ExitStack) -> TuningSession:
        workload = task.spec.workload
        measurer = measurers(workload, target, seed)
        if isinstance(measurer, Controllable):
            task.control.allow(budget.seconds)
            measurer.attach(task.control)
        return begin_session(
            workload,
            space_for(workload, target, task.control.check),
            measurer=closing.enter_context(measurer),
            sink=noted_sink,
            strategy=strategy,
            budget=budget,
            seed=seed,
            on_event=lambda event: scheduler.on_trial(task, event),
            options=SessionOptions(
                fresh=fresh, machine=machine, should_stop=should_stop, control=task.control
            ),
        )

    scheduler = Scheduler(
        sorted(tasks, key=_work, reverse=True),
        control,
        costs,
        threads,
        open_session,
        should_stop,
        errors,
        errors.handler(on_event),
    )
    reason = scheduler.run()
    return ManyReport(tuple(task.task_report() for task in tasks), control.wall_secs, reason)


def _work(task: Task) -> float:
    """Return the weighted work of a task, from which its share of the time is guessed."""
    workload = task.spec.workload
    return task.spec.weight * max(workload.flops, FLOPS_PER_BYTE * workload.min_bytes)
