"""Sketches of scans: which lanes they have, what their loops look like, and that every setting
means what the expression does."""

from __future__ import annotations

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
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.sketches import space_for
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
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_setting_means_the_same(name: str, threads: int) -> None:
    workload = SCANS[name].normalised()
    for sketch in space_for(workload, target(threads)).sketches:
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
        # A shorter last task counts as a fraction.
        assert ceil(counts["tasks"][0]) == (parallel[0] if parallel else 1)
        assert (
            counts["vector_stores"]
            == recount(program(nest, frozenset({"s0"}), nest.body))["vector_stores"]
        )


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


def test_the_stages_around_a_scan_keep_their_sketches() -> None:
    workload = notation(
        "T[i,j] += A[i,k] * B[k,j]; S[i,j] = cumsum(T[i,j], j);"
        "m[i] max= S[i,j]; e[i,j] = exp(S[i,j] - m[i]); t[i] += e[i,j]; Y[i,j] = e[i,j] / t[i]",
        A="f32[33,17]", B="f32[17,31]",
    ).normalised()  # fmt: skip
    assert space_for(workload, target()).sketches[0].name == "tile+scan+rows"
