"""The expected gain of the next batch of trials of a task.

The gain is in weighted seconds per call, per second of tuning, as in the gradient scheduler of
Ansor (Zheng et al., OSDI 2020), with the roofline bound and the search's own prediction in place of
a comparison with other tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

RECENT = 3
"""Number of the latest batches that show how fast a task gains."""

REACHABLE = 0.95
"""A kernel is expected to reach this fraction of its bound."""

UNKNOWN_GAIN = 0.1
"""Relative gain that is expected without a bound and without a prediction."""

NOTABLE = 0.005
"""A batch that gains this fraction counts as an improvement."""

MIN_BATCH_SECS = 1e-3
"""Least cost of a batch, because a clock may have advanced by nothing."""


@dataclass(slots=True)
class BatchHistory:
    """The batches of a task: their cost in seconds, and the best time per call after each, or None
    before the first success."""

    costs: list[float] = field(default_factory=list)
    best_secs: list[float | None] = field(default_factory=list)

    def add(self, cost_secs: float, best_secs: float | None) -> None:
        self.costs.append(cost_secs)
        self.best_secs.append(best_secs)

    @property
    def batch_secs(self) -> float:
        """The mean cost of the latest batches."""
        latest = self.costs[-RECENT:]
        return max(sum(latest) / max(len(latest), 1), MIN_BATCH_SECS)

    @property
    def gain_per_batch(self) -> float:
        """Seconds per call that the latest batches gained, per batch."""
        times = [secs for secs in self.best_secs if secs is not None][-RECENT - 1 :]
        return (times[0] - times[-1]) / (len(times) - 1) if len(times) > 1 else 0.0

    @property
    def probability(self) -> float:
        """The probability that the next batch is an improvement: the rule of succession over the
        latest batches, and over all batches since the last improvement."""
        times = [secs for secs in self.best_secs if secs is not None]
        improved = [after < (1.0 - NOTABLE) * before for before, after in pairwise(times)]
        since = next((n for n, one in enumerate(reversed(improved)) if one), len(improved))
        latest = improved[-max(since, RECENT) :]
        return (sum(latest) + 1) / (len(latest) + 2)


def left_to_gain(best_secs: float, bound_secs: float | None, promised_secs: float | None) -> float:
    """Return the seconds per call that an optimist expects to gain, at least 0.0.

    `bound_secs` is a reliable bound or None, `promised_secs` the search's optimistic prediction or
    None.
    """
    ends = [] if bound_secs is None else [bound_secs / REACHABLE]
    if promised_secs is not None:
        ends.append(promised_secs)
    end = max(ends, default=(1.0 - UNKNOWN_GAIN) * best_secs)
    return max(best_secs - end, 0.0)


def expected_gain(history: BatchHistory, weight: float, left_secs: float) -> float:
    """Return the expected gain of the next batch, in weighted seconds per second of tuning.

    `left_secs` is the result of `left_to_gain`. The gain is infinite before the first success: no
    one knows the time of that task.
    """
    if not history.best_secs or history.best_secs[-1] is None:
        return inf
    gain_secs = max(history.gain_per_batch, history.probability * left_secs)
    return weight * gain_secs / history.batch_secs
