"""Whole tuning sessions on simulated machines, from an empty and from a filled database.

Each workload of `WORKLOADS` is tuned without records, which gives the figures of the empty
database. Then each is tuned anew with a database that has the records of the workloads of other
folds, and a model that was trained on them. The figure is the noise-free time of what looked best
after n trials over the best known time of that machine and workload; 1 is optimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.search_comparison import MACHINES, Landscape
from tilewright.db import Store, open_store
from tilewright.schedules.full_checks import timings_of
from tilewright.schedules.named_setting import NamedSetting, candidate_of, named_setting
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.related import RelatedRecords, StoredModel
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.jobs.tuning import register
from tilewright.service.training import train_target
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine, read_simulated
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget, RecordSink
from tilewright.tuner.testing import mocked_target
from tilewright.tuner.tuning import tune

MACHINE_NAMES = ("small_code", "slow_threads")
"""Machines of `benchmarks/machines` that contradict the prior in different ways."""

COMMON = 0.7
"""Share of a machine's deviations from the prior that all its workloads have in common."""

WORKLOADS = (
    "matmul:M=128,N=128,K=128",
    "matmul:M=127,N=131,K=137",
    "batch_matmul:B=12,M=64,N=64,K=32",
    "conv2d_nhwc:N=1,H=28,W=28,CI=32,CO=32,K=3,pad=1",
    "conv2d_nhwc:N=1,H=29,W=29,CI=24,CO=40,K=5,stride=2,pad=2",
    "depthwise_conv2d_nhwc:H=56,W=56,C=64,K=3,pad=1",
    "max_pool2d_nhwc:H=56,W=56,C=64,K=3,stride=2,pad=1",
    "softmax_mn:M=64,N=1000",
    "layernorm_mn:M=64,N=768",
)

FOLDS = 3
"""Every third workload is of one fold: a database has the records of the other folds."""

THREADS = 4
EMPTY_AFTER = (1, 8, 16, 32)
FILLED_AFTER = (1, 8, 16)

Settings = Mapping[str, Mapping[str, Any]]
"""The best known setting of each machine and workload, as `NamedSetting.to_json`."""


class StaleSettingError(Exception):
    """A best known setting does not exist any more; the figures must be written again."""


@dataclass(frozen=True, slots=True)
class Task:
    """A workload on a simulated machine, and the best time that is known for it, in seconds."""

    machine: SimulatedMachine
    text: str
    best_secs: float

    def tuned(self, trials: int, sink: RecordSink, seed: int = 0) -> list[TuningRecord]:
        """Tune the workload and return the record of each trial, in order."""
        space = space_of(self.text)
        tune(
            space.workload,
            space.target,
            budget=Budget(trials),
            seed=seed,
            measurer=self.machine,
            sink=sink,
        )
        records = sink.records(space.workload.key, space.target.key)
        return sorted((r for r in records if r.verified_level != "full"), key=lambda r: r.trial)

    def over_best(self, records: Sequence[TuningRecord], after: Sequence[int]) -> list[float]:
        """Return the true time of what looked best after each of `after` trials / best time."""
        return [
            self.true_secs(min(records[:trials], key=_looked)) / self.best_secs for trials in after
        ]

    def true_secs(self, record: TuningRecord) -> float:
        return true_secs(self.machine, space_of(self.text), Trace.from_json(record.trace))


def _looked(record: TuningRecord) -> float:
    return record.result.run_secs_estimate or float("inf")


def true_secs(machine: SimulatedMachine, space: ScheduleSpace, trace: Trace) -> float:
    measurer = machine(space.workload, space.target, 0)
    return measurer.true_secs(MeasureRequest(1, trace))


@cache
def space_of(text: str) -> ScheduleSpace:
    return space_for(parse_workload(text), mocked_target(THREADS))


def machine_of(name: str) -> SimulatedMachine:
    return replace(read_simulated(MACHINES / f"{name}.json"), common=COMMON)


def tasks_of(name: str, best: Settings) -> list[Task]:
    """Return the tasks of a machine. Raise StaleSettingError if a best known setting is gone."""
    machine, found = machine_of(name), []
    for text in WORKLOADS:
        space = space_of(text)
        candidate = candidate_of(space, NamedSetting.from_json(best[name][text]))
        if candidate is None:
            raise StaleSettingError(f"{name}, {text}: the space has no such setting any more")
        found.append(Task(machine, text, true_secs(machine, space, space.trace(candidate))))
    return found


def searched(tasks: Sequence[Task], seed: int = 0) -> list[list[TuningRecord]]:
    """Return the records of each task, tuned without any earlier record."""
    return [task.tuned(EMPTY_AFTER[-1], MemorySink(), seed) for task in tasks]


def from_filled(
    tasks: Sequence[Task], records: Sequence[Sequence[TuningRecord]], seed: int = 0
) -> list[list[float]]:
    """Return `over_best` after FILLED_AFTER of each task, searched with a database of the `records`
    of the tasks of other folds."""
    rows: list[list[float]] = []
    for fold in range(FOLDS):
        with TemporaryDirectory() as folder, filled(folder, tasks, records, fold) as store:
            for task in tasks[fold::FOLDS]:
                found = task.tuned(FILLED_AFTER[-1], KnownOfOthers(store), seed)
                rows.append(task.over_best(found, FILLED_AFTER))
    return rows


class KnownOfOthers(MemorySink):
    """Keeps the records of one search, and reads from a database what others left there."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def related(
        self, workload: Workload, target: Target, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        return self._store.related(workload, target, count, before)

    def model(self, target: Target, timings: str, before: str = "") -> StoredModel | None:
        return self._store.model(target, timings, before)


def filled(
    folder: str, tasks: Sequence[Task], records: Sequence[Sequence[TuningRecord]], without: int
) -> Store:
    """Return a database in `folder` with the records of all tasks but those of one fold, and a
    trained model."""
    ticks = count()
    store = open_store(
        str(Path(folder) / "filled.sqlite"),
        clock=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(ticks)),
    )
    target = mocked_target(THREADS)
    for number, (task, own) in enumerate(zip(tasks, records, strict=True)):
        if number % FOLDS != without:
            register(store, space_of(task.text).workload, target)
            store.add(own)
    train_target(store, target.key, timings_of(tasks[0].machine.toolchain))
    return store


def shuffled(records: Sequence[TuningRecord], seed: int) -> list[TuningRecord]:
    """Return `records` with the results of the successful ones permuted."""
    ok = [record for record in records if record.result.ok]
    order = np.random.default_rng(seed).permutation(len(ok))
    return [replace(record, result=ok[i].result) for record, i in zip(ok, order, strict=True)]


def best_settings(name: str, seeds: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the best known setting of each workload: the end of the way downhill from the best of
    several long searches."""
    machine = machine_of(name)
    for text in WORKLOADS:
        space = space_of(text)
        task = Task(machine, text, 1.0)
        records = [r for seed in seeds for r in task.tuned(64, MemorySink(), seed)]
        best = min((r for r in records if r.result.ok), key=task.true_secs)
        assert best.setting is not None
        start = candidate_of(space, NamedSetting.from_json(best.setting))
        assert start is not None
        lowest = Landscape(space, machine, {}).lowest_from(start)
        yield text, named_setting(space, lowest).to_json()
