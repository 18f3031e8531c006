"""The loop nest: frozen nodes with structural equality.

`printer.py` prints a nest, `verify_nest.py` checks that it is well formed, and `primitives/`
rewrite it. The tests compare kernels with an interpreter (`tests/support/interpreter`).

Semantics. Statements run in order. `For` runs its body for var = 0, 1, ..., extent - 1. If it has
`bounds`, it stops at the first iteration in which a bound is false. The bound is then also false in
all later iterations. A leaf has no effect if one of its guards is false. `StoreElement` writes its
value. `Update` writes `value` if every condition of `first` holds, and `op(old, value)` otherwise.
Before the first write, an element of a buffer has no defined value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import TypeAlias, assert_never

from ..algebra.affine import Affine, affine, recombine
from ..algebra.comparisons import Cond
from ..algebra.scalar import Reducer, Scalar
from ..dtypes import DType
from ..workload.tensors import Tensor


class LoopKind(StrEnum):
    """The way in which the iterations of a loop are executed. The primitives that set the kind
    (`marks.py`) prove that it does not change the result."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"
    PARALLEL = "parallel"
    SELECTED = "selected"
    """Only the iteration that a comparison with data selects is executed (`selected.py`). All
    others would combine identities into elements."""


@dataclass(frozen=True, slots=True)
class RunByInstruction:
    """The kind of a loop that one instruction executes. `name` is the name of the instruction in
    `instructions.py`."""

    name: str

    @property
    def value(self) -> str:
        return self.name


class BufferScope(StrEnum):
    """The place where a buffer is stored: in an argument, in constants that are packed before the
    first call (`prepacking.py`), in the caller's workspace, or in registers."""

    ARGUMENT = "argument"
    PREPACKED = "prepacked"
    WORKSPACE = "workspace"
    REGISTER = "register"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array. If it is in registers, all indices must be constants after unrolling
    and vectorisation."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: BufferScope

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    def flat_offset(self, index: tuple[Affine, ...]) -> Affine:
        """Return the row-major offset of the element at `index`, in elements."""
        total, stride = affine(0), self.elements
        for i, extent in zip(index, self.shape, strict=True):
            stride //= extent
            total = total + i * stride
        return recombine(total)


@dataclass(frozen=True, slots=True)
class StoreElement:
    """The leaf `buffer[index] = value`, executed if every guard holds."""

    buffer: str
    index: tuple[Affine, ...]
    value: Scalar
    guards: tuple[Cond, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """The leaf `buffer[index] = value if first else reducer.op(buffer[index], value)`, executed if
    every guard holds.

    The conditions `first` hold exactly in the first update of each element. They are () if every
    update is the first. `first` is None if no update is the first, because another statement writes
    the element before.
    """

    buffer: str
    index: tuple[Affine, ...]
    value: Scalar
    reducer: Reducer
    first: tuple[Cond, ...] | None = None
    guards: tuple[Cond, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefetchHint:
    """A hint to load the cache line of `buffer[index]` into all cache levels, or into all except L1
    if `far`.

    It has no effect on results, and its index may be out of bounds.
    """

    buffer: str
    index: tuple[Affine, ...]
    for_write: bool = False
    far: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """The loop `for var in range(extent)`, which stops at the first iteration in which one of
    `bounds` does not hold. `reduce`: whether it iterates over a reduction axis."""

    var: str
    extent: int
    body: tuple[Stmt, ...]
    kind: LoopKind | RunByInstruction = LoopKind.SERIAL
    reduce: bool = False
    bounds: tuple[Cond, ...] = ()
    _inside: Inside | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def inside(self) -> Inside:
        """The contents of the loop, computed once."""
        found = self._inside
        if found is None:
            found = Inside.of(self)
            object.__setattr__(self, "_inside", found)
        return found


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate `buffer`, with undefined contents, for each execution of `body`."""

    buffer: Buffer
    body: tuple[Stmt, ...]


Leaf: TypeAlias = StoreElement | Update | PrefetchHint
Stmt: TypeAlias = For | Allocate | StoreElement | Update | PrefetchHint

_PARENTS, _LEAVES = (For, Allocate), (StoreElement, Update, PrefetchHint)


@dataclass(frozen=True, slots=True)
class Inside:
    """The statements in a loop, in program order, and the loop itself. They are stored, so that a
    primitive that changes one of hundreds of loops need not traverse the others."""

    loops: tuple[For, ...]
    leaves: tuple[Leaf, ...]
    buffers: tuple[Buffer, ...]
    loop_names: frozenset[str]
    written: frozenset[str]

    @classmethod
    def of(cls, loop: For) -> Inside:
        loops: list[For] = []
        leaves: list[Leaf] = []
        buffers: list[Buffer] = []
        for stmt in walk((loop,)):
            if isinstance(stmt, For):
                loops.append(stmt)
            elif isinstance(stmt, Allocate):
                buffers.append(stmt.buffer)
            else:
                leaves.append(stmt)
        names = frozenset([found.var for found in loops])
        written = frozenset([leaf.buffer for leaf in leaves])
        return cls(tuple(loops), tuple(leaves), tuple(buffers), names, written)


@dataclass(frozen=True, slots=True)
class Nest:
    """A whole kernel: its arguments in ABI order, and its statements.

    Loop variable names are unique in a nest, and so are buffer names. `streamed` are the outputs
    that are written with non-temporal stores if the target has these stores.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    body: tuple[Stmt, ...]
    streamed: tuple[str, ...] = ()

    @property
    def argument_buffers(self) -> tuple[Buffer, ...]:
        return tuple(
            Buffer(t.name, t.shape, t.dtype, BufferScope.ARGUMENT)
            for t in (*self.inputs, *self.outputs)
        )


def walk(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield every statement, parents first, in program order."""
    waiting = [iter(stmts)]  # recursive generators are slow
    while waiting:
        for stmt in waiting[-1]:
            yield stmt
            if isinstance(stmt, _PARENTS):
                waiting.append(iter(stmt.body))
                break
        else:
            waiting.pop()


def levels(stmts: tuple[Stmt, ...]) -> Iterator[list[Stmt]]:
    """Yield the statements of each nesting depth, from the outermost."""
    level: list[Stmt] = [*stmts]
    while level:
        yield level
        level = [inner for stmt in level if isinstance(stmt, _PARENTS) for inner in stmt.body]


def leaves(stmts: tuple[Stmt, ...]) -> Iterator[Leaf]:
    for stmt in outermost(stmts):
        if isinstance(stmt, For):
            yield from stmt.inside.leaves
        elif isinstance(stmt, _LEAVES):
            yield stmt


def loops(stmts: tuple[Stmt, ...]) -> Iterator[For]:
    for stmt in outermost(stmts):
        if isinstance(stmt, For):
            yield from stmt.inside.loops


def buffers_allocated(stmts: tuple[Stmt, ...]) -> Iterator[Buffer]:
    for stmt in outermost(stmts):
        if isinstance(stmt, For):
            yield from stmt.inside.buffers
        elif isinstance(stmt, Allocate):
            yield stmt.buffer


def loops_named(stmts: tuple[Stmt, ...]) -> set[str]:
    names: set[str] = set()
    names.update(*(s.inside.loop_names for s in outermost(stmts) if isinstance(s, For)))
    return names


def root_of(stmts: tuple[Stmt, ...], name: str) -> For | None:
    """Return the loop `name`, or the outermost loop that contains it, or None if it does not
    exist."""
    roots = (stmt for stmt in outermost(stmts) if isinstance(stmt, For))
    return next((root for root in roots if name in root.inside.loop_names), None)


def loop_called(stmts: tuple[Stmt, ...], name: str) -> For | None:
    """Return the loop whose variable is `name`, or None if it does not exist."""
    root = root_of(stmts, name)
    return root and next(loop for loop in root.inside.loops if loop.var == name)


def writing(stmts: tuple[Stmt, ...], buffer: str) -> Iterator[Leaf]:
    """Yield the leaves that write or prefetch `buffer`."""
    for stmt in outermost(stmts):
        if isinstance(stmt, For):
            if buffer in stmt.inside.written:
                yield from (leaf for leaf in stmt.inside.leaves if leaf.buffer == buffer)
        elif isinstance(stmt, _LEAVES) and stmt.buffer == buffer:
            yield stmt


def outermost(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield the statements outside all loops, including those in allocations, in program order."""
    waiting = [iter(stmts)]
    while waiting:
        for stmt in waiting[-1]:
            yield stmt
            if isinstance(stmt, Allocate):
                waiting.append(iter(stmt.body))
                break
        else:
            waiting.pop()


def with_body(stmt: For | Allocate, body: tuple[Stmt, ...]) -> For | Allocate:
    """Return `stmt` with another body. This is several times as fast as `dataclasses.replace`."""
    if isinstance(stmt, For):
        return For(stmt.var, stmt.extent, body, stmt.kind, stmt.reduce, stmt.bounds)
    return Allocate(stmt.buffer, body)


def transform(
    stmts: tuple[Stmt, ...], change: Callable[[Stmt], tuple[Stmt, ...] | None]
) -> tuple[Stmt, ...]:
    """Return `stmts` with each statement replaced by the result of `change`, top down.

    If `change` returns None, the statement's children are transformed. A statement without changes
    keeps its identity.
    """
    result: list[Stmt] = []
    changed = False
    for stmt in stmts:
        replaced = change(stmt)
        if replaced is not None:
            changed = changed or len(replaced) != 1 or replaced[0] is not stmt
            result.extend(replaced)
            continue
        match stmt:
            case For() | Allocate():
                body = transform(stmt.body, change)
                changed = changed or body is not stmt.body
                result.append(stmt if body is stmt.body else with_body(stmt, body))
            case StoreElement() | Update() | PrefetchHint():
                result.append(stmt)
            case _:
                assert_never(stmt)
    return tuple(result) if changed else stmts
