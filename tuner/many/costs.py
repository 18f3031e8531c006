"""What the tasks of a run cost, learned from the tasks before them.

A task has a first choice (its space, its reference, its first trial) and an end (the final race and
the full check). Until a task of this run has shown what they take, constants are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, pstdev

FIRST_SECS, BLOCK_SECS, END_SECS = 1.0, 1.5, 1.5
"""Seconds of a first choice, of a first block of trials, and of a full check, on two cores of a
machine of 2024 for a convolution of 200 MFLOP. Only the first decisions of a run depend on them."""

MARGIN = 1.15
"""Expected costs are multiplied by this factor, because the next task may be larger."""

CHECK_MARGIN = 1.5
"""The same of full checks: on a machine that other processes use, their ratio to the prediction
varies by a factor of two. A reserve that an end did not need is used by the turns that follow."""


@dataclass(slots=True)
class Ratio:
    """A measured time over its prediction, summed over the tasks so far. Without a prediction, the
    mean of the measured times is expected."""

    margin: float = MARGIN
    measured: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)

    def add(self, measured_secs: float, predicted_secs: float) -> None:
        self.measured.append(measured_secs)
        self.predicted.append(predicted_secs)

    def expected(self, predicted_secs: float, unknown_secs: float = 0.0) -> float:
        """Return the expected seconds where `predicted_secs` are predicted, 0.0 for no prediction.

        `unknown_secs` is the result without any prediction and without any measured time.
        """
        if predicted_secs <= 0.0:
            return self.margin * (fmean(self.measured) if self.measured else unknown_secs)
        return self.margin * self._factor * predicted_secs

    def shortfall(self, predicted_secs: float) -> float:
        """Return the seconds by which a time that is two standard deviations longer than the mean
        exceeds `expected`, at least 0.0."""
        pairs = zip(self.measured, self.predicted, strict=True)
        ratios = [measured / secs for measured, secs in pairs if secs > 0.0]
        if len(ratios) < 2:
            return 0.0
        latest = fmean(ratios) + 2.0 * pstdev(ratios)
        return max(latest - self.margin * self._factor, 0.0) * predicted_secs

    @property
    def _factor(self) -> float:
        """The ratio of the longer half of the times. A check that runs beside a turn of another
        task waits little, but the last checks of a run have nothing to run beside."""
        pairs = [(m, p) for m, p in zip(self.measured, self.predicted, strict=True) if p > 0.0]
        longer = sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2 :]
        known = sum(secs for _, secs in longer)
        return sum(secs for secs, _ in longer) / known if known > 0.0 else 1.0


@dataclass(slots=True)
class TaskCosts:
    """The costs of the tasks so far, in seconds: `firsts` from the beginning of a task to its first
    trial, `blocks` of first blocks with all that precedes them, `checks` and `races` of ends."""

    firsts: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)
    checks: Ratio = field(default_factory=lambda: Ratio(CHECK_MARGIN))
    races: Ratio = field(default_factory=Ratio)

    @property
    def first_secs(self) -> float:
        """The expected seconds of a first choice."""
        return MARGIN * (fmean(self.firsts) if self.firsts else FIRST_SECS)

    @property
    def block_secs(self) -> float:
        """The expected seconds of a first block."""
        return MARGIN * (fmean(self.blocks) if self.blocks else BLOCK_SECS)

    def end_secs(self, predicted_secs: list[float]) -> float:
        """Return the expected seconds of the end of a task without a trial, which is as long as
        those of the other tasks: the ended ones, and the open ones with these predictions."""
        if not self.checks.measured and predicted_secs:
            return fmean(self.checks.expected(secs) for secs in predicted_secs)
        return self.checks.expected(0.0, END_SECS)
