"""Inputs: in their buffers' types, deterministic, finite, and chosen by structure."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.reference_cases import (
    F32,
    add,
    layernorm,
    load,
    map_workload,
    matmul,
    norm,
    softmax,
    vector,
)
from tilewright.schedules.algebra.narrow import widened
from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Const, Unary, UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation
from tilewright.tuner.judge.input_plan import InputKind, plan_inputs
from tilewright.tuner.judge.inputs import make_inputs

DTYPES = [DType.F32, DType.F64, DType.BF16, DType.I64, DType.I32, DType.I8, DType.U8]
NEEDS_POSITIVE = map_workload(
    Unary(UnaryOp.LOG, load(vector(F32, 4096), "i")), (vector(F32, 4096),), i=4096
)


@pytest.mark.parametrize("kind", list(InputKind))
@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_have_the_buffers_types_and_are_finite(kind: InputKind, dtype: DType) -> None:
    accumulate = F32 if dtype is DType.BF16 else None
    workload = matmul(13, 17, 31, dtype, accumulate)
    for array, tensor in zip(make_inputs(workload, kind, 1), workload.inputs, strict=True):
        assert array.dtype == dtype.numpy
        assert array.shape == tensor.shape
        values = widened(array, dtype)
        assert np.isfinite(values).all()
        assert np.unique(values).size > 1


@pytest.mark.parametrize("kind", list(InputKind))
def test_a_seed_fixes_the_inputs(kind: InputKind) -> None:
    workload = matmul(13, 17, 31)
    first, again = make_inputs(workload, kind, 7), make_inputs(workload, kind, 7)
    other = make_inputs(workload, kind, 8)
    for a, b, c in zip(first, again, other, strict=True):
        assert a.tobytes() == b.tobytes()
        assert a.tobytes() != c.tobytes()


def test_the_generator_is_pinned() -> None:
    """A change here changes the inputs of every stored verification."""
    (a, _) = make_inputs(matmul(2, 2, 4), InputKind.INTEGERS, 0)
    assert a.tolist() == [[-1.0, 0.0, 2.0, 3.0], [3.0, 4.0, -4.0, 1.0]]


def test_integers_stay_in_the_exact_range() -> None:
    for terms, limit in ((64, 4), (1 << 20, 4), ((1 << 20) + 1, 3)):
        plan = plan_inputs(matmul(1, 1, terms))
        assert (plan.low, plan.high, plan.exact) == (-limit, limit, True)
    (a, b) = make_inputs(matmul(30, 30, 64), InputKind.INTEGERS, 0)
    assert set(np.unique(a)) == set(np.unique(b)) == set(range(-4, 5))
    (u, _) = make_inputs(matmul(30, 30, 64, DType.U8), InputKind.INTEGERS, 0)
    assert set(np.unique(u)) == set(range(5))


def test_plans_know_which_stages_are_exact() -> None:
    assert plan_inputs(norm(4, 1000)).exact_stages == {"S"}
    assert plan_inputs(softmax(4, 1000)).exact_stages == {"top"}
    assert not plan_inputs(softmax(4, 1000)).exact
    assert plan_inputs(matmul(4, 4, 8, DType.I32)).exact_extremes
    assert not plan_inputs(matmul(4, 4, 8)).exact_extremes


def test_extremes_reach_both_ends_of_a_type() -> None:
    (a, _) = make_inputs(matmul(30, 30, 64, DType.I32), InputKind.EXTREMES, 0)
    assert (a.min(), a.max()) == (-(2**31), 2**31 - 1)
    assert np.unique(a).size > 1000


def test_spikes_are_few_a_reduction_and_stand_at_the_ends() -> None:
    (x,) = make_inputs(softmax(64, 1000), InputKind.SPIKES, 0)
    spiked = x > 0
    assert set(np.unique(x)) == {-4, -3, 3, 4}
    assert 2 < spiked[:-1, :-1].sum(axis=1).mean() < 6
    assert 0.3 < spiked[:, -1].mean() < 0.7
    assert 0.4 < spiked[-1].mean() < 0.6


def test_special_values_are_there() -> None:
    (a, _) = make_inputs(matmul(60, 60, 60), InputKind.SPECIAL, 0)
    zero = a == 0
    assert (zero & np.signbit(a)).any()
    assert (zero & ~np.signbit(a)).any()
    tiny = (np.abs(a) < 2.0**-126) & ~zero
    assert 4 <= tiny.sum() <= 40
    assert np.abs(a).max() > 1e6
    x = vector(F32, 3600)
    (a,) = make_inputs(map_workload(load(x, "i"), (x,), i=3600), InputKind.SPECIAL, 0)
    assert 0.03 < ((np.abs(a) < 2.0**-126) & (a != 0)).mean() < 0.07
    (d, _) = make_inputs(matmul(60, 60, 60, DType.F64), InputKind.SPECIAL, 0)
    assert ((np.abs(d) < 2.0**-1022) & (d != 0)).any()


def test_large_values_stay_clear_of_overflow() -> None:
    assert plan_inputs(matmul(4, 4, 1000)).large_exponent == 40
    assert plan_inputs(softmax(4, 1000)).large_exponent <= 5


@pytest.mark.parametrize("dtype", [F32, DType.I8, DType.I64, DType.BF16])
def test_all_of_the_first_input_is_far_from_zero(dtype: DType) -> None:
    for kind, sign in ((InputKind.SUNK, -1), (InputKind.RAISED, 1)):
        a, b = make_inputs(matmul(3, 4, 50, dtype), kind, 0)
        if dtype is DType.BF16:
            a, b = widened(a, DType.BF16), widened(b, DType.BF16)
        far = {DType.I8: 63, DType.I64: 2**62 - 1}.get(dtype, 1568)
        assert (a.astype(np.float64) * sign >= far).all()
        assert (b >= 0).all()
        assert (b > 0).any()


_USUAL = [k for k in InputKind if k not in (InputKind.SIGNED, InputKind.SWEPT)]


@pytest.mark.parametrize("kind", _USUAL)
def test_arguments_of_logs_and_divisors_are_positive(kind: InputKind) -> None:
    assert plan_inputs(NEEDS_POSITIVE).positive
    (x,) = make_inputs(NEEDS_POSITIVE, kind, 0)
    assert x.min() >= 2.0**-6
    assert x.max() <= {InputKind.PEAKS: 6402, InputKind.SUNK: 8008, InputKind.RAISED: 8008}.get(
        kind, 128
    )
    by_input = Binary(BinaryOp.DIV, Const(1.0, F32), load(vector(F32), "i"))
    assert plan_inputs(map_workload(by_input, (vector(F32),), i=8)).positive


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16])
def test_what_is_swept_has_every_size(dtype: DType) -> None:
    """A third of them within the type evenly, the least denormal numbers included, others where
    functions bend."""
    x = vector(dtype, 2000)
    workload = map_workload(Unary(UnaryOp.EXP, load(x, "i")), (x,), i=2000)
    sizes = widened(make_inputs(workload, InputKind.SWEPT, 0)[0], dtype).astype(np.float64)
    assert 0.4 < (sizes < 0).mean() < 0.6
    exponents = np.frexp(np.abs(sizes[sizes != 0]))[1]
    first, last = dtype.binary.step_exponent + 1, dtype.binary.max_exponent
    found, _ = np.histogram(exponents, bins=16, range=(first, last + 1))
    assert found.min() >= 20
    assert ((sizes > 40) & (sizes < 89)).sum() >= 20


def test_what_is_swept_is_of_one_size_along_a_reduction() -> None:
    (x,) = make_inputs(softmax(64, 33), InputKind.SWEPT, 0)
    exponents = np.frexp(np.abs(x[np.abs(x).min(axis=1) > 1e-30]))[1]
    assert (exponents.max(axis=1) - exponents.min(axis=1) <= 1).all()


def test_positive_inputs_are_used_only_where_they_are_needed() -> None:
    x = load(vector(F32), "i")
    safe = Binary(BinaryOp.DIV, x, add(Unary(UnaryOp.EXP, x), Const(1.0, F32)))
    workloads = [
        softmax(4, 8),
        layernorm(4, 8),
        norm(4, 8),
        map_workload(safe, (vector(F32),), i=8),
    ]
    assert not any(plan_inputs(w).positive for w in workloads)


@pytest.mark.parametrize("kind", InputKind)
def test_values_in_many_products_are_rarely_denormal(kind: InputKind) -> None:
    """Intel CPUs take about 150 cycles for each product with one."""
    workload = from_notation(
        "C[m,n] += A[m,k]*B[k,n]; D[m,n] = exp(C[m,n])",
        {"A": ("f32", (256, 64)), "B": ("f32", (64, 512))},
    ).normalised()
    for seed in range(4):
        for values in make_inputs(workload, kind, seed):
            denormal = (values != 0) & (np.abs(values) < np.finfo(np.float32).smallest_normal)
            assert denormal.sum() <= 64
