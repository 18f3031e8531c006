"""Operations that only integers have: bits, shifts, quotients and remainders, for all operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.interpreter.interpret import interpret
from tests.support.schedules.workloads import notation
from tilewright.schedules import Workload, WorkloadError, compute, placeholder
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.printer import to_scalar_text
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.exactness import full_span, value_ranges
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.machine.native_target import native_target

Array = npt.NDArray[Any]

SIGNS = ("&", "|", "^", "<<", ">>", "//", "%")
TYPES = ("i8", "u8", "i32", "i64")


def python_result(sign: str, a: int, b: int, bits: int) -> int:
    """What the documentation says, on Python's integers, before wrapping."""
    operations: dict[str, Callable[[], int]] = {
        "&": lambda: a & b,
        "|": lambda: a | b,
        "^": lambda: a ^ b,
        "<<": lambda: a << b if 0 <= b < bits else 0,
        ">>": lambda: a >> b if 0 <= b < bits else (-1 if a < 0 else 0),
        "//": lambda: a // b if b else 0,
        "%": lambda: a % b if b else 0,
    }
    return operations[sign]()


def pairs(dtype: np.dtype[Any]) -> st.SearchStrategy[list[tuple[int, int]]]:
    info = np.iinfo(dtype)
    edges = [info.min, info.max, 0, 1, 2, 7, info.bits - 1, min(info.bits, info.max)]
    edges += [-1, -2, -7] if info.min < 0 else []
    number = st.sampled_from(edges) | st.integers(int(info.min), int(info.max))
    return st.lists(st.tuples(number, number), min_size=19, max_size=19)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sign", SIGNS)
def test_reference_interpreter_and_kernel_agree_for_all_operands(sign: str, dtype: str) -> None:
    workload = notation(f"Y[i] = X[i] {sign} W[i]", X=f"{dtype}[19]", W=f"{dtype}[19]").normalised()
    kind = workload.output_tensors[0].dtype.numpy
    nest = plain_nest(workload)
    kernel = compile_to_call(workload, target=native_target(threads=1))
    ranges = value_ranges(workload, {t.name: full_span(t.dtype) for t in workload.inputs})

    @settings(max_examples=25)
    @given(pairs(workload.inputs[0].dtype.numpy))
    def agree(drawn: list[tuple[int, int]]) -> None:
        columns = np.array(drawn, workload.inputs[0].dtype.numpy).T
        inputs = [np.ascontiguousarray(column) for column in columns]
        bits = 8 * kind.itemsize
        wanted = [python_result(sign, a, b, bits) % (1 << bits) for a, b in drawn]
        expected = np.array(wanted, np.uint64).astype(kind)
        out = np.empty(19, kind)
        kernel(*inputs, out=out)
        for found in (evaluate(workload, inputs)[0], interpret(nest, inputs)[0], out):
            np.testing.assert_array_equal(found, expected)
        span = ranges.tensors[workload.outputs[0]]
        assert span.lo <= expected.min()
        assert expected.max() <= span.hi

    agree()


def test_results_keep_narrow_types_where_they_fit() -> None:
    for sign in SIGNS:
        (stage,) = notation(f"Y[i] = X[i] {sign} W[i]", X="u8[4]", W="u8[4]").stages
        assert str(stage.tensor.dtype) == ("i32" if sign in ("<<", "//") else "u8"), sign
    (stage,) = notation("Y[i] = X[i] & 15", X="i8[4]").stages
    assert str(stage.tensor.dtype) == "i8"
    (stage,) = notation("Y[i] = X[i] & 255", X="i8[4]").stages
    assert str(stage.tensor.dtype) == "i32"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("X[i] | X[i] ^ X[i] & 1 << 2 + 3", lambda x: x | x ^ x & 1 << 2 + 3),
        ("-X[i] // 2 % 5", lambda x: -x // 2 % 5),
        ("~X[i] >> 1 & 7", lambda x: ~x >> 1 & 7),
        ("where(X[i] & 4 != 0 and i > 2, X[i] >> i, ~0)",
         lambda x: np.where((x & 4 != 0) & (np.arange(9) > 2), x >> np.arange(9), -1)),
        ("i // (X[i] | 1) + 100 % (X[i] | 1)",
         lambda x: np.arange(9) // (x | 1) + 100 % (x | 1)),
    ],
)  # fmt: skip
def test_precedences_are_those_of_python(text: str, meaning: Callable[[Array], Array]) -> None:
    workload = notation(f"Y[i] = {text}", X="i64[9]")
    x = np.random.default_rng(0).integers(-50, 50, 9)
    np.testing.assert_array_equal(evaluate(workload, [x])[0], meaning(x))


def test_python_spells_them_with_its_own_operators() -> None:
    x, w = placeholder("X", (9,), "i32"), placeholder("W", (9,), "i32")
    python = Workload.of(
        compute("Y", (9,), lambda i: (x[i] & 15 | ~w[i] << 2) % (w[i] >> 1 ^ 3) // 2 + 7 // x[i])
    )
    text = "Y[i] = (X[i] & 15 | ~W[i] << 2) % (W[i] >> 1 ^ 3) // 2 + 7 // X[i]"
    assert python.key == notation(text, X="i32[9]", W="i32[9]").key
    printed = to_scalar_text(python.stages[0].body)
    again = notation(f"Y[i] = {printed}", X="i32[9]", W="i32[9]")
    assert again.key == python.key


@pytest.mark.parametrize("sign", SIGNS)
def test_floats_have_none_of_them(sign: str) -> None:
    with pytest.raises(WorkloadError, match="only integers") as caught:
        notation(f"Y[i] = X[i] {sign} W[i]", X="f32[4]", W="f32[4]")
    assert caught.value.code == "bad_dtype"


def test_four_bit_weights_are_read_in_place() -> None:
    text = (
        "V[k,j] = f32(i32(where(k % 2 == 0, W[k//2,j] & 15, W[k//2,j] >> 4)) - 8);"
        "Y[i,j] += X[i,k] * V[k,j]"
    )
    workload = notation(text, {"k": 8}, X="f32[3,8]", W="u8[4,5]")
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 8)).astype(np.float32), rng.integers(0, 256, (4, 5), np.uint8)
    weights = np.stack([w & 15, w >> 4], 1).reshape(8, 5).astype(np.float64) - 8
    np.testing.assert_allclose(evaluate(workload, [x, w])[0], x @ weights, rtol=1e-6)
