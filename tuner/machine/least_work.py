"""The least work of a workload: operations and bytes that no schedule of any form can avoid.

Operations are counted in slots of the multiply-add pipes. A slot is one lane of one multiply-add.
The bytes of each tensor count once.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import assert_never

from tilewright.costmodel.machine import compute_dtype
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Cast,
    Reducer,
    Scalar,
    Select,
    Unary,
    children,
    loads,
    vars_of,
)
from tilewright.schedules.algebra.selection import selections
from tilewright.schedules.dtypes import DType
from tilewright.schedules.form import Form
from tilewright.schedules.nest.instructions import EIGHT_BITS
from tilewright.schedules.rewrites.precompute_factors import factors_of
from tilewright.schedules.sketches.forms.rewriting import regrouped, rewrites_for
from tilewright.schedules.workload.flops import counted_flops, useful_flops
from tilewright.schedules.workload.tensors import (
    Elementwise,
    Reduction,
    Scan,
    Stage,
    TupleReduction,
)
from tilewright.schedules.workload.workload import Workload

from .instruction_rates import NarrowOperands

SMALLEST_ERROR = 1e-9
"""An allowed error that permits regrouping of sums and products, but no rewrite that has an error
(Winograd)."""


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of a call."""

    slots: float
    """Slots of the multiply-add pipes."""
    min_bytes: int
    """Bytes that are read and written."""
    dtype: DType
    """The type in which the workload computes."""
    narrow: tuple[tuple[NarrowOperands, float], ...] = ()
    """The slots with narrow operands, for which a machine may have faster instructions than
    multiply-adds in `dtype`."""


_MULTIPLIED = (BinaryOp.MUL, BinaryOp.DIV)


def least_work(workload: Workload, forms: Sequence[Form] | None = None) -> Work:
    """Return the least work over the original form of `workload` and its other `forms`.

    If `forms` is None, they are derived here. Otherwise they must be the forms of the workload's
    space (`ScheduleSpace.forms`).
    """
    others = _forms(workload) if forms is None else forms
    found = (_useful_slots(form) for form in (workload, *(other.workload for other in others)))
    by_operands = min(found, key=lambda slots: sum(slots.values()))
    narrow = tuple((kind, n) for kind, n in by_operands.items() if kind is not None)
    slots = sum(by_operands.values())
    return Work(slots, least_bytes(workload), compute_dtype(workload), narrow)


def least_bytes(workload: Workload) -> int:
    """Return the least bytes of a call: at most `Workload.min_bytes`, and of an input at most one
    element for each value of the variables of its reads, as of the diagonal of a matrix."""
    read = workload.most_read
    inputs = sum(
        min(t.bytes, read.get(t.name, t.elements) * t.dtype.bytes) for t in workload.inputs
    )
    return min(workload.min_bytes, inputs + sum(t.bytes for t in workload.output_tensors))


def _forms(workload: Workload) -> tuple[Form, ...]:
    normal = workload.stored()
    return tuple(form for form in (regrouped(normal), *rewrites_for(normal)) if form.steps)


def saved_by_allowing_error(workload: Workload) -> float:
    """Return the factor by which the work would shrink if `workload` had an allowed error. It is at
    least 1.0.

    Sums of products of three or more factors can then be computed in steps. With infinities and
    zeros, this changes the result (`rewrites.precompute_factors.may_distribute`). Therefore it
    needs an allowed error for floats.
    """
    normal = workload.normalised()
    products = any(len(factors_of(stage)) > 2 for stage in normal.stages)
    if workload.allowed_error is not None or not products:
        return 1.0
    allowing = regrouped(normal.allowing(SMALLEST_ERROR)).workload
    return max(_all_slots(regrouped(normal).workload) / _all_slots(allowing), 1.0)


def _all_slots(workload: Workload) -> float:
    return sum(_useful_slots(workload).values())


def _useful_slots(workload: Workload) -> dict[NarrowOperands | None, float]:
    """Return the slots for each kind of narrow operands. The key None has the slots whose operands
    are not narrow."""
    # `useful_flops` is a sum over all stages, so the fraction without padding is an average.
    share = useful_flops(workload) / max(counted_flops(workload), 1)
    constant = _constant_stages(workload)
    found: dict[NarrowOperands | None, float] = {}
    for stage in workload.stages:
        if stage.name not in constant:
            operands = operands_of(stage, workload)
            found[operands] = found.get(operands, 0.0) + share * pipe_slots(stage)
    return found


def operands_of(stage: Stage, workload: Workload) -> NarrowOperands | None:
    """Return the narrow operands of `stage`, or None if it has none.

    Narrow operands are (1) elements narrower than the stage's arithmetic whose products are summed,
    or (2) integers that are not multiplied, because a vector has more lanes of them.
    """
    read = {workload.tensors[load.tensor].dtype.stored for load in loads(stage.body)}
    if not read:
        return None
    widest = max(read, key=lambda dtype: dtype.bits)
    products = stage.reduces_by(Reducer.SUM) and _is_product(stage.body)
    multiplies = any(
        isinstance(node, Unary)
        or (isinstance(node, Binary) and (node.op in _MULTIPLIED or node.op.function is not None))
        for node in _computed(stage.body)
    )
    if products and widest.bits < DType.F32.bits and (read <= EIGHT_BITS or len(read) == 1):
        return NarrowOperands(widest, products=True)
    integers = not any(dtype.is_float for dtype in (*read, stage.tensor.dtype))
    return NarrowOperands(widest, products=False) if integers and not multiplies else None


def _constant_stages(workload: Workload) -> set[str]:
    """Return the stages that can be computed once, before the first call. Outputs are excluded."""
    known = {tensor.name for tensor in workload.constants}
    found = set[str]()
    for stage in workload.stages:
        reads = {load.tensor for load in loads(stage.body)}
        if reads and reads <= known and stage.name not in workload.outputs:
            known.add(stage.name)
            found.add(stage.name)
    return found


def pipe_slots(stage: Stage) -> float:
    """Return the least number of slots that one call of `stage` needs, padding included.

    An operation counts once per value of the axes on which it depends, because common
    subexpressions are computed once, and invariant ones outside loops. A multiplication whose
    result is only added takes one slot together with that addition. Additions and comparisons may
    run on as many other pipes. So for m multiplications and a other operations, a stage needs
    max(m, (m + a) / 2) slots. Operations in one branch of a select do not count, because the branch
    may not be taken. Data select one element of an axis of `_selected_axes` for each term.
    """
    selected = _selected_axes(stage)
    extents = {a.name: a.extent for a in stage.all_axes if a.name not in selected}
    multiplied, added = 0, 0
    for node in _computed(stage.body):
        times = prod(extents.get(name, 1) for name in vars_of(node))
        match node:
            case Binary(op=op) if op in _MULTIPLIED:
                multiplied += times
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB, a=a, b=b):
                added += 0 if _is_product(a) or _is_product(b) else times
            case Unary(op=op):
                multiplied += op.function.slots * times
            case Binary(op=op) if op.function is not None:
                multiplied += op.function.slots * times
            case Binary():
                added += times
            case _:
                pass
    match stage.kind:
        case Elementwise():
            pass
        case Reduction(reducer):
            fused = reducer is Reducer.SUM and _is_product(stage.body)
            added += 0 if fused else prod(extents.values())
        case Scan() | TupleReduction():
            added += prod(extents.values())
        case _:
            assert_never(stage.kind)
    return max(multiplied, (multiplied + added) / 2)


def _selected_axes(stage: Stage) -> Set[str]:
    """Return the output axes of a reduction along which data select the output of each term."""
    if not isinstance(stage.kind, Reduction):
        return frozenset()
    axes = [axis.name for axis in stage.axes]
    return selections(stage.body, axes, stage.kind.reducer).by_name.keys()


def _computed(node: Scalar) -> set[Scalar]:
    """Return the distinct operations that are computed for every outcome of the conditions of
    selects."""
    found: set[Scalar] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Binary | Unary):
            found.add(current)
        pending.extend([current.cond] if isinstance(current, Select) else children(current))
    return found


def _is_product(node: Scalar) -> bool:
    while isinstance(node, Cast):
        node = node.x
    return isinstance(node, Binary) and node.op is BinaryOp.MUL
