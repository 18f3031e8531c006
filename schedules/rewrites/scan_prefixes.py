"""Reductions of prefixes: the reductions of all prefixes of an axis are one scan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from ..algebra.affine import Affine, affine, fresh, var
from ..algebra.bounds import AxisLimit, solved_for
from ..algebra.comparisons import Ge0
from ..algebra.conditions import in_bounds, within
from ..algebra.counting import estimated_share
from ..algebra.neutral import assuming, neutral_conditions, only_where, without_unit_factors
from ..algebra.scalar import All, Load, Scalar, Select, substitute, vars_of
from ..errors import require
from ..limits import MAX_STAGES
from ..workload.tensors import Axis, Reduction, Scan, Stage, Tensor
from ..workload.validate import stage_ranges
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class ScanPrefixes(Rewrite):
    """Compute the reductions of prefixes (or suffixes) of `axis` by one scan along the axis.

        Y[i,j] += A[i,k] if k <= j else 0
    ->  Y[i,j] = scan over j of A[i,j]

        Y[i,j] += A[i,k] * W[r] if k <= 2*j + 3 else 0
    ->  P[i,k] += A[i,k] * W[r];  S[i,k] = scan over k of P[i,k]
        Y[i,j] = S[i, min(2*j + 3, K - 1)]

    The rewrite is legal for a reduction whose terms depend on some output axes only by the limit of
    the prefix. Each result combines the same terms as before, in another grouping. Terms outside
    the prefix are the reducer's identity; products with implicit zeros are left out, even if the
    other factor is infinite or NaN (docs/math.md).
    """

    label: ClassVar[str] = "scan"

    axis: str

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with a scan in place of the reduction, in normal form.

        Raise ScheduleError if there is no such stage, if it does not reduce prefixes of the axis,
        if a read needs the condition, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        found = prefixes_of(stage, self.axis)
        require(found is not None, self, f"{stage.name!r} reduces no prefixes of {self.axis!r}")
        assert found is not None
        new = found.stages(set(workload.tensors))
        room = len(workload.stages) + len(new) - 1 <= MAX_STAGES
        require(room, self, f"the result would have more than {MAX_STAGES} stages")
        for one in new:
            self.require_in_bounds(one, _with_tensors(workload, new))
        stages = (new if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for part in stages for s in part)).normalised()


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The reduction `stage`, whose terms are those under the condition `cond` on `axis`."""

    stage: Stage
    axis: Axis
    cond: Ge0
    bound: AxisLimit
    """The condition on the axis, solved for it."""
    value: Scalar
    """The value of a term within the bound. It depends on none of the `free` axes."""

    @property
    def free(self) -> tuple[Axis, ...]:
        """The output axes on which no term depends."""
        used = vars_of(self.value)
        return tuple(axis for axis in self.stage.axes if axis.name not in used)

    @property
    def moving(self) -> tuple[Axis, ...]:
        """The `free` axes on which the bound depends."""
        return tuple(axis for axis in self.free if self.bound.limit.mentions(axis.name))

    @property
    def others(self) -> tuple[Axis, ...]:
        """The other reduction axes."""
        return tuple(axis for axis in self.stage.reduce_axes if axis != self.axis)

    @property
    def scanned_elements(self) -> int:
        """The number of elements of the scan."""
        kept = (axis.extent for axis in self.stage.axes if axis not in self.free)
        return prod(kept) * self.axis.extent

    @property
    def saves_work(self) -> bool:
        """Whether a scan and a read for each result are fewer steps than the terms of all
        prefixes."""
        free = {axis.name: axis.extent for axis in self.free}
        extents = {axis.name: axis.extent for axis in self.stage.all_axes}
        terms = estimated_share(extents, (self.cond,)) * prod(free.values()) * self.axis.extent
        return terms > 2 * (prod(free.values()) + self.axis.extent)

    def stages(self, taken: set[str]) -> tuple[Stage, ...]:
        """Return the stages that compute the reduction by a scan. Tensors that are not in `taken`
        hold the intermediate results."""
        along = self.moving[0]
        places = [axis for axis in self.stage.axes if axis == along or axis not in self.free]
        axes = tuple(self.axis if axis == along else axis for axis in places)
        before, value = tuple[Stage, ...](), self.value
        if self.others:
            partial = self._tensor(fresh("partial", taken), axes)
            over = Reduction(self._kind.reducer, self.others)
            before = (Stage(partial, axes, value, over),)
            value = Load(partial.name, _at(axes), partial.dtype)
        dim = axes.index(self.axis)
        if self._scans_output(along):
            return (*before, replace(self.stage, body=self._moved(value), kind=self._scan(dim)))
        scanned = self._tensor(fresh("scanned", taken), axes)
        kind = Scan(self._kind.reducer, dim, reverse=not self.bound.upper)
        return *before, Stage(scanned, axes, value, kind), self._reader(scanned, axes, dim)

    @property
    def _kind(self) -> Reduction:
        assert isinstance(self.stage.kind, Reduction)
        return self.stage.kind

    def _tensor(self, name: str, axes: tuple[Axis, ...]) -> Tensor:
        return Tensor(name, tuple(axis.extent for axis in axes), self.stage.tensor.dtype)

    @property
    def _rises(self) -> bool:
        """Whether the limit rises along the output axis."""
        return self.bound.limit.coefficient(self.moving[0].name) > 0

    def _scans_output(self, along: Axis) -> bool:
        """Return whether the result is a scan along the output axis `along` itself: the limit moves
        by one position per element, and the first element of the scan has at most one term."""
        step = self.bound.limit - var(along.name) * (1 if self._rises else -1)
        if len(self.free) > 1 or not step.is_const:
            return False
        first = self._first(along)
        return first <= 0 if self.bound.upper else first >= self.axis.extent - 1

    def _first(self, along: Axis) -> int:
        """Return the limit at the first element of a scan along `along`."""
        start = along.extent - 1 if self._scan(0).reverse else 0
        return self.bound.limit.evaluate({along.name: start})

    def _scan(self, dim: int) -> Scan:
        """Return a scan along dimension `dim` that begins where the least terms are in bounds."""
        return Scan(self._kind.reducer, dim, reverse=self._rises is not self.bound.upper)

    def _moved(self, value: Scalar) -> Scalar:
        """Return the term at the limit, or the identity if the limit is outside the axis."""
        limit = self.bound.limit
        inside = in_bounds((limit,), (self.axis.extent,), stage_ranges(self.stage))
        moved = substitute(value, {self.axis.name: limit})
        return only_where(inside, moved, self._kind.reducer)

    def _reader(self, scanned: Tensor, axes: tuple[Axis, ...], dim: int) -> Stage:
        """Return the stage that reads the result of each prefix, the identity for empty ones."""
        at, limit, last = _at(axes), self.bound.limit, self.axis.extent - 1

        def read(position: Affine) -> Scalar:
            return Load(scanned.name, (*at[:dim], position, *at[dim + 1 :]), scanned.dtype)

        from_start, to_end = within(limit, self.axis.extent)
        nonempty, partial = (from_start, to_end) if self.bound.upper else (to_end, from_start)
        whole = read(affine(last if self.bound.upper else 0))
        found = Select(All((partial,)), read(limit), whole)
        return Stage(
            self.stage.tensor, self.stage.axes, only_where((nonempty,), found, self._kind.reducer)
        )


def prefixes_of(stage: Stage, axis: str) -> Prefixes | None:
    """Return the prefixes of the reduction axis `axis` that `stage` reduces, or None if it does
    not."""
    along = next((one for one in stage.reduce_axes if one.name == axis), None)
    if along is None or not isinstance(stage.kind, Reduction):
        return None
    own = {one.name for one in stage.axes}
    for cond in dict.fromkeys(neutral_conditions(stage.body, stage.kind.reducer)):
        if not isinstance(cond, Ge0) or not cond.index.mentions(axis) or cond.index.has_data:
            continue
        bound = solved_for(axis, cond)
        if bound is None or not bound.limit.vars() or not bound.limit.vars() <= own:
            continue
        found = Prefixes(
            stage, along, cond, bound, without_unit_factors(assuming(stage.body, (cond,)))
        )
        if found.moving:
            return found
    return None


def _at(axes: tuple[Axis, ...]) -> tuple[Affine, ...]:
    return tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)


def _with_tensors(workload: Workload, stages: tuple[Stage, ...]) -> Workload:
    """Return `workload` followed by `stages`, so that their tensors are known."""
    kept = tuple(old for old in workload.stages if old.name != stages[-1].name)
    return replace(workload, stages=(*kept, *stages))
