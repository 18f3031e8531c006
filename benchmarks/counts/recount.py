"""Counts of a lowered nest, found by walking through it: what COUNTS of `costmodel` promises.

Written from the meaning of a nest alone: nothing here asks a sketch. All counts are over one call
and all threads; what is packed ahead of calls is not done in one. In detail, where COUNTS leaves a
choice:

- An *instruction* is one leaf for one setting of all loops but the lanes; it counts once if any
  lane is active. A leaf that is in no vectorised loop is an instruction as well.
- `flops`, `vector_ops`, `math_calls`, `masked_share`: see `arithmetic.py`. Moves between lanes,
  conversions and choices are instructions and no flops; a fused multiply-add is one and two. What
  is computed for idle lanes, empty rows and padding counts.
- `vector_loads`, `vector_stores`, `scalar_accesses`: see `traffic.py`. Values between stages and
  sums that wait are in memory; registers are not. Filling packed copies is left out (`copies.py`).
- `accumulators`, `live_registers`, `kept_values`: see `registers.py`.
- `inner_entries`, `inner_trips`: how often running loops without other such loops in them are
  entered, and iterations of them all over that; 1 where no loop is left. A reduction that is
  written out is a loop of one iteration.
- `code_ops`: operations, loads and stores of an iteration of the loop that does most of them.
- `tasks`: vectors of results that the parallel loop works on, over those of its longest iteration:
  a shorter one counts as the part it is. 1 where nothing is parallel. They are the results of the
  leaf that runs most often, whatever is left out of their sums.
- `regions`: how often parallel loops are entered.
- `packed_bytes`: bytes of elements written to private copies, zeros around them among them.
  `strided_packed_bytes`: those that are read or written lane by lane, or outside of vectors;
  `transposed_packed_bytes`: of packed copies, whose lanes come from different registers;
  `fused_packed_bytes`: in a loop that adds up as well; `collected_bytes`: of results.
- `panel_bytes`: bytes of the largest private copy, as it is allocated.
- `streamed_bytes`: bytes of elements stored past the caches. A sum that is read again is not, nor
  is a vector that may lie across two lines: each copy of a leaf must write whole vectors at
  multiples of their size.
- `footprint`: bytes of memory that is touched, private copies left out; see `footprint.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import gcd

import numpy as np

from tilewright.schedules.algebra.affine import Affine, Var
from tilewright.schedules.algebra.scalar import Load, loads
from tilewright.schedules.nest.loop_ir import For, LoopKind, PrefetchHint, StoreElement, loops

from .arithmetic import Operation, operations
from .footprint import touched_bytes
from .instances import IntArray, Placed, bounds_of, count, count_by, iterations
from .program import Program, elements, instructions
from .registers import registers
from .traffic import traffic


def recount(found: Program) -> dict[str, float]:
    """The counts by their names in COUNTS, but for those that nobody can recount, and the
    `footprint`."""
    tasks, regions = _shared(found)
    sizes = [found.buffers[name].bytes for name in found.copies.buffers]
    copied = [place for place in found.leaves if place.leaf.buffer in found.copies.buffers]
    return {
        **_of_bodies(found),
        "tasks": tasks,
        "regions": regions,
        "packed_bytes": float(sum(_bytes(found, p) for p in copied)),
        "strided_packed_bytes": float(
            sum(_bytes(found, p) for p in copied if _is_piecemeal(found, p))
        ),
        "transposed_packed_bytes": float(
            sum(_bytes(found, p) for p in copied if _is_transposed(found, p))
        ),
        "fused_packed_bytes": float(sum(_bytes(found, p) for p in copied if _passes(found, p))),
        "collected_bytes": float(
            sum(_bytes(found, p) for p in copied if p.leaf.buffer in found.copies.collected)
        ),
        "panel_bytes": float(max(sizes, default=0)),
        "streamed_bytes": float(
            sum(_bytes(found, p) for p in found.computing if _is_streamed(found, p))
        ),
        "footprint": float(sum(touched_bytes(found).values())),
    }


def _of_bodies(found: Program) -> dict[str, float]:
    """What instructions there are, and in which loops."""
    totals = dict.fromkeys(("flops", "vector_ops", "math_calls", "masked_share"), 0.0)
    totals |= dict.fromkeys(("vector_loads", "vector_stores", "scalar_accesses"), 0.0)
    most, heaviest = -1.0, None
    runs = entered = 0
    for body in found.bodies:
        each = [operation for place in body for operation in operations(found, place)]
        moved = traffic(found, body)
        plain = sum(op.times for op in each if not op.is_math)
        totals["flops"] += sum(op.times * op.lanes * op.flops for op in each)
        totals["vector_ops"] += plain
        totals["math_calls"] += sum(op.times for op in each if op.is_math)
        totals["masked_share"] += _masked(each)
        totals["vector_loads"] += moved.loads
        totals["vector_stores"] += moved.stores
        totals["scalar_accesses"] += moved.scalars
        work = float(sum(op.times for op in each) + moved.loads + moved.stores)
        if work > most:
            most, heaviest = work, body
        if _is_innermost(found, body):
            iterated = iterations(body[0].running)
            runs += iterated
            entered += iterated if _is_unrolled(body) else _entered(body[0].running)
    if totals["vector_ops"]:
        totals["masked_share"] /= totals["vector_ops"]
    totals["inner_entries"], totals["inner_trips"] = max(entered, 1), runs / entered if runs else 1
    totals |= _of_heaviest(found, heaviest, most)
    return {name: float(value) for name, value in totals.items()}


def _of_heaviest(found: Program, body: tuple[Placed, ...] | None, work: float) -> dict[str, float]:
    """Registers and length of the body that does most work."""
    if body is None:
        return {}
    needed = registers(found, body)
    return {
        "code_ops": work / max(iterations(body[0].running), 1),
        "accumulators": needed.accumulators,
        "live_registers": needed.live,
        "kept_values": needed.held,
    }


def _masked(each: Sequence[Operation]) -> int:
    return sum(op.times for op in each if op.is_masked and not op.is_math)


def _entered(loops: Sequence[For]) -> int:
    """How often the last of `loops` has an iteration."""
    return count(loops, bounds_of(loops), [loop.var for loop in loops[:-1]])


def _is_innermost(found: Program, body: tuple[Placed, ...]) -> bool:
    """Whether the loop around a body has no other running loop in it, but those of copies."""
    if not body[0].running:
        return False
    inner = body[0].running[-1]
    return not any(loop is inner for place in found.computing for loop in place.running[:-1])


def _is_unrolled(body: tuple[Placed, ...]) -> bool:
    """Whether all of a reduction stands in the body of a loop that has nothing to do with it."""
    reduced = any(loop.reduce for place in body for loop in place.unrolled_inside)
    return reduced and not body[0].running[-1].reduce


def _bytes(found: Program, place: Placed) -> int:
    if isinstance(place.leaf, PrefetchHint):
        return 0
    return elements(place) * found.buffers[place.leaf.buffer].dtype.bytes


def _is_piecemeal(found: Program, place: Placed) -> bool:
    """Whether a copy goes element by element: no lanes, or lanes apart on one of its sides."""
    leaf, lanes = place.leaf, place.lanes
    if isinstance(leaf, PrefetchHint):
        return False
    if lanes is None:
        return True
    sides = [(leaf.buffer, leaf.index)]
    sides += [(load.tensor, load.index) for load in _memory_loads(found, place)]
    steps = [found.offset(name, index).coefficient(lanes.var) for name, index in sides]
    return any(abs(step) != 1 for step in steps)


def _is_transposed(found: Program, place: Placed) -> bool:
    """Whether a copy takes its lanes from different registers."""
    leaf, lanes = place.leaf, place.lanes
    if isinstance(leaf, PrefetchHint) or lanes is None or leaf.buffer not in found.copies.packed:
        return False
    return any(
        found.offset(load.tensor, load.index).coefficient(lanes.var) > 1
        for load in loads(leaf.value)
        if not found.in_memory(load.tensor)
    )


def _passes(found: Program, place: Placed) -> bool:
    """Whether a copy is made in the loop in which it is used."""
    inner = place.running[-1] if place.running else None
    if inner is None or not inner.reduce:
        return False
    beside = (x for x in found.computing if x.running and x.running[-1] is inner)
    return any(_reads(other, place.leaf.buffer) for other in beside)


def _reads(place: Placed, buffer: str) -> bool:
    assert not isinstance(place.leaf, PrefetchHint)
    return any(load.tensor == buffer for load in loads(place.leaf.value))


def _memory_loads(found: Program, place: Placed) -> list[Load]:
    assert not isinstance(place.leaf, PrefetchHint)
    return [load for load in loads(place.leaf.value) if found.in_memory(load.tensor)]


def _is_streamed(found: Program, place: Placed) -> bool:
    """Whether the leaf stores whole vectors past the caches, at multiples of their size."""
    leaf, lanes = place.leaf, place.lanes
    if (
        leaf.buffer not in found.nest.streamed
        or not isinstance(leaf, StoreElement)
        or lanes is None
    ):
        return False
    rest = found.offset(leaf.buffer, leaf.index) - Affine(((Var(lanes.var), 1),), 0)
    return gcd(rest.const, *(factor for _, factor in rest.terms)) % lanes.extent == 0


def _shared(found: Program) -> tuple[float, float]:
    """`tasks` and `regions`."""
    best, tasks, regions = -1.0, 1.0, 0
    for loop in loops(found.statements):
        if loop.kind is not LoopKind.PARALLEL:
            continue
        inside = [place for place in found.computing if place.within(loop)]
        around = next(place.loops for place in found.leaves if place.within(loop))
        outside = around[: [each is loop for each in around].index(True)]
        regions += iterations(outside)
        if not inside:  # it fills a packed copy
            continue
        each = _work_by(found, inside, loop)
        if each.sum() > best and each.max() > 0:
            best, tasks = float(each.sum()), float(each.sum() / each.max())
    return tasks, float(regions)


def _work_by(found: Program, inside: Sequence[Placed], loop: For) -> IntArray:
    """(extent,) vectors of results that each iteration of a parallel loop works on: of the leaf
    that runs most often, and of the same one where loops were cut."""
    most = max(inside, key=lambda place: _weight(found, place))
    starts = (StoreElement, _stem(most)[1])  # of its sums, where there are some
    wanted = starts if any(_stem(place) == starts for place in inside) else _stem(most)
    total = np.zeros(loop.extent, np.int64)
    for place in inside:
        if _stem(place) == wanted:
            results = [step.var for step in place.loops if not step.reduce]
            keep = [name for name in results if name in place.steps]
            total += count_by(place.loops, place.conds, keep, [loop.var])
    return total


def _stem(place: Placed) -> tuple[type, str]:
    """What a leaf has in common with its copies in loops that were cut."""
    return type(place.leaf), re.sub(r"(\.t\d*)+$", "", place.leaf.buffer)


def _weight(found: Program, place: Placed) -> int:
    """Operations of a leaf; those that read registers and nothing else are not what takes long."""
    leaf = place.leaf
    assert not isinstance(leaf, PrefetchHint)
    if isinstance(leaf.value, Load) and not found.in_memory(leaf.value.tensor):
        return int(found.in_memory(leaf.buffer))
    return sum(op.times for op in operations(found, place)) + instructions(place)
