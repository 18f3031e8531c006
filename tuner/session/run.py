"""The tuning session: ask -> measure -> store -> tell, until budget, bound or sense end it.

This is the one place that sees every part; each part is handed in. An interrupted run goes on by
running it again: the strategy is deterministic, so it asks for the same candidates, and those whose
results are stored are not measured a second time. Whoever kept what was asked (`begun`) goes on
without asking again, in no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from math import inf
from typing import Any

from schedules.canonical import canonical_bytes
from schedules.errors import ScheduleError
from schedules.record import MeasureResult, MeasureStatus, TuningRecord
from schedules.rewritten import rewritten_document
from schedules.space import Candidate, ScheduleSpace
from schedules.target import Target
from schedules.trace import Trace
from schedules.workload.workload import Workload

from ..machine.probed import misleading
from ..machine.work import least_work
from ..measure.protocol import Measurer, MeasureRequest, TakesBound
from ..process.control import MeasurementAborted
from ..search.base import SearchGoal, SearchStrategy
from ..search.strategies import make_strategy
from .limit import Limit, Machine
from .report import MOST_KNOBS_TOLD, Begun, BestFound, Budget, RecordSink, TrialEvent, TuneReport
from .trials import Trial, explain, prediction_quality, statuses

MAX_BATCH = 16
MOST_COUNTED = 2**63 - 1
"""What a report says of a space with that many settings or more: readers of JSON and databases
have integers of 64 bits."""

MOST_LOOKED_AT = 8
"""Trials of an earlier process whose traces are written again, to see that they are of this space:
what a record says is right anyhow, its place in the space is what the search learns from."""

PHASES = ("propose", "compile", "measure", "verify", "store")
MOST_CONFIRMED = 8
"""Candidates that may fail the full check before a run gives up on having a best."""

MOST_LUCKY = 3
"""Times at the bound that may fail to come again before the bound ends this search no more: where
single trials mislead so often, each check costs as much as several trials."""

STOPPED = "stopped on request"

FINALISTS = 4
CLOSE = 1.1
FINAL_ROUNDS = 2
"""The fastest few within a tenth of the best, and the default, are timed this often at the end."""

EventHandler = Callable[[TrialEvent], None]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What may differ between two runs of the same search.

    `fresh` ignores what is stored. `machine` can be probed again where a kernel beats the bound;
    None where times come from elsewhere. `clock` gives seconds, monotonic; `timestamp` the time of
    day for `created_at`. `should_stop` is asked after every trial; once true, nothing more is
    measured, and the best so far is confirmed and promoted as ever. `turn` is called before each
    batch and before the best is confirmed, and may wait; `clock` leaves such time out. `check` is
    called all the time while candidates are chosen; what it raises ends the run. `begun` are the
    first trials of this run, as an earlier process of it told them: they are entered as they are,
    as far as their records are stored, and the search goes on from there.
    """

    fresh: bool = False
    machine: Machine | None = None
    clock: Callable[[], float] = time.monotonic
    timestamp: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="milliseconds")
    should_stop: Callable[[], bool] = lambda: False
    turn: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None
    begun: Sequence[Begun] = ()


DEFAULT_BUDGET = Budget()
DEFAULT_OPTIONS = SessionOptions()


def run_session(
    workload: Workload,
    space: ScheduleSpace,
    *,
    measurer: Measurer,
    sink: RecordSink,
    strategy: str = "annealing",
    budget: Budget = DEFAULT_BUDGET,
    seed: int = 0,
    on_event: EventHandler = lambda event: None,
    options: SessionOptions = DEFAULT_OPTIONS,
) -> TuneReport:
    """Tune `workload` over `space` and return the whole report.

    Every trial is in `sink` as soon as it is measured, and before `on_event` hears of it, which
    hears of the trials of earlier runs too. The best is rebuilt and
    verified in full, stored and promoted; `report.best` is None where nothing passed. StrategyError
    for an unknown strategy. What `on_event` raises, and KeyboardInterrupt, ends the run at once and
    passes through; what was measured stays stored. MeasurementAborted, by the measurer or `turn`,
    ends it with the best that was confirmed before, if any.
    """
    limit = Limit(least_work(workload, space.forms), space.target, options.machine)
    if isinstance(measurer, TakesBound):
        measurer.take_bound(limit.current)

    def check() -> None:
        options.check()
        if options.should_stop():
            raise _Stopped(STOPPED)

    goal = SearchGoal(seed, limit.goal_secs, check)
    session = _Session(
        workload=workload,
        space=space,
        strategy=make_strategy(strategy, space, goal),
        measurer=measurer,
        sink=sink,
        budget=budget,
        seed=seed,
        on_event=on_event,
        options=options,
        limit=limit,
        goal=goal,
        searched=space.target,
    )
    return session.run()


@dataclass(frozen=True, slots=True)
class _New:
    """A candidate this run has not met before, and what an earlier run measured of it."""

    candidate: Candidate
    trace: Trace
    known: TuningRecord | None


def _confirmed_secs(record: TuningRecord | None) -> float:
    """The time of a fully checked record; infinite for none, or one that failed the check."""
    secs = None if record is None or not record.result.ok else record.result.run_secs_estimate
    return float("inf") if secs is None else secs


def _some(pairs: list[tuple[Candidate, TuningRecord]]) -> list[tuple[Candidate, TuningRecord]]:
    """A few of many, the first and the last among them."""
    step = max((len(pairs) - 1) // (MOST_LOOKED_AT - 1), 1)
    return [*pairs[:-1:step], pairs[-1]]


class _Stopped(BaseException):
    """Ends a batch from within, or the choice of one, for the reason given; no measurer and no
    strategy may take it for a failure."""


@dataclass
class _Session:
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
    goal: SearchGoal
    searched: Target
    trials: list[Trial] = field(default_factory=list)
    by_trace: dict[bytes, Trial] = field(default_factory=dict)
    asked: dict[bytes, list[Candidate]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    curve: list[dict[str, float]] = field(default_factory=list)
    refused: int = 0
    best_secs: float | None = None
    timed_again: dict[bytes, MeasureResult] = field(default_factory=dict)
    confirmed: dict[bytes, TuningRecord] = field(default_factory=dict)
    raced: dict[bytes, float] = field(default_factory=dict)
    failed: set[bytes] = field(default_factory=set)
    predictions: Mapping[Candidate, float] = field(default_factory=dict)
    started: float = 0.0

    def run(self) -> TuneReport:
        self.started = self.options.clock()
        known = self._known()
        reason = None
        try:
            self._take_up()
            while reason is None:
                self.options.turn()
                reason = self._step(known)
            self.options.turn()
            best = self._confirm_best()
        except MeasurementAborted as aborted:
            best, reason = self._confirmed_before(), str(aborted)
        if best is not None and best.result.run_secs_estimate is not None:
            self._hold_bound_against(best.result.run_secs_estimate)
            self.limit.settle(best.result.run_secs_estimate, keep=self._measured_now)
        return self._report(best, explain(reason, self.trials, found=best is not None))

    # -- the loop

    def _step(self, known: dict[bytes, TuningRecord]) -> str | None:
        """One batch; the reason to stop after it, or None."""
        count = min(MAX_BATCH, self.budget.trials - len(self.trials))
        if count <= 0:
            return f"all {self.budget.trials} trials of the budget are done"
        mark = self.options.clock()
        try:
            batch = self.strategy.ask(count)
        except _Stopped as stopped:
            return str(stopped)
        finally:
            self._spend("propose", mark)
        self.predictions = self.strategy.predictions
        made = [(candidate, self._trace(candidate)) for candidate in batch]
        if not batch:
            return "every candidate of the space has been tried"
        told: list[tuple[Candidate, MeasureResult]] = []
        new: list[_New] = []
        waiting: dict[bytes, list[Candidate]] = {}
        for candidate, trace in made:
            if trace is None:
                told.append((candidate, MeasureResult(MeasureStatus.NOT_LEGAL)))
                continue
            key = canonical_bytes(trace.to_json())
            self.asked.setdefault(key, []).append(candidate)
            if key in self.by_trace:
                # Two settings, one trace: the same candidate, already measured.
                told.append((candidate, self._result(self.by_trace[key])))
            elif key in waiting:
                waiting[key].append(candidate)
            else:
                waiting[key] = [candidate]
                new.append(_New(candidate, trace, known.get(key)))
        try:
            self._enter_all(new)
        except _Stopped as stopped:
            return str(stopped)
        for key, candidates in waiting.items():
            told += [(candidate, self.by_trace[key].record.result) for candidate in candidates]
        mark = self.options.clock()
        self.strategy.tell(told)
        self._spend("propose", mark)
        if self.best_secs is not None:
            self._hold_bound_against(self.best_secs)
            self.goal.bound_secs = self._bound_to_end_at
        reason = self._reason_to_stop()
        if reason is None and misleading(self.searched.probes, self.limit.target.probes):
            self.searched = self.limit.target
            self.strategy.correct(self.searched)
        return reason

    def _take_up(self) -> None:
        """Enter the trials that an earlier process of this run told; the strategy goes on from
        there. Where they are of another space, nothing is taken up: all is asked for again."""
        stored = {record.key: record for record in self._stored()} if self.options.begun else {}
        found = list(takewhile(lambda begun: begun.record_key in stored, self.options.begun))
        pairs = [(begun.candidate, stored[begun.record_key]) for begun in found]
        if not pairs or not all(self._is_of_space(*pair) for pair in _some(pairs)):
            return
        self.strategy.resume([(candidate, record.result) for candidate, record in pairs])
        for number, (candidate, record) in enumerate(pairs, start=1):
            self.asked.setdefault(canonical_bytes(record.trace), []).append(candidate)
            known = _New(candidate, Trace.from_json(record.trace), record)
            self._enter(number, known, record)

    def _is_of_space(self, candidate: Candidate, record: TuningRecord) -> bool:
        """Whether a candidate of this space has the trace of a record."""
        try:
            trace = self.space.trace(candidate)
        except (ScheduleError, IndexError, ValueError):
            return False
        return canonical_bytes(trace.to_json()) == canonical_bytes(record.trace)

    def _enter_all(self, new: list[_New]) -> None:
        """Measure what is not known; store each result durably as it comes, and only then tell.

        Numbers are given in the order in which candidates were asked for, so that a resumed run
        has those of a whole one, and trials are told in that order. _Stopped ends the run.
        """
        first = len(self.trials) + 1
        numbered = dict(enumerate(new, start=first))
        records = {number: n.known for number, n in numbered.items() if n.known is not None}
        requests = [MeasureRequest(i, n.trace) for i, n in numbered.items() if n.known is None]
        untold = list(numbered)

        def tell(number: int) -> None:
            untold.remove(number)
            self._enter(number, numbered[number], records[number])

        def tell_ready() -> None:
            while untold and untold[0] in records:
                tell(untold[0])

        results: list[MeasureResult] = []

        def on_result(position: int, result: MeasureResult) -> None:
            since = self.options.clock()
            record = self._record(requests[position], result)
            self.sink.add([record])
            records[record.trial] = record
            results.append(result)
            tell_ready()
            self._spend("store", since)
            reason = self._out_of_time() if len(results) < len(requests) else None
            if reason is not None:
                raise _Stopped(reason)

        tell_ready()
        if not requests:
            return
        mark, stored = self.options.clock(), self.phases["store"]
        try:
            self.measurer.measure(requests, on_result)
        except (_Stopped, MeasurementAborted):
            for number in [number for number in untold if number in records]:
                tell(number)
            raise
        finally:
            wall = self.options.clock() - mark - (self.phases["store"] - stored)
            self._spend_measuring(wall, results)

    def _enter(self, number: int, new: _New, record: TuningRecord) -> None:
        """Count a trial whose record is durable, and report it."""
        trial = Trial(number, new.candidate, new.trace, record, stored=new.known is not None)
        self.trials.append(trial)
        self.by_trace[canonical_bytes(record.trace)] = trial
        secs = record.result.run_secs_estimate if record.result.ok else None
        elapsed = self.options.clock() - self.started
        is_best = secs is not None and (self.best_secs is None or secs < self.best_secs)
        if is_best and secs is not None:
            self.best_secs = secs
            self.curve.append({"trial": trial.number, "wall_secs": elapsed, "best_run_secs": secs})
        self.on_event(self._event(trial, is_best, elapsed))

    def _event(self, trial: Trial, is_best: bool, elapsed: float) -> TrialEvent:
        measured = sum(not t.stored for t in self.trials)
        left = self.budget.trials - trial.number
        eta = elapsed / measured * left if measured else None
        if eta is not None and self.budget.seconds is not None:
            eta = min(eta, max(self.budget.seconds - elapsed, 0.0))
        best = self.best_secs
        return TrialEvent(
            trial=trial.number,
            of_trials=self.budget.trials,
            result=trial.record.result,
            is_best=is_best,
            best_run_secs=best,
            fraction_of_bound=self.limit.fraction(best) if best else None,
            wall_secs=elapsed,
            eta_secs=eta,
            record_key=trial.record.key,
            reused=trial.stored,
            predicted_secs=self._predicted_secs(trial.candidate),
            sketch=self.space.sketches[trial.candidate.sketch].name,
            knobs=self._knobs(trial.candidate),
            candidate=trial.candidate,
        )

    def _predicted_secs(self, candidate: Candidate) -> float | None:
        predicted = self.predictions.get(candidate)
        return None if predicted is None else float(2.0**predicted)

    def _knobs(self, candidate: Candidate) -> dict[str, Any]:
        """The values of the knobs that leave a choice, by name."""
        knobs = self.space.sketches[candidate.sketch].knobs
        values = {
            knob.name: knob.values[index]
            for knob, index in zip(knobs, candidate.setting, strict=True)
            if len(knob.values) > 1
        }
        return dict(islice(values.items(), MOST_KNOBS_TOLD))

    def _reason_to_stop(self) -> str | None:
        counts = statuses(self.trials)
        wrong = counts[MeasureStatus.WRONG_RESULT]
        if len(self.trials) >= 8 and wrong * 2 > len(self.trials):
            return f"stopped: {wrong} of {len(self.trials)} candidates computed wrong results"
        if len(self.trials) >= MAX_BATCH and not counts[MeasureStatus.OK]:
            return f"stopped: none of {len(self.trials)} candidates could be measured"
        return self._out_of_time() or self._strategy_reason()

    def _strategy_reason(self) -> str | None:
        """Why the strategy would stop. It ends for the bound's sake only if the machine, asked
        again, says that the bound is there, and the fastest kernel, timed again, that it is."""
        reason = self.strategy.stop_reason
        if reason is None or self.goal.bound_secs is None:
            return reason
        self.goal.bound_secs = None
        if self.strategy.stop_reason is not None:
            return reason
        self.limit.confirm(within_secs=self._secs_for_probes())
        self.goal.bound_secs = self._bound_to_end_at
        while self.strategy.stop_reason is not None and self._time_fastest_again():
            self.goal.bound_secs = self._bound_to_end_at
        return self.strategy.stop_reason

    def _time_fastest_again(self) -> bool:
        """Tell the strategy what the full check, longer and alone, says of the candidate that looks
        fastest; whether it has not heard that yet. The record is what the best's is at the end, so
        the check is not made twice, and a later run sees what this one saw."""
        timed = [trial for trial in self.trials if self._result(trial).ok]
        fastest = min(timed, key=lambda trial: self._result(trial).run_secs_estimate or inf)
        key = canonical_bytes(fastest.record.trace)
        if key in self.timed_again:
            return False
        known = self._checked().get(key)
        if known is None and self._measured_now and self._out_of_time() is None:
            known = self._confirm(fastest.record)
        if known is None or known.result.status is MeasureStatus.LOST:
            return False
        self.timed_again[key] = known.result
        self.strategy.tell([(candidate, known.result) for candidate in self.asked[key]])
        return True

    def _result(self, trial: Trial) -> MeasureResult:
        """What the strategy is told of a trial: that of its full check where there was one."""
        return self.timed_again.get(canonical_bytes(trial.record.trace), trial.record.result)

    @property
    def _bound_to_end_at(self) -> float | None:
        """The bound, unless times near it have too often not come again."""
        return None if len(self.timed_again) > MOST_LUCKY else self.limit.goal_secs

    def _hold_bound_against(self, secs: float) -> None:
        if self.limit.is_beaten_by(secs):
            self.limit.hold(secs, within_secs=self._secs_for_probes())

    def _secs_for_probes(self) -> float:
        """What is left of the budget; 0 where a run has measured nothing, or is to stop."""
        if not self._measured_now or self._out_of_time() is not None:
            return 0.0
        if self.budget.seconds is None:
            return inf
        return self.budget.seconds - (self.options.clock() - self.started)

    @property
    def _measured_now(self) -> bool:
        return any(not trial.stored for trial in self.trials)

    def _out_of_time(self) -> str | None:
        """Why nothing more should be measured, whatever was found."""
        if self.options.should_stop():
            return STOPPED
        elapsed = self.options.clock() - self.started
        if self.budget.seconds is not None and elapsed >= self.budget.seconds:
            return f"the time budget of {self.budget.seconds:g} s is used up"
        return None

    # -- what is stored

    def _known(self) -> dict[bytes, TuningRecord]:
        """The earliest usable result of each trace: what a first run saw, a second must see too.

        Records of other toolchains do not count, nor lost measurements, which say nothing.
        """
        found: dict[bytes, TuningRecord] = {}
        if self.options.fresh:
            return found
        for record in self._stored():
            lost = record.result.status is MeasureStatus.LOST
            if not lost and record.verified_level == "quick":
                found.setdefault(canonical_bytes(record.trace), record)
        return found

    def _stored(self) -> list[TuningRecord]:
        """Records made by exactly this toolchain, and not merely claimed by an import."""
        records = self.sink.records(self.workload.key, self.space.target.key)
        return [
            r
            for r in records
            if r.toolchain == self.measurer.toolchain and r.verified_level in ("quick", "full")
        ]

    def _record(self, request: MeasureRequest, result: MeasureResult) -> TuningRecord:
        return TuningRecord(
            workload_key=self.workload.key,
            target_key=self.space.target.key,
            threads=self.space.target.threads,
            trace=request.trace.to_json(),
            result=result,
            toolchain=self.measurer.toolchain,
            seed=self.seed,
            trial=request.trial,
            created_at=self.options.timestamp(),
        )

    def _trace(self, candidate: Candidate) -> Trace | None:
        """The candidate's trace; None where the sketch cannot hold it after all."""
        try:
            return self.space.trace(candidate)
        except ScheduleError:
            self.refused += 1
            return None

    # -- the best

    def _confirm_best(self) -> TuningRecord | None:
        """The fastest candidate that passes the full check, stored and promoted.

        After new measurements the close ones race once more; a run that measured nothing new
        finds what an earlier one confirmed.
        """
        checked = self._checked()
        contenders = self._contenders()
        if all(trial.stored for trial in self.trials):
            contenders.sort(key=lambda r: _confirmed_secs(checked.get(canonical_bytes(r.trace))))
        elif not self.options.should_stop():
            contenders = self._final_race(contenders)
        confirmed = 0
        for record in contenders:
            known = checked.get(canonical_bytes(record.trace))
            if known is None:
                if confirmed == MOST_CONFIRMED:
                    return None
                confirmed += 1
                known = self._confirm(record)
            if known.result.ok:
                self.sink.promote(known)
                return known
            self.failed.add(canonical_bytes(record.trace))
        return None

    def _confirmed_before(self) -> TuningRecord | None:
        """The fastest candidate that passed a full check already; nothing is run for it."""
        passed = [record for record in self._checked().values() if record.result.ok]
        best = min(passed, key=_confirmed_secs, default=None)
        if best is not None:
            self.sink.promote(best)
        return best

    def _checked(self) -> dict[bytes, TuningRecord]:
        """What passed or failed the full check, in this run or, unless fresh, in earlier ones."""
        stored = [] if self.options.fresh else self._stored()
        full = {canonical_bytes(r.trace): r for r in stored if r.verified_level == "full"}
        return full | self.confirmed

    def _final_race(self, contenders: list[TuningRecord]) -> list[TuningRecord]:
        """`contenders` with those close to the fastest, and the default, timed again in turns.

        A time taken once during the search is as much luck as speed among candidates that are
        nearly equal, and the machine may have been slower then than it is now.
        """
        default = self.trials[0].record
        best = contenders[0].result.run_secs_estimate if contenders else None
        if best is None:
            return contenders
        close = [
            record
            for record in contenders[:FINALISTS]
            if (record.result.run_secs_estimate or best) <= CLOSE * best
        ]
        if default.result.ok and default not in close:
            close.append(default)
        if len(close) < 2:
            return contenders
        mark = self.options.clock()
        secs: dict[bytes, float] = {}
        results: list[MeasureResult] = []
        for number in range(FINAL_ROUNDS):
            order = close if number % 2 == 0 else close[::-1]
            requests = [
                MeasureRequest(r.trial, Trace.from_json(r.trace), compared=True) for r in order
            ]
            answers = self.measurer.measure(requests)
            results += answers
            for record, result in zip(order, answers, strict=True):
                if result.ok and result.run_secs_estimate is not None:
                    key = canonical_bytes(record.trace)
                    before = secs.get(key, result.run_secs_estimate)
                    secs[key] = min(before, result.run_secs_estimate)
        self._spend_measuring(self.options.clock() - mark, results)
        self.raced = secs
        close.sort(key=lambda record: secs.get(canonical_bytes(record.trace), float("inf")))
        return close + [record for record in contenders if record not in close]

    def _contenders(self) -> list[TuningRecord]:
        """Successful records, fastest first: this run's and, unless fresh, all that is stored."""
        found = {canonical_bytes(t.record.trace): t.record for t in self.trials}
        if not self.options.fresh:
            for record in self._stored():
                found.setdefault(canonical_bytes(record.trace), record)
        timed = [
            (record.result.run_secs_estimate, record.trial, record.key, record)
            for record in found.values()
            if record.result.ok and record.result.run_secs_estimate is not None
        ]
        return [entry[-1] for entry in sorted(timed, key=lambda entry: entry[:3])]

    def _confirm(self, record: TuningRecord) -> TuningRecord:
        mark = self.options.clock()
        request = MeasureRequest(record.trial, Trace.from_json(record.trace))
        result = self.measurer.confirm(request)
        if result.ok and result.run_secs_estimate is None:
            result = replace(
                result,
                run_secs=record.result.run_secs,
                run_secs_estimate=record.result.run_secs_estimate,
            )
        full = replace(
            record,
            result=result,
            toolchain=self.measurer.toolchain,
            verified_level="full",
            created_at=self.options.timestamp(),
        )
        if result.status is not MeasureStatus.LOST:
            self.sink.add([full])
            self.confirmed[canonical_bytes(full.trace)] = full
        self._spend("verify", mark)
        return full

    # -- accounts

    def _spend(self, phase: str, since: float) -> None:
        self.phases[phase] += self.options.clock() - since

    def _spend_measuring(self, wall: float, results: list[MeasureResult]) -> None:
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

    def _report(self, best: TuningRecord | None, reason: str) -> TuneReport:
        counts = statuses(self.trials)
        secs = self.options.clock() - self.started
        by_status = {status.value: counts[status] for status in MeasureStatus}
        target = self.space.target
        return TuneReport(
            workload={
                "key": self.workload.key,
                "name": self.workload.name,
                "flops": self.workload.flops,
                "min_bytes": self.workload.min_bytes,
            },
            target={
                "key": target.key,
                "cpu": target.cpu,
                "threads": target.threads,
                "peak_gflops": self.limit.current.peak_gflops,
                "bandwidth_gbs": self.limit.current.bandwidth_gbs,
            },
            strategy=self.strategy.name,
            seed=self.seed,
            space_size=min(self.space.size, MOST_COUNTED),
            trials={
                "total": len(self.trials),
                "ok": counts[MeasureStatus.OK],
                "measured_now": sum(not t.stored for t in self.trials),
                "refused": self.refused,
                "by_status": by_status,
            },
            wall_secs=secs,
            wall_secs_by_phase=self.phases,
            stopped_because=reason,
            best=None if best is None else self._best_found(best),
            default=self._default(best),
            curve=self.curve,
            cost_model=prediction_quality(
                self.trials,
                self.strategy.predictions,
                self.strategy.prior_trust,
                self.strategy.gain_over_prior,
            ),
            bound=self.limit.to_json(),
        )

    def _default(self, best: TuningRecord | None) -> dict[str, float] | None:
        """The time of the schedule chosen with no measurement, the first trial of every strategy;
        None where it failed, also in the full check, or was not run.

        It is the best's time by the ratio of the two in the final race, or else in the search: the
        best's own was taken on its own, for longer, and would win or lose by that alone.
        """
        first = next((trial.record for trial in self.trials if trial.number == 1), None)
        secs = None if first is None else first.result.run_secs_estimate
        if first is None or secs is None:
            return None
        if best is not None and best.result.run_secs_estimate is not None:
            key = canonical_bytes(first.trace)
            if key in self.failed:
                return None
            secs = best.result.run_secs_estimate * self._times_as_long(key, best)
        return {"run_secs": secs, "gflops": self.workload.flops / secs / 1e9}

    def _times_as_long(self, trace: bytes, best: TuningRecord) -> float:
        """How many times as long as the best another candidate takes, at least once: it was chosen
        in a race that is over where a run measures nothing."""
        found = canonical_bytes(best.trace)
        if trace == found:
            return 1.0
        for secs in (self.raced, self._searched_secs()):
            if trace in secs and found in secs:
                return max(secs[trace] / secs[found], 1.0)
        return 1.0

    def _searched_secs(self) -> dict[bytes, float]:
        """The times of this run's trials as the search took them, those of earlier runs too."""
        return {
            trace: trial.record.result.run_secs_estimate
            for trace, trial in self.by_trace.items()
            if trial.record.result.run_secs_estimate is not None
        }

    def _best_found(self, record: TuningRecord) -> BestFound:
        secs = record.result.run_secs_estimate
        assert secs is not None
        here = self.by_trace.get(canonical_bytes(record.trace))
        return BestFound(
            record_key=record.key,
            run_secs=secs,
            gflops=self.workload.flops / secs / 1e9,
            fraction_of_bound=self.limit.current.secs / secs,
            bound=self.limit.current.binds,
            trial=record.trial if here is None else here.number,
            verified=record.verified_level == "full",
            trace=record.trace,
            packed_ahead=bool(self.workload.constants),
            run_secs_with_packing=record.result.run_secs_with_packing,
            rewritten=rewritten_document(
                self.workload, Trace.from_json(record.trace), record.result.error_found
            ),
        )
