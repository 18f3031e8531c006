"""Parts of a reduction for the threads: offered where tiles are few, right at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.schedules.spaces import drawn_with, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.primitives import RFactor
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.tile import settings as reduction_parts
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

LONG: dict[str, Workload] = {
    "product": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[3,64]", B="f32[64,11]"),
    "permuted": notation("C[i,j] += A[k,i] * B[k,j]", A="f32[64,5]", B="f32[64,16]"),
    "weights' gradient": notation(
        "G[r,c,o] += X[h+r,w,c] * Y[h,w,o]", X="f32[34,3,5]", Y="f32[32,3,9]"
    ),
    "rows by rows": notation("C[i,j] += A[i,k] * A[j,k]", A="f32[5,64]"),
    "columns by columns": notation("C[i,j] += A[k,i] * A[k,j]", A="f32[64,17]"),
    "greatest sum": notation("C[i,j] max= A[i,k] + B[k,j]", A="f32[3,64]", B="f32[64,11]"),
}


def sketch_of(workload: Workload, machine: Target) -> Sketch:
    return space_for(workload, machine).sketches[0]


def part_counts(workload: Workload, machine: Target) -> tuple[int, ...]:
    (knob,) = [k for k in sketch_of(workload, machine).knobs if k.name == "split_reduction"]
    return knob.values


def test_parts_are_offered_where_tiles_are_too_few_for_the_threads() -> None:
    deep = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[8,8192]", B="f32[8192,16]")
    assert part_counts(deep, target()) == (1, 2, 4)
    assert part_counts(deep, target(threads=1)) == (1,)
    wide = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[64,8192]", B="f32[8192,64]")
    assert part_counts(wide, target()) == (1,)
    assert part_counts(wide, replace(target(), cores=32, threads=32)) == (1, 32, 64)
    odd = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[8,8190]", B="f32[8190,16]")
    assert part_counts(odd, target()) == (1, 2)
    short = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[8,32]", B="f32[32,16]")
    assert part_counts(short, target()) == (1,)


@pytest.mark.parametrize("name", LONG)
def test_settings_in_parts_are_legal_and_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction_parts, "LEAST_DEPTH", 8)
    workload = LONG[name]
    sketch = sketch_of(workload, target())
    for setting in drawn_with(sketch, "split_reduction", 8):
        trace = sketch.trace(tuple(setting))
        assert any(isinstance(step, RFactor) for step in trace.steps)
        check_meaning(workload, lower(workload, trace))
