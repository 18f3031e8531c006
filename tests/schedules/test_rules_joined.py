"""Short last axes are walked as one where that walks along every tensor, and nowhere else; sums of
the same elements have their lanes along the results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.analysis.stages import view_stage
from tilewright.schedules.workload.workload import Workload

JOINED: dict[str, Workload] = {
    "patches": notation(
        "Y[p,q,a,b,c] = X[4*p+a,6*q+b,c]", {"a": 4, "b": 6, "p": 2, "q": 3}, X="f32[8,18,3]"
    ),
    "planes": notation("Y[n,c,h,w] = X[n,c,h,w] * s[c]", X="f32[2,3,5,5]", s="f32[3]"),
}
APART: dict[str, Workload] = {
    "half of the rows": notation("Y[i,j,k] = X[i,2*j,k]", {"j": 4}, X="f32[3,8,9]"),
    "condition": notation("Y[i,j,k] = where(k <= j, X[j,i,k], 0)", X="f32[5,3,9]"),
    "number": notation("Y[i,j,k] = X[j,i,k] + f32(k)", X="f32[5,3,9]"),
}


def lanes(workload: Workload) -> list[str]:
    """The vectorised loops of the rows' default, as they are called within the stage."""
    sketch = next(s for s in space_for(workload, target()).sketches if s.name == "rows")
    found = loops(lower(workload, sketch.trace(sketch.default())).body)
    return [x.var.removeprefix("s0.") for x in found if x.kind is LoopKind.VECTORIZED]


@pytest.mark.parametrize("name", JOINED)
def test_short_axes_are_joined(name: str) -> None:
    workload = JOINED[name].normalised()
    assert "f" in lanes(workload)[0]
    check(workload)


@pytest.mark.parametrize("name", APART)
def test_axes_that_some_tensor_has_apart_stay_so(name: str) -> None:
    workload = APART[name].normalised()
    assert not any("f" in lane for lane in lanes(workload))
    check(workload)


def test_lanes_lie_along_results_of_the_same_elements() -> None:
    text = "Y[b,i] += where(k <= i && k >= i - 9, X[b,k], 0)"
    running = notation(text, {"i": 21}, X="f32[3,21]").normalised()
    assert lanes(running)
    assert all(name.startswith("d1") for name in lanes(running))
    check(running)


def test_a_read_that_is_in_bounds_anyway_is_no_padding() -> None:
    triangle = notation("Y[i,j] += where(j <= i, A[i,k] * A[j,k], 0)", A="f32[9,7]").normalised()
    assert all(r.conditional and not r.padded for r in view_stage(triangle, "s0").reads)
    shifted = notation("Y[i] += X[i+r-1] * W[r]", X="f32[9]", W="f32[3]").normalised()
    padding = {r.tensor: (r.conditional, r.padded) for r in view_stage(shifted, "s0").reads}
    assert padding == {"i0": (True, True), "i1": (False, False)}


def check(workload: Workload) -> None:
    """Every sketch's default and a few drawn settings mean what the expression does."""
    for sketch in space_for(workload, target()).sketches:
        for setting in (sketch.default(), *drawn(sketch, 3)):
            if sketch.feasible(np.asarray([setting]))[0]:
                check_meaning(workload, lower(workload, sketch.trace(setting)))
