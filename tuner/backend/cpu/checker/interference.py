"""Whether the cores are a candidate's own: what is timed while one is shared is timed again.

On a shared machine a core may run at half its speed for a second or two (a neighbour on the same
physical core, a virtual core that is moved). A burst of register-only arithmetic on every thread
at once takes then as much longer, and a race waits until it does not.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .... import timeouts
from ..loading.loader import OPENMP_LIBRARY
from ..loading.native import Helpers

DISTURBED_RATIO = 1.25
"""A burst this many times longer than at the session's clock is not the clock's drift."""


_AWAKE_SECS = 2e-3
"""Vector units wake up in the first millisecond or two of dense work."""


@dataclass
class InterferenceGuard:
    """Says after each round of a candidate's races whether it counts, and waits where it does not.

    `burst_steps` and `burst_secs` are the reference burst's; `team_burst_secs` is the fastest on
    all threads at once that the session has seen, None at first: cores that share units, or a
    clock, are slower together than one alone. `threads` > 1 needs OpenMP's runtime in the process.
    `waited_secs` is the time lost so far.
    """

    helpers: Helpers
    burst_steps: int
    burst_secs: float
    threads: int
    team_burst_secs: float | None = None
    patience_secs: float = timeouts.QUIET_WAIT_SECS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    waited_secs: float = field(default=0.0, init=False)

    def counts(self, fastest_burst_secs: float, round_secs: float = 0.0) -> bool:
        """Whether a round of `round_secs` counts whose fastest reference burst took so long. Where
        it does not, this returns once the cores are free again; a round counts anyway when
        patience ends."""
        if self.waited_secs >= self.patience_secs or not self._disturbed(fastest_burst_secs):
            return True
        self.waited_secs += round_secs
        start = self.clock()
        while (left := self.patience_secs - self.waited_secs) > 0:
            self.sleep(min(timeouts.QUIET_POLL_SECS, left))
            self.waited_secs += self.clock() - start
            start = self.clock()
            if not self._disturbed(self._burst()):
                return False
        return True

    def _disturbed(self, burst_secs: float) -> bool:
        if burst_secs > DISTURBED_RATIO * self.burst_secs:
            return True
        if self.threads == 1:
            return False
        team_secs = self._team_burst()
        self.team_burst_secs = min(team_secs, self.team_burst_secs or team_secs)
        return team_secs > DISTURBED_RATIO * self.team_burst_secs

    def _burst(self) -> float:
        """The fastest burst of the calling thread."""
        return min(self._timed(lambda: self.helpers.clock_burst(self.burst_steps), self._rounds))

    @property
    def _rounds(self) -> int:
        return max(1, int(_AWAKE_SECS / self.burst_secs))

    def _team_burst(self) -> float:
        """Seconds until the slowest thread has done a burst, the least of a few."""
        run = ctypes.CDLL(OPENMP_LIBRARY).GOMP_parallel
        steps = ctypes.c_int64(self.burst_steps)
        body = ctypes.c_void_p(self.helpers.team_burst)
        threads = ctypes.c_uint(self.threads)

        def burst() -> None:
            run(body, ctypes.byref(steps), threads, ctypes.c_uint(0))

        return min(self._timed(burst, self._rounds))

    def _timed(self, action: Callable[[], object], times: int) -> list[float]:
        secs = []
        for _ in range(times):
            start = time.perf_counter()
            action()
            secs.append(time.perf_counter() - start)
        return secs
