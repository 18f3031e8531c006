"""The timing race: the rule that ends the timing of a candidate, and the estimate of its time.

A race has a few steps (rungs) of a few samples each, as in successive halving. A candidate that
cannot win leaves the race after a rung. A reference burst of arithmetic in registers runs between
samples. The minimum over samples removes additive noise (preemption). If every sample may have been
preempted, the candidate stays in the race. Division by the fastest burst of the race removes
multiplicative noise (clock drift). Times are comparable within a session, because the session fixes
the time of the burst. Sources: Chen and Revels, arXiv 1608.04295 (minimum); paired references as in
duet benchmarking, Bulej et al., ICPE 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

SAMPLE_SECS = 0.4e-3  # long compared with the clock's resolution, and short compared with drift
MEDIUM_CALL_SECS = 2e-3
SLOW_CALL_SECS = 20e-3
RUN_IN_SECS = 5e-3
"""The running time after which caches, TLB and branch predictor are warm. Before that, a kernel is
up to 1.8x slower, and only a candidate that takes more than twice the incumbent's time leaves the
race."""
_CLOCK_DRIFT = 1.1  # if the ratio of bursts is larger, that is a disturbance and no clock drift
# sampling ends if the ratio of the third best sample and the best is at most this
_AGREEMENT = 1.01


@dataclass(frozen=True, slots=True)
class RaceRung:
    """A rung of a race. After `samples` samples, a candidate leaves the race if its time exceeds
    `keep_below` times the incumbent's."""

    samples: int
    keep_below: float


FAST_RUNGS = (RaceRung(2, 2.0), RaceRung(2, 1.25), RaceRung(4, 1.08), RaceRung(8, 1.04))
"""Rungs of kernels whose calls are short. A run ends with a race of the candidates within a tenth
of the best, so a single time of a trial need not be more precise than the last rung."""
MEDIUM_RUNGS = (RaceRung(1, 2.0), RaceRung(1, 1.25), RaceRung(2, 1.08), RaceRung(2, 1.04))
"""Rungs of kernels that take longer than `MEDIUM_CALL_SECS` per call. A sample of one call is five
times as long as a sample of a fast kernel, so that fewer of them give the same precision."""
SLOW_RUNGS = (RaceRung(1, 1.25), RaceRung(1, 1.08))


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The next measurement: `rounds` samples, of `calls` calls each, between reference bursts."""

    calls: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TimingRace:
    """The timing of one candidate. `plan` returns the next measurement, and `add` adds its
    result."""

    warm_secs: float
    """The time of one call with warm caches."""
    session_burst_secs: float
    """The time of the reference burst to which all times of the session are scaled."""
    incumbent_secs: float | None = None
    """The estimated time of the session's fastest candidate, or None."""
    final_secs: float = 0.03
    """The greatest time of sampling after the last rung."""
    samples: tuple[float, ...] = ()
    bursts: tuple[float, ...] = ()
    preemptions: int = 0
    """The number of times that another process took a core from the candidate during `samples`."""
    rung: int = 0
    spent_secs: float = 0.0

    @property
    def _rungs(self) -> tuple[RaceRung, ...]:
        # The first call may have been disturbed, so the fastest one counts.
        call_secs = min((self.warm_secs, *self.samples))
        if self.warm_secs > SLOW_CALL_SECS:
            return SLOW_RUNGS
        return MEDIUM_RUNGS if call_secs > MEDIUM_CALL_SECS else FAST_RUNGS

    @property
    def calls(self) -> int:
        """The number of calls per sample. It follows from the fastest call so far, because the
        warm-up may have been disturbed."""
        call_secs = min((self.warm_secs, *self.samples))
        return max(1, ceil(SAMPLE_SECS / max(call_secs, 1e-9)))

    @property
    def _sample_secs(self) -> float:
        return self.spent_secs / len(self.samples)

    def plan(self) -> TimingPlan | None:
        """Return the next measurement, or None if the race has ended."""
        if not self.samples:
            # The warm-up does not end the race, because threads may have been asleep before it.
            return TimingPlan(self.calls, self._rungs[0].samples)
        if self.is_beaten:
            return None
        if self.rung < len(self._rungs):
            # On a busy machine the samples of a fast kernel may take arbitrarily long.
            given_up = self._rungs is not SLOW_RUNGS and self.spent_secs > 4 * self.final_secs
            run_in = ceil((RUN_IN_SECS - self.spent_secs) / self._sample_secs)
            rounds = max(self._rungs[self.rung].samples, run_in)
            return None if given_up else TimingPlan(self.calls, rounds)
        left_secs = self.final_secs - self.spent_secs
        if self._agrees() or left_secs <= 0:
            return None
        return TimingPlan(self.calls, max(1, min(int(left_secs / self._sample_secs), 8)))

    def add(
        self, samples: tuple[float, ...], bursts: tuple[float, ...], preemptions: int = 0
    ) -> TimingRace:
        """Return the race with the result of a plan: the seconds per call of each sample, the
        seconds of each burst, and the number of preemptions."""
        return replace(
            self,
            samples=self.samples + samples,
            bursts=self.bursts + bursts,
            preemptions=self.preemptions + preemptions,
            rung=self.rung + 1,
            spent_secs=self.spent_secs + sum(samples) * self.calls + sum(bursts),
        )

    @property
    def estimate_secs(self) -> float:
        """The estimated seconds per call: the fastest sample, scaled by session burst / fastest
        burst."""
        ratio = self.session_burst_secs / min(self.bursts)
        return min(self.samples) * min(max(ratio, 1 / _CLOCK_DRIFT), _CLOCK_DRIFT)

    @property
    def is_beaten(self) -> bool:
        """Return whether the candidate lost the last rung that it ran."""
        if self.incumbent_secs is None or self._all_disturbed():
            return False
        ran = min(self.rung, len(self._rungs)) - 1
        worst = self._rungs[ran].keep_below if ran >= 0 else inf
        return self.estimate_secs > worst * self.incumbent_secs

    def _all_disturbed(self) -> bool:
        """Return whether every sample may have been interrupted. An interruption takes a few
        milliseconds, so slow calls are compared all the same."""
        return self._rungs is not SLOW_RUNGS and self.preemptions >= len(self.samples)

    def _agrees(self) -> bool:
        """Return whether there are enough samples and the best three agree."""
        if len(self.samples) < 16:
            return False
        best = sorted(self.samples)
        return best[2] <= best[0] * _AGREEMENT
