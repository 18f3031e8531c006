"""Arrays made of several arrays or with new elements: concat, pad, one_hot."""

from __future__ import annotations

from collections.abc import Sequence

from ...algebra.comparisons import Cond
from ...algebra.conditions import within
from ...algebra.scalar import CompareOp
from ...errors import WorkloadError
from ...python_numbers import as_number
from ..expr_core import Condition, Expr, Index, chosen, guard, number, shown, value_condition
from .node import ORIGIN, Indices, Node, Read
from .shapes import axis_of, check_rank, integers, listed


def concat(parts: Sequence[Node], axis: object) -> Node:
    """Return `parts` joined along `axis`. Their other extents and their types must be equal."""
    if not parts:
        raise WorkloadError("concat needs at least one array", code="bad_shape")
    dim = axis_of(axis, len(parts[0].shape), "concat")
    others = {n.shape[:dim] + n.shape[dim + 1 :] for n in parts}
    if len(others) > 1 or len({len(n.shape) for n in parts}) > 1:
        raise WorkloadError(
            f"concat along axis {dim} needs equal other extents, got the shapes"
            f" {listed([n.shape for n in parts])}",
            code="shape_clash",
        )
    dtypes = list(dict.fromkeys(n.dtype for n in parts))
    if len(dtypes) > 1:
        raise WorkloadError(
            f"concat of {' and '.join(dtypes)}: the types differ;"
            f' write x.astype("{dtypes[0]}") or x.astype("{dtypes[1]}") for some of them',
            code="dtype_clash",
        )
    starts = [sum(n.shape[dim] for n in parts[:k]) for k in range(len(parts))]
    extents = list(parts[0].shape)
    extents[dim] = starts[-1] + parts[-1].shape[dim]

    def element(index: Indices, read: Read) -> Expr:
        def among(first: int, last: int) -> Expr:
            """Return the element, which is in one of the parts `first` to `last - 1`."""
            if last - first == 1:
                at = index[dim] - starts[first]
                return read(parts[first], (*index[:dim], at, *index[dim + 1 :]))
            middle = (first + last) // 2
            return chosen(index[dim] < starts[middle], among(first, middle), among(middle, last))

        return among(0, len(parts))

    shape = tuple(extents)
    check_rank(shape)
    return Node(
        shape=shape, dtype=parts[0].dtype, element=element, operands=tuple(parts), label="concat",
        reads_once=True,
    )  # fmt: skip


def padded(x: Node, widths: object, mode: object, value: float) -> Node:
    """Return `x` with more elements before and after it. `widths` is one width, a pair (before,
    after), or one pair per dimension; `mode` is "constant", "edge" or "reflect"."""
    pairs = _widths(widths, len(x.shape))
    if mode == "constant":
        return _filled(x, pairs, value)
    if mode not in ("edge", "reflect"):
        raise WorkloadError(
            f'pad: the modes are "constant", "edge" and "reflect", got {shown(mode)}',
            code="bad_node",
        )
    for dim, (before, after) in enumerate(pairs):
        if before or after:
            # A single element has no other side to reflect.
            edge = mode == "edge" or x.shape[dim] == 1
            x = _extended(x, dim, before, after, edge=edge)
    return x


def _widths(widths: object, rank: int) -> list[tuple[int, int]]:
    accepted = f"a width >= 0, a pair (before, after), or one pair for each of {rank} dimensions"
    given = tuple(widths) if isinstance(widths, tuple | list) else (widths,)
    pairs = [integers(w, "pad", accepted) for w in given]
    if all(
        len(p) == 1 and not isinstance(w, tuple | list) for p, w in zip(pairs, given, strict=True)
    ):
        pairs = [tuple(p[0] for p in pairs)]
    if len(pairs) == 1:
        pairs *= rank
    pairs = [p * 2 if len(p) == 1 else p for p in pairs]
    if len(pairs) != rank or any(len(p) != 2 or min(p) < 0 for p in pairs):
        raise WorkloadError(f"pad takes {accepted}, got {shown(widths)}", code="bad_shape")
    return [(before, after) for before, after in pairs]


def _filled(x: Node, pairs: Sequence[tuple[int, int]], value: float) -> Node:
    shape = tuple(e + before + after for e, (before, after) in zip(x.shape, pairs, strict=True))
    check_rank(shape)
    fill = number(as_number(value), x.dtype)

    def element(index: Indices, read: Read) -> Expr:
        inside: list[Index] = []
        conds: list[Cond] = []
        for i, extent, (before, after) in zip(index, x.shape, pairs, strict=True):
            at = i - before if before else i
            inside.append(at)
            if before or after:
                conds += within(at.affine, extent)
        found = read(x, tuple(inside))
        variables = {name: v for i in index for name, v in i.vars.items()}
        return guard(tuple(conds), variables).choose(found, fill) if conds else found

    return Node(
        shape=shape, dtype=x.dtype, element=element, operands=(x,), label="pad", reads_once=True,
        inserted=frozenset(d for d in x.inserted if pairs[d] == (0, 0)),
    )  # fmt: skip


def _extended(x: Node, dim: int, before: int, after: int, *, edge: bool) -> Node:
    """Return `x` continued along `dim` by its first and last element (`edge`) or reflected."""
    extent = x.shape[dim]
    shape = (*x.shape[:dim], before + extent + after, *x.shape[dim + 1 :])
    period = 2 * (extent - 1)

    def element(index: Indices, read: Read) -> Expr:
        def at(i: Index | int) -> Expr:
            entry = i if isinstance(i, Index) else ORIGIN + i
            return read(x, (*index[:dim], entry, *index[dim + 1 :]))

        i = index[dim] - before
        if not edge and max(before, after) >= extent:  # it reflects more than once
            i = i % period
            return chosen(i < extent, at(i), at(period - i))
        found = at(i)
        if after:
            end = at(extent - 1) if edge else at(period - i)
            found = chosen(i < extent, found, end)
        if before:
            found = chosen(i < 0, at(0) if edge else at(-i), found)
        return found

    check_rank(shape)
    return Node(
        shape=shape, dtype=x.dtype, element=element, operands=(x,), label="pad", reads_once=True,
        inserted=x.inserted - {dim},
    )  # fmt: skip


def one_hot(x: Node, depth: object, axis: object, one: Expr) -> Node:
    """Return the array with `one` where the index along the new `axis` is equal to the element of
    the integer array `x`, and 0 elsewhere. It has `depth` elements along `axis`."""
    if x.dtype.is_float:
        raise WorkloadError(
            f'one_hot needs integers, got {x.dtype}; write x.astype("i32")', code="bad_dtype"
        )
    (classes,) = integers(depth, "one_hot", "a number of classes >= 1")
    rank = len(x.shape) + 1
    dim = axis_of(axis, rank, "one_hot")
    shape = (*x.shape[:dim], classes, *x.shape[dim:])
    check_rank(shape)
    zero = number(0, one.dtype)

    def element(index: Indices, read: Read) -> Expr:
        value = read(x, (*index[:dim], *index[dim + 1 :]))
        hit: Condition = value_condition(CompareOp.EQ, value, index[dim])
        return hit.choose(one, zero)

    return Node(
        shape=shape, dtype=one.dtype, element=element, operands=(x,), label="one_hot",
        inserted=frozenset(d + (d >= dim) for d in x.inserted),
    )  # fmt: skip
