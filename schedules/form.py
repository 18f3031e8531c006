"""Forms: equivalent ways to write a computation, each with its own schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import ScheduleError
from .rewrites import Rewrite
from .workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Form:
    """A workload that is equivalent to a workload in normal form, and the rewrites `steps` that
    produce it.

    A trace of this form begins with `steps`. If `steps` is empty, `workload` is the normal form.
    """

    workload: Workload
    steps: tuple[Rewrite, ...] = ()

    def after(self, *steps: Rewrite) -> Form:
        """Return this form after the additional `steps`. Raise ScheduleError if a step is not
        legal."""
        form = self
        for step in steps:
            form = Form(step.rewrite(form.workload), (*form.steps, step))
        return form

    def apply_until_fixpoint(self, steps: Callable[[Workload], Iterable[Rewrite]]) -> Form:
        """Apply the first legal rewrite of `steps` to this form. Repeat this on the result until no
        rewrite is legal, and return the last form."""
        for step in steps(self.workload):
            try:
                form = self.after(step)
            except ScheduleError:
                continue
            return form.apply_until_fixpoint(steps)
        return self
