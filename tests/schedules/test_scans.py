"""Scans: what they mean in every notation, which schedules are legal, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.schedules.workloads import applied, notation
from tilewright.schedules import (
    Workload,
    WorkloadError,
    compute,
    cumprod,
    cumsum,
    placeholder,
    reduce_axis,
    sum,
)
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend import expr
from tilewright.schedules.frontend.running import SCANS
from tilewright.schedules.primitives import (
    ComputeAt,
    Fuse,
    Inline,
    Parallel,
    Partition,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.reference.error_bound import bounded_outputs
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.sample import demanded, places_of, taken
from tilewright.schedules.workload.document_reader import read_document
from tilewright.schedules.workload.tensors import Elementwise, Scan

Array = npt.NDArray[Any]

ALONG_ROWS = notation("S[i,k] = cumsum(X[i,k], k)", X="f32[5,37]")
DOWN_COLUMNS = notation("S[k,j] = cumsum(X[k,j], k)", X="f32[9,21]")

UFUNCS = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


def drawn(workload: Workload, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-4, 5, t.shape).astype(t.dtype.numpy)
        if not t.dtype.is_float
        else rng.normal(size=t.shape).astype(t.dtype.numpy)
        for t in workload.inputs
    ]


@pytest.mark.parametrize("function", sorted(UFUNCS))
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_results_are_those_of_numpy(
    function: str, dtype: str, axis: int, reverse: bool
) -> None:
    words = ", reverse" if reverse else ""
    workload = notation(
        f"S[a,b,c] = {function}(X[a,b,c], {'abc'[axis]}{words})", X=f"{dtype}[3,4,5]"
    )
    (x,) = drawn(workload)
    turned = np.flip(x, axis) if reverse else x
    expected = UFUNCS[function].accumulate(turned, axis=axis, dtype=x.dtype)
    (found,) = evaluate(workload, [x])
    np.testing.assert_allclose(found, np.flip(expected, axis) if reverse else expected, rtol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_exclusive_scan_leaves_its_own_position_out(reverse: bool) -> None:
    words = "reverse, exclusive" if reverse else "exclusive"
    workload = notation(f"S[i,k] = cumsum(X[i,k], k, {words})", X="f64[3,6]")
    (x,) = drawn(workload)
    turned = np.flip(x, 1) if reverse else x
    whole = np.cumsum(turned, 1) - turned
    (found,) = evaluate(workload, [x])
    np.testing.assert_allclose(found, np.flip(whole, 1) if reverse else whole, atol=1e-12)


def test_a_scan_of_narrow_values_is_in_their_wide_type() -> None:
    (stage,) = notation("S[k] = cumsum(X[k], k)", X="i8[300]").stages
    assert str(stage.tensor.dtype) == "i32"
    (stage,) = notation("S[k] = cummax(X[k], k)", X="i8[300]").stages
    assert str(stage.tensor.dtype) == "i8"


def test_every_notation_of_a_scan_has_the_same_key() -> None:
    x = placeholder("X", (5, 37))
    python = Workload.of(compute("Y", (5, 37), lambda a, b: cumsum(x[a, b], axis=b)))
    assert python.key == ALONG_ROWS.key
    assert read_document(ALONG_ROWS.to_json()).stages == ALONG_ROWS.stages
    assert ALONG_ROWS.normalised().key == ALONG_ROWS.key
    others = [
        notation("S[i,k] = cumsum(X[i,k], k, reverse)", X="f32[5,37]"),
        notation("S[i,k] = cumsum(X[i,k], i)", X="f32[5,37]"),
        notation("S[i,k] = cummax(X[i,k], k)", X="f32[5,37]"),
        notation("S[i,k] = cumsum(X[i,k], k, exclusive)", X="f32[5,37]"),
        notation("S[i,k] = X[i,k]", X="f32[5,37]"),
    ]
    assert len({ALONG_ROWS.key, *(other.key for other in others)}) == 6


@pytest.mark.parametrize("function", sorted(UFUNCS))
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_an_exclusive_scan_has_the_key_of_its_document(function: str, dtype: str) -> None:
    workload = notation(f"S[i,k] = {function}(X[i,k], k, exclusive)", X=f"{dtype}[5,37]")
    assert Workload.from_json(workload.to_json()).key == workload.key


def test_a_scan_of_one_position_is_elementwise() -> None:
    plain = notation("S[i,k] = X[i,k]", X="f32[5,1]")
    scan = notation("S[i,k] = cumsum(X[i,k], k)", X="f32[5,1]")
    assert scan.key == plain.key
    assert isinstance(scan.normalised().stages[0].kind, Elementwise)
    (found,) = evaluate(scan, drawn(scan))
    assert np.array_equal(found, drawn(scan)[0])


def test_scans_inside_expressions_become_stages() -> None:
    workload = notation("Y[i,k] = cumsum(X[i,k], k) / cumsum(W[k], k)", X="f64[3,6]", W="f64[6]")
    kinds = [type(stage.kind) for stage in workload.stages]
    assert kinds == [Scan, Scan, Elementwise]
    x, w = drawn(workload)
    (found,) = evaluate(workload, [x, w])
    np.testing.assert_allclose(found, np.cumsum(x, 1) / np.cumsum(w))


def test_a_sum_over_a_scan_and_a_scan_of_a_sum() -> None:
    x = placeholder("X", (4, 7), "f64")
    k = reduce_axis(7, "k")
    total = compute("T", (4,), lambda i: sum(cumsum(x[i, k], axis=k) * x[i, k], axis=k))
    (found,) = evaluate(Workload.of(total), [values := drawn(Workload.of(total))[0]])
    np.testing.assert_allclose(found, (np.cumsum(values, 1) * values).sum(1))
    nested = compute("T", (4,), lambda i: cumsum(sum(x[i, k], axis=k), axis=i))
    (found,) = evaluate(Workload.of(nested), [values])
    np.testing.assert_allclose(found, np.cumsum(values.sum(1)))


def test_a_scan_whose_value_does_not_depend_on_its_axis() -> None:
    x = placeholder("X", (3,), "f64")
    powers = compute("P", (3, 5), lambda i, n: cumprod(x[i], axis=n, exclusive=True))
    (found,) = evaluate(Workload.of(powers), [np.array([2.0, 3.0, -1.0])])
    np.testing.assert_allclose(found, [[b**n for n in range(5)] for b in (2.0, 3.0, -1.0)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("S[i,k] = cumsum(X[i,k])", "takes a value and an index name"),
        ("S[i,k] = cumsum(X[i,k], 3)", "takes a value and an index name"),
        ("S[i,k] = cumsum(X[i,k], k, backwards)", "reverse or exclusive"),
        ("S[i,k] = X[i,k] + cumsum()", "takes a value and an index name"),
        ("S[i,k] = cumsum(X[i,k], j)", "range of index 'j'"),
        ("S[i] = cumsum(X[i,k], k)", "'k' is not an index of S"),
    ],
)
def test_wrong_scans_are_told_with_their_place(text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        notation(text, X="f32[5,37]")


@pytest.mark.parametrize("axis", [lambda k: k + 1, lambda k: 0, lambda k: None])
def test_the_axis_of_a_scan_is_one_index_variable(axis: Callable[[Any], Any]) -> None:
    x = placeholder("X", (5,))
    with pytest.raises(WorkloadError) as caught:
        compute("S", (5,), lambda k: cumsum(x[k], axis=axis(k)))
    assert caught.value.code == "bad_reduction"
    assert "axis=k" in str(caught.value)


def test_the_axis_of_a_scan_belongs_to_the_tensor() -> None:
    x = placeholder("X", (5,))
    k = reduce_axis(5, "k")
    with pytest.raises(WorkloadError, match="outside a reduction"):
        compute("S", (5,), lambda i: cumsum(x[k], axis=k) + x[i])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"scan_axis": "z"}, "unknown_axis"),
        ({"reverse": 1}, "bad_document"),
        ({"reducer": "mean"}, "bad_reduction"),
        ({"reducer": None}, "bad_reduction"),
        ({"reduce_axes": [["r", 2]]}, "bad_reduction"),
    ],
)
def test_wrong_documents_are_refused_with_a_pointer(change: dict[str, Any], code: str) -> None:
    document = ALONG_ROWS.to_json()
    stage = {**document["stages"][0], **change}
    stage = {name: value for name, value in stage.items() if value is not None}
    with pytest.raises(WorkloadError) as caught:
        read_document({**document, "stages": [stage]})
    assert caught.value.code == code
    assert str(caught.value.pointer).startswith("/stages/0")


def test_bf16_is_scanned_in_f32() -> None:
    document = ALONG_ROWS.to_json()
    document["inputs"][0]["dtype"] = document["stages"][0]["dtype"] = "bf16"
    with pytest.raises(WorkloadError, match="scan in f32"):
        read_document(document)


# --- schedules


def test_loops_across_the_scan_are_independent() -> None:
    applied(ALONG_ROWS, Parallel("s0.d0"))
    applied(ALONG_ROWS, Split("s0.d0", 2), Unroll("s0.d0i"))
    applied(ALONG_ROWS, Reorder(("s0.d1", "s0.d0")), Vectorize("s0.d0"))
    applied(DOWN_COLUMNS, Split("s0.d1", 8), Vectorize("s0.d1i"))
    steps = (Split("s0.d1", 8), Reorder(("s0.d1o", "s0.d0", "s0.d1i")), Vectorize("s0.d1i"))
    applied(DOWN_COLUMNS, *steps, Parallel("s0.d1o"))


def test_the_loop_along_the_scan_keeps_its_order() -> None:
    for step in (Parallel("s0.d1"), Reorder(("s0.d1i", "s0.d1o"))):
        with pytest.raises(ScheduleError):
            applied(ALONG_ROWS, Split("s0.d1", 4), step)
    with pytest.raises(ScheduleError):
        applied(ALONG_ROWS, Parallel("s0.d1"))
    with pytest.raises(ScheduleError):
        applied(DOWN_COLUMNS, Parallel("s0.d0"))


@pytest.mark.parametrize("words", ["", ", reverse", ", exclusive", ", reverse, exclusive"])
@pytest.mark.parametrize("function", sorted(UFUNCS))
def test_lanes_along_the_scan(function: str, words: str) -> None:
    workload = notation(f"S[i,k] = {function}(X[i,k], k{words})", X="f32[4,37]")
    lanes = (Split("s0.d1", 8), Vectorize("s0.d1i"))
    applied(workload, *lanes)
    applied(workload, *lanes, Parallel("s0.d0"))
    rows = (Split("s0.d0", 2), Split("s0.d1", 8))
    order = Reorder(("s0.d0o", "s0.d1o", "s0.d0i", "s0.d1i"))
    applied(workload, *rows, order, Vectorize("s0.d1i"), Unroll("s0.d0i"))
    applied(workload, Partition("s0.d1", 32), Split("s0.d1", 16), Vectorize("s0.d1i"))


def test_lanes_are_refused_where_the_step_is_no_scan() -> None:
    two_rows = (Fuse("s0.d0", "s0.d1"), Split("s0.d0d1", 8), Vectorize("s0.d0d1i"))
    with pytest.raises(ScheduleError):
        applied(ALONG_ROWS, *two_rows)


def test_a_scan_is_neither_inlined_nor_moved() -> None:
    workload = notation("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * 2", X="f32[3,6]")
    for step in (Inline("s0"), ComputeAt("s0", "s1.d0")):
        with pytest.raises(ScheduleError, match="computed from each other"):
            applied(workload, step)


# --- the reference


def test_a_sample_of_a_scan_is_that_of_the_whole() -> None:
    workload = notation(
        "S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] + W[k]", X="f64[9,50]", W="f64[50]"
    )
    inputs = drawn(workload)
    grid = (places_of([1, 4], 9), places_of([0, 7, 30], 50))
    (whole,) = evaluate(workload, inputs)
    (found,) = evaluate(workload, inputs, demanded(workload, {"Y": grid}))
    np.testing.assert_allclose(found, taken(whole, grid))
    alone = notation("S[i,k] = cumsum(X[i,k], k)", X="f64[9,50]")
    (whole,) = evaluate(alone, inputs[:1])
    (found,) = evaluate(alone, inputs[:1], demanded(alone, {"S": grid}))
    np.testing.assert_allclose(found, taken(whole, grid))
    ((values, errors),) = bounded_outputs(alone, inputs[:1], sample=demanded(alone, {"S": grid}))
    np.testing.assert_allclose(values, taken(whole, grid))
    assert errors is not None
    assert errors.shape == values.shape


@pytest.mark.parametrize("function", sorted(UFUNCS))
def test_the_bound_holds_for_every_grouping_and_is_tight(function: str) -> None:
    workload = notation(f"S[i,k] = {function}(X[i,k], k)", X="f32[8,500]")
    rng = np.random.default_rng(3)
    x = (1 + 0.01 * rng.normal(size=(8, 500))).astype(np.float32)
    ((values, errors),) = bounded_outputs(workload, [x])
    bound = np.zeros(values.shape) if errors is None else errors
    combine = UFUNCS[function]
    serial = combine.accumulate(x, axis=1)
    blocks = [combine.accumulate(part, axis=1) for part in np.split(x, 20, axis=1)]
    carried = [blocks[0]]
    for block in blocks[1:]:
        carried.append(combine(carried[-1][:, -1:], block))
    totals = [combine.reduce(part, axis=1, keepdims=True) for part in np.split(x, 20, axis=1)]
    before = combine.accumulate(np.concatenate(totals, axis=1), axis=1)
    reduced = [blocks[0], *(combine(before[:, [n]], part) for n, part in enumerate(blocks[1:]))]
    groupings = (serial, np.concatenate(carried, axis=1), np.concatenate(reduced, axis=1))
    for result in groupings:
        assert (np.abs(result - values) <= bound).all()
    assert (bound[:, 0] <= 2 * 2.0**-23).all()  # one term is hardly rounded
    assert (bound <= 600 * 2.0**-23 * np.abs(values)).all()


def test_every_function_of_a_scan_is_public() -> None:
    import tilewright

    for name in SCANS.values():
        assert getattr(tilewright, name) is getattr(expr, name)
