"""Stages that reduce tuples: their rules, and the components that they need."""

from __future__ import annotations

from dataclasses import replace

from ..algebra.neutral import identity_of
from ..algebra.scalar import All, Components, IndexValue, Scalar, walk
from ..algebra.tuples import (
    LEFT,
    RIGHT,
    component,
    components_needed,
    components_read,
    reducer_of,
    restricted,
)
from ..dtypes import DType
from ..errors import WorkloadError
from ..limits import MAX_COMPONENTS
from .tensors import Reduction, Stage, Tensor, TupleReduction
from .validate_body import check_combination


def stored_value(stage: Stage) -> Scalar:
    """Return the part of the body that has the type of the stage's tensor: the component that it
    stores, or the whole body."""
    if isinstance(stage.kind, TupleReduction) and isinstance(stage.body, Components):
        return stage.body.values[stage.kind.position]
    return stage.body


def component_tensors(kind: TupleReduction) -> dict[str, Tensor]:
    """Return the components of both tuples by name, as tensors that a combination may read."""
    reads = [
        component(side, n, identity.dtype)
        for side in (LEFT, RIGHT)
        for n, identity in enumerate(kind.identities)
    ]
    return {read.tensor: Tensor(read.tensor, (), read.dtype) for read in reads}


def check_tuple_reduction(stage: Stage, pointer: str) -> None:
    """Raise WorkloadError if `stage` violates a rule of reductions of tuples, except for the rules
    of expressions in its body."""
    kind, body = stage.kind, stage.body
    assert isinstance(kind, TupleReduction)
    count = len(body.values) if isinstance(body, Components) else 0
    problem, place = "", "body"
    if not kind.axes:
        problem, place = "reduces a tuple over no axis", "reduce_axes"
    elif not 1 <= count <= MAX_COMPONENTS:
        problem = f"reduces a tuple of 1..{MAX_COMPONENTS} values, got {count}"
    elif not count == len(kind.identities) == len(kind.combine):
        found = f"{len(kind.identities)} identities and {len(kind.combine)} combinations"
        problem, place = f"has {count} values, {found}; a component has one of each", "combine"
    elif not 0 <= kind.position < count:
        problem, place = f"stores component {kind.position} of {count}", "position"
    if problem:
        raise _error(stage, problem, "bad_reduction", f"{pointer}/{place}")
    assert isinstance(body, Components)
    for number, (value, identity) in enumerate(zip(body.values, kind.identities, strict=True)):
        if identity.dtype is not value.dtype:
            what = f"component {number} is {value.dtype}, its identity {identity.dtype}; cast one"
            raise _error(stage, what, "dtype_clash", f"{pointer}/identities/{number}")
        if value.dtype is DType.BOOL or value.dtype.is_narrow_float:
            wide = value.dtype.wide
            what = f"reduces a component in {value.dtype}; reduce in {wide} and cast the result"
            raise _error(stage, what, "bad_dtype", f"{pointer}/body/values/{number}")
    check_combination(stage, component_tensors(kind), f"{pointer}/combine")
    for number, node in enumerate(kind.combine):
        _check_combination(stage, number, node, count, f"{pointer}/combine/{number}")


def _check_combination(stage: Stage, number: int, node: Scalar, count: int, pointer: str) -> None:
    kind = stage.kind
    assert isinstance(kind, TupleReduction)
    wanted = kind.identities[number].dtype
    if node.dtype is not wanted:
        what = f"component {number} is {wanted}, its combination {node.dtype}; cast it"
        raise _error(stage, what, "dtype_clash", pointer)
    if any(isinstance(n, All | IndexValue) for n in walk(node)):
        raise _error(stage, "a combination depends on components only", "bad_node", pointer)
    for side in (LEFT, RIGHT):
        # With an identity on the other side, the result is the component of this side.
        if number not in components_read(node, side, count):
            what = (
                f"the combination of component {number} does not use the {side} one, so it has no"
                " identity"
            )
            raise _error(stage, what, "bad_reduction", pointer)


def needed_components(stage: Stage) -> Stage:
    """Return a reduction of tuples without the components on which its own one does not depend.

    A component that depends on no other, and is combined by a reducer, is an ordinary reduction.
    Other stages are returned unchanged.
    """
    kind, body = stage.kind, stage.body
    if not isinstance(kind, TupleReduction) or not isinstance(body, Components):
        return stage
    kept, at = components_needed(kind.combine, kind.position), kind.position
    reducer = reducer_of(kind.combine[at], at)
    if reducer is not None and kind.identities[at] == identity_of(reducer, body.values[at]):
        return replace(stage, kind=Reduction(reducer, kind.axes), body=body.values[at])
    if len(kept) == len(body.values):
        return stage
    found = TupleReduction(
        kind.axes,
        tuple(kind.identities[n] for n in kept),
        restricted(kind.combine, kept),
        kept.index(at),
        kind.commutative,
    )
    return replace(stage, kind=found, body=Components(tuple(body.values[n] for n in kept)))


def _error(stage: Stage, what: str, code: str, pointer: str) -> WorkloadError:
    return WorkloadError(f"stage {stage.name!r}: {what}", code=code, pointer=pointer)
