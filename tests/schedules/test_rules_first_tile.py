"""Panels that the first tile of rows packs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import check_meaning, matmul, notation
from tilewright.costmodel.prior import COMPONENTS, Prior
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import Merge, Prefetch
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache
from tilewright.schedules.workload.workload import Workload

SMALL = replace(target(), caches=(Cache(512, 2), Cache(8192, 4), Cache(1 << 20, 16, shared=True)))

BATCHES = notation("C[b,i,j] += A[b,i,k] * B[b,k,j]", A="f32[3,11,6]", B="f32[3,6,20]")
EPILOGUE = notation(
    "S[i,j] += A[i,k] * B[k,j]; C[i,j] = max(S[i,j] + b[j], 0.0)",
    A="f32[11,6]", B="f32[6,20]", b="f32[20]",
)  # fmt: skip
TWO_PANELS = notation("C[i,j] += A[i,k] * B[k,j] * D[k,j]", A="f32[11,6]", B="f32[6,20]",
                      D="f32[6,20]")  # fmt: skip
WINDOWS = notation("O[y,x,f] += X[y+r,x+s,c] * W[r,s,c,f]", X="f32[6,7,3]", W="f32[2,3,3,20]")
ONE_TAP = notation("O[y,f] += X[2*y+r,c] * W[r,c,f]", X="f32[22,6]", W="f32[1,6,20]")
COLUMNS_APART = notation("C[i,j] += A[i,k] * B[j,k]", A="f32[11,6]", B="f32[20,6]")
USED_TWICE = notation("C[i,j] += A[i,k,l] * B[k,j]", A="f32[11,6,4]", B="f32[6,20]")
"""A step of one loop of this reduction uses what another has packed."""


def tiles(workload: Workload, threads: int = 1) -> Sketch:
    """The sketch that is one tile."""
    space = space_for(workload.normalised(), replace(SMALL, threads=threads))
    return next(sketch for sketch in space.sketches if sketch.name == "tile")


def at(sketch: Sketch) -> int:
    return [knob.name for knob in sketch.knobs].index("fuse_packing")


def settings(sketch: Sketch) -> list[tuple[int, ...]]:
    """Random feasible settings that pack on the way."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    drawn = np.random.default_rng(7).integers(0, sizes, (40_000, len(sizes)))
    drawn[:, at(sketch)] = 1
    return [tuple(row) for row in drawn[sketch.feasible(drawn)].tolist()]


def offered(workload: Workload) -> bool:
    sketch = tiles(workload)
    return sketch.knobs[at(sketch)].values == (0, 1)


def test_it_is_offered_where_each_step_packs_its_own_part() -> None:
    assert all(offered(w) for w in (matmul(11, 20, 6), BATCHES, EPILOGUE, TWO_PANELS, WINDOWS))
    assert not offered(COLUMNS_APART)
    assert not offered(USED_TWICE)


def test_the_first_tile_packs(golden: Golden) -> None:
    workload = matmul(11, 20, 6).normalised()
    sketch = tiles(workload)
    trace = sketch.trace(settings(sketch)[0])
    assert [step.second for step in trace.steps if isinstance(step, Merge)] == ["s0.r0i"]
    assert to_text(lower(workload, trace)) == golden


@pytest.mark.parametrize(
    "workload", [matmul(11, 20, 6), BATCHES, EPILOGUE, TWO_PANELS, WINDOWS, ONE_TAP],
    ids=["product", "batches", "epilogue", "two panels", "windows", "one tap"],
)  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_legal_and_right(workload: Workload, threads: int) -> None:
    sketch = tiles(workload, threads)
    found = settings(sketch)
    assert len(found) > 8
    for setting in found[:4]:
        check_meaning(workload.normalised(), lower(workload.normalised(), sketch.trace(setting)))


def test_what_is_copied_is_asked_for_ahead() -> None:
    sketch = tiles(matmul(11, 20, 4000))
    prefetches = [s for s in sketch.trace(settings(sketch)[0]).steps if isinstance(s, Prefetch)]
    (prefetch,) = [step for step in prefetches if step.tensor == "i1"]
    assert prefetch.loop == prefetch.within
    assert prefetch.ahead > 1


def test_the_prior_counts_less_for_the_copy() -> None:
    space = space_for(matmul(110, 200, 60).normalised(), SMALL)
    way = np.asarray(settings(space.sketches[0])[:20])
    apart = way.copy()
    apart[:, at(space.sketches[0])] = 0
    analyses = [Prior(space).analyse(0, rows) for rows in (way, apart)]
    packing = [found.components[COMPONENTS.index("packing")] for found in analyses]
    assert np.all(packing[0] < packing[1])
    packed = [found.columns["packed_bytes"] for found in analyses]
    assert np.array_equal(packed[0], packed[1])
