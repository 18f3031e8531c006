"""Preparing without a compiler or a machine: what was asked of each step is counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.db import Store
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.primitives import Unroll
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.analytic import Chosen, Knowledge
from tilewright.service.answers.preparer import Preparer, Steps
from tilewright.service.answers.publish import Published

CHOSEN = Trace((Unroll("i"),))
OK = MeasureResult(MeasureStatus.OK, (3e-3,), 3e-3, verify_secs=0.1)


@dataclass(slots=True)
class Counted:
    """Steps that do nothing but count, by workload key. `result` is how a check ends, of a trace;
    `chosen` is or raises what is chosen; `machine` is whether kernels can be run."""

    result: Callable[[Trace], MeasureResult] = lambda trace: OK
    chosen: Trace | Exception = CHOSEN
    machine: bool = True
    chosen_for: Counter[str] = field(default_factory=Counter)
    built_for: Counter[str] = field(default_factory=Counter)
    checked: list[tuple[str, Trace]] = field(default_factory=list)

    def steps(self) -> Steps:
        return Steps(self.choose, self.check, self.build, lambda target: self.machine, _unpublished)

    def choose(self, workload: Workload, target: Target, known: Knowledge) -> Chosen:
        self.chosen_for[workload.key] += 1
        if isinstance(self.chosen, Exception):
            raise self.chosen
        return Chosen(self.chosen)

    def check(self, workload: Workload, trace: Trace, target: Target) -> MeasureResult:
        self.checked.append((workload.key, trace))
        return self.result(trace)

    def build(
        self, workload: Workload, trace: Trace, target: Target, verified: bool
    ) -> list[ArtefactFile]:
        self.built_for[workload.key] += 1
        kinds = ("object", "header", "llvm") if verified else ("llvm",)
        data = f"{workload.key} {trace}".encode()
        return [
            ArtefactFile(kind, f"k.{kind}", f"x/{kind}", kind.encode() + data) for kind in kinds
        ]


def _unpublished(*_: object) -> Published:
    return Published()


def preparer(store: Store, counted: Counted, owner: str = "test") -> Preparer:
    return Preparer(store, owner, threading.Event(), counted.steps())


def prepare_all(store: Store, counted: Counted) -> int:
    """Take every step there is to take; how many there were."""
    working = preparer(store, counted)
    steps = 0
    while working.work_once():
        steps += 1
    return steps
