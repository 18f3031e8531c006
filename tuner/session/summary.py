"""The report of a tuning run, built from its trials and its bound."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tilewright.costmodel.metrics import spearman
from tilewright.costmodel.prior import Prior
from tilewright.schedules.record import MeasureStatus, TuningRecord
from tilewright.schedules.rewritten import rewritten_document

from .report import BestFound, Rejected, TuneReport
from .trials import prediction_quality, statuses
from .tuning_run import TuningRun

MAX_SPACE_SIZE = 2**63 - 1
"""Largest space size in a report: readers of JSON and databases have 64-bit integers."""


def report(run: TuningRun, best: TuningRecord | None, reason: str) -> TuneReport:
    """Return the report of `run`, which found `best` and ended for `reason`."""
    counts = statuses(run.trials)
    by_status = {status.value: counts[status] for status in MeasureStatus}
    target = run.space.target
    return TuneReport(
        workload={
            "key": run.workload.key,
            "name": run.workload.name,
            "flops": run.workload.flops,
            "min_bytes": run.workload.min_bytes,
        },
        target={
            "key": target.key,
            "cpu": target.cpu,
            "threads": target.threads,
            "peak_gflops": run.bound.current.peak_gflops,
            "bandwidth_gbs": run.bound.current.bandwidth_gbs,
        },
        strategy=run.strategy.name,
        seed=run.seed,
        space_size=min(run.space.size, MAX_SPACE_SIZE),
        trials={
            "total": len(run.trials),
            "ok": counts[MeasureStatus.OK],
            "measured_now": sum(not t.reused for t in run.trials),
            "refused": run.illegal,
            "by_status": by_status,
        },
        wall_secs=sum(run.phases.values()),
        wall_secs_by_phase=run.phases,
        stopped_because=reason,
        best=None if best is None else _best_found(run, best),
        default=_default(run, best),
        curve=run.curve,
        cost_model={
            **prediction_quality(
                run.trials,
                run.strategy.predictions,
                run.strategy.prior_trust,
                run.strategy.gain_over_prior,
            ),
            **_contributions(run),
        },
        final_race=_final_race(run),
        bound=run.bound.to_json(),
        dropped_sketches=[asdict(sketch) for sketch in run.space.dropped],
        rejected=_rejected(run),
        database_model=run.model.to_json(),
        related=run.lent.to_json(run.space, run.trials),
    )


def _contributions(run: TuningRun) -> dict[str, float | None]:
    """Return the rank correlations of the measured times with the prior, and with the prior
    corrected by the model of the database: `rank_correlation` without the samples of the run."""
    found = {"prior_rank_correlation": _rank_correlation(run, Prior(run.space))}
    if run.model.correction is not None:
        corrected = Prior(run.space, correction=run.model.correction)
        found["corrected_rank_correlation"] = _rank_correlation(run, corrected)
    return found


def _rank_correlation(run: TuningRun, prior: Prior) -> float | None:
    timed = [trial for trial in run.trials if trial.record.result.ok]
    predicted = prior.log2_secs_of(trial.candidate for trial in timed)
    measured = [trial.record.result.run_secs_estimate for trial in timed]
    return spearman(
        [predicted[trial.candidate] for trial in timed], [s for s in measured if s is not None]
    )


def _rejected(run: TuningRun) -> list[Rejected]:
    """Return the candidates that failed the full check, in the order of their trials."""
    found = []
    for key, record in run.rejected.items():
        trial = run.by_trace.get(key)
        lost = record.result.status is MeasureStatus.LOST
        found.append(
            Rejected(
                trial=record.trial if trial is None else trial.number,
                status=str(record.result.status),
                detail=record.result.detail,
                record_key=trial.record.key if lost and trial is not None else record.key,
            )
        )
    return found


def _final_race(run: TuningRun) -> list[dict[str, Any]]:
    """Return the candidates of the final race, fastest first."""
    fastest_first = sorted(run.race_times.items(), key=lambda entry: entry[1])
    trials = {trace: trial.number for trace, trial in run.by_trace.items()}
    return [{"trial": trials.get(trace), "run_secs": secs} for trace, secs in fastest_first]


def _default(run: TuningRun, best: TuningRecord | None) -> dict[str, float] | None:
    """Return the time of the default schedule, which is the first trial of every strategy.

    Return None if it failed, also in the full check, or was not run. The time is the best's time
    multiplied by the ratio of the two in the final race, or else in the search: the best's own time
    comes from a separate, longer measurement, which alone would favour one of them.
    """
    first = next((trial.record for trial in run.trials if trial.number == 1), None)
    secs = None if first is None else first.result.run_secs_estimate
    if first is None or secs is None:
        return None
    if best is not None and best.result.run_secs_estimate is not None:
        key = first.trace_key
        if key in run.rejected:
            return None
        secs = best.result.run_secs_estimate * _times_as_long(run, key, best)
    return {"run_secs": secs, "gflops": run.workload.flops / secs / 1e9}


def _times_as_long(run: TuningRun, trace: bytes, best: TuningRecord) -> float:
    """Return the ratio of another candidate's time to the best's time, at least 1.

    The minimum is needed because the best was chosen in a race that is over if a run measures
    nothing.
    """
    found = best.trace_key
    if trace == found:
        return 1.0
    for secs in (run.race_times, _searched_secs(run)):
        if trace in secs and found in secs:
            return max(secs[trace] / secs[found], 1.0)
    return 1.0


def _searched_secs(run: TuningRun) -> dict[bytes, float]:
    """Return the times of this run's trials as measured by the search, including trials of earlier
    runs."""
    return {
        trace: trial.record.result.run_secs_estimate
        for trace, trial in run.by_trace.items()
        if trial.record.result.run_secs_estimate is not None
    }


def _best_found(run: TuningRun, record: TuningRecord) -> BestFound:
    secs = record.result.run_secs_estimate
    assert secs is not None
    here = run.by_trace.get(record.trace_key)
    return BestFound(
        record_key=record.key,
        run_secs=secs,
        gflops=run.workload.flops / secs / 1e9,
        fraction_of_bound=run.bound.share(secs),
        bound=run.bound.current.binds,
        trial=record.trial if here is None else here.number,
        verified=record.verified_level == "full",
        trace=record.trace,
        packed_ahead=bool(run.workload.constants),
        run_secs_with_packing=record.result.run_secs_with_packing,
        rewritten=rewritten_document(run.workload, run.trace_of(record), record.result.error_found),
        evidence=record.result.to_json().get("evidence"),
    )
