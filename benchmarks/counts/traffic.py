"""Loads and stores of a lowered nest, as instructions.

- What several copies of unrolled loops read, or several leaves that run in a row, is loaded once;
  what was stored just before is known.
- What does not change in the innermost running loop is loaded before it, unless the loop writes to
  the same buffer.
- A read under a condition is masked, not skipped; unrolled loops alone may decide it.
- Lanes side by side, or all at one element, take one load. Lanes a few elements apart are
  taken from whole vectors, which neighbouring phases share; others go element by element, and are
  `scalar_accesses`. So are lanes that are written apart.
- An update of memory loads what it adds to, unless it is always the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.algebra.scalar import Load
from tilewright.schedules.nest.loop_ir import LoopKind, PrefetchHint, Update

from .arithmetic import ways_to
from .instances import IntArray, Placed, Rule, count_by, evaluated, grid, names_in
from .program import Program

MAX_LANE_STRIDE = 4
"""Farthest that lanes may be apart to be taken from whole vectors."""


@dataclass(slots=True)
class Traffic:
    """Instructions that load and store, and elements that go one by one."""

    loads: int = 0
    stores: int = 0
    scalars: int = 0


@dataclass(frozen=True, slots=True)
class Touch:
    """What one leaf reads or writes in the copies of its unrolled loops: `numbers` of elements
    beside `outer`, the part of the element's number that running loops decide, and how often each
    is done. `step` is how far lanes are apart, 0 where all are at one element. `choice` is what
    unrolled loops outside of running ones must have decided: other iterations read other things."""

    buffer: str
    outer: Affine
    step: int | None
    lanes: int
    numbers: IntArray
    times: IntArray
    choice: tuple[Rule, ...] = ()

    def copies(self) -> Iterator[tuple[tuple[object, ...], int, int]]:
        """(what it is, its number, how often) for each copy that runs."""
        base = (self.buffer, self.outer, self.step, self.lanes if self.step else 1, self.choice)
        numbers, times = np.broadcast_arrays(self.numbers, self.times)
        for number, often in zip(numbers.ravel().tolist(), times.ravel().tolist(), strict=True):
            if often:
                yield base, number, often


def traffic(program: Program, body: tuple[Placed, ...]) -> Traffic:
    """Of leaves that run in a row."""
    found = Traffic()
    known: set[tuple[tuple[object, ...], int]] = set()
    loaded: dict[tuple[tuple[object, ...], int], int] = {}
    for place in body:
        for touch in reads(program, place):
            _load(touch, known, loaded, found)
        written = writes(program, place)
        if written is not None:
            for base, number, often in written.copies():
                known.add((base, number))
                if _is_gathered(written.step):
                    found.scalars += often * written.lanes
                else:
                    found.stores += often
    found.loads += sum(loaded.values())
    return found


def _load(
    touch: Touch,
    known: set[tuple[tuple[object, ...], int]],
    loaded: dict[tuple[tuple[object, ...], int], int],
    found: Traffic,
) -> None:
    step = abs(touch.step) if touch.step is not None else 1
    for base, number, often in touch.copies():
        if (base, number) in known:
            continue
        key = (base, number // step if 1 < step <= MAX_LANE_STRIDE else number)
        if _is_gathered(touch.step):
            found.scalars += (often - min(often, loaded.get(key, 0))) * touch.lanes
            continue
        vectors = max(step, 1)
        loaded[key] = max(loaded.get(key, 0), often * vectors)


def _is_gathered(step: int | None) -> bool:
    return step is not None and abs(step) > MAX_LANE_STRIDE


def reads(program: Program, place: Placed) -> Iterator[Touch]:
    """What a leaf reads from memory."""
    leaf = place.leaf
    assert not isinstance(leaf, PrefetchHint)
    for node, ways in ways_to(place, lambda node: isinstance(node, Load)).items():
        assert isinstance(node, Load)
        if program.in_memory(node.tensor):
            for way in ways:
                yield _touch(program, place, node.tensor, node.index, way)
    if isinstance(leaf, Update) and leaf.first != () and program.in_memory(leaf.buffer):
        yield _touch(program, place, leaf.buffer, leaf.index, ())


def writes(program: Program, place: Placed) -> Touch | None:
    """What a leaf writes to memory."""
    leaf = place.leaf
    assert not isinstance(leaf, PrefetchHint)
    if not program.in_memory(leaf.buffer):
        return None
    return _touch(program, place, leaf.buffer, leaf.index, (), is_store=True)


def _touch(
    program: Program,
    place: Placed,
    buffer: str,
    index: tuple[Affine, ...],
    way: tuple[Rule, ...],
    *,
    is_store: bool = False,
) -> Touch:
    offset = program.offset(buffer, index)
    lanes, step = place.lanes, 0
    unrolled = [loop.var for loop in place.unrolled_inside]
    if lanes is not None and lanes.var in offset.vars():
        linear = offset.is_linear_in(lanes.var)
        step = offset.coefficient(lanes.var) if linear else 1
        offset = offset.substitute({lanes.var: Affine((), 0)})
    inside = {*unrolled}
    moving = [(a, c) for a, c in offset.terms if Affine(((a, 1),), 0).vars() & inside]
    outer = Affine(tuple(term for term in offset.terms if term not in moving), 0)
    env = grid(unrolled, [loop.extent for loop in place.unrolled_inside])
    still = {loop.var: np.zeros((), np.int64) for loop in place.running}
    numbers = evaluated(Affine(tuple(moving), offset.const), {**env, **still})
    keep = [loop.var for loop in place.running]
    if not is_store and _is_settled(program, place, buffer, offset):
        keep.pop()
    times = count_by(place.loops, (*place.conds, *way), keep, unrolled)
    width = 1 if lanes is None else lanes.extent
    apart = place.decided - set(unrolled)
    choice = tuple(rule for rule in way if names_in(rule) & apart)
    return Touch(buffer, outer, step, width, np.atleast_1d(numbers), np.atleast_1d(times), choice)


def address(
    program: Program,
    place: Placed,
    buffer: str,
    index: tuple[Affine, ...],
    fixed: Mapping[str, Affine],
) -> tuple[object, ...]:
    """What tells one access from others in a body: the buffer and its first lane's element, with
    unrolled loops `fixed`."""
    first = {} if place.lanes is None else {place.lanes.var: Affine((), 0)}
    return (buffer, program.offset(buffer, index).substitute({**fixed, **first}))


def _is_settled(program: Program, place: Placed, buffer: str, offset: Affine) -> bool:
    """Whether the innermost running loop neither moves what is read nor writes to the buffer."""
    if not place.running or place.running[-1].kind is not LoopKind.SERIAL:
        return False
    inner = place.running[-1]
    return inner.var not in offset.vars() and buffer not in inner.inside.written
