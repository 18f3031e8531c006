"""Forms: the ways to write a computation that have schedules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import ScheduleError
from .rewrites import Rewrite
from .workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Form:
    """`workload` is what `steps` make of a workload in normal form; without steps it is that one.

    A trace of this form begins with `steps`.
    """

    workload: Workload
    steps: tuple[Rewrite, ...] = ()

    def after(self, *steps: Rewrite) -> Form:
        """This form after more steps. ScheduleError as for `Rewrite.rewrite`."""
        form = self
        for step in steps:
            form = Form(step.rewrite(form.workload), (*form.steps, step))
        return form

    def apply_until_fixpoint(self, steps: Callable[[Workload], Iterable[Rewrite]]) -> Form:
        """This form after the first of `steps` for it that is legal, then after the first of those
        for what that gives, and so on until there is none."""
        for step in steps(self.workload):
            try:
                form = self.after(step)
            except ScheduleError:
                continue
            return form.apply_until_fixpoint(steps)
        return self
