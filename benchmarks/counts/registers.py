"""Vector registers of the body that does most of a nest's work: of code that runs in a row.

Copies of unrolled loops are gone through one after the other, as they are written down:

- An operand from memory is alive from the first copy that reads it to the last, one that the loop
  does not change throughout.
- A register of a buffer is alive from the first write to the last read; throughout where it is
  read before it is written (an accumulator), to the end where others read it later.

Where a body is one update, its copies may be in any order within a step of the reduction: the one
that needs least counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

from schedules.algebra.affine import Affine, substitute_cond
from schedules.algebra.scalar import Load, loads
from schedules.nest.loop_ir import For, Prefetch, Update

from .instances import Placed, count
from .program import Program
from .traffic import address

MOST_ORDERS = 24
"""Orders of the copies of an update that are tried."""

MOST_COPIES = 2000
"""Copies of leaves that are gone through: more are no body that anyone would write out."""

Value = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Registers:
    """`accumulators` that a reduction adds to in one iteration of its innermost loop; `live`
    vectors at once; `held`, those of them but accumulators that are alive from one step of the
    reduction to the next."""

    accumulators: int = 0
    live: int = 0
    held: int = 0


@dataclass(slots=True)
class _Copy:
    """One copy of a leaf: the values it reads and writes, which step of a reduction it is in."""

    reads: list[Value]
    writes: Value | None
    step: tuple[int, ...]


@dataclass(slots=True)
class _Lives:
    """From which copy to which each value is alive."""

    first: dict[Value, int] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)

    def use(self, value: Value, at: int) -> None:
        self.first.setdefault(value, at)
        self.last[value] = at


def registers(program: Program, body: tuple[Placed, ...]) -> Registers:
    """Of leaves that run in a row."""
    sums = [place for place in body if _is_accumulating(program, place)]
    accumulators = sum(len(_slots(program, place)) for place in sums)
    best: Registers | None = None
    for copies in _orders(program, body):
        found = _measured(program, body, copies, accumulators)
        best = found if best is None or found.live < best.live else best
    return best or Registers()


def _is_accumulating(program: Program, place: Placed) -> bool:
    """Whether the innermost loop, or what is written out in it, adds to registers."""
    leaf = place.leaf
    if not isinstance(leaf, Update) or program.in_memory(leaf.buffer) or leaf.first is not None:
        return False
    return any(loop.reduce for loop in (*place.running[-1:], *place.written_out))


def _slots(program: Program, place: Placed) -> set[Value]:
    return {copy.writes for copy in _copies(program, place, ()) if copy.writes is not None}


def _orders(program: Program, body: tuple[Placed, ...]) -> Iterator[list[_Copy]]:
    """The copies of the body in each order that is tried."""
    if len(body) > 1:
        yield list(_in_order(program, body, {}, 0))
        return
    (place,) = body
    steps = [n for n, loop in enumerate(place.written_out) if loop.reduce]
    others = [n for n, loop in enumerate(place.written_out) if not loop.reduce]
    for number, order in enumerate(permutations(others)):
        if number < MOST_ORDERS:
            yield list(_copies(program, place, (*steps, *order)))


def _copies(program: Program, place: Placed, axes: Sequence[int]) -> Iterator[_Copy]:
    """Those of one leaf, its unrolled loops in the order `axes` if there is one."""
    loops = [place.written_out[n] for n in axes] if axes else list(place.written_out)
    for values in product(*(range(loop.extent) for loop in loops)):
        env = {loop.var: value for loop, value in zip(loops, values, strict=True)}
        step = tuple(v for loop, v in zip(loops, values, strict=True) if loop.reduce)
        copy = _copy(program, place, env, step)
        if copy is not None:
            yield copy


def _in_order(
    program: Program, body: Sequence[Placed], env: dict[str, int], depth: int
) -> Iterator[_Copy]:
    """The copies of several leaves: those in the same unrolled loop take turns."""
    at = 0
    while at < len(body):
        place = body[at]
        loops = place.written_out
        if depth >= len(loops):
            step = tuple(env[loop.var] for loop in loops if loop.reduce)
            copy = _copy(program, place, env, step)
            if copy is not None:
                yield copy
            at += 1
            continue
        loop = loops[depth]
        end = at + 1
        while end < len(body) and _is_in(body[end], loop, depth):
            end += 1
        for value in range(loop.extent):
            yield from _in_order(program, body[at:end], {**env, loop.var: value}, depth + 1)
        at = end


def _is_in(place: Placed, loop: For, depth: int) -> bool:
    return depth < len(place.written_out) and place.written_out[depth] is loop


def _copy(
    program: Program, place: Placed, env: dict[str, int], step: tuple[int, ...]
) -> _Copy | None:
    """None where what unrolled loops decide leaves nothing to do."""
    leaf = place.leaf
    assert not isinstance(leaf, Prefetch)
    fixed = {name: Affine((), value) for name, value in env.items()}
    known = [substitute_cond(cond, fixed) for cond in leaf.guards]
    if not count((), [cond for cond in known if not cond.index.vars()], ()):
        return None
    read = [value for load in loads(leaf.value) for value in _values(program, place, load, fixed)]
    written = address(program, place, leaf.buffer, leaf.index, fixed)
    if isinstance(leaf, Update) and leaf.first != ():
        read.append(written)
    return _Copy(read, None if program.in_memory(leaf.buffer) else written, step)


def _values(
    program: Program, place: Placed, load: Load, fixed: dict[str, Affine]
) -> Iterator[Value]:
    """The registers that hold what is read: of a transposed block, one for each lane."""
    lanes = place.lanes
    offset = program.offset(load.tensor, load.index)
    in_registers = not program.in_memory(load.tensor)
    if lanes is None or not in_registers or offset.coefficient(lanes.var) <= 1:
        yield address(program, place, load.tensor, load.index, fixed)
        return
    for lane in range(lanes.extent):
        row = {**fixed, lanes.var: Affine((), lane)}
        number = offset.substitute(row)
        width = program.buffers[load.tensor].shape[-1]
        yield (load.tensor, number - number.const % width)


def _measured(
    program: Program, body: tuple[Placed, ...], copies: list[_Copy], accumulators: int
) -> Registers:
    lives = _Lives()
    throughout: set[Value] = set()
    for at, copy in enumerate(copies[:MOST_COPIES]):
        for value in copy.reads:
            if value not in lives.first and _comes_from_outside(program, value):
                throughout.add(value)
            lives.use(value, at)
        if copy.writes is not None:
            lives.use(copy.writes, at)
    end = len(copies) - 1
    outside = _read_elsewhere(program, body)
    for value in lives.last:
        if value in throughout:
            lives.first[value] = 0
        if value in throughout or value[0] in outside:
            lives.last[value] = end
    alive = [0] * (len(copies) + 1)
    crossing = [0] * (len(copies) + 1)
    for value, first in lives.first.items():
        for at in range(first, lives.last[value] + 1):
            alive[at] += 1
        if value not in throughout and value[0] not in outside:
            for at in range(first + 1, lives.last[value] + 1):
                crossing[at] += copies[at].step != copies[at - 1].step
    held = max(crossing, default=0)
    return Registers(accumulators, max(alive, default=0), held)


def _comes_from_outside(program: Program, value: Value) -> bool:
    """Whether a register has its value from before the body."""
    return not program.in_memory(str(value[0]))


def _read_elsewhere(program: Program, body: tuple[Placed, ...]) -> set[str]:
    """Register buffers that other leaves read after the body."""
    inside = {id(place) for place in body}
    return {
        load.tensor
        for place in program.leaves
        if id(place) not in inside and not isinstance(place.leaf, Prefetch)
        for load in loads(place.leaf.value)
        if not program.in_memory(load.tensor)
    }
