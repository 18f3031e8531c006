"""SkipBlocks: steps of a reduction in which a whole tile adds zeros."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.support.schedules.spaces import target as target_with
from tests.support.schedules.workloads import applied, check_meaning, convolution, matmul, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, lower
from tilewright.schedules.nest.loop_ir import loop_called, loops
from tilewright.schedules.primitives import CacheWrite, Reorder, SkipBlocks, Split
from tilewright.schedules.sketches.program import space_for
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile

TILE = (
    Split("s0.d0", 3),
    Reorder(("s0.d0o", "s0.r0", "s0.d0i", "s0.d1")),
    CacheWrite("s0", "s0.d0o", "acc", register=False),
)
BEGUN = r"initialises 's0'; CacheWrite it first"

GUARDED = {
    "lower": "Y[i,j] += where(k <= i, A[i,k], 0.0) * B[k,j]",
    "upper": "Y[i,j] += where(k >= i, A[i,k], 0.0) * B[k,j]",
    "band": "Y[i,j] += where(i - 8 <= k and k <= i + 8, A[i,k], 0.0) * B[k,j]",
    "columns": "Y[i,j] += A[i,k] * where(k <= j, B[k,j], 0.0)",
    "stretched": "Y[i,j] += where(2*k <= 3*i - 5, A[i,k], 0.0) * B[k,j]",
    "whole term": "Y[i,j] += where(k < i, A[i,k] * B[k,j], 0.0)",
    "triangles in blocks": ("Y[i,j] += where(i//16 == k//16 and k <= i, A[i,k], 0.0) * B[k,j]"),
    "epilogue": "T[i,j] += where(k <= i, A[i,k], 0.0) * B[k,j]; Y[i,j] = max(T[i,j], 0)",
}


def product(name: str, m: int = 37, n: int = 50, k: int = 45) -> Workload:
    return notation(GUARDED[name], A=f"f32[{m},{k}]", B=f"f32[{k},{n}]").normalised()


def end_of(workload: Workload, name: str = "s0.r0") -> tuple[object, ...]:
    loop = loop_called(clean(applied(workload, *TILE, SkipBlocks("acc", name))).body, name)
    assert loop is not None
    return loop.bounds


def test_a_loop_ends_where_no_row_of_the_tile_is_left() -> None:
    (bound,) = end_of(product("lower", 7, 6, 9))
    assert str(bound) == "3*s0.d0o >= s0.r0 - 2"


def test_steps_before_the_first_row_of_a_tile_are_skipped() -> None:
    """They do not end the loop, so loops inside have the bound."""
    workload = product("upper", 6, 6, 9)
    assert not end_of(workload)
    nest = clean(applied(workload, *TILE, SkipBlocks("acc", "s0.r0")))
    inside = loop_called(nest.body, "s0.d0i")
    assert inside is not None
    assert [str(bound) for bound in inside.bounds] == ["s0.r0 >= 3*s0.d0o"]


@pytest.mark.parametrize(
    ("workload", "step", "reason"),
    [
        (product("lower"), SkipBlocks("acc", "q"), "no loop 'q'"),
        (product("lower"), SkipBlocks("q", "s0.r0"), "no buffer 'q'"),
        (product("lower"), SkipBlocks("s0", "s0.r0"), "no update writes 's0'"),
        (product("lower"), SkipBlocks("acc", "s0.d1"), "has only zeros to add"),
        (matmul(), SkipBlocks("acc", "s0.r0"), "has only zeros to add"),
    ],
)
def test_a_step_that_skips_nothing_is_refused(
    workload: Workload, step: SkipBlocks, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        applied(workload, *TILE, step)


def test_a_sum_that_is_not_begun_is_refused() -> None:
    with pytest.raises(ScheduleError, match=BEGUN):
        applied(product("lower"), SkipBlocks("s0", "s0.r0"))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", GUARDED)
def test_every_setting_that_skips_blocks_means_the_same(name: str, threads: int) -> None:
    workload = product(name, *((48, 18, 48) if "blocks" in name else (23, 34, 29)))
    sketch = space_for(workload, target_with(threads=threads)).sketches[0]
    at = {knob.name: n for n, knob in enumerate(sketch.knobs)}
    rng = np.random.default_rng(0)
    sizes = [len(knob.values) for knob in sketch.knobs]
    settings = rng.integers(0, sizes, (60000, len(sizes)))
    settings[:, at["skip_padding"]] = 1
    good = settings[sketch.feasible(settings)]
    copied = good[:, at["copy_rows"]] == 1
    assert copied.any()
    assert not copied.all()
    for setting in (*good[~copied][:3], *good[copied][:3]):
        trace = sketch.trace(tuple(int(i) for i in setting))
        assert any(isinstance(step, SkipBlocks) for step in trace.steps)
        check_meaning(workload, lower(workload, trace))


def test_half_of_a_triangle_is_counted() -> None:
    workload = product("lower", 96, 64, 96)
    (part,) = space_for(workload, target_with(threads=1)).sketches[0].parts
    assert part.block_share == pytest.approx(97 / 192)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "workload",
    [matmul(40, 40, 40), convolution(12, 12, 16, 16), product("lower", 400, 40, 30)],
    ids=["product", "convolution", "few zeros"],
)
def test_no_knob_where_little_is_skipped(workload: Workload) -> None:
    for part in space_for(workload.normalised(), target_with(threads=1)).sketches[0].parts:
        assert not part.block_conds  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["lower", "upper", "band"])
def test_elements_that_are_not_chosen_have_no_effect(name: str) -> None:
    workload = product(name)
    a, b = (np.random.default_rng(0).random(t.shape, np.float32) for t in workload.inputs)
    i, k = np.indices(a.shape)
    chosen = {"lower": k <= i, "upper": k >= i, "band": abs(i - k) <= 8}[name]
    sketch = space_for(workload, target_with(threads=1)).sketches[0]
    kernel = compile(workload, sketch.trace(sketch.default()).to_json())
    found = np.asarray(kernel(np.where(chosen, a, np.nan).astype(np.float32), b), np.float32)
    np.testing.assert_allclose(found, np.where(chosen, a, 0) @ b, rtol=1e-5, atol=1e-6)


BLOCK_DIAGONAL = {
    "square": ("Y[i,j] += where(i//8 == k//8, A[i,k], 0.0) * B[k,j]", 48, 48),
    "wide blocks": ("Y[i,j] += where(i//4 == k//8, A[i,k], 0.0) * B[k,j]", 24, 48),
    "few blocks": ("Y[i,j] += where(i//8 == k//8, A[i,k], 0.0) * B[k,j]", 48, 24),
    "shifted": ("Y[i,j] += where(i//8 == k//8 + 1, A[i,k], 0.0) * B[k,j]", 48, 48),
    "rows of a block": ("Y[i,j] += where(i//8 == k, A[i,k], 0.0) * B[k,j]", 48, 6),
}


@pytest.mark.parametrize("name", BLOCK_DIAGONAL)
def test_a_block_diagonal_product_sums_its_blocks_only(name: str) -> None:
    text, m, k = BLOCK_DIAGONAL[name]
    workload = notation(text, A=f"f32[{m},{k}]", B=f"f32[{k},20]").normalised()
    longest = 1 if name == "rows of a block" else 8
    sketches = space_for(workload, target_with(threads=1)).sketches
    for sketch in sketches:
        nest = sketch.lowered(sketch.default())[1]
        check_meaning(workload, nest)
        reduced = [loop.extent for loop in loops(nest.body) if loop.reduce]
        assert prod(reduced) <= longest, sketch.name
