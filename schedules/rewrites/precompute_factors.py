"""Factor precomputation: some factors of a sum of products become a separate stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import Binary, BinaryOp, Load, Reducer, Scalar, loads, vars_of
from ..errors import ScheduleError
from ..workload.tensors import Axis, Elementwise, Reduction, Stage, StageKind, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class PrecomputeFactors(Rewrite):
    """Compute the product of some factors of `stage`, a sum of products, in a separate stage.

    Reduction axes on which only these factors depend are summed in the new stage, which splits a
    chain of products:

        C[i,j] += A[i,k] * d[k] * B[k,j]     ->   P[i,k] = A[i,k] * d[k];  C[i,j] += P[i,k] * B[k,j]
        y[i] += A[i,j] * B[j,k] * c[k]       ->   P[j] += B[j,k] * c[k];   y[i] += A[i,j] * P[j]

    The stated error is 0 because results are checked with the error bound of the rewritten
    workload. If no factor is moved out of a sum, the rewrite is legal for every sum of products of
    one type. It then only reassociates factors. This gives the same infinities and NaN as long as
    no partial product overflows or underflows.

    If a factor is moved out of a sum, results may differ. For x = inf, a = 2 and b = -1, x * (a +
    b) is inf, but x * a + x * b is NaN. The first form can also give -0.0 if the second gives 0.0.
    For floats the rewrite is then legal only if the workload allows an error, however small. For
    integers the two forms are equal.
    """

    label: ClassVar[str] = "precompute"

    factors: tuple[int, ...]
    """The numbers of the factors, in the order of the body."""

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the factors multiplied first, in normal form.

        Raise ScheduleError if the rewrite is illegal, if the product is the whole sum or a single
        element, or if it depends on no axis.
        """
        stage = self.stage_of(workload)
        terms = factors_of(stage)
        if list(self.factors) != sorted(set(self.factors)) or not self.factors:
            raise ScheduleError(self, "factors are numbers in increasing order")
        if self.factors[0] < 0 or self.factors[-1] >= len(terms):
            raise ScheduleError(self, f"the sum has {len(terms)} factors")
        chosen = [terms[n] for n in self.factors]
        rest = [term for n, term in enumerate(terms) if n not in self.factors]
        if not rest or (len(chosen) == 1 and isinstance(chosen[0], Load)):
            raise ScheduleError(self, "the product is the whole sum or a single element")
        self.require_room(workload)
        summed = summed_axes(stage, chosen, rest)
        if summed and not may_distribute(workload, stage):
            raise ScheduleError(
                self,
                f"a factor would leave the sum over {summed[0].name}, which can change results with"
                " infinities or zeros; the workload allows no error",
            )
        first, second = _in_two(workload, stage, chosen, rest, self)
        pairs = ((first, second) if old is stage else (old,) for old in workload.stages)
        return replace(workload, stages=tuple(s for pair in pairs for s in pair)).normalised()


def may_distribute(workload: Workload, stage: Stage) -> bool:
    """Return whether factors of `stage` may be moved out of a sum.

    For floats this may change results that involve infinities or zeros.
    """
    return workload.allowed_error is not None or not stage.tensor.dtype.is_float


def factors_of(stage: Stage) -> tuple[Scalar, ...]:
    """Return the factors of the products that `stage` sums, in the order of its body, or () if it
    is not a sum."""
    return _factors(stage.body) if stage.reduces_by(Reducer.SUM) else ()


def kept_axes(stage: Stage, chosen: Iterable[Scalar], rest: Iterable[Scalar]) -> tuple[Axis, ...]:
    """Return the axes of the product of the factors `chosen` that are also axes of `rest` or of the
    result.

    If an operand of `chosen` has exactly these axes as dimensions, they are in the operand's order.
    Otherwise the spatial axes are first and the reduction axes last. Reduction axes are first if no
    axis is summed and the last spatial axis is the last axis of `stage`.
    """
    chosen = tuple(chosen)
    used = _vars(chosen)
    outside = _vars(rest) | {axis.name for axis in stage.axes}
    spatial = [axis for axis in stage.axes if axis.name in used]
    reduced = [axis for axis in stage.reduce_axes if axis.name in used & outside]
    order = _stored(chosen, {axis.name for axis in (*spatial, *reduced)})
    if order is not None:
        by_name = {axis.name: axis for axis in (*spatial, *reduced)}
        return tuple(by_name[name] for name in order)
    is_summed = any(axis.name in used - outside for axis in stage.reduce_axes)
    is_column = bool(spatial) and spatial[-1] == stage.axes[-1]
    return (*reduced, *spatial) if is_column and not is_summed else (*spatial, *reduced)


def summed_axes(stage: Stage, chosen: Iterable[Scalar], rest: Iterable[Scalar]) -> tuple[Axis, ...]:
    """Return the reduction axes on which `chosen` depends and `rest` does not."""
    only = _vars(chosen) - _vars(rest)
    return tuple(axis for axis in stage.reduce_axes if axis.name in only)


def _factors(node: Scalar) -> tuple[Scalar, ...]:
    if isinstance(node, Binary) and node.op is BinaryOp.MUL:
        return (*_factors(node.a), *_factors(node.b))
    return (node,)


def _vars(factors: Iterable[Scalar]) -> frozenset[str]:
    return frozenset().union(*(vars_of(factor) for factor in factors))


def _stored(chosen: Sequence[Scalar], wanted: set[str]) -> tuple[str, ...] | None:
    """Return `wanted` in the order of an operand that has exactly these dimensions, or None."""
    for load in (load for factor in chosen for load in loads(factor)):
        plain = [name for index in load.index for name in index.vars()]
        simple = len(plain) == len(load.index) and all(
            index == var(name) for index, name in zip(load.index, plain, strict=True)
        )
        if simple and set(plain) == wanted:
            return tuple(plain)
    return None


def _in_two(
    workload: Workload,
    stage: Stage,
    chosen: Sequence[Scalar],
    rest: Sequence[Scalar],
    source: PrecomputeFactors,
) -> tuple[Stage, Stage]:
    axes, summed = kept_axes(stage, chosen, rest), summed_axes(stage, chosen, rest)
    if not axes:
        raise ScheduleError(source, "the product would depend on no axis")
    name = fresh("product", set(workload.tensors))
    tensor = Tensor(name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
    body = reduce(_times, chosen)
    first = Stage(tensor, axes, body, _sum_over(summed))
    index = tuple(var(axis.name) if axis.extent > 1 else affine(0) for axis in axes)
    read: Scalar = Load(name, index, tensor.dtype)
    left = tuple(axis for axis in stage.reduce_axes if axis not in summed)
    second = replace(stage, body=reduce(_times, rest, read), kind=_sum_over(left))
    return first, second


def _sum_over(axes: tuple[Axis, ...]) -> StageKind:
    return Reduction(Reducer.SUM, axes) if axes else Elementwise()


def _times(a: Scalar, b: Scalar) -> Scalar:
    return Binary(BinaryOp.MUL, a, b)
