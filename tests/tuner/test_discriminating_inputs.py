"""Mistakes that hid behind the error bounds of long sums, or where no input went: each is a kernel
written in NumPy, held against the full check at the size it was found at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.schedules.reference_cases import layernorm, matmul, softmax
from tilewright.schedules.algebra.affine import Interval
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge.discriminating_inputs import (
    balanced,
    compared_positions,
    discriminating_place_count,
    discriminating_places,
    one_place_per_line,
    reduced_dims,
)
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle

Array = np.ndarray[Any, Any]
Kernel = Callable[..., Array]


def notation(text: str, **tensors: str) -> Workload:
    return from_notation(text, [parse_tensor_spec(f"{n}={spec}") for n, spec in tensors.items()])


def caught_by(workload: Workload, kernel: Kernel) -> InputKind | None:
    """The kind of the first case of a full check that refuses `kernel`."""
    with np.errstate(all="ignore"):
        for case in Oracle(workload).full():
            if case.check([kernel(*case.inputs)]) is not None:
                return case.kind
    return None


def softmax_of(x: Array, top: Array | None = None, counted: slice = slice(None)) -> Array:
    e = np.exp(x - (x if top is None else top).max(axis=1, keepdims=True))
    return np.asarray(e / e[:, counted].sum(axis=1, keepdims=True))


def odd_columns_off(x: Array) -> Array:
    y = softmax_of(x)
    y[:, 1::2] *= np.float32(1.0015)
    return y


def without(places: slice | Array) -> Kernel:
    """A softmax whose maximum does not read some of the columns."""

    def kernel(x: Array) -> Array:
        return softmax_of(x, np.delete(x, places, axis=1))

    return kernel


SOFTMAXES: dict[str, Kernel | None] = {
    "right": None,
    "maximum of the first 256": lambda x: softmax_of(x, x[:, :256]),
    "a column left out of the sum": lambda x: softmax_of(x, counted=slice(0, -1)),
    "odd columns off by 0.15 %": odd_columns_off,
    "maximum without a lane of 16": without(slice(5, None, 16)),
    "maximum without a lane of 64": without(slice(37, None, 64)),
    "maximum without the last": without(slice(-1, None)),
    "maximum without the first of the second half": without(slice(16000, 16001)),
    "maximum without the last of the first half": without(slice(15999, 16000)),
}


@pytest.mark.parametrize("name", SOFTMAXES)
def test_long_softmaxes(name: str) -> None:
    kernel = SOFTMAXES[name]
    found = caught_by(softmax(32, 32000), kernel or softmax_of)
    assert (found is None) == (kernel is None)


@pytest.mark.parametrize(("m", "n"), [(64, 1000), (512, 700)])
@pytest.mark.parametrize("lane", [0, 13, 15])
def test_a_maximum_without_a_lane_of_short_rows(m: int, n: int, lane: int) -> None:
    assert caught_by(softmax(m, n), softmax_of) is None
    assert caught_by(softmax(m, n), without(slice(lane, None, 16))) is not None
    assert caught_by(softmax(m, n), without(slice(n - 1, None))) is not None


@pytest.mark.parametrize("missing", [0, 4097, 8191])
def test_a_variance_that_misses_an_element(missing: int) -> None:
    def kernel(inputs: tuple[Array, ...], skip: int | None = None) -> Array:
        x, gamma = inputs
        centred = x - x.sum(axis=1, keepdims=True) / np.float32(x.shape[1])
        kept = centred if skip is None else np.delete(centred, skip, axis=1)
        variance = (kept * kept).sum(axis=1, keepdims=True) / np.float32(x.shape[1])
        return np.asarray(centred * (1 / np.sqrt(variance + np.float32(1e-5))) * gamma)

    oracle = Oracle(layernorm(64, 8192))
    for kind in (InputKind.NORMAL, InputKind.BALANCED):  # by what is likely, and exactly
        case = oracle.case(kind, 1)
        assert case.check([kernel(case.inputs)]) is None
        assert case.check([kernel(case.inputs, missing)]) is not None


def test_a_sum_of_sigmoids_that_skips_a_thousandth() -> None:
    def kernel(x: Array, skipped: int = 0) -> Array:
        with np.errstate(over="ignore"):
            terms = 1 / (1 + np.exp(-x))
        return np.asarray(terms[:, skipped:].sum(axis=1))

    workload = notation("S[i] += sigmoid(X[i,j])", X="f32[4,100000]")
    assert caught_by(workload, kernel) is None
    assert caught_by(workload, lambda x: kernel(x, 100)) is not None
    assert caught_by(workload, lambda x: kernel(x, 1)) is not None


def tf32(x: Array) -> Array:
    """`x` rounded to ten bits behind the leading one."""
    bits = x.view(np.uint32) + np.uint32(0xFFF) + ((x.view(np.uint32) >> 13) & np.uint32(1))
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16384), (1, 24, 20000)])
def test_products_of_rounded_operands(m: int, n: int, k: int) -> None:
    """Integers are exact in ten bits, and roundings of normal numbers hide in long sums."""
    oracle = Oracle(matmul(m, n, k))
    caught = [0, 0]
    for seed in range(2):
        case = oracle.case(InputKind.SINGLE, seed)
        a, b = case.inputs
        assert case.check([a @ b]) is None
        assert case.check([tf32(a) @ tf32(b)]) is not None
        caught[0] += case.check([tf32(a) @ b]) is not None
        caught[1] += case.check([a @ tf32(b)]) is not None
    assert caught == [1, 1]


def test_quotients_by_negative_numbers() -> None:
    workload = notation("Y[i] = X[i] / Z[i]", X="f32[500]", Z="f32[500]")
    assert caught_by(workload, lambda x, z: x / z) is None
    assert caught_by(workload, lambda x, z: x / np.abs(z)) is InputKind.SIGNED


def test_negative_divisors_beside_logarithms() -> None:
    """Of logarithms of both signs half have no value: the divisor alone is signed as well."""
    text = "L[i] += log(X[i,j]); Y[i] = L[i] / Z[i]"
    workload = notation(text, X="f32[50,300]", Z="f32[50]")

    def kernel(x: Array, z: Array) -> Array:
        return np.asarray(np.log(x).sum(axis=1) / z)

    assert caught_by(workload, kernel) is None
    assert caught_by(workload, lambda x, z: kernel(x, np.abs(z))) is InputKind.SIGNED


@pytest.mark.parametrize("dtype", ["f32", "i32", "f64"])
@pytest.mark.parametrize(("reducer", "combine"), [("max", np.maximum), ("min", np.minimum)])
def test_an_extreme_of_few_long_rows_that_misses_a_lane(
    reducer: str, combine: np.ufunc, dtype: str
) -> None:
    """All of many rows of random numbers have their extreme somewhere, near it on every lane."""
    workload = notation(f"m[i] {reducer}= X[i,j]", X=f"{dtype}[4,60000]")
    assert caught_by(workload, lambda x: combine.reduce(x, axis=1)) is None
    for lane in (3, 11):
        kept = np.arange(60000) % 16 != lane
        found = caught_by(workload, lambda x, kept=kept: combine.reduce(x[:, kept], axis=1))
        assert found is not None


def test_a_maximum_over_rows_that_misses_a_block() -> None:
    """The reduction runs along the first dimension: that is the line that has one peak."""
    workload = notation("m[j] max= exp(X[i,j])", X="f32[1000,40]")
    assert reduced_dims(workload) == {"X": (0,)}
    assert caught_by(workload, lambda x: np.exp(x).max(axis=0)) is None
    for wrong in (slice(0, 999), slice(1, None), slice(None, 992)):
        assert caught_by(workload, lambda x, wrong=wrong: np.exp(x[wrong]).max(axis=0)) is not None


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 1000, 32000, 1 << 20])
def test_places_that_tell_come_first(length: int) -> None:
    places = discriminating_places(length)
    assert len(set(places)) == len(places)
    assert all(0 <= p < length for p in places)
    early = set(places[: discriminating_place_count(length)])
    assert {0, length - 1, length // 2, max(length // 2 - 1, 0)} <= early
    assert {p % 64 for p in early} == set(range(min(64, length)))
    if length <= 1000:
        assert len(places) == length


def test_every_line_has_one_place_and_all_have_their_turn() -> None:
    shape, seen = (3, 20, 4), np.zeros((3, 20, 4), int)
    for first in range(2):
        where = one_place_per_line(shape, (1,), first)
        marked = np.zeros(shape, int)
        np.add.at(marked, where, 1)
        assert (marked.sum(axis=1) == 1).all()
        seen += marked
    assert (seen.sum(axis=(0, 2)) > 0).all()


@pytest.mark.parametrize("shape", [(2,), (3,), (8, 7), (5, 4, 3), (2, 3, 4, 5)])
def test_balanced_integers_vanish_along_every_axis(shape: tuple[int, ...]) -> None:
    values = balanced(shape, 100, np.random.default_rng(0))
    for axis in range(len(shape)):
        assert not values.sum(axis=axis).any()
    assert values.all()


def test_weights_that_are_far_below_the_largest_one_and_not_yet_zero() -> None:
    """Two factors applied one after the other lose what is below 2**-62: results of 1e-20 to
    1e-38 are missing, and neither usual values nor outliers give such differences."""

    def kernel(x: Array) -> Array:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        y = e * np.float32(2.0**-64) / (e.sum(axis=1, keepdims=True) * np.float32(2.0**-64))
        return np.asarray(y, np.float32)

    workload = softmax(16, 250)
    assert caught_by(workload, kernel) is InputKind.WIDE
    assert caught_by(workload, softmax_of) is None


LOG_SUM_EXP = "M[i] max= X[i,j]; S[i] += exp(X[i,j] - M[i]); Y[i] = M[i] + log(S[i])"


def test_a_function_that_is_a_little_off_on_some_lanes_of_a_long_sum() -> None:
    """Without the square in its series: 1 + r + r^3 for |r| < ln(2)/32, in one chain of four."""

    def kernel(x: Array, off: float = 0.0) -> Array:
        top = x.max(axis=1, keepdims=True)
        e = np.exp(x - top)
        rest = np.maximum(x - top, np.float32(-100)) * np.float32(16 / np.log(2))
        rest = (rest - np.rint(rest)) * np.float32(np.log(2) / 16)
        e -= np.where(np.arange(5000) % 64 >= 48, np.float32(off) * e * rest * rest, 0)
        return np.asarray(top[:, 0] + np.log(e.sum(axis=1)))

    workload = notation(LOG_SUM_EXP, X="f32[40,5000]")
    assert caught_by(workload, kernel) is None
    assert caught_by(workload, lambda x: kernel(x, 0.5)) is InputKind.FEW


@pytest.mark.parametrize(("rows", "terms", "tile", "unroll"), [(54, 14, 7, 2), (64, 16, 8, 4)])
def test_lines_of_one_place_in_a_tile_have_places_of_every_unrolled_step(
    rows: int, terms: int, tile: int, unroll: int
) -> None:
    """A load of an unrolled body reads one row of each tile at one step of each turn."""
    for first in range(4):
        row, term = one_place_per_line((rows, terms), (1,), first)
        met = {(int(r) % tile, int(t) % unroll) for r, t in zip(row, term, strict=True)}
        assert len(met) == tile * unroll


SELECTED = notation(
    "Y[i] += where(T[i] == k, A[i,k], 0)", A="f32[16,1000]", T="i32[16]"
)  # fmt: skip


def selecting(seen: slice) -> Kernel:
    """A selection by position that finds nothing outside the positions `seen`."""

    def kernel(a: Array, t: Array) -> Array:
        k = np.arange(a.shape[1])
        found = np.where(t[:, None] == k, a, 0).astype(np.float32)
        return np.asarray(found[:, seen].sum(axis=1))

    return kernel


@pytest.mark.parametrize(
    ("seen", "right"),
    [
        (slice(None), True),
        (slice(0, -1), False),
        (slice(1, None), False),
        (slice(0, 992), False),
        (slice(0, 5), False),
    ],
)
def test_selected_positions_are_everywhere(seen: slice, right: bool) -> None:
    assert (caught_by(SELECTED, selecting(seen)) is None) == right


def test_only_inputs_that_are_just_compared_select_positions() -> None:
    assert compared_positions(SELECTED) == {"T": Interval(0, 999)}
    shifted = notation("Y[i] += where(k - 3 == T[i], A[i,k], 0)", A="f32[4,9]", T="i64[4]")
    assert compared_positions(shifted) == {"T": Interval(-3, 5)}
    summed = notation("Y[i] += where(T[i] == k, T[i] + A[k], 0)", A="i32[9]", T="i32[4]")
    assert compared_positions(summed) == {}
    floats = notation("Y[i] += where(T[i] == k, A[k], 0)", A="f32[9]", T="f32[4]")
    assert compared_positions(floats) == {}
