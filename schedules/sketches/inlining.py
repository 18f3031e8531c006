"""Choose the elementwise stages that are inlined into their readers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..algebra.neutral import neutral_conditions
from ..algebra.scalar import (
    Binary,
    BinaryOp,
    Load,
    Reducer,
    Scalar,
    children,
    loads,
    walk,
)
from ..limits import MAX_INLINED_DEPTH
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .analysis.stages import math_calls


def stages_inlined(workload: Workload) -> tuple[str, ...]:
    """Return the elementwise stages that are cheaper inside their readers, in program order.

    Each use of a stage becomes a separate copy of its expression. The code generator merges the
    copies, but every step before it processes all of them. Therefore an expression with inlined
    stages has fewer than `MAX_INLINED_DEPTH` operations.
    """
    sizes: dict[str, int] = {}
    with_zeros = set[str]()
    for stage in workload.stages:
        if not stage.is_elementwise or stage.name in workload.outputs:
            continue
        readers = workload.consumers(stage.name)
        if any(_reads_by_data(reader, stage.name) for reader in readers):
            continue
        if _stores_zeros(stage) or any(load.tensor in with_zeros for load in loads(stage.body)):
            # Inside a product, a stored zero would be an implicit one, whose products with NaN a
            # kernel may skip. The rewrite ReadThrough does this with the judge's knowledge.
            if any(_multiplies_sums(reader) for reader in readers):
                continue
            with_zeros.add(stage.name)
        times = sum(
            _points(reader) * sum(1 for ld in loads(reader.body) if ld.tensor == stage.name)
            for reader in readers
        )
        # A stored stage reads its operands once, is written once, and is read for each use.
        again, own = times / max(_points(stage), 1), max(len(loads(stage.body)), 2)
        cheap = math_calls(stage.body) == 0 and again * own <= own + 1 + again
        if again <= 1.0 or cheap:
            grown = {**sizes, stage.name: _size_with(stage.body, sizes)}
            if all(_size_with(reader.body, grown) < MAX_INLINED_DEPTH for reader in readers):
                sizes = grown
    return tuple(sizes)


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


def _size_with(body: Scalar, inside: Mapping[str, int]) -> int:
    """Return the number of operations of `body` if stages are inlined into it. `inside` has the
    number of operations of each inlined stage."""
    own = inside.get(body.tensor, 1) if isinstance(body, Load) else 1
    return own + sum(_size_with(child, inside) for child in children(body))


def _points(stage: Stage) -> int:
    return prod(axis.extent for axis in stage.all_axes)
