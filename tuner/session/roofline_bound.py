"""The bound in a session: what its own measurements say against it, and what is then done.

A bound comes from probes, and a probe can be too low: the machine was busy, its clock was lower, a
neighbour had the other half of the core. A right kernel that is faster than the bound by more than
a probe's error proves it. The machine is then probed again; where that does not explain the
kernel, the kernel itself is the best probe there is, and the bound ends no search any more.
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
    """The machine that measures, as far as its probes go."""

    def probe_again(self, target: Target, recent_secs: float, within_secs: float) -> Target | None:
        """`target` with the best of its probes and others, at most `recent_secs` old; None if it is
        another machine's, or `within_secs` are too few. TargetError: it did not come to an end."""
        ...

    def keep(self, target: Target) -> None:
        """Keep the probes of `target`, which were too low, for later runs."""
        ...


@dataclass
class RooflineBound:
    """What a session takes for the bound of `work`; `current` changes as it learns.

    `machine` is None where times do not come from the machine that `target` describes.
    `raised_by` says what corrected the bound: "probe", "kernel", or None; `notes` how, for people.
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
        if self.target.probes.doubtful and self.machine is not None:
            self.notes.append("probed on a busy machine: the bound ends no search")
        elif self.target.probes.peak_gflops and not self.current.probed:
            self.notes.append(
                f"the rate of {self.current.by} is not probed but follows from that of f32: the"
                " bound ends no search"
            )

    @property
    def goal_secs(self) -> float | None:
        """A time at which a search may end; None where nobody knows one well enough."""
        return self.current.secs if self.current.probed and not self._disproved else None

    def fraction(self, secs: float) -> float | None:
        """The bound's share of `secs`; None where `secs` proves it wrong."""
        return None if self.is_beaten_by(secs) else self.share(secs)

    def share(self, secs: float) -> float:
        """The bound's share of the confirmed `secs`, which it was held against (`finalise`): what
        is faster by no more than a probe's error is at the bound."""
        return min(self.current.secs / secs, 1.0)

    def is_beaten_by(self, secs: float) -> bool:
        """Whether a kernel of `secs` a call is faster than any can be."""
        return secs * PROBE_ERROR < self.current.secs

    def challenge(self, secs: float, *, within_secs: float) -> None:
        """Hold the bound against the best time so far. A time that is not confirmed raises nothing
        by itself: it has the machine probed again, or keeps the bound from ending the search.

        `within_secs` is what probing may take, 0 where the time is not of this run.
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
        """Before a search ends because it is at the bound: is that where the bound is?"""
        self._probe_again(
            timeouts.MAX_TRUSTED_PROBE_AGE_SECS,
            within_secs,
            "a search was about to end at the bound",
        )

    def finalise(self, secs: float, *, keep: bool) -> None:
        """At the end, with the confirmed time of the best: the bound is raised to what it shows,
        and with `keep` later runs know."""
        if not self.is_beaten_by(secs):
            return
        self.notes.append(f"raised to what the best kernel shows: it is {self._ratio_text(secs)}")
        raised = replace(self.target, probes=shown_by_kernel(self.work, self.target, secs))
        if raised.probes != self.target.probes and keep and self.machine is not None:
            self.machine.keep(raised)
        self.current = replace(bound_of(self.work, raised), secs=secs)
        self.raised_by = "kernel"

    def to_json(self) -> dict[str, Any]:
        """The bound as it stands, whether it may end searches, and what was learned about it."""
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
        except TargetError as error:  # a run goes on without: what it measured is as good
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
