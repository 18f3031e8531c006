"""Detecting interference of other programs, so that disturbed samples are taken again.

On a shared machine a core may run at half its speed for a second or two (a neighbour on the same
physical core, a virtual core that is moved). A burst of register-only arithmetic on all threads
then takes longer too, and the race waits until it does not.
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
"""A burst this many times longer than at the session's clock is interference, not clock drift."""


_AWAKE_SECS = 2e-3
"""Vector units reach full speed after a millisecond or two of dense work."""


@dataclass
class InterferenceGuard:
    """Decides after each round of a timing race whether it counts, and waits if it was disturbed.

    `burst_steps` and `burst_secs` describe the reference burst; `team_burst_secs` is the session's
    fastest burst on all threads at once, None at first: cores that share units or a clock are
    slower together than alone. `threads` > 1 needs OpenMP in the process. `waited_secs` is the time
    lost so far.
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
        """Whether a round of `round_secs` with this fastest reference burst counts. If not, returns
        once the cores are free again. After `patience_secs` of waiting every round counts."""
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
        """Seconds of a burst on all threads, the least of a few."""
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
