"""Conditions under which an earlier stage stored a constant are repeated where it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ..algebra.comparisons import Cond, substitute_cond
from ..algebra.conditions import needed
from ..algebra.neutral import identity_of, neutral_conditions
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    conditional_loads,
    data_of,
    loads,
    rewrite,
)
from ..errors import require
from ..workload.tensors import Stage
from ..workload.validate import stage_ranges
from ..workload.workload import Workload
from .rewrite import Rewrite


@dataclass(frozen=True, slots=True)
class RepeatConditions(Rewrite):
    """Repeat the conditions of stored constants in the reduction `stage`.

        P[i,k] = exp(A[i,k]) if k <= i else 0;  C[i,j] += P[i,k] * B[k,j]
    ->  P[i,k] = exp(A[i,k]) if k <= i else 0;  C[i,j] += (P[i,k] if k <= i else 0) * B[k,j]

    No value changes, but stored zeros become implicit zeros, whose products with infinities and NaN
    may be skipped (docs/math.md). The reduction can then skip its terms that are zero (SkipBlocks).
    The rewrite is legal if the reduction reads an elementwise stage that stores a constant unless a
    condition holds, and does not have this condition yet. If there is none, it is legal for a sum
    of which a factor reads a stage that stores products with implicit zeros:

        P[i,k] = (S[i,k] if k <= i else 0) * A[i,k];  C[i,j] += P[i,k] * B[k,j]
    """

    label: ClassVar[str] = "conditions"

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with more conditions in `stage`, in normal form.

        Raise ScheduleError if there is no such stage, if it is no reduction, or if there is nothing
        to repeat.
        """
        stage = self.stage_of(workload)
        require(stage.is_reduction, self, f"{stage.name!r} is no reduction")
        new = repeated_conditions(workload, stage)
        require(bool(new), self, f"no read of {stage.name!r} has conditions to repeat")

        def guarded(node: Scalar) -> Scalar | None:
            return new.get(node) if isinstance(node, Load) else None

        changed = replace(stage, body=rewrite(stage.body, guarded))
        stages = tuple(changed if old is stage else old for old in workload.stages)
        return replace(workload, stages=stages).normalised()


def repeated_conditions(workload: Workload, stage: Stage) -> Mapping[Load, Select]:
    """Return the reads of `stage` whose elements are a constant unless a condition holds, each with
    the same read under this condition. Reads that are under the condition already are omitted.

    If there are none, return the factors of a sum's terms that are products with implicit zeros.
    """
    earlier = {one.name: one for one in workload.stages if one.is_elementwise}
    constants = {name: _stored_constant(one.body) for name, one in earlier.items()}
    found = _repeated(stage, earlier, constants)
    if found or not stage.reduces_by(Reducer.SUM):
        return found
    products = {name: _implicit_zero(one.body) for name, one in earlier.items()}
    elsewhere = set(_reads_elsewhere(stage.body))
    repeated = _repeated(stage, earlier, products)
    return {load: choice for load, choice in repeated.items() if load not in elsewhere}


def _stored_constant(body: Scalar) -> tuple[tuple[Cond, ...], Const] | None:
    """Return the conditions unless which `body` is a constant, and the constant."""
    match body:
        case Select(All(conds), _, Const() as otherwise):
            return conds, otherwise
        case _:
            return None


def _implicit_zero(body: Scalar) -> tuple[tuple[Cond, ...], Const] | None:
    """Return the conditions unless which `body` is a product with an implicit zero, and zero."""
    conds = neutral_conditions(body, Reducer.SUM)
    return (conds, identity_of(Reducer.SUM, body)) if conds else None


def _repeated(
    stage: Stage,
    earlier: Mapping[str, Stage],
    stored: Mapping[str, tuple[tuple[Cond, ...], Const] | None],
) -> dict[Load, Select]:
    """Return the reads of `stage` whose elements are constants unless conditions hold, as `stored`
    says of each of the `earlier` stages, with the same read under these conditions."""
    ranges, found = stage_ranges(stage), dict[Load, Select]()
    for load, given in conditional_loads(stage.body):
        known = stored.get(load.tensor)
        if known is None:
            continue
        conds, otherwise = known
        pairs = zip(earlier[load.tensor].axes, load.index, strict=True)
        at = {axis.name: index for axis, index in pairs}
        here: list[Cond] = [substitute_cond(cond, at) for cond in conds]
        # Conditions on data are none; the others repeat a part of what chose the element.
        left = needed((c for c in here if not c.index.has_data), ranges, given)
        if left:
            found[load] = Select(All(left), load, otherwise)
    return found


def _reads_elsewhere(term: Scalar) -> Iterator[Load]:
    """Yield the reads in `term`, a term of a sum, that are not factors of products and sums."""
    match term:
        case Load():
            for datum in data_of(term):
                yield from loads(datum.value)
        case Binary(BinaryOp.MUL | BinaryOp.ADD | BinaryOp.SUB, a, b):
            yield from _reads_elsewhere(a)
            yield from _reads_elsewhere(b)
        case Unary(UnaryOp.NEG | UnaryOp.ABS, x):
            yield from _reads_elsewhere(x)
        case Cast(x, dtype) if dtype.is_float and x.dtype.is_float:
            yield from _reads_elsewhere(x)
        case Select(cond, on_true, on_false):
            yield from loads(cond)
            yield from _reads_elsewhere(on_true)
            yield from _reads_elsewhere(on_false)
        case _:
            yield from loads(term)
