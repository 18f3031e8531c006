"""Output compaction: a sum is computed at the outputs that have terms; the others are zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar

from ..algebra.affine import affine, fresh, modulo, var
from ..algebra.comparisons import Cond, Eq0
from ..algebra.conditions import within
from ..algebra.congruence import congruence_of
from ..algebra.neutral import neutral_conditions
from ..algebra.quotients import limiting_quotients
from ..algebra.scalar import All, Load, Reducer, Select, substitute
from ..algebra.values import const
from ..errors import ScheduleError
from ..workload.tensors import Axis, Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class CompactOutputs(Rewrite):
    """Compute the sum `stage` without the outputs at which all terms are zero by a congruence.

        Y[y] += (X[(y - 2*r)/4] if y - 2*r is divisible by 4 else 0) * W[r]
    ->  T[t] += (X[(t - r)/2] if t - r is even else 0) * W[r];  Y[y] = T[y/2] if y is even else 0

    In a transposed convolution, these are the outputs between the taps if the stride and the
    dilation have a common divisor. Products of the omitted zeros with infinities and NaN are
    skipped, as in padding.
    """

    label: ClassVar[str] = "compact"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with two stages in place of `stage`, in normal form.

        Raise ScheduleError if there is no such stage, if all of its outputs may have terms, or if
        there are too many stages.
        """
        stage = self.stage_of(workload)
        found = spaced_axes(stage)
        if not found:
            raise ScheduleError(self, f"no congruence excludes outputs of {self.stage!r}")
        self.require_room(workload)
        names = set(workload.tensors)
        dense, spread = _split(stage, found, fresh("compact", names))
        pairs = ((dense, spread) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()


@dataclass(frozen=True, slots=True)
class Spacing:
    """The positions first, first + step, first + 2*step, ... of an axis."""

    step: int
    first: int

    def count(self, extent: int) -> int:
        """Return the number of these positions that are less than `extent`."""
        return max(0, -(-(extent - self.first) // self.step))


def spaced_axes(stage: Stage) -> dict[str, Spacing]:
    """Return the output axes of a sum, by name, of which only positions at a constant distance have
    terms that are not zero."""
    found: dict[str, Spacing] = {}
    if not stage.reduces_by(Reducer.SUM):
        return found
    extents = {axis.name: axis.extent for axis in stage.axes}
    for cond in neutral_conditions(stage.body, Reducer.SUM):
        for name, spacing in _spacings(cond, extents):
            if name not in found and spacing.count(extents[name]):
                found[name] = spacing
    return found


def _spacings(cond: Cond, extents: Mapping[str, int]) -> list[tuple[str, Spacing]]:
    """Return the output axes that `cond` restricts for all values of the other variables."""
    congruence = congruence_of(cond)
    if congruence is None or congruence.modulus == 0:
        return []
    spacings = []
    for name in sorted(congruence.index.vars() & extents.keys()):
        own = congruence.index.coefficient(name)
        others = congruence.index - var(name) * own
        step = gcd(congruence.modulus, *(c for _, c in others.terms))
        if step > 1 and gcd(own, step) == 1 and extents[name] > 1:
            spacings.append((name, Spacing(step, -others.const * pow(own, -1, step) % step)))
    return spacings


def _split(stage: Stage, spaced: Mapping[str, Spacing], name: str) -> tuple[Stage, Stage]:
    """Return the sum of the outputs that may have terms, called `name`, and the stage that puts
    zeros between them."""
    axes, dense, index, conds = [], {}, [], list[Cond]()
    for axis in stage.axes:
        spacing = spaced.get(axis.name)
        if spacing is None:
            axes.append(axis)
            index.append(var(axis.name) if axis.extent > 1 else affine(0))
            continue
        axes.append(Axis(axis.name, spacing.count(axis.extent)))
        dense[axis.name] = var(axis.name) * spacing.step + spacing.first
        # With a remainder of `first`, (y - first) / step is y // step.
        conds.append(Eq0(modulo(var(axis.name) - spacing.first, spacing.step)))
        index.append(var(axis.name) // spacing.step)
        conds += within(index[-1], axes[-1].extent)
    tensor = Tensor(name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
    body = limiting_quotients(substitute(stage.body, dense))
    small = replace(stage, tensor=tensor, axes=tuple(axes), body=body)
    read = Load(name, tuple(index), tensor.dtype)
    zero = const(0, tensor.dtype)
    return small, Stage(stage.tensor, stage.axes, Select(All(tuple(conds)), read, zero))
