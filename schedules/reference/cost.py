"""Predict the run time of the reference from operation counts.

Times are seconds on one core, by rates measured on a Zen 5 core and rounded up. They determine
whether outputs are sampled, and the size of the sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from ..algebra.affine import Affine, Var
from ..algebra.scalar import (
    Binary,
    BinaryOp,
    Load,
    Reducer,
    Scalar,
    Unary,
    data_of,
    vars_of,
    walk,
)
from ..workload.tensors import Scan, Stage, TupleReduction
from ..workload.workload import Workload
from .active import active_share
from .contract import Contraction, recognise
from .reads import full_box
from .repeated import Expression, repetitions
from .residues import class_count
from .sample import Sample, grid_of, sampled_stage


@dataclass(frozen=True, slots=True)
class ReferenceCosts:
    """Seconds per point for each kind of node."""

    node: float
    """An operation, a strided read or a term of a reduction."""
    gather: float
    """A read whose index is computed for each element."""
    rounded: float
    """An addition, subtraction or division of floats."""
    function: float
    """A function of one or two values."""
    product: float
    """One multiply-add of a float64 matrix multiplication."""
    element: float
    """An element of the result of a matrix multiplication."""


VALUES = ReferenceCosts(
    node=1e-9, gather=10e-9, rounded=1e-9, function=20e-9, product=0.15e-9, element=4e-9
)
BOUNDED = ReferenceCosts(
    node=3e-9, gather=12e-9, rounded=25e-9, function=50e-9, product=0.6e-9, element=40e-9
)
"""Rates for evaluating values only (`VALUES`), and values together with their error bound
(`BOUNDED`)."""
_KERNEL_PRODUCT_SECS = 25e-12
_KERNEL_POINT_SECS = 0.5e-9
_ELEMENT_SECS = 20e-9
_CLASS_SECS = 1e-3
_ROUNDED = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.DIV)


def predicted_secs(
    workload: Workload, sample: Sample | None = None, *, bounded: bool, finite: bool = True
) -> float:
    """Return the predicted seconds to evaluate `workload`, or only its elements `sample`.

    `bounded` states whether the error bound is also computed. `finite` states whether the inputs
    have no NaN and no infinities, so that products with zero can be skipped.
    """
    grids = {s.name: grid_of(sample, s) for s in workload.stages}
    sampled = {name for name, grid in grids.items() if any(p is not None for p in grid)}
    rates = BOUNDED if bounded else VALUES
    return sum(_stage_secs(s, sample, sampled, rates, finite) for s in workload.stages)


def kernel_secs(workload: Workload) -> float:
    """Return the estimated seconds of one call of an unoptimised kernel on one core."""
    total = 0.0
    for stage in workload.stages:
        plan = recognise(stage)
        if plan is not None:
            total += _KERNEL_PRODUCT_SECS * _products(plan)
        else:
            whole = full_box(stage.all_axes)
            total += _KERNEL_POINT_SECS * whole.points * active_share(stage, whole)
    return total


def handling_secs(workload: Workload) -> float:
    """Return the seconds to draw and store one set of inputs and to compare the outputs."""
    tensors = (*workload.inputs, *workload.output_tensors)
    return _ELEMENT_SECS * sum(t.elements for t in tensors)


def points(workload: Workload) -> int:
    """Return the total number of points of all iteration spaces."""
    return sum(prod(_extents(s).values()) for s in workload.stages)


def _stage_secs(
    stage: Stage,
    sample: Sample | None,
    sampled: Collection[str],
    rates: ReferenceCosts,
    finite: bool,
) -> float:
    grid = grid_of(sample, stage)
    found = class_count(stage, grid) if finite else None
    if found is not None:
        classes, first = found
        own = _stage_secs(first.stage, {stage.name: first.grid}, sampled, rates, finite)
        return classes * (own + _CLASS_SECS)
    compact, places = sampled_stage(stage, grid)
    plan = recognise(compact, whole=places)
    if plan is not None:
        extents = _extents(plan.stage)
        sides = (_node_secs(s, extents, places, sampled, rates) for s in (plan.left, plan.right))
        elements = prod(a.extent for a in (*plan.batch, *plan.rows, *plan.columns))
        return sum(sides) + rates.product * _products(plan) + rates.element * elements
    extents = _extents(compact)
    total = rates.node * prod(extents.values())  # to write or to reduce the value
    total += _node_secs(stage.body, extents, places, sampled, rates)
    if isinstance(stage.kind, TupleReduction):
        # Errors are those of two trees, and combinations read copies of their operands.
        nodes = [node for root in stage.kind.combine for node in walk(root)]
        trees = 2 if rates is BOUNDED else 1
        total += trees * prod(extents.values()) * sum(2 * _own_secs(n, rates) for n in nodes)
    if isinstance(stage.kind, Scan):
        # Running products reach denormal numbers, which a CPU multiplies slowly.
        is_product = stage.kind.reducer is Reducer.PROD
        total += prod(extents.values()) * (rates.function if is_product else rates.node)
    whole = full_box(compact.all_axes, places)
    return total * active_share(compact, whole, finite=finite)


def _products(plan: Contraction) -> int:
    return prod(a.extent for a in (*plan.batch, *plan.rows, *plan.inner, *plan.columns))


def _extents(stage: Stage) -> dict[str, int]:
    return {a.name: a.extent for a in stage.all_axes}


def _own_secs(node: Scalar, rates: ReferenceCosts) -> float:
    """Return the seconds per point for the operation of `node`, without its operands."""
    if isinstance(node, Unary) or (isinstance(node, Binary) and node.op.function is not None):
        return rates.function
    if isinstance(node, Binary) and node.op in _ROUNDED and node.dtype.is_float:
        return rates.rounded
    return rates.node


def _node_secs(
    node: Scalar,
    extents: Mapping[str, int],
    placed: Collection[str],
    sampled: Collection[str],
    rates: ReferenceCosts,
) -> float:
    """Return the seconds for `node`. Each subexpression is evaluated once per point of the axes on
    which it depends."""
    total = 0.0
    for each in repetitions(Expression(node)).distinct:
        own = _own_secs(each, rates)
        if isinstance(each, Load):
            if each.tensor in sampled or not _is_view(each, placed):
                own = rates.gather
            data = (datum.value for datum in data_of(each))
            total += sum(_node_secs(x, extents, placed, sampled, rates) for x in data)
        total += own * prod(extents[name] for name in vars_of(each))
    return total


def _is_view(read: Load, placed: Collection[str]) -> bool:
    def is_linear(index: Affine) -> bool:
        return all(isinstance(atom, Var) and atom.name not in placed for atom, _ in index.terms)

    return all(is_linear(index) for index in read.index)
