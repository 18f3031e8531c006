"""The plan of a schedule in sentences: what `show --what plan` prints.

It is read from the nest, not from the sketch that wrote the trace: it says what a kernel does, also
of traces that nobody's sketch would write today. One line a loop, a buffer or a piece of straight
code; loops that are written out or run in lanes stand in the line of what they compute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ..algebra.scalar import Binary, Const, Load, Scalar, Unary, loads, walk
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    LoopKind,
    Nest,
    Prefetch,
    Scope,
    Stmt,
    Store,
    Update,
    leaves,
)
from ..nest.loop_ir import walk as walk_nest
from ..trace import Trace
from ..workload.workload import Workload
from .lower import lower, start
from .readable import axis_names, named_like, readable

_LOOP = re.compile(r"(?P<of>.+)\.(?P<axis>[dr]?\d+)(?P<splits>(?:[oif]|\.rf)*)(?P<end>(?:\.\w+)*)")
"""Loops are called after a stage or buffer, its axis, how that was split, and what end it is."""

_REST = re.compile(r"\.t\d*(?=\.|$)")
"""What Partition puts behind names in its second part."""

_ENDS = frozenset({".init", ".out"})
"""Loops that begin sums in registers, or write them."""


def plan_text(workload: Workload, trace: Trace) -> str:
    """The plan of `trace` for `workload`, of which it is a legal schedule."""
    nest = lower(workload, trace)
    if trace.rewrites:
        workload = named_like(start(workload, trace)[0], workload)
    shown = readable(nest, workload)
    called = zip(walk_nest(nest.body), walk_nest(shown.body), strict=True)
    several = len(workload.stages) > 1
    stages = {
        (stage, new): f"{of}.{axis}" if several else axis
        for (stage, new), (of, axis) in axis_names(workload).items()
    }
    loops = {b.var: a.var for a, b in called if isinstance(a, For) and isinstance(b, For)}
    lines = [f"first: {step}" for step in trace.rewrites]
    lines += _Outline(shown, loops, stages).lines(shown.body, 0, ())
    lines += [f"{name} is written past the caches" for name in shown.streamed]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Axis:
    """What a loop walks: `of` a stage or a buffer, its axis, `end` of the loop's name."""

    of: str
    axis: str
    end: str
    is_fused: bool


@dataclass(frozen=True, slots=True)
class _Outline:
    """Prints `nest`, whose loops have the names `loops` in the normal form, in which `axes` have
    names of people."""

    nest: Nest
    loops: dict[str, str]
    axes: dict[tuple[str, str], str]

    def lines(self, body: tuple[Stmt, ...], depth: int, around: tuple[For, ...]) -> list[str]:
        """The lines of `body`, inside of loops `around` that are written out or run in lanes."""
        found: list[str] = []
        rests = 0
        for stmt in body:
            if _is_rest(stmt):
                rests += isinstance(stmt, For)
                continue
            found += self._statement(stmt, depth, around)
        if rests:
            found.append(f"{'  ' * depth}the same for what is left at the edges")
        return found

    def _statement(self, stmt: Stmt, depth: int, around: tuple[For, ...]) -> list[str]:
        pad = "  " * depth
        match stmt:
            case Allocate(buffer, body):
                return [f"{pad}{_held(buffer)}"] * (not around) + self.lines(body, depth, around)
            case For() if any(end in stmt.var for end in _ENDS):
                written = {leaf.buffer for leaf in leaves((stmt,))} & self._arguments
                out = ".out" in stmt.var and written
                return [f"{pad}write {', '.join(sorted(written))}"] if out else []
            case For() if _is_copy(stmt):
                return [f"{pad}{self._work(*_copied(stmt))}"]
            case For() if stmt.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED):
                return self.lines(stmt.body, depth, (*around, stmt))
            case For():
                inside = self.lines(stmt.body, depth + 1, around)
                return [f"{pad}{self._loop(stmt)}", *inside] if inside else []
            case Prefetch(buffer):
                return [f"{pad}prefetch {buffer}"]
            case Store() | Update():
                return [] if self._is_a_move(stmt) else [f"{pad}{self._work(stmt, around)}"]

    def _is_a_move(self, leaf: Store | Update) -> bool:
        """Whether a leaf sets a constant, or takes one value from register to memory."""
        if not isinstance(leaf, Store) or leaf.buffer in self._arguments:
            return False
        single = isinstance(leaf.value, Load) and not any(i.vars() for i in leaf.value.index)
        return isinstance(leaf.value, Const) or single

    @property
    def _arguments(self) -> set[str]:
        return {buffer.name for buffer in self.nest.argument_buffers}

    def _axis(self, loop: For) -> _Axis:
        found = _LOOP.fullmatch(self.loops[loop.var])
        if found is None:
            return _Axis("", loop.var, "", is_fused=False)
        is_fused = "f" in found["splits"].replace(".rf", "")
        return _Axis(found["of"], found["axis"], found["end"], is_fused)

    def _called(self, loop: For) -> str:
        axis = self._axis(loop)
        name = self.axes.get((axis.of, axis.axis), "")
        return f"{name} and others" if axis.is_fused else name

    def _loop(self, loop: For) -> str:
        step = self._step(loop)
        steps = f"{loop.extent}" if step == 1 else f"{loop.extent} x {step}"
        marks = ["reduction"] * loop.reduce
        marks += ["shared by threads"] * (loop.kind is LoopKind.PARALLEL)
        marks += ["ends early at the edges"] * bool(loop.bounds)
        return f"{self._called(loop)}: {steps}" + (f" ({', '.join(marks)})" if marks else "")

    def _step(self, loop: For) -> int:
        """Elements of its axis that an iteration covers: the extents of the loops inside, in the
        largest of whatever stands side by side."""
        own = self._axis(loop)
        inner = ((self._axis(other), other.extent) for other in _first_chain(loop.body))
        return prod(n for axis, n in inner if (axis.of, axis.axis) == (own.of, own.axis))

    def _work(self, leaf: Store | Update, around: tuple[For, ...]) -> str:
        """What a leaf computes, over the loops `around` it that are written out or in lanes."""
        read = list(dict.fromkeys(load.tensor for load in loads(leaf.value)))
        operations = _operations(leaf.value)
        if isinstance(leaf, Update):
            what = f"{leaf.buffer} {leaf.reducer}= {operations}{', '.join(read)}"
        elif not operations and len(read) == 1:
            return f"copy {read[0]} to {leaf.buffer}"
        else:
            what = f"{leaf.buffer} = {operations}{', '.join(read)}"
        return f"{what}{self._at_once(around)}"

    def _at_once(self, around: tuple[For, ...]) -> str:
        """What loops that are written out or run in lanes compute together: `: 6 i x 4 vectors of
        16 j`."""
        lanes = next((x for x in around if x.kind is LoopKind.VECTORIZED), None)
        own = None if lanes is None else self._axis(lanes)
        parts, vectors = [], 1
        for loop in around:
            axis = self._axis(loop)
            if loop.kind is not LoopKind.UNROLLED or loop.extent == 1:
                continue
            if own is not None and (axis.of, axis.axis) == (own.of, own.axis):
                vectors *= loop.extent
            else:
                parts.append(f"{loop.extent} {self._called(loop)}".rstrip())
        if lanes is not None:
            count = "a vector" if vectors == 1 else f"{vectors} vectors"
            parts.append(f"{count} of {lanes.extent} {self._called(lanes)}".rstrip())
        return f": {' x '.join(parts)}" if parts else ""


def _operations(value: Scalar) -> str:
    """The operations of an expression, each once: `exp and sub of `."""
    kinds = [str(node.op) for node in walk(value) if isinstance(node, Binary | Unary)]
    return f"{' and '.join(dict.fromkeys(kinds))} of " if kinds else ""


def _is_copy(loop: For) -> bool:
    """Whether a loop and all in it copies one tensor into a buffer of its own."""
    inside = loop.inside
    own = len(inside.leaves) == 1 and not inside.buffers
    (leaf, *_) = inside.leaves
    return own and isinstance(leaf, Store) and loop.var.startswith(f"{leaf.buffer}.")


def _copied(loop: For) -> tuple[Store | Update, tuple[For, ...]]:
    leaf = loop.inside.leaves[0]
    assert isinstance(leaf, Store)
    return leaf, loop.inside.loops


def _is_rest(stmt: Stmt) -> bool:
    """Whether `stmt` is what a loop was cut in two for: code of its own for the edges."""
    name = stmt.var if isinstance(stmt, For) else ""
    name = stmt.buffer.name if isinstance(stmt, Allocate) else name
    return bool(_REST.search(name))


def _first_chain(body: tuple[Stmt, ...]) -> Iterator[For]:
    """The loops of `body` around its longest piece of work."""
    while body:
        inner = [s for s in body if isinstance(s, For | Allocate) and not _is_rest(s)]
        inner = [s for s in inner if not (isinstance(s, For) and any(e in s.var for e in _ENDS))]
        if not inner:
            return
        first = max(reversed(inner), key=_points)
        if isinstance(first, For):
            yield first
        body = first.body


def _points(stmt: Stmt) -> int:
    if isinstance(stmt, For | Allocate):
        times = stmt.extent if isinstance(stmt, For) else 1
        return times * max((_points(inner) for inner in stmt.body), default=0)
    return 0 if isinstance(stmt, Prefetch) else 1


def _held(buffer: Buffer) -> str:
    shape = " x ".join(str(extent) for extent in buffer.shape if extent > 1) or "1"
    if buffer.scope is Scope.REGISTER:
        return f"keep {buffer.name} in registers: {shape} of {buffer.dtype}"
    when = ", ahead of all calls" if buffer.scope is Scope.AHEAD else ""
    return f"keep {buffer.name} in memory: {shape} of {buffer.dtype}, {_size(buffer.bytes)}{when}"


def _size(count: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} bytes"
