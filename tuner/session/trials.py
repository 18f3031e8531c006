"""The trials of a run: their counts, the reason why the run ended, and the quality of
predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.costmodel.metrics import recall_at_k, spearman
from tilewright.schedules.record import MeasureStatus, TuningRecord
from tilewright.schedules.space import Candidate
from tilewright.schedules.trace import Trace

RECALL_K = 16


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate of this run, numbered from 1. If `reused`, its record is from an earlier run;
    `key` is the record's `trace_key`."""

    number: int
    candidate: Candidate
    trace: Trace
    record: TuningRecord
    reused: bool
    key: bytes


def statuses(trials: Sequence[Trial]) -> Counter[MeasureStatus]:
    """Return the number of trials that ended with each status."""
    return Counter(t.record.result.status for t in trials)


def explain(
    reason: str, trials: Sequence[Trial], rejected: Iterable[TuningRecord], *, found: bool
) -> str:
    """Return the reason why the run ended.

    If it found nothing, the most frequent failures are included, and the reasons why full checks
    failed the candidates that were `rejected`.
    """
    if found and not reason.startswith("stopped:"):
        return reason
    checks = [f"{r.result.status}: {r.result.detail or 'no detail'}" for r in rejected]
    if checks and not found:
        each = "; ".join(dict.fromkeys(checks))
        reason = f"{reason}; tuned, but every candidate failed the full check: {each}"
    failures = Counter(
        f"{t.record.result.status.value}: {t.record.result.detail or 'no detail'}"
        for t in trials
        if not t.record.result.ok
    )
    top = "; ".join(f"{count}x {text}" for text, count in failures.most_common(3))
    return f"{reason} ({top})" if top else reason


def prediction_quality(
    trials: Sequence[Trial],
    predictions: Mapping[Candidate, float],
    prior_trust: float | None = None,
    gain_over_prior: float | None = None,
) -> dict[str, float | None]:
    """Return how well predictions ranked the measured times; values are None if there are too few.

    `prior_trust` and `gain_over_prior` come from the strategy, see `SearchStrategy`.
    """
    pairs = [
        (predictions[t.candidate], t.record.result.run_secs_estimate)
        for t in trials
        if t.record.result.ok and t.candidate in predictions
    ]
    predicted, measured = [p for p, _ in pairs], [s for _, s in pairs if s is not None]
    return {
        "rank_correlation": spearman(predicted, measured),
        f"recall_at_{RECALL_K}": recall_at_k(predicted, measured, RECALL_K),
        "prior_trust": prior_trust,
        "gain_over_prior": gain_over_prior,
    }
