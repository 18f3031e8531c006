"""Vector registers of the body that does most of a nest's work: of code that runs in a row.

Copies of unrolled loops are gone through one after the other, as they are written down:

- A vector from memory is alive from the first copy of a step that reads it to the last.
- An element from memory that all lanes share is so too, but throughout if several steps read it:
  LLVM loads these ahead of all steps.
- A register of a buffer is alive from the first write to the last read; throughout where it is
  read before it is written (an accumulator), to the end where others read it later.

Steps of a reduction come one after the other; its results within a step in the order in which they
are written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.algebra.comparisons import substitute_cond
from tilewright.schedules.algebra.scalar import All, Load, Scalar, Select, children, loads
from tilewright.schedules.nest.editing import substitute_leaf
from tilewright.schedules.nest.loop_ir import For, LoopKind, PrefetchHint, StoreElement, Update

from .copies import moved
from .instances import Placed, count
from .program import Program
from .traffic import address

MOST_COPIES = 2000
"""Copies of leaves that are gone through: more are no body that anyone would write out."""

Value = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Registers:
    """`accumulators` that one sum adds to in one iteration of its innermost loop; `live`
    at once, where each step of the reduction loads the vectors that it reads; `held`, operands
    that would be alive from one step to the next, and are not counted as live, if it did not."""

    accumulators: int = 0
    live: int = 0
    held: int = 0


@dataclass(slots=True)
class _Copy:
    """One copy of a leaf: the values it reads, `elements` that lanes share among them, and writes,
    which step of a reduction it is in."""

    reads: list[Value]
    elements: set[Value]
    writes: Value | None
    step: tuple[int, ...]


@dataclass(slots=True)
class _Lives:
    """From which copy to which each value is alive, and in which steps of a reduction."""

    first: dict[Value, int] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)
    steps: dict[Value, set[tuple[int, ...]]] = field(default_factory=dict)

    def use(self, value: Value, at: int, step: tuple[int, ...]) -> None:
        self.first.setdefault(value, at)
        self.last[value] = at
        self.steps.setdefault(value, set()).add(step)


def registers(program: Program, body: tuple[Placed, ...]) -> Registers:
    """Of leaves that run in a row: of the code that needs most, where unrolled loops outside of
    running ones make several."""
    sums = [place for place in body if _is_accumulating(program, place)]
    accumulators = max((len(_slots(program, place)) for place in sums), default=0)
    each = [
        _measured(program, body, _in_turn(program, code), accumulators) for code in _codes(body)
    ]
    return Registers(accumulators, max(x.live for x in each), max(x.held for x in each))


def _codes(body: tuple[Placed, ...]) -> Iterator[tuple[Placed, ...]]:
    """The leaves for each value of the unrolled loops outside of running ones."""
    loops = [loop for loop in body[0].running if loop.kind is LoopKind.UNROLLED]
    for values in product(*(range(loop.extent) for loop in loops)):
        fixed = {x.var: Affine((), value) for x, value in zip(loops, values, strict=True)}
        yield tuple(replace(place, leaf=substitute_leaf(place.leaf, fixed)) for place in body)


def _is_accumulating(program: Program, place: Placed) -> bool:
    """Whether the innermost loop, or what is written out in it, adds to registers."""
    leaf = place.leaf
    if not isinstance(leaf, Update) or program.in_memory(leaf.buffer) or leaf.first is not None:
        return False
    return any(loop.reduce for loop in (*place.running[-1:], *place.unrolled_inside))


def _slots(program: Program, place: Placed) -> set[Value]:
    return {copy.writes for copy in _copies(program, place, ()) if copy.writes is not None}


def _in_turn(program: Program, body: tuple[Placed, ...]) -> list[_Copy]:
    """The copies of the body: the steps of a reduction one after the other, its results in the
    order in which they are written out."""
    if len(body) > 1:
        return list(_in_order(program, body, {}, 0))
    (place,) = body
    loops = range(len(place.unrolled_inside))
    return list(
        _copies(program, place, sorted(loops, key=lambda n: not place.unrolled_inside[n].reduce))
    )


def _copies(program: Program, place: Placed, axes: Iterable[int]) -> Iterator[_Copy]:
    """Those of one leaf, its unrolled loops in the order `axes` if there is one."""
    loops = [place.unrolled_inside[n] for n in axes] or list(place.unrolled_inside)
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
        loops = place.unrolled_inside
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
    return depth < len(place.unrolled_inside) and place.unrolled_inside[depth] is loop


def _copy(
    program: Program, place: Placed, env: dict[str, int], step: tuple[int, ...]
) -> _Copy | None:
    """None where what unrolled loops decide leaves nothing to do."""
    leaf = place.leaf
    assert not isinstance(leaf, PrefetchHint)
    fixed = {name: Affine((), value) for name, value in env.items()}
    known = [substitute_cond(cond, fixed) for cond in leaf.guards]
    if not count((), [cond for cond in known if not cond.index.vars()], ()):
        return None
    loaded = dict.fromkeys(_loads(leaf.value, fixed))
    each = {load: list(_values(program, place, load, fixed)) for load in loaded}
    read = [value for values in each.values() for value in values]
    of_lanes = [values for load, values in each.items() if _is_shared(program, place, load)]
    shared = {value for values in of_lanes for value in values}
    written = address(program, place, leaf.buffer, leaf.index, fixed)
    if isinstance(leaf, Update) and not _is_first(leaf, fixed):
        read.append(written)
    return _Copy(read, shared, None if program.in_memory(leaf.buffer) else written, step)


def _is_first(leaf: Update, fixed: dict[str, Affine]) -> bool:
    """Whether unrolled loops alone decide that an update is the first, which reads no sum."""
    first = [substitute_cond(cond, fixed) for cond in leaf.first or ()]
    decided = leaf.first is not None and not any(cond.index.vars() for cond in first)
    return decided and count((), first, ()) > 0


def _is_shared(program: Program, place: Placed, load: Load) -> bool:
    """Whether all lanes read one element of memory."""
    lanes, offset = place.lanes, program.offset(load.tensor, load.index)
    return program.in_memory(load.tensor) and (lanes is None or lanes.var not in offset.vars())


def _loads(node: Scalar, fixed: dict[str, Affine]) -> Iterator[Load]:
    """What is read where loops are `fixed`: of a choice that these decide, one side."""
    if isinstance(node, Load):
        yield node
    elif isinstance(node, Select) and isinstance(node.cond, All):
        known = [substitute_cond(cond, fixed) for cond in node.cond.conds]
        if any(cond.index.vars() for cond in known):
            sides = [node.on_true, node.on_false]
        else:
            sides = [node.on_true if count((), known, ()) else node.on_false]
        for side in sides:
            yield from _loads(side, fixed)
    else:
        for child in children(node):
            yield from _loads(child, fixed)


def _values(
    program: Program, place: Placed, load: Load, fixed: dict[str, Affine]
) -> Iterator[Value]:
    """The registers that hold what is read: of a transposed block, one for each lane; of a single
    element, the vector that it is a lane of."""
    lanes = place.lanes
    offset = program.offset(load.tensor, load.index)
    step = 0 if lanes is None else offset.coefficient(lanes.var)
    if program.in_memory(load.tensor) or step == 1:
        yield address(program, place, load.tensor, load.index, fixed)
        return
    row = program.buffers[load.tensor].shape[-1:] or (1,)
    width = row[0] if step > 1 else _width(program, load.tensor)
    for lane in range(lanes.extent if lanes is not None and step > 1 else 1):
        first = {} if lanes is None else {lanes.var: Affine((), lane)}
        number = offset.substitute({**fixed, **first})
        yield (load.tensor, number - number.const % row[0] % width)


def _width(program: Program, buffer: str) -> int:
    """Elements of the vectors in which a buffer of registers is written; 1 if it is not."""
    found = 1
    for place in program.leaves:
        leaf, lanes = place.leaf, place.lanes
        if lanes is not None and not isinstance(leaf, PrefetchHint) and leaf.buffer == buffer:
            is_vector = program.offset(buffer, leaf.index).coefficient(lanes.var) == 1
            found = max(found, lanes.extent if is_vector else 1)
    return found


def _measured(
    program: Program, body: tuple[Placed, ...], copies: list[_Copy], accumulators: int
) -> Registers:
    lives = _Lives()
    throughout: set[Value] = set()
    for at, copy in enumerate(copies[:MOST_COPIES]):
        for value in copy.reads:
            if value not in lives.first and _comes_from_outside(program, value):
                throughout.add(value)
            lives.use(value, at, copy.step)
        if copy.writes is not None:
            lives.use(copy.writes, at, copy.step)
    end = len(copies) - 1
    outside = _read_elsewhere(program, body)
    for value in lives.last:
        if value in throughout:
            lives.first[value] = 0
        if value in throughout or value[0] in outside:
            lives.last[value] = end
    ahead = _of_several_steps(copies)
    alive = _alive(program, copies, lives, ahead)
    sums = {place.leaf.buffer for place in body if isinstance(place.leaf, Update)}
    others = outside | sums | _blocks(program, body)
    crossing = [0] * (len(copies) + 1)
    for value, first in lives.first.items():
        is_kept = value not in throughout | ahead and value[0] not in others
        if is_kept and len(lives.steps[value]) > 1:
            for at in range(first + 1, lives.last[value] + 1):
                crossing[at] += copies[at].step != copies[at - 1].step
    held = max(crossing, default=0)
    return Registers(accumulators, max(alive, default=0), held)


def _blocks(program: Program, body: tuple[Placed, ...]) -> set[str]:
    """Register buffers that hold what was read: they are alive, whatever the steps are."""
    stores = (place.leaf for place in body if isinstance(place.leaf, StoreElement))
    found = {leaf.buffer for leaf in stores if moved(leaf.value)}
    return {name for name in found if not program.in_memory(name)}


def _of_several_steps(copies: list[_Copy]) -> set[Value]:
    """Elements that all lanes and several steps read."""
    read: dict[Value, set[tuple[int, ...]]] = {}
    for copy in copies[:MOST_COPIES]:
        for value in copy.elements:
            read.setdefault(value, set()).add(copy.step)
    return {value for value, steps in read.items() if len(steps) > 1}


def _alive(program: Program, copies: list[_Copy], lives: _Lives, ahead: set[Value]) -> list[int]:
    """How many values are alive at each copy, vectors from memory for one step at a time, what is
    loaded `ahead` in all."""
    each = _Lives()
    for at, copy in enumerate(copies[:MOST_COPIES]):
        for value in copy.reads:
            if value in ahead:
                each.first[value], each.last[value] = 0, len(copies) - 1
            elif program.in_memory(str(value[0])):
                each.use((*value, copy.step), at, copy.step)
    alive = [0] * (len(copies) + 1)
    for value, first in lives.first.items():
        if not program.in_memory(str(value[0])):
            each.first[value], each.last[value] = first, lives.last[value]
    for value, first in each.first.items():
        for at in range(first, each.last[value] + 1):
            alive[at] += 1
    return alive


def _comes_from_outside(program: Program, value: Value) -> bool:
    """Whether a register has its value from before the body."""
    return not program.in_memory(str(value[0]))


def _read_elsewhere(program: Program, body: tuple[Placed, ...]) -> set[str]:
    """Register buffers that other leaves read after the body."""
    inside = {id(place) for place in body}
    return {
        load.tensor
        for place in program.leaves
        if id(place) not in inside and not isinstance(place.leaf, PrefetchHint)
        for load in loads(place.leaf.value)
        if not program.in_memory(load.tensor)
    }
