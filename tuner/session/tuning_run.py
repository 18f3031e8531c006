"""A run as far as it has come: what it works with, its trials, its clock, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.schedules.full_checks import DISPROVED, FULL, outweighs
from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..measure.protocol import Measurer, PredictsCheck
from ..process.control import Control
from ..search.base import SearchStrategy
from .options import EventHandler, SessionOptions
from .report import Budget, RecordSink
from .roofline_bound import RooflineBound
from .trials import Trial

PHASES = ("start", "propose", "compile", "measure", "verify", "store", "wait")
"""What wall time is spent on; together they are all of it."""

RACE_RUNS, RACE_COMPILES = 10, 6
"""What a final race takes, in runs and compiles like those of the fastest candidate."""

RESERVE_MARGIN = 1.25
MAX_RESERVED_SHARE = 0.6
"""The end of a run is given so much more time than it should take, but no more than this share of
the budget."""

STOPPED = "stopped on request"


@dataclass
class TuningRun:
    """The parts that were handed in, and what became of them so far.

    `by_trace` finds a trial by its `trace_key`; so do `rechecked` and `confirmed`, which hold what
    full checks said, `race_times`, the seconds of the final race, and `rejected`, the records of
    the full checks that kept candidates from being the best.
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
    bound: RooflineBound
    trials: list[Trial] = field(default_factory=list)
    by_trace: dict[bytes, Trial] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    curve: list[dict[str, float]] = field(default_factory=list)
    illegal: int = 0
    best_secs: float | None = None
    rechecked: dict[bytes, MeasureResult] = field(default_factory=dict)
    confirmed: dict[bytes, TuningRecord] = field(default_factory=dict)
    race_times: dict[bytes, float] = field(default_factory=dict)
    rejected: dict[bytes, TuningRecord] = field(default_factory=dict)
    race_secs: float = 0.0
    check_secs: float = 0.0
    """How long the final race and the full check of the fastest so far should take."""
    _lap: float = 0.0
    _lap_waited: float = 0.0
    _batch_secs: float = 0.0

    # -- its clock

    @property
    def control(self) -> Control:
        return self.options.control

    def charge_phase(self, phase: str) -> None:
        """Count the time since the last call, without that of others, for a phase."""
        self.phases[phase] += self._lap_secs()

    def charge_batch(self) -> None:
        """Count the time since the last call for the batch that is being measured."""
        self._batch_secs += self._lap_secs()

    def apportion_batch(self, results: list[MeasureResult]) -> None:
        """Count the time of a batch as its candidates say they spent it."""
        self.charge_batch()
        parts = {
            "compile": sum(r.compile_secs for r in results),
            "measure": sum(r.measure_secs for r in results),
            "verify": sum(r.verify_secs for r in results),
        }
        total = sum(parts.values())
        for phase, secs in parts.items():
            share = secs / total if total > 0 else float(phase == "measure")
            self.phases[phase] += self._batch_secs * share
        self._batch_secs = 0.0

    def _lap_secs(self) -> float:
        """Since the last call, or the start of the run; what was waited is counted as that."""
        wall, waited = self.control.wall_secs, self.control.waited_secs
        secs, waited_secs = wall - self._lap, waited - self._lap_waited
        self._lap, self._lap_waited = wall, waited
        self.phases["wait"] += waited_secs
        return max(secs - waited_secs, 0.0)

    def out_of_time(self, reserve_secs: float | None = None) -> str | None:
        """Why nothing more should be measured, whatever was found; `reserve_secs` in place of what
        is kept in reserve by now."""
        if self.options.should_stop():
            return STOPPED
        reserve_secs = self.control.reserve_secs if reserve_secs is None else reserve_secs
        is_left = self.control.left_secs > reserve_secs
        return None if is_left else str(self.control.used_up())

    def predict_end(self, result: MeasureResult) -> None:
        """Keep time for the end of the run, whose best so far has this result."""
        if not isinstance(self.measurer, PredictsCheck):
            return
        run_secs = result.verify_secs + result.measure_secs
        self.race_secs = RACE_RUNS * run_secs + RACE_COMPILES * result.compile_secs
        self.check_secs = self.measurer.confirm_secs(result) + result.compile_secs  # and files
        self.reserve(self.race_secs + self.check_secs)

    def reserve(self, secs: float) -> None:
        """Keep `secs` of the budget for what is to come."""
        most_secs = MAX_RESERVED_SHARE * self.control.allowed_secs
        self.control.reserve_secs = min(RESERVE_MARGIN * secs, most_secs)

    # -- its trials

    @property
    def measured_now(self) -> bool:
        """Whether anything was measured, and not only found."""
        return any(not trial.reused for trial in self.trials)

    def trace_of(self, record: TuningRecord) -> Trace:
        """The trace of a record: that of a trial of this run where there is one."""
        trial = self.by_trace.get(record.trace_key)
        return Trace.from_json(record.trace) if trial is None else trial.trace

    def result_of(self, trial: Trial) -> MeasureResult:
        """What the strategy is told of a trial: that of its full check where there was one."""
        return self.rechecked.get(trial.key, trial.record.result)

    # -- what is stored

    def reusable_records(self) -> dict[bytes, TuningRecord]:
        """The earliest usable result of each trace: what a first run saw, a second must see too.

        Records of other toolchains do not count, nor lost measurements, which say nothing.
        """
        found: dict[bytes, TuningRecord] = {}
        for record in self.earlier_records():
            lost = record.result.status is MeasureStatus.LOST
            if not lost and record.verified_level == "quick":
                found.setdefault(record.trace_key, record)
        return found

    def earlier_records(self) -> list[TuningRecord]:
        """What a run goes by of what is `stored_records`: nothing where it is fresh."""
        return [] if self.options.fresh else self.stored_records()

    def stored_records(self) -> list[TuningRecord]:
        """Records made by exactly this toolchain, and not merely claimed by an import; read from
        the sink at each call."""
        records = self.sink.records(self.workload.key, self.space.target.key)
        return [
            r
            for r in records
            if r.toolchain == self.measurer.toolchain and r.verified_level in ("quick", "full")
        ]

    def full_checks(self, stored: list[TuningRecord]) -> dict[bytes, TuningRecord]:
        """What passed or failed the full check, in this run or among what is `stored`. What one
        check disproved has failed, also in a fresh run, whatever another said."""
        seen = [r for r in (*stored, *self.confirmed.values()) if r.verified_level == FULL]
        disproved = [
            r
            for r in (self.stored_records() if self.options.fresh else ())
            if r.verified_level == FULL and r.result.status in DISPROVED
        ]
        found: dict[bytes, TuningRecord] = {}
        for record in (*seen, *disproved):
            known = found.get(record.trace_key)
            if known is None or outweighs(record.result.status, known.result.status):
                found[record.trace_key] = record
        return found
