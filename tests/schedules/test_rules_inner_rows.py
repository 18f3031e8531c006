"""Rows that are inner or divided axes of the last stage: what is computed together, and how."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.fused.rows import RowSketch
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.space import Sketch
from tilewright.schedules.workload.workload import Workload

PLANES = (
    "S[c] += X[n,c,p]; D[c] += (X[n,c,p] - S[c]) * (X[n,c,p] - S[c]);"
    "Y[n,c,p] = (X[n,c,p] - S[c]) * rsqrt(D[c] + 1.0)"
)
TOGETHER: dict[str, tuple[Workload, int]] = {
    "planes of all images": (notation(PLANES, X="f32[3,6,40]"), 6),
    "the last but one of four": (
        notation("S[b] += X[n,a,b,c]; Y[n,a,b,c] = X[n,a,b,c] * S[b]", X="f32[2,3,5,40]"), 5,
    ),
    "two inner axes": (
        notation("S[a,b] += X[n,a,b,c]; Y[n,a,b,c] = X[n,a,b,c] * S[a,b]", X="f32[2,3,5,40]"), 15,
    ),
    "groups of planes": (
        notation("S[n,g] += X[n,2*g+k,p]; Y[n,c,p] = X[n,c,p] - S[n,c//2]", {"k": 2},
                 X="f32[3,6,40]"), 9,
    ),
    "groups of columns": (
        notation("S[n,g] += X[n,p,4*g+k]; Y[n,p,c] = X[n,p,c] - S[n,c//4]", {"k": 4},
                 X="f32[3,11,24]"), 3,
    ),
}  # fmt: skip
"""Expressions, and the rows that their stages have in common."""

APART = {
    "other columns": notation("S[p] += X[n,p]; Y[n,p] = X[n,p] * S[p]", X="f32[9,40]"),
    "two orders": notation(
        "S[c] += X[n,c,p]; T[n] += X[n,c,p]; Y[n,c,p] = X[n,c,p] * S[c] * T[n]", X="f32[3,6,40]"
    ),
}


def together(workload: Workload, threads: int = 2) -> Sketch:
    sketch = space_for(workload, target(threads)).sketches[0]
    assert isinstance(sketch, ProgramSketch)
    (part,) = sketch.parts
    assert isinstance(part, RowSketch)
    return sketch


@pytest.mark.parametrize("name", TOGETHER)
def test_stages_with_common_axes_are_computed_together(name: str) -> None:
    workload, count = TOGETHER[name]
    sketch = together(workload)
    (part,) = sketch.parts
    assert part.group.repeats == count  # type: ignore[attr-defined]
    found = loops(lower(workload, sketch.trace(sketch.default())).body)
    (blocks,) = (loop.extent for loop in found if loop.kind is LoopKind.PARALLEL)
    assert blocks >= 2
    assert count % blocks == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TOGETHER)
def test_every_setting_means_the_same(name: str, threads: int) -> None:
    workload, _ = TOGETHER[name]
    sketch = together(workload, threads)
    settings = [s for s in drawn(sketch, 8) if sketch.feasible(np.asarray([s]))[0]]
    assert settings
    for setting in settings:
        check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("name", TOGETHER)
def test_the_stages_also_stay_apart_if_rows_are_inner_axes(name: str) -> None:
    sketches = space_for(TOGETHER[name][0], target()).sketches
    apart = [sketch for sketch in sketches if len(sketch.parts) > 1]
    assert bool(apart) == (name not in ("groups of planes", "groups of columns"))


@pytest.mark.parametrize("name", APART)
def test_what_has_no_common_rows_stays_apart(name: str) -> None:
    for sketch in space_for(APART[name], target()).sketches:
        assert not any(
            isinstance(part, RowSketch) and len(part.stages) == len(APART[name].stages)
            for part in sketch.parts
        )


@pytest.mark.parametrize("name", ["planes of all images", "groups of columns"])
def test_the_nest_of_the_default(name: str, golden: Golden) -> None:
    sketch = together(TOGETHER[name][0], threads=1)
    assert to_text(lower(TOGETHER[name][0], sketch.trace(sketch.default()))) == golden
