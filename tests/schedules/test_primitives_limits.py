"""Where sketches stand below the limits of safety of Unroll and Prefetch.

The workloads are those of `benchmarks.spaces` whose drawn settings come nearest to a limit."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import pytest

from benchmarks.spaces.replay import Place, drawn
from benchmarks.spaces.workloads import stored
from tests.support.paths import example_target
from tilewright.schedules.lowering.lower import plain_nest, start
from tilewright.schedules.nest.finding import leaf_sites
from tilewright.schedules.nest.loop_ir import LoopKind, Nest, PrefetchHint, Stmt, loops
from tilewright.schedules.primitives.marks import MAX_UNROLLED
from tilewright.schedules.primitives.prefetching import MOST_PREFETCHES
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload


def nests_of(place: Place, settings: int = 4) -> Iterator[Nest]:
    """What the default and some drawn settings of each sketch make."""
    target = example_target(place.cpu, place.threads)
    space = space_for(Workload.from_json(place.document).normalised(), target)
    for number, sketch in enumerate(space.sketches):
        found = drawn(sketch, f"{place.key} {number}")
        rows = found[sketch.feasible(found)][:settings]
        for setting in (sketch.default(), *(tuple(map(int, row)) for row in rows)):
            workload, steps = start(space.workload, sketch.trace(setting))
            yield steps.apply(plain_nest(workload))


def most_copies(nest: Nest) -> int:
    """Copies of all statements in loops that are written out, by the outermost of these."""
    copies: dict[str, int] = {}
    for _, around in leaf_sites(nest.body):
        unrolled = [loop for loop in around if loop.kind is LoopKind.UNROLLED]
        if unrolled:
            outermost = unrolled[0].var
            times = prod(loop.extent for loop in unrolled)
            copies[outermost] = copies.get(outermost, 0) + times
    return max(copies.values(), default=0)


def most_prefetches(nest: Nest) -> int:
    """Prefetches that stand in one loop."""

    def count(body: tuple[Stmt, ...]) -> int:
        return sum(isinstance(stmt, PrefetchHint) for stmt in body)

    return max((count(loop.body) for loop in loops(nest.body)), default=0)


@pytest.mark.parametrize(
    ("name", "cpu"),
    [("depthwise_7x7", "neoverse-n1"), ("random 62", "znver5"), ("C2D_2_b1", "neoverse-n1")],
)
def test_what_is_written_out_stays_far_below_the_limit(name: str, cpu: str) -> None:
    found = max(map(most_copies, nests_of(Place(name, dict(stored())[name], cpu, 2))))
    assert 200 < found < MAX_UNROLLED // 4


@pytest.mark.parametrize(
    ("name", "cpu"),
    [("mm_4096x8x4096", "neoverse-n1"), ("GRP_0_b16", "znver5"), ("mm_32x32x16384", "znver5")],
)
def test_a_tile_has_fewer_prefetches_than_registers(name: str, cpu: str) -> None:
    found = max(map(most_prefetches, nests_of(Place(name, dict(stored())[name], cpu, 1), 6)))
    assert 8 < found <= min(MOST_PREFETCHES, example_target(cpu, 1).vector_registers)
