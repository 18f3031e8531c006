"""The printer of loop nests and expressions, for developers, golden tests and `show`.

The text is complete. Computations look like Python; loop kinds and other marks follow a `#`:

    kernel(A: f32[30, 20], B: f32[20, 10]) -> C: f32[30, 10]
    for i_o in range(8):                                    # parallel
      for i_i in range(4) while 4*i_o + i_i <= 29:          # unrolled
        for k in range(20):                                 # reduce
          for j in range(10):                               # vectorized
            C[4*i_o + i_i, j] += A[4*i_o + i_i, k] * B[k, j]  # first at k == 0

`while` is a bound that ends a loop early, and `if` a guard of the lines nested in it. A buffer
(`alloc`) exists until the end of its block, or in the block nested in it. An update shows its
reducer (`+=`, `*=`, `max=`, `min=`). Under the condition `first at`, it stores without combining.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import TextWrapper
from typing import TypeAlias, assert_never

from ..algebra.comparisons import Cond
from ..algebra.scalar import (
    KEPT,
    Reducer,
    access_text,
    conds_text,
    kept_access_text,
    scalar_text,
    to_scalar_text,
)
from ..workload.tensors import Tensor
from .loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
)
from .selected import selected_iteration

INDENT = "  "
MARK_COLUMN = 56
"""Column of marks: fixed, so that a long line does not shift the marks of other lines."""
LINE_COLUMNS = 100

Line: TypeAlias = tuple[int, str, str]
"""Depth, text and mark of one line."""


def to_text(nest: Nest) -> str:
    """Return `nest` as text, one line for each loop, allocation, group of guards and leaf.

    Long lines are wrapped. Equal nests give equal text. The text does not end with a newline.
    """
    lines = [_header(nest)]
    lines += [_joined(*line) for line in _body_lines(nest.body, 0)]
    return _with_spaces("\n".join(lines))


def _with_spaces(text: str) -> str:
    return text.replace(KEPT, " ")


def _header(nest: Nest) -> str:
    inputs = list(map(_argument, nest.inputs))
    outputs = [_argument(t) + " streamed" * (t.name in nest.streamed) for t in nest.outputs]
    line = f"kernel({', '.join(inputs)}) -> {', '.join(outputs)}"
    if len(line) <= LINE_COLUMNS:
        return line
    rows = [f"{INDENT * 2}{text}," for text in inputs]
    return "\n".join(["kernel(", *rows, ") -> (", *(f"{INDENT * 2}{t}," for t in outputs), ")"])


def _argument(tensor: Tensor) -> str:
    constant = " constant" if tensor.constant else ""
    return f"{_declared(tensor)}{constant}"


def _declared(array: Tensor | Buffer) -> str:
    return f"{array.name}: {array.dtype}[{', '.join(map(str, array.shape))}]"


def _joined(depth: int, text: str, mark: str) -> str:
    line = INDENT * depth + text
    if len(line) > LINE_COLUMNS:
        line = _wrapped(text, INDENT * depth)
    if not mark:
        return line
    missing = MARK_COLUMN - 2 - (len(line) - line.rfind("\n") - 1)
    return f"{line}{' ' * missing}  # {mark}"


def _wrapped(text: str, indent: str) -> str:
    """Return `text` in lines, broken before operators, never inside an index or a condition."""
    return TextWrapper(
        width=LINE_COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + INDENT * 3,
        break_long_words=False,
        break_on_hyphens=False,
    ).fill(text)


def _body_lines(body: tuple[Stmt, ...], depth: int) -> Iterator[Line]:
    for guards, stmts in groupby(body, key=_guards):
        if guards:
            yield depth, f"if{KEPT}{conds_text(guards)}:", ""
        for stmt in stmts:
            if isinstance(stmt, Allocate):
                yield from _allocate_lines(stmt, depth, ends_block=stmt is body[-1])
            else:
                yield from _stmt_lines(stmt, depth + bool(guards))


def _allocate_lines(stmt: Allocate, depth: int, *, ends_block: bool) -> Iterator[Line]:
    """Yield the lines of an allocation. They are indented if the buffer ends before the enclosing
    block."""
    text, mark = f"alloc {_declared(stmt.buffer)}", _SCOPE_MARK[stmt.buffer.scope]
    yield depth, text if ends_block else f"{text} for:", mark
    yield from _body_lines(stmt.body, depth if ends_block else depth + 1)


def _guards(stmt: Stmt) -> tuple[Cond, ...]:
    return stmt.guards if isinstance(stmt, StoreElement | Update) else ()


def _stmt_lines(stmt: For | StoreElement | Update | PrefetchHint, depth: int) -> Iterator[Line]:
    match stmt:
        case For():
            yield depth, _loop_text(stmt), _loop_mark(stmt)
            yield from _body_lines(stmt.body, depth + 1)
        case StoreElement():
            target = kept_access_text(stmt.buffer, stmt.index)
            yield depth, f"{target} ={KEPT}{scalar_text(stmt.value)[0]}", ""
        case Update():
            target = kept_access_text(stmt.buffer, stmt.index)
            sign = _REDUCER_SIGN[stmt.reducer]
            yield (
                depth,
                f"{target} {sign}{KEPT}{scalar_text(stmt.value)[0]}",
                _first_mark(stmt.first),
            )
        case PrefetchHint():
            mark = "for writing" if stmt.for_write else "far ahead" if stmt.far else ""
            yield depth, f"prefetch {kept_access_text(stmt.buffer, stmt.index)}", mark
        case _:
            assert_never(stmt)


def _loop_text(loop: For) -> str:
    until = f" while{KEPT}{conds_text(loop.bounds)}" if loop.bounds else ""
    selected = selected_iteration(loop) if loop.kind is LoopKind.SELECTED else None
    if selected is not None:
        until += f" at{KEPT}{scalar_text(selected.place)[0]}"
    return f"for {loop.var} in range({loop.extent}){until}:"


def _loop_mark(loop: For) -> str:
    marks = [] if loop.kind is LoopKind.SERIAL else [loop.kind.value]
    return ", ".join([*marks, "reduce"] if loop.reduce else marks)


def _first_mark(first: tuple[Cond, ...] | None) -> str:
    if first is None:
        return ""
    return f"first at {conds_text(first)}" if first else "first always"


_SCOPE_MARK = {
    BufferScope.ARGUMENT: "argument",
    BufferScope.PREPACKED: "prepacked",
    BufferScope.WORKSPACE: "workspace",
    BufferScope.REGISTER: "registers",
}
_REDUCER_SIGN = {
    Reducer.SUM: "+=",
    Reducer.PROD: "*=",
    Reducer.MAX: "max=",
    Reducer.MIN: "min=",
}

__all__ = ["access_text", "to_scalar_text", "to_text"]
