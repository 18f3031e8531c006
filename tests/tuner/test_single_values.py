"""Kernels of bools and of tensors without dimensions, and calls with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.workloads import notation
from tilewright.schedules import Workload, compute, placeholder, reduce_axis, sum
from tilewright.tuner import compile
from tilewright.tuner.calling import CallError
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.search.default import default_trace

TEXTS = [
    ("M[i] = X[i] > t; Y[i] = where(M[i], alpha * X[i], 0.0); N += M[i]",
     {"X": "f32[133]", "t": "f32[]", "alpha": "f32[]"}),
    ("N[i] = (X[i] > 0) & B[i] | ~B[i] ^ (X[i] < 1)", {"X": "f32[133]", "B": "bool[133]"}),
    ("A[i] max= B[i,j]; C[j] min= B[i,j]; D[i] += B[i,j]", {"B": "bool[19,140]"}),
    ("Y[i,j] += where(B[i,k], A[i,k], 0.0) * C[k,j]",
     {"A": "f32[20,30]", "B": "bool[20,30]", "C": "f32[30,20]"}),
    ("Y[i,j] = B[j-1,i]; Z[i,j] = cummax(B[j,i], j)", {"B": "bool[65,33]"}),
    ("S += X[i] * a; M max= X[i]; Y[i] = X[i] - M", {"X": "f32[133]", "a": "f32[]"}),
    ("C[i,j] += A[i,k] * B[k,j]; Y[i,j] = alpha * C[i,j] + beta * D[i,j]",
     {"A": "f32[20,30]", "B": "f32[30,40]", "alpha": "f32[]", "beta": "f32[]", "D": "f32[20,40]"}),
    ("Y[i] = where(flag, X[i] * f32(h), 0.0) + f32(n)",
     {"flag": "bool[]", "X": "f32[50]", "h": "bf16[]", "n": "i8[]"}),
    ("S = pow(a, b) + softplus(a)", {"a": "f64[]", "b": "f64[]"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tensors"), TEXTS, ids=[text for text, _ in TEXTS])
def test_kernels_agree_with_the_reference(text: str, tensors: dict[str, str]) -> None:
    workload = notation(text, None, **tensors)
    for bits in (128, 256, 512):
        trace = default_trace(workload, this_machine(1, bits))
        check_pair(Pair(text, workload, trace, 1, bits))


@pytest.mark.parametrize(("text", "tensors"), TEXTS, ids=[text for text, _ in TEXTS])
def test_every_kind_of_input_is_drawn(text: str, tensors: dict[str, str]) -> None:
    workload = notation(text, None, **tensors).normalised()
    oracle = Oracle(workload, 1)
    for kind in InputKind:
        case = oracle.case(kind, 0)
        for tensor, array in zip(workload.inputs, case.inputs, strict=True):
            assert array.shape == tensor.shape
            if not tensor.shape and tensor.dtype != "bool":
                assert array.any(), "a single 0 would hide the other inputs"


def test_a_wrong_byte_of_a_bool_is_found() -> None:
    workload = notation("M[i] = X[i] > 0.0", X="f32[40]").normalised()
    case = Oracle(workload, 1).quick
    right = case.inputs[0] > 0
    assert case.check([right]) is None
    odd = (right.view(np.uint8) * np.uint8(2)).view(np.bool_)
    assert "expected" in (case.check([odd]) or "")


def test_a_number_is_given_at_the_call() -> None:
    kernel: Any = compile(notation("Y[i] = a * X[i]", X="f32[8]", a="f32[]"), [])
    x = np.arange(8, dtype=np.float32)
    for a in (2.5, 3, np.float64(0.1), np.int64(-2), np.float32(7), np.array(4, np.float32)):
        np.testing.assert_array_equal(kernel(x, a), np.float32(a) * x)
    out = np.empty(8, np.float32)
    assert kernel(x, 0.5, out=out) is out
    call = kernel.bind(x, 0.25, out=out)
    x += 1
    np.testing.assert_array_equal(call(), np.float32(0.25) * x)


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        ("f32", "2", r"takes a number or a NumPy array float32\[\], got str"),
        ("f32", True, r"takes a number \(f32\), got True"),
        ("f32", 1e300, "1e.300 does not fit f32"),
        ("f16", 65520.0, "does not fit f16"),
        ("i8", 1.5, r"takes an integer \(i8\), got 1.5"),
        ("i8", 300, r"300 does not fit i8 \(-128..127\)"),
        ("bool", 1, r"takes a bool \(bool\), got 1"),
        ("f32", np.ones(1, np.float32), r"takes float32\[\], got float32\[1\]"),
        ("f32", np.array(1.0), r"takes float32\[\], got float64\[\]"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(dtype: str, value: object, words: str) -> None:
    kernel: Any = compile(notation("Y[i] = f32(a) * X[i]", X="f32[8]", a=f"{dtype}[]"), [])
    with pytest.raises(CallError, match=words):
        kernel(np.ones(8, np.float32), value)


def test_numbers_are_rounded_to_the_type() -> None:
    x = np.ones(8, np.float32)
    for dtype, value, found in (("bf16", 1.005, 1.0078125), ("f16", 0.1, np.float16(0.1))):
        kernel: Any = compile(notation("Y[i] = f32(a) * X[i]", X="f32[8]", a=f"{dtype}[]"), [])
        assert kernel(x, value).tolist() == [float(found)] * 8


def test_a_whole_reduction_gives_an_array_without_dimensions() -> None:
    x, k = placeholder((50,)), reduce_axis(50, "k")
    total = Workload.of(compute("S", (), lambda: sum(x[k], axis=k)))
    assert total.key == notation("S[] += X[k]", X="f32[50]").key
    kernel: Any = compile(total, [])
    found = kernel(np.ones(50, np.float32))
    assert found.shape == ()
    assert found == 50
    assert [t.name for t in total.inputs] == ["x"]


def test_a_lambda_uses_a_single_value_as_it_is() -> None:
    a, x = placeholder("a", ()), placeholder("x", (5,))
    forms: list[Any] = [
        compute("Y", (5,), lambda i: a * x[i]),
        compute("Y", (5,), lambda i: x[i] * a),
        compute("Y", (5,), lambda i: a[()] * x[i]),
        a * x,
    ]
    assert len({Workload.of(form, inputs=[a, x]).key for form in forms}) == 1
