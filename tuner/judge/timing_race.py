"""The timing race: the rule that ends the timing of a candidate, and the estimate of its time.

A race has a few steps (rungs) of a few samples each, as in successive halving; a candidate that
cannot win leaves the race after a rung. A reference burst of arithmetic in registers runs between
samples. The minimum over samples removes additive noise (preemption); division by the fastest burst
of the race removes multiplicative noise (clock drift). Times are comparable within a session,
because the session fixes the time of the burst. Sources: Chen and Revels, arXiv 1608.04295
(minimum); paired references as in duet benchmarking, Bulej et al., ICPE 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

SAMPLE_SECS = 0.4e-3  # long compared with the clock's resolution, short compared with drift
SLOW_CALL_SECS = 20e-3
RUN_IN_SECS = 5e-3
"""A kernel is up to 1.8x slower until caches, TLB and branch predictor are warm. Before that, only
a candidate that takes more than twice the incumbent's time leaves the race."""
_CLOCK_DRIFT = 1.1  # a larger ratio of bursts is a disturbance, not clock drift
_AGREEMENT = 1.005  # if the third best sample is within this ratio of the best, sampling ends


@dataclass(frozen=True, slots=True)
class RaceRung:
    """A candidate slower than `keep_below` times the incumbent after `samples` samples leaves the
    race."""

    samples: int
    keep_below: float


FAST_RUNGS = (RaceRung(2, 2.0), RaceRung(2, 1.25), RaceRung(4, 1.08))
SLOW_RUNGS = (RaceRung(1, 1.25), RaceRung(1, 1.08))


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The next measurement: `rounds` samples of `calls` calls each, between reference bursts."""

    calls: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TimingRace:
    """The timing of one candidate; `plan` returns the next measurement, `add` adds its result.

    `warm_secs` is the time of one call with warm caches. `session_burst_secs` is the time of the
    reference burst to which all times of the session are scaled. `incumbent_secs` is the estimate
    of the session's fastest candidate, or None. `final_secs` limits the sampling after the last
    rung.
    """

    warm_secs: float
    session_burst_secs: float
    incumbent_secs: float | None = None
    final_secs: float = 0.05
    samples: tuple[float, ...] = ()
    bursts: tuple[float, ...] = ()
    rung: int = 0
    spent_secs: float = 0.0

    @property
    def _rungs(self) -> tuple[RaceRung, ...]:
        return SLOW_RUNGS if self.warm_secs > SLOW_CALL_SECS else FAST_RUNGS

    @property
    def calls(self) -> int:
        """The number of calls per sample, from the fastest call so far, as the warm-up may be
        disturbed."""
        call_secs = min((self.warm_secs, *self.samples))
        return max(1, ceil(SAMPLE_SECS / max(call_secs, 1e-9)))

    @property
    def _sample_secs(self) -> float:
        return self.spent_secs / len(self.samples)

    def plan(self) -> TimingPlan | None:
        """Return the next measurement, or None if the race is over."""
        if not self.samples:
            # The warm-up does not end the race, because its threads may have had to wake up.
            return TimingPlan(self.calls, self._rungs[0].samples)
        if self._is_beaten():
            return None
        if self.rung < len(self._rungs):
            # On a busy machine the samples of a fast kernel may take arbitrarily long.
            given_up = self._rungs is FAST_RUNGS and self.spent_secs > 4 * self.final_secs
            run_in = ceil((RUN_IN_SECS - self.spent_secs) / self._sample_secs)
            rounds = max(self._rungs[self.rung].samples, run_in)
            return None if given_up else TimingPlan(self.calls, rounds)
        left_secs = self.final_secs - self.spent_secs
        if self._agrees() or left_secs <= 0:
            return None
        return TimingPlan(self.calls, max(1, min(int(left_secs / self._sample_secs), 8)))

    def add(self, samples: tuple[float, ...], bursts: tuple[float, ...]) -> TimingRace:
        """Return the race with the samples of a plan: seconds per call, seconds per burst."""
        return replace(
            self,
            samples=self.samples + samples,
            bursts=self.bursts + bursts,
            rung=self.rung + 1,
            spent_secs=self.spent_secs + sum(samples) * self.calls + sum(bursts),
        )

    @property
    def estimate_secs(self) -> float:
        """Seconds per call: the fastest sample, scaled by session burst / fastest burst."""
        ratio = self.session_burst_secs / min(self.bursts)
        return min(self.samples) * min(max(ratio, 1 / _CLOCK_DRIFT), _CLOCK_DRIFT)

    def _is_beaten(self) -> bool:
        if self.incumbent_secs is None:
            return False
        ran = min(self.rung, len(self._rungs)) - 1
        worst = self._rungs[ran].keep_below if ran >= 0 else inf
        return self.estimate_secs > worst * self.incumbent_secs

    def _agrees(self) -> bool:
        """Whether there are enough samples and the best three agree."""
        if len(self.samples) < 16:
            return False
        best = sorted(self.samples)
        return best[2] <= best[0] * _AGREEMENT
