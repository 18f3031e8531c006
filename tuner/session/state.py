"""A run as far as it has come: what it works with, its trials, its clock, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from schedules.full_checks import DISPROVED, FULL, outweighs
from schedules.record import MeasureResult, MeasureStatus, TuningRecord
from schedules.space import ScheduleSpace
from schedules.trace import Trace
from schedules.workload.workload import Workload

from ..measure.protocol import Measurer
from ..search.base import SearchStrategy
from .limit import Limit
from .options import EventHandler, SessionOptions
from .report import Budget, RecordSink
from .trials import Trial

PHASES = ("propose", "compile", "measure", "verify", "store")
STOPPED = "stopped on request"


@dataclass
class Run:
    """The parts that were handed in, and what became of them so far.

    `by_trace` finds a trial by its `trace_key`; so do `timed_again` and `confirmed`, which hold
    what full checks said, `raced`, the seconds of the final race, and `failed`, the records of the
    full checks that kept candidates from being the best.
    """

    workload: Workload
    space: ScheduleSpace
    strategy: SearchStrategy
    measurer: Measurer
    sink: RecordSink
    budget: Budget
    seed: int
    on_event: EventHandler
    options: SessionOptions
    limit: Limit
    trials: list[Trial] = field(default_factory=list)
    by_trace: dict[bytes, Trial] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    curve: list[dict[str, float]] = field(default_factory=list)
    refused: int = 0
    best_secs: float | None = None
    timed_again: dict[bytes, MeasureResult] = field(default_factory=dict)
    confirmed: dict[bytes, TuningRecord] = field(default_factory=dict)
    raced: dict[bytes, float] = field(default_factory=dict)
    failed: dict[bytes, TuningRecord] = field(default_factory=dict)
    started: float = 0.0

    # -- its clock

    @property
    def elapsed_secs(self) -> float:
        """Since the run began, without the turns of others."""
        return self.options.clock() - self.started

    def spend(self, phase: str, since: float) -> None:
        """Count the time since `since` for a phase."""
        self.phases[phase] += self.options.clock() - since

    def spend_measuring(self, wall: float, results: list[MeasureResult]) -> None:
        """Wall time of a batch, shared out as its candidates say they spent it."""
        parts = {
            "compile": sum(r.compile_secs for r in results),
            "measure": sum(r.measure_secs for r in results),
            "verify": sum(r.verify_secs for r in results),
        }
        total = sum(parts.values())
        for phase, secs in parts.items():
            share = secs / total if total > 0 else float(phase == "measure")
            self.phases[phase] += wall * share

    def out_of_time(self) -> str | None:
        """Why nothing more should be measured, whatever was found."""
        if self.options.should_stop():
            return STOPPED
        elapsed = self.elapsed_secs
        if self.budget.seconds is not None and elapsed >= self.budget.seconds:
            return f"the time budget of {self.budget.seconds:g} s is used up"
        return None

    # -- its trials

    @property
    def measured_now(self) -> bool:
        """Whether anything was measured, and not only found."""
        return any(not trial.stored for trial in self.trials)

    def trace_of(self, record: TuningRecord) -> Trace:
        """The trace of a record: that of a trial of this run where there is one."""
        trial = self.by_trace.get(record.trace_key)
        return Trace.from_json(record.trace) if trial is None else trial.trace

    def result_of(self, trial: Trial) -> MeasureResult:
        """What the strategy is told of a trial: that of its full check where there was one."""
        return self.timed_again.get(trial.key, trial.record.result)

    # -- what is stored

    def known(self) -> dict[bytes, TuningRecord]:
        """The earliest usable result of each trace: what a first run saw, a second must see too.

        Records of other toolchains do not count, nor lost measurements, which say nothing.
        """
        found: dict[bytes, TuningRecord] = {}
        for record in self.earlier():
            lost = record.result.status is MeasureStatus.LOST
            if not lost and record.verified_level == "quick":
                found.setdefault(record.trace_key, record)
        return found

    def earlier(self) -> list[TuningRecord]:
        """What a run goes by of what is `stored`: nothing where it is fresh."""
        return [] if self.options.fresh else self.stored()

    def stored(self) -> list[TuningRecord]:
        """Records made by exactly this toolchain, and not merely claimed by an import; read from
        the sink at each call."""
        records = self.sink.records(self.workload.key, self.space.target.key)
        return [
            r
            for r in records
            if r.toolchain == self.measurer.toolchain and r.verified_level in ("quick", "full")
        ]

    def checked(self, stored: list[TuningRecord]) -> dict[bytes, TuningRecord]:
        """What passed or failed the full check, in this run or among what is `stored`. What one
        check disproved has failed, also in a fresh run, whatever another said."""
        seen = [r for r in (*stored, *self.confirmed.values()) if r.verified_level == FULL]
        disproved = [
            r
            for r in (self.stored() if self.options.fresh else ())
            if r.verified_level == FULL and r.result.status in DISPROVED
        ]
        found: dict[bytes, TuningRecord] = {}
        for record in (*seen, *disproved):
            known = found.get(record.trace_key)
            if known is None or outweighs(record.result.status, known.result.status):
                found[record.trace_key] = record
        return found
