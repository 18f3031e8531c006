"""When to go on timing a candidate and what its time is: the race, without a clock of its own.

A candidate climbs rungs: a few samples each, and only one that may still win goes on. Between
samples runs a burst of register-only arithmetic, the reference: noise that adds (preemption) is
removed by the minimum over samples, noise that multiplies (clock drift) by dividing by the
fastest burst of the same race. Times are comparable within a session, which fixes what a burst
takes. Sources: Chen and Revels, arXiv 1608.04295 (minimum); paired references as in duet
benchmarking, Bulej et al., ICPE 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

SAMPLE_SECS = 0.4e-3  # a sample is long against the clock's resolution, short against drift
SLOW_CALL_SECS = 20e-3
RUN_IN_SECS = 5e-3
"""Until caches, TLB and branch predictor know a kernel it is up to 1.8x slower: only what is more
than twice too slow is out before."""
_CLOCK_DRIFT = 1.1  # a larger ratio of bursts is a disturbance, not a clock
_AGREEMENT = 1.005  # the third best sample within this of the best: more will not tell more


@dataclass(frozen=True, slots=True)
class RaceRung:
    """`samples` samples; then a candidate slower than `keep_below` times the incumbent is out."""

    samples: int
    keep_below: float


FAST_RUNGS = (RaceRung(2, 2.0), RaceRung(2, 1.25), RaceRung(4, 1.08))
SLOW_RUNGS = (RaceRung(1, 1.25), RaceRung(1, 1.08))


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """What to time next: `rounds` samples of `calls` calls each, a burst around each."""

    calls: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TimingRace:
    """One candidate's timing so far; `plan` says what comes next, `add` what was found.

    `warm_secs` is one call after the first; `session_burst_secs` what the reference burst takes
    at the session's clock; `incumbent_secs` the best estimate of the session, None at first;
    `final_secs` how long the last rung may take.
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
        """Calls a sample, from the fastest seen so far: the warm run may have been disturbed."""
        call_secs = min((self.warm_secs, *self.samples))
        return max(1, ceil(SAMPLE_SECS / max(call_secs, 1e-9)))

    @property
    def _sample_secs(self) -> float:
        return self.spent_secs / len(self.samples)

    def plan(self) -> TimingPlan | None:
        """What to time next, None when there is nothing more to learn."""
        if not self.samples:
            # Also after a hopeless warm run: threads that had gone to sleep make it say little.
            return TimingPlan(self.calls, self._rungs[0].samples)
        if self._is_beaten():
            return None
        if self.rung < len(self._rungs):
            # On a machine busy with other things even a fast kernel's samples can take for ever.
            given_up = self._rungs is FAST_RUNGS and self.spent_secs > 4 * self.final_secs
            run_in = ceil((RUN_IN_SECS - self.spent_secs) / self._sample_secs)
            rounds = max(self._rungs[self.rung].samples, run_in)
            return None if given_up else TimingPlan(self.calls, rounds)
        left_secs = self.final_secs - self.spent_secs
        if self._agrees() or left_secs <= 0:
            return None
        return TimingPlan(self.calls, max(1, min(int(left_secs / self._sample_secs), 8)))

    def add(self, samples: tuple[float, ...], bursts: tuple[float, ...]) -> TimingRace:
        """The race after the plan was carried out: seconds a call, seconds a burst."""
        return replace(
            self,
            samples=self.samples + samples,
            bursts=self.bursts + bursts,
            rung=self.rung + 1,
            spent_secs=self.spent_secs + sum(samples) * self.calls + sum(bursts),
        )

    @property
    def estimate_secs(self) -> float:
        """Seconds a call at the session's clock: fastest sample, by the ratio of the bursts."""
        ratio = self.session_burst_secs / min(self.bursts)
        return min(self.samples) * min(max(ratio, 1 / _CLOCK_DRIFT), _CLOCK_DRIFT)

    def _is_beaten(self) -> bool:
        if self.incumbent_secs is None:
            return False
        ran = min(self.rung, len(self._rungs)) - 1
        worst = self._rungs[ran].keep_below if ran >= 0 else inf
        return self.estimate_secs > worst * self.incumbent_secs

    def _agrees(self) -> bool:
        """Enough samples of a candidate in the last rung, and the best three say the same."""
        if len(self.samples) < 16:
            return False
        best = sorted(self.samples)
        return best[2] <= best[0] * _AGREEMENT
