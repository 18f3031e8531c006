"""Dot products: lanes along the reduction, a large operand read in place and once."""

from __future__ import annotations

import numpy as np
import pytest

from schedules import operators
from schedules.loop_ir import Prefetch, leaves
from schedules.lower import lower
from schedules.rules import dots, space_for
from schedules.space import Sketch
from schedules.target import Target
from schedules.workload import Workload
from tests.schedule_fuzz.cases import check_meaning, notation
from tests.schedules.test_rules_passing import SMALL
from tests.schedules.test_rules_spaces import target

DOTS: dict[str, Workload] = {
    "weights by output": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[6,33]", B="f32[12,33]"),
    "prime": notation("C[i,j] += A[i,k] * B[j,k]", A="f32[3,37]", B="f32[13,37]"),
    "few columns": notation("C[i,j] += A[i,k] * B[k,j]", A="f32[52,32]", B="f32[32,2]"),
    "permuted result": notation("C[j,i] += A[i,k] * B[j,k]", A="f32[2,32]", B="f32[12,32]"),
    "batched": notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[2,2,35]", B="f32[2,6,35]"),
    "two reductions": notation(
        "C[i,j] += A[i,r,k] * B[j,r,k]", A="f32[2,3,33]", B="f32[8,3,33]"
    ),
    "layer": notation(
        "C[i,j] += A[i,k] * B[j,k]; Y[i,j] = max(C[i,j] + b[j], 0.0)",
        A="f32[4,33]", B="f32[12,33]", b="f32[12]",
    ),
    "few channels made": notation(
        "Y[h,w,o] += X[h+r-1,w+s-1,c] * K[r,s,c,o]", {"h": 5, "w": 6}, X="f32[5,6,16]",
        K="f32[3,3,16,3]",
    ),
    "a step": notation(
        "Y[h,w,o] += X[2*h+r,2*w+s,c] * K[o,r,s,c]", X="f32[9,13,16]", K="f32[2,3,3,16]"
    ),
    "phases": operators.conv2d_transpose_nhwc(
        N=1, H=8, W=9, CI=16, CO=2, K=4, stride=2, pad=1
    ),
    "greatest": notation("C[i,j] max= A[i,k] + B[j,k]", A="f32[2,33]", B="f32[8,33]"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions short enough for the interpreter."""
    monkeypatch.setattr(dots, "LEAST_VECTORS", 2)
    monkeypatch.setattr(dots, "LEAST_PASSING_BYTES", 256)
    monkeypatch.setattr(dots, "TIMES_AS_LARGE", 0)


def dot_sketches(workload: Workload, machine: Target | None = None) -> list[Sketch]:
    return [s for s in space_for(workload, machine or target()).sketches if "dots" in s.name]


@pytest.mark.parametrize("name", DOTS)
def test_every_setting_is_legal_and_right(name: str) -> None:
    workload = DOTS[name]
    (sketch,) = dot_sketches(workload)
    grid = np.indices([len(knob.values) for knob in sketch.knobs])
    settings = grid.reshape(len(sketch.knobs), -1).T
    settings = settings[sketch.feasible(settings)]
    assert len(settings)
    assert sketch.feasible(np.asarray([sketch.default()]))[0]
    for setting in settings[:: max(len(settings) // 6, 1)]:
        check_meaning(workload, lower(workload, sketch.trace(tuple(setting))))


def test_offered_only_where_a_large_operand_is_used_little_along_contiguous_rows() -> None:
    for text, shapes in (
        ("C[i,j] += A[i,k] * B[k,j]", {"A": "f32[6,33]", "B": "f32[33,90]"}),
        ("C[i,j] += A[i,k] * B[j,k]", {"A": "f32[70,33]", "B": "f32[90,33]"}),
        ("C[i,j] += A[i,k] * B[j,k]", {"A": "f32[6,5]", "B": "f32[90,5]"}),
        ("C[i] += A[i,k] * B[k]", {"A": "f32[90,33]", "B": "f32[33]"}),
        ("C[i,j] += A[i,2*k] * B[j,2*k]", {"A": "f32[6,66]", "B": "f32[90,66]"}),
    ):
        assert not dot_sketches(notation(text, {"k": 33} if "2*k" in text else None, **shapes))


def test_tiles_of_phases_are_whole_periods() -> None:
    (sketch,) = dot_sketches(DOTS["phases"])
    columns = next(knob.values for knob in sketch.knobs if knob.name == "columns")
    assert columns == (2, 6)  # of 18, in pairs
    (sketch,) = dot_sketches(DOTS["few channels made"])
    assert next(knob.values for knob in sketch.knobs if knob.name == "columns") == (1, 2, 3, 6)


def test_phases_with_fewer_taps_are_left() -> None:
    """Their sums would be computed in full and thrown away."""
    odd = operators.conv2d_transpose_nhwc(N=1, H=8, W=9, CI=16, CO=2, K=3, stride=2, pad=1)
    assert not dot_sketches(odd)


def test_padding_along_the_lanes_is_not_taken() -> None:
    text = "C[i,j] += A[i,k-1] * B[j,k]"
    assert not dot_sketches(notation(text, A="f32[6,33]", B="f32[90,34]"))


def test_copies_are_small_beside_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dots, "TIMES_AS_LARGE", 16)
    assert not dot_sketches(DOTS["few channels made"])


def test_a_far_operand_is_asked_for_a_tile_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[2,4,37]", B="f32[2,12,37]")
    monkeypatch.setattr(dots, "PAGE_BYTES", 64)
    (sketch,) = dot_sketches(workload, SMALL)
    assert [knob.values for knob in sketch.knobs][-1] == (0, 1)
    assert all(
        knob.values[-1] == 0
        for made in dot_sketches(workload)
        for knob in made.knobs
        if knob.name == "fetch"
    )
    settings = np.indices([len(knob.values) for knob in sketch.knobs]).reshape(4, -1).T
    settings = settings[sketch.feasible(settings) & (settings[:, -1] > 0)]
    for setting in settings[::3]:
        nest = lower(workload, sketch.trace(tuple(setting)))
        assert any(isinstance(leaf, Prefetch) and leaf.far for leaf in leaves(nest.body))
        check_meaning(workload, nest)
    without = settings.copy()
    without[:, -1] = 0
    late, unasked = (sketch.columns(s)["conflict_misses"] for s in (settings, without))
    assert (late < unasked).all()


def test_wider_tiles_read_less() -> None:
    (sketch,) = dot_sketches(DOTS["weights by output"])
    names = [knob.name for knob in sketch.knobs]

    def loads(rows: int, columns: int) -> float:
        wanted = {"rows": rows, "columns": columns, "parallel": 0, "fetch": 0}
        setting = [k.values.index(wanted[n]) for n, k in zip(names, sketch.knobs, strict=True)]
        return float(sketch.columns(np.asarray([setting]))["vector_loads"][0])

    assert loads(3, 4) < loads(3, 2) < loads(1, 1)
