"""The roofline bound of a session, corrected by measurements of the session.

A bound comes from probes, and a probe can be too low: the machine was busy, its clock was lower, a
neighbour used the other half of the core. A correct kernel that is faster than the bound by more
than a probe's error proves that. The machine is then probed again. If the kernel still beats the
bound, the kernel itself becomes the probe, and the bound no longer ends a search.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target

from .. import timeouts
from ..machine.bound import Bound
from ..machine.least_work import Work
from ..machine.roofline import bound_of, shown_by_kernel

PROBE_ERROR = 1.02
"""A kernel this many times as fast as its bound proves that the bound is wrong."""


class MeasuringMachine(Protocol):
    """The machine that measures: the part of its interface that concerns probes."""

    def probe_again(self, target: Target, recent_secs: float, within_secs: float) -> Target | None:
        """Return `target` with the best of its probes and of newer probes, at most `recent_secs`
        old.

        Return None if the target describes another machine, or if probing takes longer than
        `within_secs`. Raise TargetError if probing fails.
        """
        ...

    def cache_probes(self, target: Target) -> None:
        """Store the corrected probes of `target` for later runs."""
        ...


@dataclass
class RooflineBound:
    """The bound of `work`; `current` is its latest value.

    `machine` is None if times do not come from the machine that `target` describes. `raised_by` is
    the source of a correction of the bound: "probe", "kernel", or None. `notes` describe the
    corrections for users.
    """

    work: Work
    target: Target
    machine: MeasuringMachine | None = None
    current: Bound = field(init=False)
    raised_by: str | None = field(default=None, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    _disproved: bool = field(default=False, init=False)
    _was_reprobed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.current = bound_of(self.work, self.target)
        if self.target.probes.doubtful:
            if self.machine is not None:
                self.notes.append("probed on a busy machine: not used for early stopping")
        elif self.target.probes.peak_gflops and not self.current.probed:
            self.notes.append(
                f"the rate of {self.current.by} is not probed but derived from the f32 rate:"
                " not used for early stopping"
            )

    @property
    def goal_secs(self) -> float | None:
        """The time at which a search may end, or None if the bound is not reliable enough."""
        return self.current.secs if self.current.probed and not self._disproved else None

    def fraction(self, secs: float) -> float | None:
        """Return the bound divided by `secs`, or None if `secs` proves the bound wrong."""
        return None if self.is_beaten_by(secs) else self.share(secs)

    def share(self, secs: float) -> float:
        """Return the bound divided by the confirmed `secs`, at most 1.0.

        A kernel that is faster by no more than a probe's error is at the bound. Call `finalise`
        first.
        """
        return min(self.current.secs / secs, 1.0)

    def is_beaten_by(self, secs: float) -> bool:
        """Return whether a kernel that takes `secs` per call proves the bound wrong."""
        return secs * PROBE_ERROR < self.current.secs

    def challenge(self, secs: float, *, within_secs: float) -> None:
        """Compare the bound with the best time so far.

        An unconfirmed time does not correct the bound itself: the machine is probed again, or the
        bound no longer ends the search. Probing may take `within_secs`, 0 for a time that this run
        did not measure.
        """
        if not self.is_beaten_by(secs):
            return
        self._probe_again(
            timeouts.MAX_DISPROVED_PROBE_AGE_SECS,
            within_secs,
            f"a kernel was {self._ratio_text(secs)}",
        )
        if self.is_beaten_by(secs):
            self._disproved = True

    def confirm(self, *, within_secs: float) -> None:
        """Probe again before a search ends at the bound, unless the probes are recent."""
        self._probe_again(
            timeouts.MAX_TRUSTED_PROBE_AGE_SECS,
            within_secs,
            "a search was about to end at the bound",
        )

    def finalise(self, secs: float, *, keep: bool) -> None:
        """Correct the bound by the confirmed time of the best kernel, at the end of the run. With
        `keep`, the corrected probes are stored for later runs."""
        if not self.is_beaten_by(secs):
            return
        self.notes.append(f"raised to what the best kernel shows: it is {self._ratio_text(secs)}")
        raised = replace(self.target, probes=shown_by_kernel(self.work, self.target, secs))
        if raised.probes != self.target.probes and keep and self.machine is not None:
            self.machine.cache_probes(raised)
        self.current = replace(bound_of(self.work, raised), secs=secs)
        self.raised_by = "kernel"

    def to_json(self) -> dict[str, Any]:
        """Return the bound, whether it may end searches, and the corrections made to it."""
        return {
            "secs": self.current.secs,
            "binds": self.current.binds,
            "by": self.current.by,
            "threads": self.current.threads,
            "ends_searches": self.goal_secs is not None and self.raised_by != "kernel",
            "raised_by": self.raised_by,
            "notes": list(self.notes),
        }

    def _probe_again(self, recent_secs: float, within_secs: float, why: str) -> None:
        if self.machine is None or self._was_reprobed or within_secs <= 0:
            return
        try:
            probed = self.machine.probe_again(self.target, recent_secs, within_secs)
        except (
            TargetError
        ) as error:  # the run continues without new probes: its measurements are equally valid
            probed = None
            self.notes.append(f"{why}, and the machine could not be probed again: {error}")
        self._was_reprobed = probed is None or recent_secs == timeouts.MAX_DISPROVED_PROBE_AGE_SECS
        if probed is None or probed.probes == self.target.probes:
            return
        before = self.current.secs
        self.target, self.current = probed, bound_of(self.work, probed)
        if self.current.secs * PROBE_ERROR < before:
            self.raised_by = "probe"
            self.notes.append(
                f"{why}, so the machine was probed again: the bound is"
                f" {1e6 * self.current.secs:.4g} us a call, not {1e6 * before:.4g}"
            )

    def _ratio_text(self, secs: float) -> str:
        return f"{self.current.secs / secs:.2f} times as fast as the bound"
