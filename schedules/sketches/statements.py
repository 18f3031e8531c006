"""Statements of a stage's leaves, and the axes and accesses of its plan, for the cost models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from ..algebra.affine import ZERO, Affine, var
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    Reducer,
    Scalar,
    Select,
    Unary,
    calls_of,
    vars_of,
    walk,
)
from ..leaves import AccessPattern, Dim, Operations, Statement
from ..plan import Access, LoopAxis, Outline, access_of
from .analysis.stages import StageLoop, StageRead, StageView, once, windows_of

NOTHING = LoopAxis("", 1)
"""Placeholder for an axis that a stage does not have."""


def axis_names(order: Sequence[str]) -> dict[str, str]:
    """Return the position of each axis in `order` as its name, so that different stages have common
    names."""
    return {axis: str(n) for n, axis in enumerate(order)}


def own_names(view: StageView) -> dict[str, str]:
    """Return the names of a stage's loops, mapped to themselves."""
    return {loop.name: loop.name for loop in (*view.spatial, *view.reduce)}


def place_of(read: StageRead, names: Mapping[str, str]) -> AccessPattern:
    steps: dict[str, int] = {}
    for axis in frozenset().union(*(index.vars() for index in read.index)):
        step = read.element_stride(axis)
        steps[names[axis]] = 1 if step is None else step
    dims = tuple(
        Dim(tuple(sorted((names[a], i.coefficient(a)) for a in i.vars())), i.const)
        for i in read.index
    )
    return AccessPattern(read.tensor, (read.tensor, dims), steps, dims)


def own_place(view: StageView, names: Mapping[str, str]) -> AccessPattern:
    """Return the access pattern of the elements that a stage writes."""
    steps, size = {}, 1
    for loop in reversed(view.stored_loops):
        steps[names[loop.name]] = size
        size *= loop.extent
    dims = tuple(Dim(((names[x.name], 1),) if x.extent > 1 else (), 0) for x in view.stored_loops)
    return AccessPattern(view.name, (view.name, dims), steps, dims)


def statement_of(view: StageView, names: Mapping[str, str]) -> Statement:
    """Return the statement of one evaluation of a stage. A sum stays in registers; for floats, its
    last multiplication is fused with the addition."""
    found: dict[frozenset[str], list[int]] = {}
    value = view.value.on_true if isinstance(view.value, Select) else view.value
    is_fused = view.reducer is Reducer.SUM and view.dtype.is_float
    product = value if is_fused and isinstance(value, Binary) and value.op is BinaryOp.MUL else None
    for node in dict.fromkeys(walk(view.value)):
        if _is_operation(node) and node != product:
            one = found.setdefault(frozenset(names[axis] for axis in vars_of(node)), [0, 0, 0])
            calls = calls_of(node)
            one[0] += not calls
            one[1] += isinstance(node, Unary | Binary)
            one[2] += calls
    operations = [Operations(axes, *numbers) for axes, numbers in found.items()]
    if view.is_reduction:
        operations.append(Operations(frozenset(names.values()), 1, 1 + (product is not None)))
    return Statement(
        tuple(operations),
        tuple(place_of(read, names) for read in view.reads),
        None if view.is_reduction else own_place(view, names),
        frozenset(names[loop.name] for loop in view.reduce),
        any(read.padded for read in view.reads) or bool(view.guards),
        view.dtype,
    )


def _is_operation(node: Scalar) -> bool:
    """Return whether `node` is an instruction. A Select on an index only masks loads and is
    none."""
    if isinstance(node, Cast):
        return node.x.dtype is not node.dtype and not isinstance(node.x, Const)
    is_choice = isinstance(node, Select) and not isinstance(node.cond, All)
    return is_choice or isinstance(node, Unary | Binary | Compare)


def stage_outline(
    view: StageView,
    loops: Sequence[StageLoop | None],
    reads: Sequence[StageRead],
    extents: Mapping[str, int] | None = None,
    epilogue: StageView | None = None,
) -> Outline:
    """Return the outline of a stage: one axis per loop, and the accesses of `reads` and of the
    output.

    `extents` override extents of loops. A loop None becomes the axis NOTHING. If there is an
    `epilogue`, its other reads and its output replace the output of the stage.
    """
    axes = tuple(
        LoopAxis(loop.name, (extents or {}).get(loop.name, loop.extent)) if loop else NOTHING
        for loop in loops
    )
    names = [axis.name for axis in axes]
    windows = [windows_of(view, read.tensor, {}) for read in reads]
    found = [
        access_of(read.tensor, read.dtype.bytes, read.index, names, window)
        for read, window in zip(reads, windows, strict=True)
    ]
    written = view
    if epilogue:
        written = epilogue
        places = {loop.name: whole_index(view, loop.dim) for loop in epilogue.spatial}
        found += other_accesses(view, epilogue, places, names)
    output = Access(written.name, written.dtype.bytes, _own_strides(view, names), is_output=True)
    return Outline(axes, (*found, output))


def other_accesses(
    view: StageView, reader: StageView, places: Mapping[str, Affine], names: Sequence[str]
) -> Iterator[Access]:
    """Yield the accesses of `reader`, computed inside the loops of `view`, to other tensors than
    the result of `view`. `places` are the loops of `reader` in terms of those loops."""
    for read in once(reader.reads):
        if read.tensor != view.name:
            index = [one.substitute(places) for one in read.index]
            yield access_of(read.tensor, read.dtype.bytes, index, names)


def whole_index(view: StageView, dim: int) -> Affine:
    """Return the index of dimension `dim` in terms of the loops of `view` that it was split
    into."""
    index, size = ZERO, 1
    for part in reversed([loop for loop in view.spatial if loop.dim == dim]):
        index, size = index + var(part.name) * size, size * part.extent
    return index


def _own_strides(view: StageView, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the strides of the output in each of its dimensions along the axes `names`. The loops
    that an axis was split into belong to the same dimension."""
    found: dict[int, dict[str, int]] = {}
    for number, loop in reversed(list(enumerate(view.spatial))):
        dim = loop.dim if loop.dim >= 0 else number
        own = found.setdefault(dim, {})
        inside = [other for other in view.spatial if other.name in own]
        own[loop.name] = prod(other.extent for other in inside)
    return tuple(tuple(own.get(name, 0) for name in names) for _, own in sorted(found.items()))


def bits_of(outline: Outline, reads: Iterable[StageRead]) -> int:
    """Return a bit mask of the outline's accesses: the bit of each access to a tensor of `reads` is
    set (see `Plan.dense_mask`)."""
    buffers = [access.buffer for access in outline.accesses]
    return sum(1 << buffers.index(name) for name in {read.tensor for read in reads})
