"""Equal computations in different spellings have one form, and mean the same in it."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.transposed import ROWS
from tests.support.schedules.regrouping import MACHINE, expression, inputs_of, same_meaning
from tests.support.schedules.transposed import random_convolution, scattered, spelled
from tilewright.schedules.algebra.scalar import loads
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.limits import MAX_STAGES
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import Solve
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import (
    CompactOutputs,
    Deinterleave,
    ReadThrough,
    ReverseAxis,
    Rewrite,
)
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.orders import permute_axes
from tilewright.schedules.sketches.forms.rewriting import canonical, regrouped
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import ScheduleSpace


@cache
def spaces_of(row: str) -> tuple[ScheduleSpace, ...]:
    """The space of every spelling of a transposed convolution."""
    return tuple(space_for(workload, MACHINE) for workload in spelled(ROWS[row]).values())


@pytest.mark.parametrize("row", ROWS)
def test_every_spelling_of_a_transposed_convolution_has_one_form(row: str) -> None:
    forms = {name: regrouped(w.normalised()) for name, w in spelled(ROWS[row]).items()}
    assert len({form.workload.key for form in forms.values()}) == 1


@pytest.mark.parametrize("row", ROWS)
def test_every_spelling_has_the_same_nests(row: str) -> None:
    """One setting gives one nest, so that kernels take equal times."""
    spaces = spaces_of(row)
    knobs = [[sketch.knobs for sketch in space.sketches] for space in spaces]
    assert all(each == knobs[0] for each in knobs)
    setting = spaces[0].sketches[0].default()
    nests = [to_text(lower(space.workload, space.sketches[0].trace(setting))) for space in spaces]
    assert len(set(nests)) == 1


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_spellings_at_random_sizes_have_one_form_and_the_right_values(seed: int) -> None:
    convolution = random_convolution(random.Random(seed))
    try:
        workloads = spelled(convolution)
    except WorkloadError:  # a read that is always padding
        return
    inputs = inputs_of(next(iter(workloads.values())), seed)
    right = scattered(convolution, *inputs)
    keys = set()
    for workload in workloads.values():
        form = regrouped(workload.normalised()).workload
        for some in (workload, form):
            np.testing.assert_allclose(evaluate(some, inputs)[0], right, rtol=1e-9, atol=1e-9)
        if any(load.tensor == "i0" for stage in form.stages for load in loads(stage.body)):
            keys.add(form.key)
    if min(convolution.size) > 1:  # one element is at no distance from others
        assert len(keys) <= 1


@pytest.mark.parametrize("row", ROWS)
def test_sums_of_all_spellings_are_tiled_after_their_taps_are_solved(row: str) -> None:
    """Also in three dimensions and in groups, in either layout."""
    for space in spaces_of(row):
        sketch = space.sketches[0]
        assert isinstance(sketch, ProgramSketch)
        tiles = [getattr(part, "tiles", part) for part in sketch.parts]
        assert any(isinstance(part, TileSketch) for part in tiles)
        steps = sketch.trace(sketch.default()).steps
        strided = [
            axis for axis, (s, d) in enumerate(
                zip(ROWS[row].stride, ROWS[row].dilation, strict=True)
            ) if s > np.gcd(s, d)
        ]  # fmt: skip
        assert sum(isinstance(step, Solve) for step in steps) == len(strided)


@pytest.mark.parametrize(
    ("text", "tensors", "ranges"),
    [
        ("U[u] = X[u-1]; Y[y] += U[y+r] * W[r]", "X=f32[7] W=f32[3]", {"u": 9}),
        ("U[u,c] = where(u%2==0, X[u//2,c], 0); Y[y,o] += U[y+r-1,c] * W[r,c,o]",
         "X=f32[5,3] W=f32[4,3,2]", {"u": 9, "y": 8}),
        ("U[u] = X[u]; Y[y] += U[y+r-2] * W[r]; Z[y] += U[y] * W[r]", "X=f32[7] W=f32[3]",
         {"u": 7, "y": 7}),
        ("U[u] = where(u%3==0, X[u//3], 0); Y[y] += U[2*y+r-1] * W[r]", "X=f32[5] W=f32[4]",
         {"u": 13, "y": 6}),
    ],
)  # fmt: skip
def test_sums_read_through_copies_with_zeros(
    text: str, tensors: str, ranges: dict[str, int]
) -> None:
    workload = expression(text, tensors, **ranges)
    form = canonical(workload)
    assert ReadThrough("s0") in form.steps
    assert len(same_meaning(workload, form.steps).stages) == len(workload.stages) - 1


def test_a_zero_of_a_copy_keeps_its_sign_beside_another_zero() -> None:
    """A sum that reads a copy under its own condition gives -0 only where that condition fails."""
    text = "U[u] = where(u >= 1, X[u-1], 0.0); Y[y] += 1.0 / where(y + r <= 5, U[y+r], -0.0) + V[r]"
    workload = expression(text, "X=f32[7] V=f32[3]", u=8, y=6)
    form = canonical(workload)
    assert ReadThrough("s0") in form.steps
    inputs = [np.arange(7, dtype=np.float32), np.zeros(3, np.float32)]
    with np.errstate(all="ignore"):
        (before,), (after,) = evaluate(workload, inputs), evaluate(form.workload, inputs)
    np.testing.assert_array_equal(before, after)


def test_limits_of_an_exact_quotient_are_written_as_limits_of_the_quotient() -> None:
    """Rows u <= 8 and u <= 9 with u even: the same rows, whatever the extent of the copy."""
    keys = set()
    for extent in (9, 10):
        text = "U[u] = where(u%2==0, X[u//2], 0); Y[y] += U[y+r-1] * W[r]"
        workload = expression(text, "X=f32[5] W=f32[4]", u=extent, y=9)
        keys.add(canonical(workload).workload.key)
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("text", "tensors", "steps"),
    [
        ("Y[y] += X[y-r+2] * W[r]", "X=f32[9] W=f32[3] Y=f32[9]", 1),
        ("Y[y] += X[y+r] * W[2-r]", "X=f32[9] W=f32[3] Y=f32[7]", 0),
        ("Y[y] += where((y-r)%2==0, X[(y-r)//2], 0) * W[r]", "X=f32[4] W=f32[3] Y=f32[9]", 0),
        ("Y[y] += where((y+r)%2==0, X[(y+r)//2], 0) * W[2-r]", "X=f32[4] W=f32[3] Y=f32[6]", 1),
        ("Y[y] max= X[y-r+2]", "X=f32[9] Y=f32[7]", 1),
        ("Y[y] += X[y-r+2] * Z[y+r]", "X=f32[9] Z=f32[9] Y=f32[7]", 0),
    ],
)
def test_reads_go_forwards(text: str, tensors: str, steps: int) -> None:
    ranges = {} if "W" in tensors else {"r": 3}
    workload = expression(text, tensors, **ranges)
    form = canonical(workload)
    assert len(form.steps) == steps
    same_meaning(workload, form.steps)
    assert canonical(form.workload).steps == ()


@pytest.mark.parametrize(
    ("text", "extents"),
    [
        ("Y[y] += where((y-2*r)%2==0, X[(y-2*r)//2], 0) * W[r]", [6]),
        ("Y[y] += where((y-2*r+1)%4==0, X[(y-2*r+1)//4], 0) * W[r]", [5]),
        ("Y[y] += where((y-5*r+2)%5==0, X[(y-5*r+2)//5], 0) * W[r]", [2]),
        ("Y[y] += where((3*y-6*r)%6==0, X[(y-2*r)//2], 0) * W[r]", [6]),
    ],
)
def test_outputs_without_terms_are_left_out(text: str, extents: list[int]) -> None:
    workload = expression(text, "X=f32[6] W=f32[3] Y=f32[11]")
    form = same_meaning(workload, (CompactOutputs("s0"),))
    assert [axis.extent for axis in form.stages[0].axes] == extents


def test_positions_with_one_remainder_are_computed_next_to_each_other() -> None:
    text = "Y[o,y] += where((y+1-r)%2==0, X[o,(y+1-r)//2], 0) * W[o,r]"
    for extent in (10, 11):
        workload = expression(text, "X=f32[3,5] W=f32[3,4]", y=extent)
        form = same_meaning(workload, (Deinterleave("s0", 2),))
        assert [axis.extent for axis in form.stages[0].axes] == [3, 2, -(-extent // 2)]


def test_few_channels_are_computed_along_rows_of_one_phase() -> None:
    text = "Y[o,y] += where((y+1-r)%2==0, X[o,(y+1-r)//2], 0) * W[o,r]"
    few = expression(text, "X=f32[3,64] W=f32[3,4]", y=128)
    assert permute_axes(few, MACHINE) == (Deinterleave("s0", 2),)


def test_what_cannot_be_rewritten_is_refused() -> None:
    product = expression("C[i] += A[i,k] * W[k]", "A=f32[4,3] W=f32[3]")
    scaled = expression("U[u] = 2.0*X[u]; Y[y] += U[y+r] * W[r]", "X=f32[7] W=f32[3]", u=7, y=5)
    largest = expression("U[u] = X[u-1]; Y[y] max= U[y+r]", "X=f32[7]", u=9, y=5, r=3)
    output = expression("U[u] = X[u-1]", "X=f32[7]", u=9)
    narrowed = expression("U[u] = f16(X[u]); Y[y] += f32(U[y+r]) * W[r]", "X=f32[7] W=f32[3]",
                          u=7, y=5)  # fmt: skip
    scanned = expression("S[k] = cumsum(X[k], k)", "X=f32[9]")
    beyond = expression("Y[y] += X[y] * W[r]", "X=f32[9] W=f32[3]", y=9)
    cases: list[tuple[Rewrite, object, str]] = [
        (ReadThrough("nobody"), product, "no stage"),
        (ReadThrough("s0"), product, "does not copy"),
        (ReadThrough("s0"), scaled, "does not copy"),
        (ReadThrough("s0"), narrowed, "does not copy"),
        (ReadThrough("s0"), output, "into an intermediate"),
        (ReadThrough("s0"), largest, "not only sums read"),
        (ReverseAxis("nobody", "r0"), product, "no stage"),
        (ReverseAxis("s0", "d0"), product, "no reduction axis 'd0'"),
        (CompactOutputs("s0"), product, "no congruence excludes"),
        (Deinterleave("s0", 1), product, "does not have such steps"),
        (Deinterleave("s0", 4), product, "does not have such steps"),
        (Deinterleave("s0", 3), scanned, "does not have such steps"),
        (Deinterleave("s0", 2), beyond, "positions after the end"),
    ]
    for step, workload, reason in cases:
        with pytest.raises(ScheduleError, match=reason):
            step.rewrite(workload)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [CompactOutputs(f"s{MAX_STAGES - 1}"),
                                  Deinterleave(f"s{MAX_STAGES - 1}", 2)])  # fmt: skip
def test_there_must_be_room_for_a_stage(step: Rewrite) -> None:
    chain = "; ".join(f"T{n}[i] = exp(T{n - 1}[i])" for n in range(1, MAX_STAGES))
    last = f"; Y[y] += where((y-2*r)%2==0, T{MAX_STAGES - 1}[(y-2*r)//2], 0) * W[r]"
    full = expression(chain.replace("T0[", "A[") + last, "A=f32[4] W=f32[3]", y=11)
    with pytest.raises(ScheduleError, match=f"more than {MAX_STAGES} stages"):
        step.rewrite(full)
