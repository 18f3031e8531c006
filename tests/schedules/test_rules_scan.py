"""Sketches of scans: which lanes they have, what their loops look like, and that every setting
means what the expression does."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from benchmarks.counts.program import program
from benchmarks.counts.recount import recount
from tests.support.golden_text import Golden
from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.costmodel.counts.counting import program_counts
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import BufferScope, LoopKind, buffers_allocated, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.scan.sketch import ScanSketch
from tilewright.schedules.workload.workload import Workload

SCANS: dict[str, Workload] = {
    "rows": notation("S[i,k] = cumsum(X[i,k], k)", X="f32[12,67]"),
    "rows backwards": notation("S[i,k] = cumsum(X[i,k], k, reverse)", X="f32[12,64]"),
    "one row": notation("S[k] = cummax(X[k], k, exclusive)", X="f32[203]"),
    "columns": notation("S[k,j] = cumsum(X[k,j] * w[j], k)", X="f32[9,67]", w="f32[67]"),
    "few columns": notation("S[k,j] = cumsum(X[k,j], k)", X="f32[19,3]"),
    "a middle axis": notation("S[i,k,j] = cumprod(X[k,i,j], k)", X="f32[7,3,19]"),
    "the first of three": notation("S[k,i,j] = cummin(X[k,i,j], k)", X="i32[7,3,19]"),
    "before an axis of one": notation("S[i,k,z] = cumsum(X[i,k,z], k)", X="f32[3,37,1]"),
    "bytes": notation("S[i,k] = cumsum(X[i,k], k)", X="u8[6,67]"),
    "a long row": notation("S[k] = cumsum(X[k], k)", X="f32[2101]"),
    "a long row backwards": notation("S[k] = cumprod(X[k], k, reverse, exclusive)", X="f64[1030]"),
    "parts of a row in turn": notation("S[k] = cumsum(X[k], k)", X="f32[5003]"),
    "parts of rows in turn": notation("S[i,k] = cummax(X[i,k], k, reverse)", X="f64[3,2503]"),
    "parts of columns in turn": notation("S[k,j] = cumsum(X[k,j] * 2, k)", X="i32[1203,3]"),
    "three long rows": notation("S[i,k] = cummin(X[i,k], k)", X="i64[3,1100]"),
    "few long columns": notation("S[k,j] = cummax(X[k,j], k)", X="i32[301,3]"),
    "rows and a reader": notation(
        "S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * w[k]", X="f32[6,37]", w="f32[37]"
    ),
    "a long row and a reader": notation(
        "S[k] = cumsum(X[k], k, reverse); Y[k] = S[k] / w[k]", X="f32[2101]", w="f32[2101]"
    ),
    "columns and a reader": notation(
        "S[k,j] = cumsum(X[k,j], k); Y[k,j] = max(S[k,j], 0) + w[j]", X="f32[9,67]", w="f32[67]"
    ),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_setting_means_the_same(name: str, threads: int) -> None:
    workload = SCANS[name].normalised()
    for sketch in space_for(workload, replace(target(), threads=threads)).sketches:
        assert sketch.name in ("scan", "merge+scan")
        for setting in (sketch.default(), *drawn(sketch, 6, threads)):
            if sketch.feasible(np.asarray([setting]))[0]:
                check_meaning(workload, lower(workload, sketch.trace(setting)))


@pytest.mark.parametrize("name", SCANS)
def test_vectors_and_tasks_are_counted(name: str) -> None:
    workload = SCANS[name].normalised()
    each = space_for(workload, target()).sketches
    for sketch, setting in ((s, row) for s in each for row in (s.default(), *drawn(s, 10))):
        one = np.asarray([setting])
        if not sketch.feasible(one)[0]:
            continue
        nest = lower(workload, sketch.trace(setting))
        parallel = [x.extent for x in loops(nest.body) if x.kind is LoopKind.PARALLEL]
        counts = program_counts(sketch, one)
        values = dict(zip((k.name for k in sketch.knobs), setting, strict=True))
        if values.get("row_share"):
            # Positions after the last whole vector count as a part of a task.
            assert counts["regions"][0] >= len(parallel)  # parts in turn count once each
            largest = len(sketch.knobs[[*values].index("row_share")].values) - 1
            assert values["row_share"] < largest or round(counts["tasks"][0]) in parallel
            continue
        # A shorter last task counts as a fraction.
        assert ceil(counts["tasks"][0]) == (parallel[0] if parallel else 1)
        kept_in_memory = any(b.scope is BufferScope.WORKSPACE for b in buffers_allocated(nest.body))
        if not kept_in_memory:  # a small buffer in the first cache is left out
            found = recount(program(nest, frozenset({"s0", "s1"}), nest.body))
            assert counts["vector_stores"] == found["vector_stores"]


def test_lanes_are_along_the_contiguous_axis_and_rows_are_interleaved(golden: Golden) -> None:
    workload = SCANS["rows"].normalised()
    (sketch,) = space_for(workload, target()).sketches
    nest = lower(workload, sketch.trace(sketch.default()))
    assert to_text(nest) == golden


def test_columns_are_scanned_in_blocks(golden: Golden) -> None:
    workload = SCANS["columns"].normalised()
    (sketch,) = space_for(workload, target()).sketches
    nest = lower(workload, sketch.trace(sketch.default()))
    assert to_text(nest) == golden


def test_threads_sum_and_scan_parts_of_a_long_row(golden: Golden) -> None:
    workload = SCANS["a long row"].normalised()
    (sketch,) = space_for(workload, target()).sketches
    nest = lower(workload, sketch.trace(sketch.default()))
    assert to_text(nest) == golden


def test_an_elementwise_stage_is_computed_in_the_loops_of_the_scan(golden: Golden) -> None:
    workload = SCANS["rows and a reader"].normalised()
    (sketch,) = space_for(workload, target()).sketches
    nest = lower(workload, sketch.trace(sketch.default()))
    assert to_text(nest) == golden


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("S[i,k] = cumsum(X[i,k] * M[i,k], k)", "scan"),
        ("S[i,k] = cumsum(X[i,63-k], k)", "scan"),
        ("Z[i,k] = X[i,63-k] * M[i,k]; S[i,k] = cumsum(Z[i,k], k); Y[i,k] = S[i,k] * 2", "scan"),
        ("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * M[k,i]", "scan+transpose"),
        ("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] / S[i,63]", "scan+rows"),
        ("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * 2; Z[i,k] = S[i,63-k]", "scan+rows+rows"),
        ("S[i,k] = cumsum(X[i,k], k); Y[i,k] = cumsum(S[i,k], k)", "scan+scan"),
    ],
)
def test_neighbours_that_read_the_same_position_are_computed_together(text: str, name: str) -> None:
    tensors = {t: "f32[64,64]" for t in "XM" if f"{t}[" in text}
    workload = notation(text, None, **tensors).normalised()
    sketch = space_for(workload, target()).sketches[0]
    assert sketch.name == name
    check_meaning(workload, lower(workload, sketch.trace(sketch.default())))


def test_parts_in_turn_fit_a_private_cache() -> None:
    workload = notation("S[k] = cumsum(X[k], k)", X="f32[64000000]").normalised()
    machine = target()
    (sketch,) = space_for(workload, machine).sketches
    (part,) = sketch.parts
    assert isinstance(part, ScanSketch)
    _, *in_turn, whole = part.row_shares
    assert in_turn
    assert all(2 * n * part.lanes * 4 <= machine.own_cache_bytes for n in in_turn)
    assert whole * part.lanes * machine.threads >= 64000000
    lower(workload, sketch.trace(sketch.default()))


def test_the_stages_around_a_scan_keep_their_sketches() -> None:
    workload = notation(
        "T[i,j] += A[i,k] * B[k,j]; S[i,j] = cumsum(T[i,j], j);"
        "m[i] max= S[i,j]; e[i,j] = exp(S[i,j] - m[i]); t[i] += e[i,j]; Y[i,j] = e[i,j] / t[i]",
        A="f32[33,17]", B="f32[17,31]",
    ).normalised()  # fmt: skip
    assert space_for(workload, target()).sketches[0].name == "tile+scan+rows"
