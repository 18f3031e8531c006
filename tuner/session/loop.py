"""The loop of a tuning run: get candidates from the strategy, measure them, store the results, and
pass them to the strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

import numpy as np

from tilewright.costmodel.prior import Prior
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.named_setting import named_setting
from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.space import Candidate
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.trace_document import trace_key

from ..machine.probe_merging import is_misleading
from ..measure.protocol import MeasureRequest
from ..process.control import Activity, MeasurementAborted, OutOfTime
from ..search.base import SearchGoal
from .report import MAX_KNOBS_REPORTED, TrialEvent
from .stopping_rule import MAX_BATCH, StoppingRule
from .trials import Trial
from .tuning_run import TuningRun

MAX_TRACES_COMPARED = 8
"""Number of trials of an earlier process whose traces are compared with the traces of this space.

Records are correct in any space, but the search learns from the positions of their settings in this
space.
"""


class Stopped(BaseException):
    """Ends a batch, or the selection of one, for the reason given. A BaseException, so that no
    measurer and no strategy handles it as a failure."""


@dataclass(frozen=True, slots=True)
class _NewTrial:
    """A candidate that is new to this run. `document` is its trace as records store it, `key` the
    `trace_key` of such records, `earlier` the record of an earlier run or None."""

    candidate: Candidate
    trace: Trace
    document: list[Any]
    key: bytes
    earlier: TuningRecord | None


@dataclass
class TuningLoop:
    """Proposes and measures the batches of `run`.

    `goal` is the input of the strategy, `searched` the target whose probes it uses. `known` has the
    records of earlier runs, and `candidates_of` the candidates proposed so far, both by trace key.
    """

    run: TuningRun
    goal: SearchGoal
    searched: Target
    earlier_records: dict[bytes, TuningRecord]
    candidates_of: dict[bytes, list[Candidate]] = field(default_factory=dict)
    predictions: Mapping[Candidate, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prior = Prior(self.run.space)
        self.ending = StoppingRule(self.run, self.goal, self.candidates_of)

    def resume(self) -> None:
        """Enter the trials that an earlier process of this run reported, and continue the strategy
        after them.

        If they belong to another space, the run starts over, with stored results.
        """
        run = self.run
        stored = (
            {record.key: record for record in run.stored_records()}
            if run.options.previous_trials
            else {}
        )
        found = list(
            takewhile(lambda begun: begun.record_key in stored, run.options.previous_trials)
        )
        pairs = [(begun.candidate, stored[begun.record_key]) for begun in found]
        if not pairs or not all(self._is_of_space(*pair) for pair in _sampled(pairs)):
            return
        run.strategy.resume([(candidate, record.result) for candidate, record in pairs])
        for number, (candidate, record) in enumerate(pairs, start=1):
            key, trace = record.trace_key, Trace.from_json(record.trace)
            self.candidates_of.setdefault(key, []).append(candidate)
            self._enter(number, _NewTrial(candidate, trace, record.trace, key, record), record)

    def step(self, most: int = MAX_BATCH) -> str | None:
        """Run one batch of at most `most` trials. Return the reason to stop after it, or None."""
        run = self.run
        count = min(MAX_BATCH, most, run.budget.trials - len(run.trials))
        if count <= 0:
            return f"all {run.budget.trials} trials of the budget are done"
        run.control.doing(Activity("proposing", "choosing candidates"))
        try:
            batch = run.strategy.ask(count)
            self.predictions = run.strategy.predictions
            made = [(candidate, self._trace(candidate)) for candidate in batch]
        except Stopped as stopped:
            return str(stopped)
        finally:
            run.charge_phase("propose")
        if not batch:
            return "every candidate of the space has been tried"
        told: list[tuple[Candidate, MeasureResult]] = []
        new: list[_NewTrial] = []
        waiting: dict[bytes, list[Candidate]] = {}
        for candidate, trace in made:
            if trace is None:
                told.append((candidate, MeasureResult(MeasureStatus.NOT_LEGAL)))
                continue
            document = trace.to_json()
            key = trace_key(document)
            self.candidates_of.setdefault(key, []).append(candidate)
            if key in run.by_trace:
                # Two settings with one trace are the same candidate, which is already measured.
                told.append((candidate, run.result_of(run.by_trace[key])))
            elif key in waiting:
                waiting[key].append(candidate)
            else:
                waiting[key] = [candidate]
                new.append(
                    _NewTrial(candidate, trace, document, key, self.earlier_records.get(key))
                )
        try:
            self._enter_all(new)
        except Stopped as stopped:
            return str(stopped)
        except OutOfTime as over:
            if run.control.killed_in_secs <= 0.0:
                raise
            return str(over)
        for key, candidates in waiting.items():
            told += [(candidate, run.by_trace[key].record.result) for candidate in candidates]
        run.strategy.tell(told)
        run.charge_phase("propose")
        if run.best_secs is not None:
            self.ending.check_bound(run.best_secs)
            self.goal.bound_secs = self.ending.bound_to_end_at
        reason = self.ending.reason()
        if reason is None and is_misleading(self.searched.probes, run.bound.target.probes):
            self.searched = run.bound.target
            run.strategy.correct(self.searched)
        run.charge_phase("propose")
        return reason

    def _is_of_space(self, candidate: Candidate, record: TuningRecord) -> bool:
        """Return whether `candidate` has the record's trace in this space."""
        try:
            trace = self.run.space.trace(candidate)
        except (ScheduleError, IndexError, ValueError):
            return False
        return trace_key(trace.to_json()) == record.trace_key

    def _enter_all(self, new: list[_NewTrial]) -> None:
        """Measure candidates without a record; store each result before it is reported.

        Trials are numbered and reported in the order in which they were proposed, so that a resumed
        run has the same numbers as an uninterrupted one. Raise Stopped to end the run.
        """
        run = self.run
        first = len(run.trials) + 1
        numbered = dict(enumerate(new, start=first))
        prior_secs = self._prior_secs([n.candidate for n in new])
        records = {number: n.earlier for number, n in numbered.items() if n.earlier is not None}
        requests = [MeasureRequest(i, n.trace) for i, n in numbered.items() if n.earlier is None]
        unreported = list(numbered)

        def report(number: int) -> None:
            unreported.remove(number)
            self._enter(number, numbered[number], records[number])

        def report_ready() -> None:
            while unreported and unreported[0] in records:
                report(unreported[0])

        results: list[MeasureResult] = []

        def on_result(position: int, result: MeasureResult) -> None:
            run.charge_batch()
            reserve_secs = run.control.reserve_secs
            number = requests[position].trial
            record = self._record(number, numbered[number], result, prior_secs)
            run.sink.add([record])
            records[number] = record
            results.append(result)
            report_ready()
            run.charge_phase("store")
            reason = run.out_of_time(reserve_secs) if len(results) < len(requests) else None
            if reason is not None:
                raise Stopped(reason)

        report_ready()
        if not requests:
            return
        try:
            run.measurer.measure(requests, on_result)
        except (Stopped, MeasurementAborted):
            for number in [number for number in unreported if number in records]:
                report(number)
            raise
        finally:
            run.apportion_batch(results)

    def _enter(self, number: int, new: _NewTrial, record: TuningRecord) -> None:
        """Count a trial whose record is stored, and report it."""
        run = self.run
        is_stored = new.earlier is not None
        trial = Trial(number, new.candidate, new.trace, record, is_stored, new.key)
        run.trials.append(trial)
        run.by_trace[new.key] = trial
        secs = record.result.run_secs_estimate if record.result.ok else None
        elapsed = run.control.wall_secs
        is_best = secs is not None and (run.best_secs is None or secs < run.best_secs)
        if is_best and secs is not None:
            run.best_secs = secs
            run.predict_end(record.result)
            run.curve.append({"trial": trial.number, "wall_secs": elapsed, "best_run_secs": secs})
        run.on_event(self._event(trial, is_best, elapsed))

    def _event(self, trial: Trial, is_best: bool, elapsed: float) -> TrialEvent:
        run = self.run
        best = run.best_secs
        return TrialEvent(
            trial=trial.number,
            of_trials=run.budget.trials,
            result=trial.record.result,
            is_best=is_best,
            best_run_secs=best,
            fraction_of_bound=run.bound.fraction(best) if best else None,
            wall_secs=elapsed,
            eta_secs=self._eta_secs(trial.number),
            record_key=trial.record.key,
            reused=trial.reused,
            predicted_secs=self._predicted_secs(trial.candidate),
            sketch=run.space.sketches[trial.candidate.sketch].name,
            knobs=self._knobs(trial.candidate),
            candidate=trial.candidate,
        )

    def _eta_secs(self, number: int) -> float | None:
        """Return the expected time of the trials after `number`, the final race and the full check,
        at most the time left. Return None before the first measurement."""
        run = self.run
        measured = sum(not t.reused for t in run.trials)
        if not measured:
            return None
        since = run.control.used_secs - run.phases["start"]
        trials_secs = since / measured * (run.budget.trials - number)
        end_secs = trials_secs + run.race_secs + run.check_secs
        return max(min(end_secs, run.control.left_secs), 0.0)

    def _predicted_secs(self, candidate: Candidate) -> float | None:
        predicted = self.predictions.get(candidate)
        return None if predicted is None else float(2.0**predicted)

    def _knobs(self, candidate: Candidate) -> dict[str, Any]:
        """Return the candidate's values, by name, of the knobs that have more than one value."""
        knobs = self.run.space.sketches[candidate.sketch].knobs
        values = {
            knob.name: knob.values[index]
            for knob, index in zip(knobs, candidate.setting, strict=True)
            if len(knob.values) > 1
        }
        return dict(islice(values.items(), MAX_KNOBS_REPORTED))

    def _prior_secs(self, candidates: Sequence[Candidate]) -> dict[Candidate, float]:
        """Return the seconds that the analytic prior predicts, by candidate."""
        predicted = self.prior.log2_secs_of(candidates)
        secs = 2.0 ** np.array(list(predicted.values()))
        return dict(zip(predicted, secs.tolist(), strict=True))

    def _record(
        self,
        number: int,
        new: _NewTrial,
        result: MeasureResult,
        prior_secs: Mapping[Candidate, float],
    ) -> TuningRecord:
        run = self.run
        return TuningRecord(
            workload_key=run.workload.key,
            target_key=run.space.target.key,
            threads=run.space.target.threads,
            trace=new.document,
            result=result,
            toolchain=run.measurer.toolchain,
            seed=run.seed,
            trial=number,
            created_at=run.options.timestamp(),
            setting=named_setting(run.space, new.candidate).to_json(),
            prior_secs=prior_secs[new.candidate],
        )

    def _trace(self, candidate: Candidate) -> Trace | None:
        """Return the candidate's trace, or None if a primitive refuses it."""
        self.run.control.check()
        try:
            return self.run.space.trace(candidate)
        except ScheduleError:
            self.run.illegal += 1
            return None


def _sampled(pairs: list[tuple[Candidate, TuningRecord]]) -> list[tuple[Candidate, TuningRecord]]:
    """Return at most MAX_TRACES_COMPARED of `pairs`, including the first and the last."""
    step = max((len(pairs) - 1) // (MAX_TRACES_COMPARED - 1), 1)
    return [*pairs[:-1:step], pairs[-1]]
