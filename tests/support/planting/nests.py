"""Blind edits of loop nests: every way to change one place of a nest, found by its shape alone.

An edit knows nothing of what the nest computes, so many of them are harmless; whoever plants
them has to tell. Each is `(what changed, the nest after it)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from tilewright.schedules.algebra.affine import Affine, affine, var
from tilewright.schedules.algebra.comparisons import Cond
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
)
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    loops,
    transform,
    walk,
)

Body: TypeAlias = tuple[Stmt, ...]
Index: TypeAlias = tuple[Affine, ...]
Edited: TypeAlias = Iterator[tuple[str, Nest]]

_OTHER_OP = {
    BinaryOp.ADD: BinaryOp.SUB, BinaryOp.SUB: BinaryOp.ADD, BinaryOp.MUL: BinaryOp.ADD,
    BinaryOp.DIV: BinaryOp.MUL, BinaryOp.MIN: BinaryOp.MAX, BinaryOp.MAX: BinaryOp.MIN,
}  # fmt: skip
_OTHER_TEST = {
    CompareOp.LT: CompareOp.LE, CompareOp.LE: CompareOp.LT,
    CompareOp.EQ: CompareOp.NE, CompareOp.NE: CompareOp.EQ,
}  # fmt: skip
_OTHER_REDUCER = {
    Reducer.SUM: Reducer.MAX, Reducer.MAX: Reducer.SUM,
    Reducer.MIN: Reducer.MAX, Reducer.PROD: Reducer.SUM,
}  # fmt: skip


# Where edits are made


def _places(body: Body, change: Callable[[Stmt], Iterator[tuple[str, Body]]]) -> Iterator[
    tuple[str, Body]
]:  # fmt: skip
    """`body` with one statement replaced, for every statement and every replacement of it."""
    for i, stmt in enumerate(body):
        for what, new in change(stmt):
            yield what, (*body[:i], *new, *body[i + 1 :])
        if isinstance(stmt, For | Allocate):
            for what, inner in _places(stmt.body, change):
                yield what, (*body[:i], replace(stmt, body=inner), *body[i + 1 :])


def _blocks(body: Body, change: Callable[[Body], Iterator[tuple[str, Body]]]) -> Iterator[
    tuple[str, Body]
]:  # fmt: skip
    """`body` with the statements of one block changed, for every block."""
    yield from change(body)
    for i, stmt in enumerate(body):
        if isinstance(stmt, For | Allocate):
            for what, inner in _blocks(stmt.body, change):
                yield what, (*body[:i], replace(stmt, body=inner), *body[i + 1 :])


def _on(nest: Nest, change: Callable[[Stmt], Iterator[tuple[str, Body]]]) -> Edited:
    for what, body in _places(nest.body, change):
        yield what, replace(nest, body=body)


def _on_loops(nest: Nest, change: Callable[[For], Iterator[tuple[str, For]]]) -> Edited:
    def one(stmt: Stmt) -> Iterator[tuple[str, Body]]:
        if isinstance(stmt, For):
            for what, loop in change(stmt):
                yield f"{stmt.var}: {what}", (loop,)

    return _on(nest, one)


def _on_leaves(
    nest: Nest, change: Callable[[StoreElement | Update], Iterator[tuple[str, Stmt]]]
) -> Edited:
    def one(stmt: Stmt) -> Iterator[tuple[str, Body]]:
        if isinstance(stmt, StoreElement | Update):
            for what, leaf in change(stmt):
                yield f"{stmt.buffer}{_text(stmt.index)}: {what}", (leaf,)

    return _on(nest, one)


def _nodes(
    value: Scalar, change: Callable[[Scalar], Iterator[tuple[str, Scalar]]]
) -> Iterator[tuple[str, Scalar]]:
    """`value` with one node replaced, for every node and every replacement of it."""
    yield from change(value)
    match value:
        case Unary() | Cast():
            for what, x in _nodes(value.x, change):
                yield what, replace(value, x=x)
        case Binary() | Compare():
            for what, a in _nodes(value.a, change):
                yield what, replace(value, a=a)
            for what, b in _nodes(value.b, change):
                yield what, replace(value, b=b)
        case Select():
            for what, c in _nodes(value.cond, change):
                yield what, replace(value, cond=c)
            for what, t in _nodes(value.on_true, change):
                yield what, replace(value, on_true=t)
            for what, f in _nodes(value.on_false, change):
                yield what, replace(value, on_false=f)
        case Const() | Load() | IndexValue() | All():
            pass


def on_values(nest: Nest, change: Callable[[Scalar], Iterator[tuple[str, Scalar]]]) -> Edited:
    def one(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        for what, value in _nodes(leaf.value, change):
            yield what, replace(leaf, value=value)

    return _on_leaves(nest, one)


def _on_conds(nest: Nest, change: Callable[[Cond], Iterator[tuple[str, Cond | None]]]) -> Edited:
    """Every guard of a leaf and every condition of a select; None drops it."""

    def guards(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        for what, conds in _one_of(leaf.guards, change):
            yield f"guard {what}", replace(leaf, guards=conds)

    def node(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, All):
            for what, conds in _one_of(value.conds, change):
                if conds:
                    yield f"select {what}", All(conds)
        elif isinstance(value, Select) and isinstance(value.cond, All):
            for what, conds in _one_of(value.cond.conds, change):
                if not conds:
                    yield f"select {what}", value.on_true

    yield from _on_leaves(nest, guards)
    yield from on_values(nest, node)


def _one_of(
    conds: tuple[Cond, ...], change: Callable[[Cond], Iterator[tuple[str, Cond | None]]]
) -> Iterator[tuple[str, tuple[Cond, ...]]]:
    for i, cond in enumerate(conds):
        for what, new in change(cond):
            kept = () if new is None else (new,)
            yield f"{cond} {what}", (*conds[:i], *kept, *conds[i + 1 :])


def _on_stored(nest: Nest, change: Callable[[Index], Iterator[tuple[str, Index]]]) -> Edited:
    def one(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        for what, index in change(leaf.index):
            yield f"writes {what}", replace(leaf, index=index)

    return _on_leaves(nest, one)


def _on_loaded(nest: Nest, change: Callable[[Index], Iterator[tuple[str, Index]]]) -> Edited:
    def node(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, Load):
            for what, index in change(value.index):
                yield (
                    f"reads {value.tensor}{_text(value.index)} {what}",
                    replace(value, index=index),
                )

    return on_values(nest, node)


def _text(index: Index) -> str:
    return f"[{', '.join(map(str, index))}]"


# Loops


def drop_last_iteration(nest: Nest) -> Edited:
    """The last element, tile, copy or lane of a loop is not done."""

    def change(loop: For) -> Iterator[tuple[str, For]]:
        if loop.extent > 1:
            yield f"{loop.extent} -> {loop.extent - 1}", replace(loop, extent=loop.extent - 1)

    return _on_loops(nest, change)


def one_iteration_more(nest: Nest) -> Edited:
    def change(loop: For) -> Iterator[tuple[str, For]]:
        yield f"{loop.extent} -> {loop.extent + 1}", replace(loop, extent=loop.extent + 1)

    return _on_loops(nest, change)


def halve_loop(nest: Nest) -> Edited:
    def change(loop: For) -> Iterator[tuple[str, For]]:
        if loop.extent > 2 and loop.kind is not LoopKind.VECTORIZED:
            yield f"{loop.extent} -> {loop.extent // 2}", replace(loop, extent=loop.extent // 2)

    return _on_loops(nest, change)


def change_bounds(nest: Nest) -> Edited:
    """A bound that ends a loop early is dropped, or off by one either way."""

    def change(loop: For) -> Iterator[tuple[str, For]]:
        for i, bound in enumerate(loop.bounds):
            rest = (*loop.bounds[:i], *loop.bounds[i + 1 :])
            yield f"bound {bound} dropped", replace(loop, bounds=rest)
            for step in (1, -1):
                moved = type(bound)(bound.index + step)
                yield f"bound {bound} -> {moved}", replace(loop, bounds=(*rest, moved))

    return _on_loops(nest, change)


def reduce_in_parallel(nest: Nest) -> Edited:
    """A reduction loop outside every parallel one is run by threads."""
    parallel = any(loop.kind is LoopKind.PARALLEL for loop in loops(nest.body))

    def change(loop: For) -> Iterator[tuple[str, For]]:
        inside = any(s.kind is LoopKind.PARALLEL for s in loops(loop.body))
        if loop.reduce and loop.kind is LoopKind.SERIAL and not parallel and not inside:
            yield "parallel", replace(loop, kind=LoopKind.PARALLEL)

    return _on_loops(nest, change)


def parallel_inside(nest: Nest) -> Edited:
    """The parallel loop becomes serial, and a reduction loop inside it parallel."""
    serial = transform(nest.body, _serial)

    def change(loop: For) -> Iterator[tuple[str, For]]:
        if loop.reduce and loop.kind is LoopKind.SERIAL:
            yield "parallel", replace(loop, kind=LoopKind.PARALLEL)

    if serial is not nest.body:
        yield from _on_loops(replace(nest, body=serial), change)


def _serial(stmt: Stmt) -> Body | None:
    if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
        return (replace(stmt, kind=LoopKind.SERIAL),)
    return None


def swap_loops(nest: Nest) -> Edited:
    """Two loops, one directly in the other, change places."""

    def change(stmt: Stmt) -> Iterator[tuple[str, Body]]:
        if isinstance(stmt, For) and len(stmt.body) == 1 and isinstance(stmt.body[0], For):
            inner = stmt.body[0]
            if inner.kind is not LoopKind.VECTORIZED and not inner.bounds:
                outer = replace(stmt, body=inner.body)
                yield f"{stmt.var}, {inner.var} swapped", (replace(inner, body=(outer,)),)

    return _on(nest, change)


# Statements


def drop_statement(nest: Nest) -> Edited:
    """A copy, an initialisation, a tail, a write back or an epilogue is not done."""

    def change(body: Body) -> Iterator[tuple[str, Body]]:
        for i, stmt in enumerate(body):
            if len(body) > 1:
                yield f"{_head(stmt)} dropped", (*body[:i], *body[i + 1 :])

    for what, body in _blocks(nest.body, change):
        yield what, replace(nest, body=body)


def swap_statements(nest: Nest) -> Edited:
    """Two neighbours change places: a use before its copy, an initialisation after the sum."""

    def change(body: Body) -> Iterator[tuple[str, Body]]:
        for i in range(len(body) - 1):
            first, second = body[i], body[i + 1]
            yield (
                f"{_head(first)}, {_head(second)} swapped",
                (*body[:i], second, first, *body[i + 2 :]),
            )

    for what, body in _blocks(nest.body, change):
        yield what, replace(nest, body=body)


def _head(stmt: Stmt) -> str:
    match stmt:
        case For():
            return f"for {stmt.var}"
        case Allocate():
            return f"alloc {stmt.buffer.name}"
        case StoreElement() | Update() | PrefetchHint():
            return f"{stmt.buffer}{_text(stmt.index)}"


def sink_statement(nest: Nest) -> Edited:
    """What is done once before a loop is done in each of its iterations: an init, a copy."""

    def change(body: Body) -> Iterator[tuple[str, Body]]:
        for i in range(len(body) - 1):
            first, loop = body[i], body[i + 1]
            if isinstance(loop, For) and loop.kind is LoopKind.SERIAL:
                inner = replace(loop, body=(first, *loop.body))
                yield f"{_head(first)} into {loop.var}", (*body[:i], inner, *body[i + 2 :])

    for what, body in _blocks(nest.body, change):
        yield what, replace(nest, body=body)


def update_twice(nest: Nest) -> Edited:
    def change(stmt: Stmt) -> Iterator[tuple[str, Body]]:
        if isinstance(stmt, Update):
            yield f"{_head(stmt)} twice", (stmt, stmt)

    return _on(nest, change)


def share_private(nest: Nest) -> Edited:
    """A buffer of each thread's own becomes one of all threads."""
    for loop in loops(nest.body):
        if loop.kind is LoopKind.PARALLEL:
            for inner in walk(loop.body):
                if isinstance(inner, Allocate):
                    body = transform(nest.body, _hoist(loop, inner))
                    yield f"{inner.buffer.name} shared", replace(nest, body=body)


def _hoist(loop: For, inner: Allocate) -> Callable[[Stmt], Body | None]:
    buffer = replace(inner.buffer, scope=BufferScope.WORKSPACE)

    def change(stmt: Stmt) -> Body | None:
        if stmt is not loop:
            return None
        body = transform(loop.body, lambda s: s.body if s is inner else None)
        return (Allocate(buffer, (replace(loop, body=body),)),)

    return change


def shrink_buffer(nest: Nest) -> Edited:
    """One dimension of a buffer is one element too small: rows run into each other."""

    def change(stmt: Stmt) -> Iterator[tuple[str, Body]]:
        if isinstance(stmt, Allocate) and stmt.buffer.scope is BufferScope.WORKSPACE:
            shape = stmt.buffer.shape
            for d, extent in enumerate(shape):
                if extent > 1:
                    small = (*shape[:d], extent - 1, *shape[d + 1 :])
                    buffer = replace(stmt.buffer, shape=small)
                    yield f"{buffer.name}: {shape} -> {small}", (replace(stmt, buffer=buffer),)

    return _on(nest, change)


# Leaves


def store_for_update(nest: Nest) -> Edited:
    def change(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        if isinstance(leaf, Update):
            yield "stores", StoreElement(leaf.buffer, leaf.index, leaf.value, leaf.guards)

    return _on_leaves(nest, change)


def update_for_store(nest: Nest) -> Edited:
    def change(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        if isinstance(leaf, StoreElement):
            yield (
                "accumulates",
                Update(leaf.buffer, leaf.index, leaf.value, Reducer.SUM, None, leaf.guards),
            )

    return _on_leaves(nest, change)


def change_first(nest: Nest) -> Edited:
    """What tells the first update of an element is dropped, in part or whole, or off by one."""

    def change(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        if isinstance(leaf, Update) and leaf.first:
            yield "never first", replace(leaf, first=None)
            for i, cond in enumerate(leaf.first):
                rest = (*leaf.first[:i], *leaf.first[i + 1 :])
                yield f"first: {cond} dropped", replace(leaf, first=rest)
                moved = type(cond)(cond.index - 1)
                yield f"first: {cond} -> {moved}", replace(leaf, first=(*rest, moved))

    return _on_leaves(nest, change)


def wrong_reducer(nest: Nest) -> Edited:
    def change(leaf: StoreElement | Update) -> Iterator[tuple[str, Stmt]]:
        if isinstance(leaf, Update):
            other = _OTHER_REDUCER[leaf.reducer]
            yield f"{leaf.reducer} -> {other}", replace(leaf, reducer=other)

    return _on_leaves(nest, change)


def drop_cond(nest: Nest) -> Edited:
    return _on_conds(nest, lambda cond: iter([("dropped", None)]))


def shift_cond(nest: Nest) -> Edited:
    def change(cond: Cond) -> Iterator[tuple[str, Cond | None]]:
        for step in (1, -1):
            moved = type(cond)(cond.index + step)
            yield f"-> {moved}", moved

    return _on_conds(nest, change)


# Indices


def _shifted(index: Index) -> Iterator[tuple[str, Index]]:
    for d, each in enumerate(index):
        for step in (1, -1):
            yield f"dim {d} {step:+d}", (*index[:d], each + step, *index[d + 1 :])


def _swapped(index: Index) -> Iterator[tuple[str, Index]]:
    for d in range(len(index) - 1):
        if index[d] != index[d + 1]:
            yield f"dims {d}, {d + 1} swapped", (
                *index[:d], index[d + 1], index[d], *index[d + 2 :]
            )  # fmt: skip


def _rescaled(index: Index) -> Iterator[tuple[str, Index]]:
    for d, each in enumerate(index):
        for atom, c in each.terms:
            term = Affine(((atom, 1),), 0)
            for step in (1, -1):
                new = each + term * step
                yield f"dim {d}: {c}*{atom} -> {c + step}*{atom}", (
                    *index[:d], new, *index[d + 1 :]
                )  # fmt: skip


def shift_write(nest: Nest) -> Edited:
    return _on_stored(nest, _shifted)


def shift_read(nest: Nest) -> Edited:
    return _on_loaded(nest, _shifted)


def swap_dims_written(nest: Nest) -> Edited:
    return _on_stored(nest, _swapped)


def swap_dims_read(nest: Nest) -> Edited:
    return _on_loaded(nest, _swapped)


def rescale_write(nest: Nest) -> Edited:
    return _on_stored(nest, _rescaled)


def rescale_read(nest: Nest) -> Edited:
    return _on_loaded(nest, _rescaled)


def reverse_lanes(nest: Nest) -> Edited:
    """One access of a vector loop runs over the lanes backwards."""
    lanes = {x.var: x.extent for x in loops(nest.body) if x.kind is LoopKind.VECTORIZED}

    def change(index: Index) -> Iterator[tuple[str, Index]]:
        for name in sorted({n for i in index for n in i.vars()} & lanes.keys()):
            mapping = {name: affine(lanes[name] - 1) - var(name)}
            yield f"{name} reversed", tuple(i.substitute(mapping) for i in index)

    yield from _on_stored(nest, change)
    yield from _on_loaded(nest, change)


# Values


def swap_operands(nest: Nest) -> Edited:
    """Operands change places where that matters; so do the sides of a select."""

    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, Binary) and value.op in (BinaryOp.SUB, BinaryOp.DIV):
            yield f"{value.op} operands swapped", replace(value, a=value.b, b=value.a)
        elif isinstance(value, Select):
            yield "sides swapped", replace(value, on_true=value.on_false, on_false=value.on_true)

    return on_values(nest, change)


def other_operation(nest: Nest) -> Edited:
    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, Binary):
            yield f"{value.op} -> {_OTHER_OP[value.op]}", replace(value, op=_OTHER_OP[value.op])
        elif isinstance(value, Compare):
            other = _OTHER_TEST[value.op]
            yield f"{value.op} -> {other}", replace(value, op=other)

    return on_values(nest, change)


def drop_operation(nest: Nest) -> Edited:
    """One side of an operation, or the argument of a function, stands for all of it."""

    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, Binary):
            yield f"{value.op} dropped, left kept", value.a
            yield f"{value.op} dropped, right kept", value.b
        elif isinstance(value, Unary):
            yield f"{value.op} dropped", value.x

    return on_values(nest, change)


def change_constant(nest: Nest) -> Edited:
    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, Const):
            yield f"{value.value} -> {value.value + 1}", replace(value, value=value.value + 1)
            yield f"{value.value} -> {-value.value}", replace(value, value=-value.value)

    return on_values(nest, change)


def cast_too_late(nest: Nest) -> Edited:
    """An operation is done in the narrow type and its result widened."""

    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        match value:
            case Binary(op, Cast(a, wide), Cast(b)) if a.dtype is b.dtype:
                if a.dtype.bits > 8 and a.dtype.is_float:
                    return  # bf16 has no arithmetic of its own
                yield f"{op} in {a.dtype}", Cast(Binary(op, a, b), wide)
            case _:
                return

    return on_values(nest, change)


def other_tensor(nest: Nest) -> Edited:
    """A read goes to another buffer of the same rank and type."""
    ranks = {b.name: (len(b.shape), b.dtype) for b in nest.argument_buffers}
    ranks |= {
        s.buffer.name: (len(s.buffer.shape), s.buffer.dtype)
        for s in walk(nest.body)
        if isinstance(s, Allocate)
    }

    def change(value: Scalar) -> Iterator[tuple[str, Scalar]]:
        if isinstance(value, Load):
            for name in sorted(ranks):
                if name != value.tensor and ranks[name] == ranks[value.tensor]:
                    yield f"{value.tensor} -> {name}", replace(value, tensor=name)

    return on_values(nest, change)


OPERATORS: tuple[Callable[[Nest], Edited], ...] = (
    drop_last_iteration, one_iteration_more, halve_loop, change_bounds, reduce_in_parallel,
    parallel_inside, swap_loops, drop_statement, swap_statements, sink_statement, update_twice,
    share_private, shrink_buffer, store_for_update, update_for_store, change_first,
    wrong_reducer, drop_cond,
    shift_cond, shift_write, shift_read, swap_dims_written, swap_dims_read, rescale_write,
    rescale_read, reverse_lanes, swap_operands, other_operation, drop_operation, change_constant,
    cast_too_late, other_tensor,
)  # fmt: skip
