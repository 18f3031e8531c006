"""The confirmation of a run's best candidate.

Candidates close to the fastest are raced again, and the winner must pass the full check, rebuilt in
a fresh process.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.trace import Trace

from ..measure.protocol import ConfirmsBeside, MeasureRequest
from ..process.control import OutOfTime
from .tuning_run import TuningRun

MAX_FULL_CHECKS = 8
"""Number of candidates that may fail the full check before a run gives up, not counting the
default."""

FINALISTS = 4
FINALIST_RATIO = 1.1
FINAL_ROUNDS = 2
"""At the end, the fastest FINALISTS candidates within FINALIST_RATIO of the best, and the default,
are timed FINAL_ROUNDS times."""

MOST_FINAL_ROUNDS = 4
"""On a noisy machine they are timed up to so many times, until the two least times of each are
within the ratio AGREEMENT and not much above its time in the search."""

AGREEMENT = 1.03
"""Largest ratio of two times of one candidate that agree."""


class Confirmation:
    """The confirmation of a run's best candidate.

    After new measurements the finalists are raced if `race`. A run without new measurements uses
    the candidate that an earlier run confirmed. If `begin` returns True, the caller may do other
    work before `finish`.
    """

    def __init__(self, run: TuningRun, *, race: bool = True) -> None:
        self._run = run
        stored = run.earlier_records()
        self._checked = run.full_checks(stored)
        self._contenders = _contenders(run, stored)
        if all(trial.reused for trial in run.trials):
            checked = self._checked
            self._contenders.sort(key=lambda r: _confirmed_secs(checked.get(r.trace_key)))
        elif race and not run.options.should_stop():
            start = run.control.used_secs
            self._contenders = _final_race(run, self._contenders)
            run.raced_secs = run.control.used_secs - start

    def begin(self) -> bool:
        """Begin the full check of the fastest candidate. Return whether it runs now; `finish` waits
        for its result."""
        first = next(iter(self._contenders), None)
        measurer = self._run.measurer
        if first is None or first.trace_key in self._checked:
            return False
        if not isinstance(measurer, ConfirmsBeside):
            return False
        return measurer.begin_confirm(MeasureRequest(first.trial, self.fastest_trace))

    @property
    def fastest_trace(self) -> Trace:
        """The trace of the fastest candidate, which exists after `begin` returned True."""
        return self._run.trace_of(self._contenders[0])

    def finish(self) -> TuningRecord | None:
        """Store, promote and return the fastest candidate that passes the full check, or return
        None."""
        run, checked = self._run, self._checked
        default = run.trials[0].record.trace_key if run.trials else None
        confirmed = 0
        best: TuningRecord | None = None
        for record in self._contenders:
            known = checked.get(record.trace_key)
            if known is None:
                if confirmed >= MAX_FULL_CHECKS and record.trace_key != default:
                    continue
                confirmed += 1
                known = checked[record.trace_key] = confirm(run, record)
            if known.result.ok:
                best = known
                break
        run.rejected = _failed(checked)
        if best is not None:
            run.sink.promote(best)
        return best


def confirmed_before(run: TuningRun) -> TuningRecord | None:
    """Promote and return the fastest candidate that has already passed a full check, or return
    None. Nothing is measured."""
    checked = run.full_checks(run.earlier_records())
    passed = [record for record in checked.values() if record.result.ok]
    run.rejected = _failed(checked)
    best = min(passed, key=_confirmed_secs, default=None)
    if best is not None:
        run.sink.promote(best)
    return best


def confirm(run: TuningRun, record: TuningRecord) -> TuningRecord:
    """Return `record` with the result of its full check, stored unless the measurement was lost."""
    request = MeasureRequest(record.trial, run.trace_of(record))
    result = run.measurer.confirm(request)
    if result.ok and result.run_secs_estimate is None:
        result = replace(
            result,
            run_secs=record.result.run_secs,
            run_secs_estimate=record.result.run_secs_estimate,
        )
    full = replace(
        record,
        result=result,
        toolchain=run.measurer.toolchain,
        verified_level="full",
        created_at=run.options.timestamp(),
    )
    if result.status is not MeasureStatus.LOST:
        run.sink.add([full])
        run.confirmed[full.trace_key] = full
    run.charge_phase("verify")
    return full


def _final_race(run: TuningRun, contenders: list[TuningRecord]) -> list[TuningRecord]:
    """Return `contenders` in a new order, after timing the finalists and the default again in
    turns.

    Among nearly equal candidates, a single time from the search is as much luck as speed, and the
    machine may have been slower at that time.
    """
    default = run.trials[0].record
    best = contenders[0].result.run_secs_estimate if contenders else None
    if best is None:
        return contenders
    finalists = [
        record
        for record in contenders[:FINALISTS]
        if (record.result.run_secs_estimate or best) <= FINALIST_RATIO * best
    ]
    close = [*finalists, *[default] * (default.result.ok and default not in finalists)]
    if len(close) < 2:
        return contenders
    run.control.reserve_end(run.check_secs)
    secs: dict[bytes, list[float]] = {}
    results: list[MeasureResult] = []
    for number in range(MOST_FINAL_ROUNDS):
        agree = (_agrees(r, secs.get(r.trace_key, [])) for r in finalists)
        if number >= FINAL_ROUNDS and (run.options.should_stop() or all(agree)):
            break
        order = close if number % 2 == 0 else close[::-1]
        requests = [MeasureRequest(r.trial, run.trace_of(r), compared=True) for r in order]
        try:
            answers = run.measurer.measure(requests)
        except OutOfTime:
            if run.control.killed_in_secs <= 0.0:
                raise
            break  # the remaining time is for the full check; only whole rounds count
        results += answers
        for record, result in zip(order, answers, strict=True):
            if result.ok and result.run_secs_estimate is not None:
                secs.setdefault(record.trace_key, []).append(result.run_secs_estimate)
    run.apportion_batch(results)
    run.race_times = {key: min(times) for key, times in secs.items()}
    close.sort(key=lambda record: run.race_times.get(record.trace_key, inf))
    return close + [record for record in contenders if record not in close]


def _agrees(record: TuningRecord, raced_secs: list[float]) -> bool:
    """Return whether the times of a candidate in the final race agree with each other, and do not
    contradict its time in the search."""
    least = sorted(raced_secs)[:2]
    searched = record.result.run_secs_estimate
    if not least or searched is None:
        return True
    return least[-1] <= AGREEMENT * least[0] and least[0] <= FINALIST_RATIO * searched


def _contenders(run: TuningRun, stored: list[TuningRecord]) -> list[TuningRecord]:
    """Return the successful records of this run and the `stored` ones, fastest first."""
    found = {t.key: t.record for t in run.trials}
    for record in stored:
        found.setdefault(record.trace_key, record)
    timed = [
        (record.result.run_secs_estimate, record.trial, record.key, record)
        for record in found.values()
        if record.result.ok and record.result.run_secs_estimate is not None
    ]
    return [entry[-1] for entry in sorted(timed, key=lambda entry: entry[:3])]


def _failed(checked: dict[bytes, TuningRecord]) -> dict[bytes, TuningRecord]:
    """Return the records that failed the full check, in the order of their trials."""
    failed = [(key, record) for key, record in checked.items() if not record.result.ok]
    return dict(sorted(failed, key=lambda entry: entry[1].trial))


def _confirmed_secs(record: TuningRecord | None) -> float:
    """Return the time of a fully checked record, or infinity if there is none or it failed the
    check."""
    secs = None if record is None or not record.result.ok else record.result.run_secs_estimate
    return inf if secs is None else secs
