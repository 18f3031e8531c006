"""Contractions of NaN, infinities and products that are not there, against the general path."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.reference import contract as reference_contract
from tilewright.schedules.reference import error_bound
from tilewright.schedules.reference import evaluate as reference
from tilewright.schedules.reference.contract import recognise
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.workload import Workload

FORMS = {
    "plain": "C[i,j] += A[i,k] * B[k,j]",
    "product chosen": "C[i,j] += where(k <= j, A[i,k] * B[k,j], 0.0)",
    "factor chosen, axes of its own": "C[i,j] += where(k <= i, A[i,k], 0.0) * B[k,j]",
    "factor chosen, axes of the other": "C[i,j] += where(k <= j, A[i,k], 0.0) * B[k,j]",
    "both chosen, axes of the other": (
        "C[i,j] += where(k <= j, A[i,k], 0.0) * where(k + 1 >= i, B[k,j], 0.0)"
    ),
    "product and factor chosen": (
        "C[i,j] += where(k + i >= 2, where(k <= j, A[i,k], 0.0) * B[k,j], 0.0)"
    ),
    "three factors": "C[i,j] += where(k <= j, A[i,k], 0.0) * D[k] * B[k,j]",
    "a sum of its own": "C[i,j] += where(k + l <= j + 2, A[i,k], 0.0) * E[k,j,l]",
    "padding": "C[i,j] += A[i+k-2,k] * B[k,j]",
    "cast of a choice": "C[i,j] += f64(where(k <= j, A[i,k], 0.0)) * f64(B[k,j])",
}
SPECS = {"A": "f32[9,10]", "B": "f32[10,11]", "D": "f32[10]", "E": "f32[10,11,4]"}


def workload_of(text: str) -> Workload:
    return from_notation(
        text, [parse_tensor_spec(f"{n}={s}") for n, s in SPECS.items() if f"{n}[" in text]
    )


def drawn(workload: Workload, seed: int) -> list[np.ndarray]:
    """Small integers, some of them zero, and a few NaN and infinities."""
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor in workload.inputs:
        values = rng.integers(-2, 3, tensor.shape).astype(tensor.dtype.numpy)
        share = rng.choice([0.0, 0.02, 0.2])
        where = rng.random(tensor.shape) < share
        values[where] = rng.choice([np.nan, np.inf, -np.inf], int(where.sum()))
        arrays.append(values)
    return arrays


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pieces", ["one", "many"])
def test_products_that_are_not_finite_are_those_of_the_general_path(
    form: str, pieces: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = workload_of(FORMS[form])
    assert recognise(workload.stages[-1]) is not None
    if pieces == "many":
        monkeypatch.setattr(reference_contract, "MAX_FACTOR_POINTS", 60)
    inputs = [drawn(workload, seed) for seed in range(40)]
    contracted = [evaluate(workload, some) for some in inputs]
    monkeypatch.setattr(reference, "recognise", lambda *_, **__: None)
    general = [evaluate(workload, some) for some in inputs]
    for got, wanted in zip(contracted, general, strict=True):
        np.testing.assert_array_equal(got, wanted)
    found = np.concatenate([w[0].ravel() for w in general])
    for is_of in (np.isnan, np.isposinf, np.isneginf, np.isfinite):
        assert is_of(found).any()


@pytest.mark.parametrize("form", FORMS)
def test_bounds_of_chosen_products_are_those_of_the_general_path(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = workload_of(FORMS[form])
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in workload.inputs]
    ((values, bound),) = evaluate_with_bound(workload, inputs)
    monkeypatch.setattr(error_bound, "recognise", lambda *_, **__: None)
    ((wanted, general),) = evaluate_with_bound(workload, inputs)
    np.testing.assert_allclose(values, wanted, rtol=1e-12, atol=1e-13)
    assert (bound <= 2 * general + 1e-30).all()
    assert (general <= 2 * bound + 1e-30).all()
