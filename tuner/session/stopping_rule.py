"""The rule that ends a tuning run: by its budget, by its results, or at its bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.space import Candidate

from ..search.base import SearchGoal
from .confirmation import confirm
from .trials import statuses
from .tuning_run import TuningRun

MAX_BATCH = 16
"""Largest number of candidates of one batch. A run also ends after this number of trials without a
success."""

MAX_RECHECKS_AT_BOUND = 3
"""Number of times at the bound that a recheck may fail to reproduce. After that the bound no longer
ends this search, because each recheck costs as much as several trials."""


@dataclass
class StoppingRule:
    """Decides after each batch whether a run continues. `goal` is the input of the strategy;
    `candidates_of` has the candidates of each trace."""

    run: TuningRun
    goal: SearchGoal
    candidates_of: dict[bytes, list[Candidate]]

    def reason(self) -> str | None:
        """Return the reason why the run ends, or None while it continues."""
        run = self.run
        counts = statuses(run.trials)
        wrong = counts[MeasureStatus.WRONG_RESULT]
        if len(run.trials) >= 8 and wrong * 2 > len(run.trials):
            return f"stopped: {wrong} of {len(run.trials)} candidates computed wrong results"
        if len(run.trials) >= MAX_BATCH and not counts[MeasureStatus.OK]:
            return f"stopped: none of {len(run.trials)} candidates could be measured"
        return run.out_of_time() or self._strategy_reason()

    def check_bound(self, secs: float) -> None:
        """Compare the bound with a measured time, and correct the bound if the time beats it."""
        if self.run.bound.is_beaten_by(secs):
            self.run.bound.challenge(secs, within_secs=self._secs_for_probes())

    def _strategy_reason(self) -> str | None:
        """Return the reason why the strategy would stop, or None.

        If only the bound is the reason, the machine is probed again and the fastest kernel is timed
        again first: both must confirm the reason.
        """
        run = self.run
        reason = run.strategy.stop_reason
        if reason is None or self.goal.bound_secs is None:
            return reason
        self.goal.bound_secs = None
        if run.strategy.stop_reason is not None:
            return reason
        run.bound.confirm(within_secs=self._secs_for_probes())
        self.goal.bound_secs = self.bound_to_end_at
        while run.strategy.stop_reason is not None and self._time_fastest_again():
            self.goal.bound_secs = self.bound_to_end_at
        return run.strategy.stop_reason

    def _time_fastest_again(self) -> bool:
        """Report the result of a full check of the fastest candidate to the strategy; return False
        if the strategy already has it.

        The check is stored: the end of the run and later runs do not repeat it.
        """
        run = self.run
        timed = [trial for trial in run.trials if run.result_of(trial).ok]
        fastest = min(timed, key=lambda trial: run.result_of(trial).run_secs_estimate or inf)
        key = fastest.key
        if key in run.rechecked:
            return False
        known = run.full_checks(run.earlier_records()).get(key)
        if known is None and run.measured_now and run.out_of_time() is None:
            known = confirm(self.run, fastest.record)
        if known is None or known.result.status is MeasureStatus.LOST:
            return False
        run.rechecked[key] = known.result
        run.strategy.tell([(candidate, known.result) for candidate in self.candidates_of[key]])
        return True

    @property
    def bound_to_end_at(self) -> float | None:
        """The bound that may end the search, or None after more than `MAX_RECHECKS_AT_BOUND`
        rechecks near it."""
        return None if len(self.run.rechecked) > MAX_RECHECKS_AT_BOUND else self.run.bound.goal_secs

    def _secs_for_probes(self) -> float:
        """Return the time that probing may take, in seconds: the time before the end of the run, or
        0 for a run that measured nothing or is about to stop."""
        run = self.run
        if not run.measured_now or run.out_of_time() is not None:
            return 0.0
        return run.control.left_secs - run.control.reserve_secs
