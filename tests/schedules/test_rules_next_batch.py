"""Prefetches for the panels of the next batch of small products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.prior import Prior
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.primitives import Prefetch
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile import operands, prefetch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.target import Cache
from tilewright.schedules.workload.workload import Workload

SMALL = replace(target(), caches=(Cache(512, 2), Cache(8192, 4), Cache(1 << 20, 16, shared=True)))

BY_HEADS = notation("C[b,h,i,j] += Q[b,i,h,k] * K[b,j,h,k]", Q="f32[2,31,3,24]", K="f32[2,20,3,24]")
IN_ROWS = notation("C[b,i,j] += A[b,i,k] * B[b,k,j]", A="f32[3,31,66]", B="f32[3,66,20]")
ONE = notation("C[i,j] += A[i,k] * B[j,k]", A="f32[31,66]", B="f32[40,66]")


@pytest.fixture(autouse=True)
def near_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows short enough for the interpreter."""
    monkeypatch.setattr(operands, "PAGE_BYTES", 256)


def setting(space: ScheduleSpace, **knobs: int) -> tuple[int, ...]:
    sketch = space.sketches[0]
    asked = {
        "tile_vectors": 1, "tile_rows": 3, "tile_rows2": 1, "column_blocks": 1, "row_blocks": 1,
        "row_blocks2": 1, "reduction_blocks": 1, "unroll_reduction": 1, "split_reduction": 1,
        "pack_columns": 1,
        "prefetch": 1,
        **knobs,
    }  # fmt: skip
    found = tuple(knob.values.index(asked.get(knob.name, 0)) for knob in sketch.knobs)
    assert sketch.feasible(np.asarray([found]))[0]
    return found


def panel_prefetches(workload: Workload, **knobs: int) -> list[Prefetch]:
    space = space_for(workload.normalised(), SMALL)
    trace = space.sketches[0].trace(setting(space, **knobs))
    steps = [step for step in trace.steps if isinstance(step, Prefetch)]
    return [step for step in steps if step.tensor == "i1"]


def test_the_next_batch_is_asked_for_while_rows_of_this_one_are_computed() -> None:
    (prefetches,) = panel_prefetches(BY_HEADS)
    assert (prefetches.loop, prefetches.ahead, prefetches.step) == ("s0.d0f", 1, 16)
    assert prefetches.deal.startswith("s0.d2")
    assert not panel_prefetches(BY_HEADS, prefetch=0)
    assert not panel_prefetches(BY_HEADS, row_blocks=2)  # more than one block a batch
    assert not panel_prefetches(IN_ROWS)  # rows of the operand follow each other
    (alone,) = space_for(ONE, SMALL).sketches
    assert isinstance(alone, ProgramSketch)
    assert not any(part.next_batch_panels for part in alone.parts if isinstance(part, TileSketch))


def test_too_few_tiles_of_rows_give_no_prefetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "MOST_PREFETCHES", 0)
    assert not panel_prefetches(BY_HEADS)


@pytest.mark.parametrize("inside", [0, 1])
@pytest.mark.parametrize("rows", [2, 3])
def test_prefetches_for_the_next_batch_are_legal_and_right(rows: int, inside: int) -> None:
    workload = BY_HEADS.normalised()
    space = space_for(workload, SMALL)
    chosen = setting(space, tile_rows=rows, row_tiles_innermost=inside)
    check_meaning(workload, lower(workload, space.sketches[0].trace(chosen)))


def test_the_prior_prefers_to_ask() -> None:
    space = space_for(BY_HEADS.normalised(), SMALL)
    both = np.asarray([setting(space), setting(space, prefetch=0)])
    with_prefetches, without = Prior(space).analyse(0, both).columns["exposed_lines"]
    assert with_prefetches < without
