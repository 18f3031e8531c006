"""Reductions of arrays over whole axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...algebra import values
from ...algebra.affine import var
from ...algebra.comparisons import Ge0
from ...algebra.scalar import Reducer, vars_of
from ...dtypes import DType
from ...errors import WorkloadError
from ..expr_core import Expr, Index, guard, number, reduced_over
from ..references import LoopVar, Running
from ..running import SCANS, position_over, scanned_over
from ..tuples import Combine, combination, tuples_over, widened
from .node import Indices, Node, Read, aligned, stand_in
from .shapes import axes_of, axis_of, broadcast
from .views import expanded


def reduced(reducer: Reducer, x: Node, axis: object, keepdims: bool) -> Node:
    """Return `x` reduced over `axis`: an integer, a tuple, or None for all axes. `keepdims` keeps
    the reduced axes with the extent 1."""
    axes = axes_of(axis, len(x.shape), str(reducer))
    if not axes:
        raise WorkloadError(
            f"{reducer} needs an axis to reduce over; the array has the shape {x.shape}",
            code="bad_reduction",
        )
    kept = [dim for dim in range(len(x.shape)) if dim not in axes]

    def value(index: Indices, over: Indices, read: Read) -> Expr:
        entries = dict(zip(kept, index, strict=True)) | dict(zip(axes, over, strict=True))
        return read(x, tuple(entries[dim] for dim in range(len(x.shape))))

    found = reduction(
        reducer,
        tuple(x.shape[dim] for dim in kept),
        [x.shape[dim] for dim in axes],
        value,
        (x,),
        inserted=frozenset(n for n, dim in enumerate(kept) if dim in x.inserted),
        sample=stand_in(x.dtype),
    )
    return expanded(found, sorted(axes)) if keepdims else found


def reduction(
    reducer: Reducer,
    shape: tuple[int, ...],
    extents: Sequence[int],
    value: Callable[[Indices, Indices, Read], Expr],
    operands: tuple[Node, ...],
    *,
    inserted: frozenset[int] = frozenset(),
    sample: Expr,
) -> Node:
    """Return the array of `shape` that combines `value(index, over, read)` for all indices `over`
    within `extents`. `sample` is an expression of the type of `value`."""

    def element(index: Indices, read: Read) -> Expr:
        axes = tuple(LoopVar(f"k{n}", extent, reduce=True) for n, extent in enumerate(extents))
        over = tuple(Index(var(v.name), {v.name: v}) for v in axes)
        return reduced_over(reducer, _using(axes, value(index, over, read)), axes)

    return Node(
        shape=shape, dtype=values.reduced(reducer, sample.node).dtype, element=element,
        operands=operands, label=str(reducer), inserted=inserted, reduced=prod(extents),
    )  # fmt: skip


def accumulated(reducer: Reducer, x: Node, axis: object, *, reverse: bool, exclusive: bool) -> Node:
    """Return the running results of `x` along `axis`, an integer."""
    dim = axis_of(axis, len(x.shape), SCANS[reducer])

    def element(index: Indices, read: Read) -> Expr:
        (along,) = index[dim].vars.values()
        return scanned_over(reducer, read(x, index), Running(along, reverse, exclusive))

    return Node(
        shape=x.shape, dtype=values.reduced(reducer, stand_in(x.dtype).node).dtype,
        element=element, operands=(x,), label=SCANS[reducer], reduced=1, is_scan=True,
    )  # fmt: skip


def positions(reducer: Reducer, x: Node, axis: object, *, last: bool) -> Node:
    """Return the first (or last) position of the extreme of `x` along `axis`, an integer."""
    dim = axis_of(axis, len(x.shape), f"arg{reducer}")
    kept = [other for other in range(len(x.shape)) if other != dim]

    def element(index: Indices, read: Read) -> Expr:
        along = LoopVar("k", x.shape[dim], reduce=True)
        entries = [*index]
        entries.insert(dim, Index(var(along.name), {along.name: along}))
        value = _using((along,), read(x, tuple(entries)))
        return position_over(reducer, value, along, last=last)

    return Node(
        shape=tuple(x.shape[other] for other in kept), dtype=DType.I32, element=element,
        operands=(x,), label=f"arg{reducer}", reduced=x.shape[dim],
        inserted=frozenset(n for n, other in enumerate(kept) if other in x.inserted),
    )  # fmt: skip


def tuples(
    given: Sequence[Node],
    identity: Sequence[object],
    combine: Combine,
    axis: object,
    *,
    commutative: bool,
) -> tuple[Node, ...]:
    """Return the components of the combinations of tuples along `axis`, an integer or a tuple. The
    arrays `given`, one for each component, are broadcast."""
    whole = broadcast([x.shape for x in given])
    axes = axes_of(axis, len(whole), "reduce_tuple")
    if not axes:
        raise WorkloadError(
            f"reduce_tuple needs an axis to reduce over; the arrays have the shape {whole}",
            code="bad_reduction",
        )
    kept = [dim for dim in range(len(whole)) if dim not in axes]
    samples = [widened(stand_in(x.dtype)) for x in given]
    dtypes = [sample.dtype for sample in samples]
    how = combination(dtypes, identity, combine, commutative=commutative)

    def component(number: int) -> Node:
        def element(index: Indices, read: Read) -> Expr:
            over = tuple(LoopVar(f"k{n}", whole[dim], reduce=True) for n, dim in enumerate(axes))
            places = (Index(var(v.name), {v.name: v}) for v in over)
            entries = dict(zip(kept, index, strict=True)) | dict(zip(axes, places, strict=True))
            at = tuple(entries[dim] for dim in range(len(whole)))
            first, *others = (widened(read(x, aligned(at, x.shape, whole))) for x in given)
            return tuples_over([_using(over, first), *others], how, over)[number]

        return Node(
            shape=tuple(whole[dim] for dim in kept), dtype=samples[number].dtype, element=element,
            operands=tuple(given), label=f"tuple{number}", reduced=prod(whole[d] for d in axes),
        )  # fmt: skip

    return tuple(component(number) for number in range(len(given)))


def _using(axes: tuple[LoopVar, ...], value: Expr) -> Expr:
    """Return `value` as an expression that uses every axis. An axis along which the value is
    constant is used in a condition that always holds."""
    # `value.vars` may have more variables than the indices, as in i % 1.
    used = vars_of(value.node).union(*(r.free for r in value.reductions.values()))
    lost = {v.name: v for v in axes if v.name not in used}
    if not lost:
        return value
    always = guard(tuple(Ge0(var(name)) for name in lost), lost)
    return always.choose(value, number(0, value.dtype))
