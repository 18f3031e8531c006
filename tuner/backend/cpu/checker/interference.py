"""Detection of interference by other programs, so that disturbed samples are repeated.

A core of a shared machine may run at half its speed for a second or two, because another program
uses the same physical core or a virtual core is migrated. A burst of arithmetic in registers on all
threads then also takes longer, and the race waits until the burst is fast again.
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
"""A burst this many times longer than the session's reference is interference, not clock drift."""
_AWAKE_SECS = 2e-3
"""The duration of dense work before a burst: vector units reach full speed after 1 to 2 ms."""


@dataclass
class InterferenceGuard:
    """Decides after each round of a timing race whether it counts, and waits while it is disturbed.

    A reference burst of `burst_steps` takes `burst_secs`. `team_burst_secs` is the session's
    fastest burst on all threads concurrently, or None before the first: cores that share units or a
    clock are slower together than separately. `threads` > 1 requires OpenMP in the process.
    `waited_secs` is the time lost until now.
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
        """Whether a round of `round_secs`, whose fastest reference burst is given, counts.

        If it does not, return once the cores are undisturbed again. After `patience_secs` of
        waiting, every round counts.
        """
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
        return min(self._timed(lambda: self.helpers.clock_burst(self.burst_steps), self._rounds))

    @property
    def _rounds(self) -> int:
        return max(1, int(_AWAKE_SECS / self.burst_secs))

    def _team_burst(self) -> float:
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
