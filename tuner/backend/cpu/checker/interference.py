"""Detection of interference by other programs. Disturbed samples are repeated.

A core of a shared machine may run at half its speed for a second or two, because another program
uses the same physical core or a virtual core is migrated. A burst of arithmetic in registers then
also takes longer, on one thread or on all threads. The timing race waits until the burst is fast
again.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from .... import timeouts
from ..loading.loader import OPENMP_LIBRARY
from ..loading.native import Helpers

DISTURBED_RATIO = 1.25
"""If a burst takes this many times as long as the reference burst, that is interference and no
clock drift."""
_AWAKE_SECS = 2e-3
"""The longest dense arithmetic before a burst is called disturbed. Vector units reach full speed
after 1 to 2 ms."""


@dataclass
class InterferenceGuard:
    """A filter for the rounds of a timing race. It rejects disturbed rounds and waits until the
    cores are undisturbed.

    If `threads` > 1, OpenMP must be loaded in the process.
    """

    helpers: Helpers
    burst_steps: int
    """The number of steps of a reference burst."""
    burst_secs: float
    """The time of a reference burst on an undisturbed core."""
    threads: int
    team_burst_secs: float | None = None
    """The fastest burst on all threads concurrently, or None before the first one. Cores that share
    units or a clock are slower together than one at a time."""
    patience_secs: float = timeouts.QUIET_WAIT_SECS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    waited_secs: float = field(default=0.0, init=False)
    """The time lost until now."""

    def counts(self, fastest_burst_secs: float, round_secs: float = 0.0) -> bool:
        """Return whether a round counts. It took `round_secs`, and its fastest reference burst took
        `fastest_burst_secs`.

        If the round does not count, wait until the cores are undisturbed before returning. After
        `patience_secs` of waiting, every round counts.
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
        undisturbed_secs = DISTURBED_RATIO * self.burst_secs
        return self._fastest(lambda: self.helpers.clock_burst(self.burst_steps), undisturbed_secs)

    def _team_burst(self) -> float:
        run = ctypes.CDLL(OPENMP_LIBRARY).GOMP_parallel
        steps = ctypes.c_int64(self.burst_steps)
        body = ctypes.c_void_p(self.helpers.team_burst)
        threads = ctypes.c_uint(self.threads)

        def burst() -> None:
            run(body, ctypes.byref(steps), threads, ctypes.c_uint(0))

        return self._fastest(burst, DISTURBED_RATIO * (self.team_burst_secs or 0.0))

    def _fastest(self, burst: Callable[[], object], undisturbed_secs: float) -> float:
        """Return the time of the fastest of several bursts. The first one that takes at most
        `undisturbed_secs` is the last."""
        fastest_secs = inf
        for _ in range(max(1, int(_AWAKE_SECS / self.burst_secs))):
            start = time.perf_counter()
            burst()
            fastest_secs = min(fastest_secs, time.perf_counter() - start)
            if fastest_secs <= undisturbed_secs:
                break
        return fastest_secs
