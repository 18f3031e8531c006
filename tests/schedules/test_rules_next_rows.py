"""Prefetches for the rows of the next tile of a matrix product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedules.spaces import drawn, drawn_with, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.prior import Prior
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import PrefetchHint, leaves
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.tile import operands
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache
from tilewright.schedules.workload.workload import Workload

SMALL = replace(target(), caches=(Cache(512, 2), Cache(2048, 4), Cache(1 << 20, 16, shared=True)))

FAR_ROWS: dict[str, Workload] = {
    "product": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[31,66]", B="f32[66,20]"),
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[31,66]", B="f32[20,66]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,k,j]", A="f32[2,13,66]", B="f32[2,66,17]"),
    "layer": notation(
        "C[i,j] += A[i,k] * B[k,j]; Y[i,j] = max(C[i,j] + b[j], 0.0)",
        A="f32[31,66]", B="f32[66,20]", b="f32[20]",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def near_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows short enough for the interpreter."""
    monkeypatch.setattr(operands, "PAGE_BYTES", 256)


def sketch_of(workload: Workload) -> Sketch:
    return space_for(workload, SMALL).sketches[0]


def fetch_values(workload: Workload) -> tuple[int, ...]:
    (knob,) = [k for k in sketch_of(workload).knobs if k.name.endswith("prefetch")]
    return knob.values


def test_prefetches_are_offered_for_rows_far_apart_of_a_large_operand() -> None:
    assert all(fetch_values(workload) == (0, 1) for workload in FAR_ROWS.values())
    short = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[31,40]", B="f32[40,20]")
    assert fetch_values(short) == (0,)
    small = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[3,70]", B="f32[70,20]")
    assert fetch_values(small) == (0,)
    turned = notation("C[i,j] += A[k,i] * B[k,j]", A="f32[66,70]", B="f32[66,20]")
    assert fetch_values(turned) == (0,)


@pytest.mark.parametrize("name", FAR_ROWS)
def test_settings_with_prefetches_are_legal_and_right(name: str) -> None:
    workload = FAR_ROWS[name]
    sketch = sketch_of(workload)
    for setting in drawn_with(sketch, "prefetch", 6):
        nest = lower(workload, sketch.trace(tuple(setting)))
        prefetches = [leaf for leaf in leaves(nest.body) if isinstance(leaf, PrefetchHint)]
        stored = {tensor.name for tensor in nest.outputs}
        assert {prefetch.buffer for prefetch in prefetches} - stored == {"i0"}
        check_meaning(workload, nest)


def test_rows_that_nobody_asked_for_are_late() -> None:
    workload = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[320,128]", B="f32[128,512]")
    space = space_for(workload, SMALL)
    sketch = space.sketches[0]
    names = [knob.name for knob in sketch.knobs]
    settings = drawn(sketch, 20000)
    plain = settings[sketch.feasible(settings) & (settings[:, names.index("prefetch")] == 0)]
    asked = plain.copy()
    asked[:, names.index("prefetch")] = 1
    both = sketch.feasible(asked)
    late = [Prior(space).analyse(0, rows[both]).columns["exposed_lines"] for rows in (plain, asked)]
    assert both.any()
    assert np.all(late[0] > late[1])
