"""The interpreter's arithmetic: types, rounding, wrapping, saturation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import scalar_oracles
from tests.support.interpreter.arithmetic import (
    UndefinedOperationError,
    binary,
    cast,
    compare,
    constant,
    from_index,
    from_storage,
    to_storage,
    unary,
    value_type,
)
from tilewright.schedules.algebra.narrow import narrowed, widened
from tilewright.schedules.algebra.scalar import BinaryOp, CompareOp, UnaryOp, is_defined
from tilewright.schedules.dtypes import DType

INTEGERS = [DType.I8, DType.U8, DType.I32, DType.I64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL])
@given(data=st.data())
def test_integers_are_numbers_modulo_two_to_the_bits(
    dtype: DType, op: BinaryOp, data: st.DataObject
) -> None:
    half = 1 << (dtype.bits - 1) if dtype.is_signed else 0
    whole = st.integers(-half, (1 << dtype.bits) - 1 - half)
    a, b = data.draw(whole), data.draw(whole)
    exact = {BinaryOp.ADD: a + b, BinaryOp.SUB: a - b, BinaryOp.MUL: a * b}[op]
    with np.errstate(all="ignore"):
        found = binary(op, dtype)(constant(a, dtype), constant(b, dtype))
    assert type(found) is value_type(dtype)
    assert (int(found) - exact) % (1 << dtype.bits) == 0


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", list(UnaryOp))
def test_functions_stay_in_their_type_and_are_right(op: UnaryOp, dtype: DType) -> None:
    at = 0.3 if op.function.defined(0.3, 0.3) else 1.3
    x = constant(at, dtype)
    expected = scalar_oracles.of_number(op)(at)
    found = unary(op, dtype)(x)
    assert type(found) is value_type(dtype)
    assert abs(float(found) - expected) <= 4 * 2.0 ** (-23 if dtype is DType.F32 else -52)


def test_signs_of_integers_wrap() -> None:
    with np.errstate(all="ignore"):
        assert unary(UnaryOp.NEG, DType.I8)(np.int8(-128)) == -128
        assert unary(UnaryOp.ABS, DType.I8)(np.int8(-128)) == -128
        assert unary(UnaryOp.NEG, DType.U8)(np.uint8(1)) == 255
        assert unary(UnaryOp.ABS, DType.U8)(np.uint8(200)) == 200


@pytest.mark.parametrize("op", [BinaryOp.MIN, BinaryOp.MAX])
def test_min_and_max_of_nan_are_nan(op: BinaryOp) -> None:
    choose = binary(op, DType.F32)
    nan, one = np.float32(np.nan), np.float32(1)
    assert np.isnan(choose(nan, one))
    assert np.isnan(choose(one, nan))
    assert choose(np.float32(2), one) == (1 if op is BinaryOp.MIN else 2)


def test_comparisons_with_nan() -> None:
    nan = np.float32(np.nan)
    assert [bool(compare(op)(nan, nan)) for op in CompareOp] == [False, False, False, True]
    assert [bool(compare(op)(1, 2)) for op in CompareOp] == [True, True, False, True]


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (2.9, DType.I32, 2),
        (-2.9, DType.I32, -2),
        (1e10, DType.I32, 2**31 - 1),
        (-1e10, DType.I32, -(2**31)),
        (1e30, DType.I64, 2**63 - 1),
        (9.223372036854775e18, DType.I64, 9223372036854774784),
        (math.inf, DType.I8, 127),
        (-math.inf, DType.I8, -128),
        (300.5, DType.U8, 255),
        (-0.5, DType.U8, 0),
        (math.nan, DType.I8, 0),
    ],
)
def test_floats_become_integers_towards_zero_and_saturate(
    value: float, target: DType, expected: int
) -> None:
    found = cast(DType.F64, target)(np.float64(value))
    assert found == expected
    assert type(found) is value_type(target)


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        (DType.I32, 300, DType.I8, 44),
        (DType.I32, -1, DType.U8, 255),
        (DType.U8, 200, DType.I8, -56),
        (DType.I8, -1, DType.I64, -1),
        (DType.I32, 2**24 + 1, DType.F32, 2.0**24),
        (DType.I64, 2**53 + 1, DType.F64, 2.0**53),
        (DType.F64, 1 + 2.0**-30, DType.F32, 1.0),
        (DType.F64, 1e300, DType.F32, math.inf),
        (DType.F32, 1 + 2.0**-8, DType.BF16, 1.0),
        (DType.F32, 1 + 3 * 2.0**-8, DType.BF16, 1 + 2.0**-6),
        (DType.I32, 257, DType.BF16, 256.0),
        (DType.BF16, 1.5, DType.F32, 1.5),
        (DType.F32, 0.5, DType.BOOL, True),
        (DType.BOOL, True, DType.F32, 1.0),
        (DType.BOOL, True, DType.I8, 1),
    ],
)
def test_casts(source: DType, value: Any, target: DType, expected: Any) -> None:
    with np.errstate(all="ignore"):
        found = cast(source, target)(constant(value, source))
    assert found == expected
    assert type(found) is value_type(target)


@pytest.mark.parametrize("dtype", list(DType))
def test_a_cast_to_the_same_type_changes_nothing(dtype: DType) -> None:
    x = constant(1, dtype)
    assert cast(dtype, dtype)(x) is x


@pytest.mark.parametrize(
    ("index", "dtype", "expected"),
    [(300, DType.U8, 44), (-1, DType.I8, -1), (7, DType.BOOL, True), (2**24 + 1, DType.F32, 2**24)],
)
def test_an_index_as_a_number(index: int, dtype: DType, expected: int) -> None:
    found = from_index(dtype)(index)
    assert found == expected
    assert type(found) is value_type(dtype)


def test_constants_are_rounded_to_their_type() -> None:
    assert constant(0.1, DType.F32) == np.float32(0.1)
    assert constant(0.1, DType.F64) == 0.1
    assert constant(1 + 2.0**-8, DType.BF16) == 1
    assert constant(2.5, DType.I32) == 2
    assert constant(-math.inf, DType.F32) == -math.inf


def test_every_bf16_survives_the_way_through_f32() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    values = widened(bits, DType.BF16)
    back = narrowed(values, DType.BF16)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(back[numbers], bits[numbers])
    assert np.isnan(widened(back[~numbers], DType.BF16)).all()


@given(st.floats(width=32, allow_nan=False))
def test_bf16_is_the_nearest_with_ties_to_even(x: float) -> None:
    bits = int(narrowed(np.array([x], np.float32), DType.BF16)[0])
    found = float(widened(np.array([bits], np.uint16), DType.BF16)[0])
    if math.isinf(found):
        assert abs(x) >= (2 - 2.0**-8) * 2.0**127
        return
    neighbours = [b for b in (bits - 1, bits + 1) if 0 <= b < 1 << 16]
    for other in neighbours:
        value = float(widened(np.array([other], np.uint16), DType.BF16)[0])
        if math.isfinite(value) and math.copysign(1, value) == math.copysign(1, found):
            distance, theirs = abs(found - x), abs(value - x)
            assert distance < theirs or (distance == theirs and bits % 2 == 0)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
def test_storage_keeps_elements_in_row_major_order(dtype: DType) -> None:
    array = np.arange(6).astype(dtype.numpy).reshape(2, 3)
    values = from_storage(array.T, dtype)
    assert all(type(v) is value_type(dtype) for v in values)
    np.testing.assert_array_equal(to_storage(values, dtype, (3, 2)), array.T)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.BOOL])
def test_no_arithmetic_on_bf16_and_bool(dtype: DType) -> None:
    with pytest.raises(UndefinedOperationError, match=f"add is .* integers, got {dtype}"):
        binary(BinaryOp.ADD, dtype)
    with pytest.raises(UndefinedOperationError, match=f"neg is .* integers, got {dtype}"):
        unary(UnaryOp.NEG, dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_do_not_divide(dtype: DType) -> None:
    with pytest.raises(
        UndefinedOperationError, match=f"div is defined on f32 and f64, got {dtype}"
    ):
        binary(BinaryOp.DIV, dtype)


@pytest.mark.parametrize("dtype", DType)
def test_operations_are_defined_where_the_verifier_says(dtype: DType) -> None:
    for op in (*UnaryOp, *BinaryOp):
        operation = unary if isinstance(op, UnaryOp) else binary
        try:
            operation(op, dtype)
        except UndefinedOperationError:
            assert not is_defined(op, dtype)
        else:
            assert is_defined(op, dtype)
