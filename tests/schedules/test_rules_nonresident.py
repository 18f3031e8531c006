"""Nonresident operands: read in place, a block of the reduction at a time, prefetched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.schedules.spaces import SMALL, drawn_with, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import PrefetchHint, leaves
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.tile import operands
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

PASSING: dict[str, Workload] = {
    "few rows": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[7,70]", B="f32[70,40]"),
    "permuted": notation("C[i,j] += A[k,i] * B[k,j]", A="f32[70,7]", B="f32[70,41]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,k,j]", A="f32[2,3,66]", B="f32[2,66,24]"),
    "shared weights": notation("C[t,i,j] += A[t,i,k] * B[k,j]", A="f32[2,3,66]", B="f32[66,24]"),
    "layer": notation(
        "C[i,j] += A[i,k] * B[k,j]; Y[i,j] = max(C[i,j] + b[j], 0.0)",
        A="f32[7,70]", B="f32[70,40]", b="f32[40]",
    ),
    "small image": notation(
        "Y[h,w,o] += X[h+r-1, w+s-1, c] * W[r,s,c,o]",
        {"h": 3, "w": 3}, X="f32[3,3,64]", W="f32[3,3,64,24]",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows short enough for the interpreter."""
    monkeypatch.setattr(operands, "LINES_TO_FOLLOW", 1)


def sketch_of(workload: Workload, machine: Target = SMALL) -> Sketch:
    return space_for(workload, machine).sketches[0]


def fetch_values(workload: Workload, machine: Target = SMALL) -> tuple[int, ...]:
    (knob,) = [k for k in sketch_of(workload, machine).knobs if k.name.endswith("prefetch")]
    return knob.values


def test_prefetches_are_offered_where_an_operand_is_large_and_used_little() -> None:
    few_rows = PASSING["few rows"]
    assert fetch_values(few_rows) == (0, 1)
    assert fetch_values(few_rows, target()) == (0,)
    many_rows = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[300,70]", B="f32[70,40]")
    assert fetch_values(many_rows) == (0,)
    weights_by_output = notation("C[i,j] += A[i,k] * B[j,k]", A="f32[7,70]", B="f32[40,70]")
    assert fetch_values(weights_by_output) == (0,)


@pytest.mark.parametrize("name", PASSING)
def test_settings_with_prefetches_are_legal_and_right(name: str) -> None:
    workload = PASSING[name]
    sketch = sketch_of(workload)
    for setting in drawn_with(sketch, "prefetch", 6):
        nest = lower(workload, sketch.trace(tuple(setting)))
        assert any(isinstance(leaf, PrefetchHint) and leaf.far for leaf in leaves(nest.body))
        check_meaning(workload, nest)


def test_a_tile_that_nobody_asked_for_is_counted_late() -> None:
    """One run of all columns is better than many, and tiles that wait must have room."""
    roomy = replace(SMALL, caches=(Cache(512, 2), Cache(16384, 4), Cache(1 << 20, 16, shared=True)))
    product = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[6,512]", B="f32[512,512]")
    sketch = sketch_of(product, roomy)
    names = [knob.name for knob in sketch.knobs]

    def late(**values: int) -> float:
        base = dict.fromkeys(names, 0) | {
            "tile_vectors": 2,
            "tile_rows": 3,
            "row_tiles_innermost": 1,
        }
        base |= {
            "parallel": 1,
            "column_blocks": 2,
            "row_blocks": 1,
            "row_blocks2": 1,
            "tile_rows2": 1,
        }
        base |= {
            "reduction_blocks": 16,
            "unroll_reduction": 1,
            "prefetch": 1,
            "split_reduction": 1,
        } | values
        setting = [k.values.index(base[k.name]) for k in sketch.knobs]
        assert sketch.feasible(np.asarray([setting]))[0]
        found = program_counts(sketch, np.asarray([setting]))
        return float(found["exposed_lines"][0])

    assert late() < late(column_blocks=16)
    assert late() < late(reduction_blocks=1)
    assert late() < late(prefetch=0)
