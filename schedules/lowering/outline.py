"""The plan of a schedule as text: the output of `show --what plan`.

It is derived from the nest, so it also describes traces that no current sketch produces. There is
one line per loop, buffer or statement; unrolled and vectorised loops are in the statement's line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ..algebra.scalar import Binary, Const, Load, Scalar, Unary, loads, walk
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    Inside,
    LoopKind,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    loops,
)
from ..primitives.primitive import Walk
from ..trace import Trace
from ..workload.workload import Workload
from .origins import Origin
from .readable import Readable, readable


def plan_text(workload: Workload, trace: Trace) -> str:
    """Return the plan of `trace`, a legal schedule of `workload`, as text."""
    shown = readable(workload, trace)
    lines = [f"first: {step}" for step in trace.rewrites]
    lines += _Outline(shown).lines(shown.nest.body, 0, ())
    lines += [f"{name} is written with non-temporal stores" for name in shown.nest.streamed]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Outline:
    shown: Readable

    def lines(self, body: tuple[Stmt, ...], depth: int, around: tuple[For, ...]) -> list[str]:
        """Return the lines of `body`. `around` are the enclosing unrolled and vectorised loops."""
        found: list[str] = []
        rests = 0
        for stmt in body:
            if self._is_rest(stmt):
                rests += isinstance(stmt, For)
                continue
            found += self._statement(stmt, depth, around)
        if rests:
            found.append(f"{'  ' * depth}the same for the remainders")
        return found

    def _statement(self, stmt: Stmt, depth: int, around: tuple[For, ...]) -> list[str]:
        pad = "  " * depth
        match stmt:
            case Allocate(buffer, body):
                return [f"{pad}{_held(buffer)}"] * (not around) + self.lines(body, depth, around)
            case For() if Walk.ENDS in self._origin(stmt).walks:
                written = {leaf.buffer for leaf in stmt.inside.leaves} & self._arguments
                return [f"{pad}write {', '.join(sorted(written))}"] if written else []
            case For(inside=Inside(around_it, (StoreElement() as leaf,), ())) if self._is_copy(
                stmt
            ):
                return [f"{pad}{self._work(leaf, around_it)}"]
            case For() if stmt.kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED):
                return self.lines(stmt.body, depth, (*around, stmt))
            case For():
                inside = self.lines(stmt.body, depth + 1, around)
                return [f"{pad}{self._loop(stmt)}", *inside] if inside else []
            case PrefetchHint(buffer):
                return [f"{pad}prefetch {buffer}"]
            case StoreElement() | Update():
                return [] if self._is_a_move(stmt) else [f"{pad}{self._work(stmt, around)}"]

    def _is_a_move(self, leaf: StoreElement | Update) -> bool:
        """Return whether `leaf` stores a constant, or an element at a constant index, to a private
        buffer."""
        if not isinstance(leaf, StoreElement) or leaf.buffer in self._arguments:
            return False
        single = isinstance(leaf.value, Load) and not any(i.vars() for i in leaf.value.index)
        return isinstance(leaf.value, Const) or single

    @property
    def _arguments(self) -> set[str]:
        return {buffer.name for buffer in self.shown.nest.argument_buffers}

    def _origin(self, loop: For) -> Origin:
        return self.shown.origins[loop.var]

    def _called(self, loop: For) -> str:
        others = " and others" * (Walk.FUSED in self._origin(loop).walks)
        return f"{self.shown.axes[loop.var]}{others}"

    def _loop(self, loop: For) -> str:
        step = self._step(loop)
        steps = f"{loop.extent}" if step == 1 else f"{loop.extent} x {step}"
        marks = ["reduction"] * loop.reduce
        marks += ["divided among threads"] * (loop.kind is LoopKind.PARALLEL)
        marks += ["one selected by data"] * (loop.kind is LoopKind.SELECTED)
        marks += ["may end early"] * bool(loop.bounds)
        return f"{self._called(loop)}: {steps}" + (f" ({', '.join(marks)})" if marks else "")

    def _step(self, loop: For) -> int:
        """Return the number of elements of the loop's axis that one iteration of `loop` covers."""
        own = self._origin(loop).axis
        inner = self._first_chain(loop.body)
        return prod(other.extent for other in inner if self._origin(other).axis == own)

    def _is_copy(self, loop: For) -> bool:
        return Walk.FILL in self._origin(loop).walks

    def _is_rest(self, stmt: Stmt) -> bool:
        """Return whether `stmt` is the remainder of a partitioned loop."""
        within = list(loops((stmt,)))[: 1 if isinstance(stmt, For) else None]
        return bool(within) and all(Walk.REST in self._origin(loop).walks for loop in within)

    def _is_main(self, stmt: For | Allocate) -> bool:
        ends = isinstance(stmt, For) and Walk.ENDS in self._origin(stmt).walks
        return not ends and not self._is_rest(stmt)

    def _first_chain(self, body: tuple[Stmt, ...]) -> Iterator[For]:
        """Yield the loops of `body` that enclose the statement with the most iteration points."""
        while inner := [s for s in body if isinstance(s, For | Allocate) and self._is_main(s)]:
            first = max(reversed(inner), key=_points)
            if isinstance(first, For):
                yield first
            body = first.body

    def _work(self, leaf: StoreElement | Update, around: tuple[For, ...]) -> str:
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
        """Return the shape of unrolled and vectorised loops as text, such as `: 6 i x 4 vectors of
        16 j`."""
        lanes = next((x for x in around if x.kind is LoopKind.VECTORIZED), None)
        own = None if lanes is None else self._origin(lanes).axis
        parts, vectors = [], 1
        for loop in around:
            if loop.kind is not LoopKind.UNROLLED or loop.extent == 1:
                continue
            if self._origin(loop).axis == own:
                vectors *= loop.extent
            else:
                parts.append(f"{loop.extent} {self._called(loop)}")
        if lanes is not None:
            count = "a vector" if vectors == 1 else f"{vectors} vectors"
            parts.append(f"{count} of {lanes.extent} {self._called(lanes)}")
        return f": {' x '.join(parts)}" if parts else ""


def _operations(value: Scalar) -> str:
    """Return the distinct operations of an expression as text, such as `exp and sub of `."""
    kinds = [str(node.op) for node in walk(value) if isinstance(node, Binary | Unary)]
    return f"{' and '.join(dict.fromkeys(kinds))} of " if kinds else ""


def _points(stmt: Stmt) -> int:
    if isinstance(stmt, For | Allocate):
        times = stmt.extent if isinstance(stmt, For) else 1
        return times * max((_points(inner) for inner in stmt.body), default=0)
    return 0 if isinstance(stmt, PrefetchHint) else 1


def _held(buffer: Buffer) -> str:
    shape = " x ".join(str(extent) for extent in buffer.shape if extent > 1) or "1"
    if buffer.scope is BufferScope.REGISTER:
        return f"keep {buffer.name} in registers: {shape} of {buffer.dtype}"
    when = ", prepacked" if buffer.scope is BufferScope.PREPACKED else ""
    return f"keep {buffer.name} in memory: {shape} of {buffer.dtype}, {_size(buffer.bytes)}{when}"


def _size(count: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} bytes"
