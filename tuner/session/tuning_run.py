"""The state of a tuning run: its parts, its trials, its clock, and the records it may use."""

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
from .database_model import ModelInUse
from .lent_trials import LentTrials
from .options import EventHandler, SessionOptions
from .report import Budget, RecordSink
from .roofline_bound import RooflineBound
from .trials import Trial

PHASES = ("start", "propose", "compile", "measure", "verify", "store", "wait")
"""Every second of wall time is charged to one of these phases."""

RACE_RUNS, RACE_COMPILES = 10, 6
"""Predicted cost of the first two rounds of a final race, in runs and compilations of the fastest
candidate."""

STOPPED = "stopped on request"


@dataclass
class TuningRun:
    """The parts of a run and its results so far.

    Keyed by `trace_key`: `by_trace` has the trials, `rechecked` the results of full checks made
    during the search, `confirmed` the records of all full checks, `race_times` the seconds of the
    final race, and `rejected` the records of full checks that candidates failed. `illegal` counts
    candidates that a primitive refused.
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
    model: ModelInUse = field(default_factory=ModelInUse)
    lent: LentTrials = field(default_factory=LentTrials)
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
    """Predicted time of the final race, and of the full check of the fastest candidate so far."""
    raced_secs: float = 0.0
    """Measured time of the final race."""
    _lap: float = 0.0
    _lap_waited: float = 0.0
    _batch_secs: float = 0.0

    # -- the clock of the run

    @property
    def control(self) -> Control:
        return self.options.control

    def charge_phase(self, phase: str) -> None:
        """Charge the time since the last charge, without the time of other runs, to `phase`."""
        self.phases[phase] += self._lap_secs()

    def charge_batch(self) -> None:
        """Charge the time since the last charge to the batch that is being measured."""
        self._batch_secs += self._lap_secs()

    def apportion_batch(self, results: list[MeasureResult]) -> None:
        """Divide the time of a batch among phases, in proportion to the time that its results spent
        on each."""
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
        """Return the seconds since the last call, or since the start of the run. Waiting is charged
        to a separate phase."""
        wall, waited = self.control.wall_secs, self.control.waited_secs
        secs, waited_secs = wall - self._lap, waited - self._lap_waited
        self._lap, self._lap_waited = wall, waited
        self.phases["wait"] += waited_secs
        return max(secs - waited_secs, 0.0)

    def out_of_time(self, reserve_secs: float | None = None) -> str | None:
        """Return the reason why the run must stop measuring, or None if it need not.

        `reserve_secs` is the time to leave for the end of the run, by default the current reserve.
        """
        if self.options.should_stop():
            return STOPPED
        reserve_secs = self.control.reserve_secs if reserve_secs is None else reserve_secs
        is_left = self.control.left_secs > reserve_secs
        return None if is_left else str(self.control.used_up())

    def predict_end(self, result: MeasureResult) -> None:
        """Reserve time for the end of the run, predicted from the result of the best candidate so
        far."""
        if not isinstance(self.measurer, PredictsCheck):
            return
        run_secs = result.verify_secs + result.measure_secs
        self.race_secs = RACE_RUNS * run_secs + RACE_COMPILES * result.compile_secs
        self.check_secs = self.measurer.confirm_secs(result) + result.compile_secs  # and files
        self.control.reserve_end(self.check_secs, self.race_secs)

    # -- the trials of the run

    @property
    def measured_now(self) -> bool:
        """Whether this run measured any candidate, rather than only reusing records."""
        return any(not trial.reused for trial in self.trials)

    def trace_of(self, record: TuningRecord) -> Trace:
        """Return the trace of a record, without parsing it if a trial of this run has it."""
        trial = self.by_trace.get(record.trace_key)
        return Trace.from_json(record.trace) if trial is None else trial.trace

    def result_of(self, trial: Trial) -> MeasureResult:
        """Return the result of a trial that the strategy receives: the result of its full check if
        there was one."""
        return self.rechecked.get(trial.key, trial.record.result)

    # -- stored records

    def reusable_records(self) -> dict[bytes, TuningRecord]:
        """Return the earliest usable record of each trace: a second run must use the same results
        as the first.

        Records of other toolchains and lost measurements do not count.
        """
        found: dict[bytes, TuningRecord] = {}
        for record in self.earlier_records():
            lost = record.result.status is MeasureStatus.LOST
            if not lost and record.verified_level == "quick":
                found.setdefault(record.trace_key, record)
        return found

    def earlier_records(self) -> list[TuningRecord]:
        """Return the stored records that the run uses: none if it is fresh."""
        return [] if self.options.fresh else self.stored_records()

    def stored_records(self) -> list[TuningRecord]:
        """Return the records made by exactly this toolchain and verified here, not only imported.
        They are read from the sink at each call."""
        records = self.sink.records(self.workload.key, self.space.target.key)
        return [
            r
            for r in records
            if r.toolchain == self.measurer.toolchain and r.verified_level in ("quick", "full")
        ]

    def full_checks(self, stored: list[TuningRecord]) -> dict[bytes, TuningRecord]:
        """Return the record of the full check of each trace, from this run or `stored`.

        A trace that one check disproved has failed, also in a fresh run, whatever other checks
        found.
        """
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
