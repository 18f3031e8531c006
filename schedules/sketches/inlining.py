"""Choose the elementwise stages that are inlined into their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ..algebra.neutral import neutral_conditions
from ..algebra.scalar import (
    Binary,
    BinaryOp,
    Load,
    Reducer,
    Scalar,
    children,
    conditional_loads,
    loads,
    walk,
)
from ..limits import MAX_INLINED_DEPTH
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .analysis.combined import combines_reductions
from .analysis.stages import SHORT_AXIS, math_calls


def stages_inlined(workload: Workload) -> tuple[str, ...]:
    """Return the elementwise stages that are cheaper inside their readers, in program order.

    Each use of a stage becomes a separate copy of its expression. The code generator merges the
    copies, but every step before it processes all of them. Therefore an expression with inlined
    stages has fewer than `MAX_INLINED_DEPTH` operations.
    """
    inside: dict[str, _Inlined] = {}
    with_zeros = set[str]()
    for stage in workload.stages:
        if not stage.is_elementwise or stage.name in workload.outputs:
            continue
        readers = workload.consumers(stage.name)
        if any(_reads_by_data(reader, stage.name) for reader in readers):
            continue
        if any(reader.is_reduction for reader in readers) and combines_reductions(
            stage.body, stage.axes, workload
        ):
            continue
        own = _Inlined.of(stage, inside)
        if own.transposes and _is_read_along_rows(stage, readers):
            continue
        if _stores_zeros(stage) or any(load.tensor in with_zeros for load in loads(stage.body)):
            # Inside a product, a stored zero would be an implicit one, whose products with NaN a
            # kernel may skip. The rewrite ReadThrough does this with the judge's knowledge.
            if any(_multiplies_sums(reader) for reader in readers):
                continue
            with_zeros.add(stage.name)
        # Reads of the same element are merged, together with what is inlined into them.
        times = sum(
            _points(reader) * sum(ld.tensor == stage.name for ld in set(loads(reader.body)))
            for reader in readers
        )
        # A stored stage reads its operands once, is written once, and is read for each use.
        again, reads = times / max(_points(stage), 1), max(own.reads, 2)
        cheap = own.math_calls == 0 and again * reads <= reads + 1 + again
        if again <= 1.0 or cheap:
            grown = {**inside, stage.name: own}
            if all(_Inlined.of(reader, grown).size < MAX_INLINED_DEPTH for reader in readers):
                inside = grown
    return tuple(inside)


@dataclass(frozen=True, slots=True)
class _Inlined:
    """A stage with the stages that are inlined into it."""

    size: int
    """The number of operations, those of repeated reads included."""
    reads: int
    """The number of different elements that it reads of stored tensors."""
    math_calls: int
    transposes: bool
    """Whether it reads a tensor whose last axis is another one than its own."""

    @classmethod
    def of(cls, stage: Stage, inside: Mapping[str, _Inlined]) -> _Inlined:
        """Return the facts of `stage` if the stages `inside` are inlined into it."""
        reads = [inside.get(load.tensor) for load in set(loads(stage.body))]
        inner = [one for one in reads if one is not None]
        return cls(
            _size_with(stage.body, inside),
            len(reads) - len(inner) + sum(one.reads for one in inner),
            math_calls(stage.body) + sum(one.math_calls for one in inner),
            _transposes(stage) or any(one.transposes for one in inner),
        )


def _transposes(stage: Stage) -> bool:
    """Return whether `stage` reads a tensor whose last axis is another one than its own. Short axes
    do not count, because blocks of them fill no vectors."""
    *_, last = stage.axes or (None,)
    if last is None or last.extent < SHORT_AXIS:
        return False
    reads = (load.index for load in loads(stage.body) if load.index)
    return any(
        last.name not in own.vars() and any(last.name in index.vars() for index in others)
        for *others, own in reads
    )


def _is_read_along_rows(stage: Stage, readers: Sequence[Stage]) -> bool:
    """Return whether several stages, or a reduction, read each element of `stage` about once, or a
    stage that stores zeros reads it under a condition, so that it cannot transpose blocks. A
    product, which reads it several times, reads a packed copy instead."""
    if any(_masks(reader, stage.name) for reader in readers):
        return True
    if any(_points(reader) > _points(stage) for reader in readers):
        return False
    return len(readers) > 1 or any(not reader.is_elementwise for reader in readers)


def _masks(reader: Stage, name: str) -> bool:
    """Return whether `reader` stores elements of the tensor `name`, or zeros where a condition on
    indices fails."""
    reads = conditional_loads(reader.body) if reader.is_elementwise else ()
    return any(conds and load.tensor == name for load, conds in reads) and _stores_zeros(reader)


def _stores_zeros(stage: Stage) -> bool:
    """Return whether `stage` has zeros that a condition on indices chooses."""
    return bool(neutral_conditions(stage.body, Reducer.SUM))


def _multiplies_sums(stage: Stage) -> bool:
    """Return whether `stage` sums products."""
    products = (isinstance(n, Binary) and n.op is BinaryOp.MUL for n in walk(stage.body))
    return stage.reduces_by(Reducer.SUM) and any(products)


def _reads_by_data(reader: Stage, name: str) -> bool:
    """Return whether `reader` reads the tensor `name` at an index that contains data."""
    reads = (ld for ld in loads(reader.body) if ld.tensor == name)
    return any(i.has_data for read in reads for i in read.index)


def _size_with(body: Scalar, inside: Mapping[str, _Inlined]) -> int:
    """Return the number of operations of `body` if the stages `inside` are inlined into it."""
    known = inside.get(body.tensor) if isinstance(body, Load) else None
    own = known.size if known is not None else 1
    return own + sum(_size_with(child, inside) for child in children(body))


def _points(stage: Stage) -> int:
    return prod(axis.extent for axis in stage.all_axes)
