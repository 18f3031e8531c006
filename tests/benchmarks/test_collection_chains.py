"""The fused chains of the collection are workloads, and their functions are those of the field."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from benchmarks.collection import activations, norms
from benchmarks.collection import chains_conv2d as conv2d
from benchmarks.collection import chains_conv3d as conv3d
from benchmarks.collection import chains_products as products
from benchmarks.collection import chains_transposed as transposed
from benchmarks.collection.row import Row
from tilewright.schedules.reference.evaluate import evaluate

CHAINS = (*conv2d.ROWS, *conv3d.ROWS, *products.ROWS, *transposed.ROWS)
X = np.random.default_rng(0).normal(scale=4, size=(2, 4, 3, 5))
VECTORS = [np.random.default_rng(n).uniform(0.5, 2, 4) for n in range(4)]


def test_there_are_at_least_sixty_different_chains() -> None:
    assert len({row.name for row in CHAINS}) == len(CHAINS) >= 60
    keys = {_workload(row).key for row in CHAINS}
    assert len(keys) == len(CHAINS), "two chains are one computation"


def _workload(row: Row) -> tw.Workload:
    arrays = [tw.placeholder(i.name, i.shape, i.dtype) for i in row.inputs]
    return tw.Workload.of(row.ours(*arrays), inputs=arrays)


@pytest.mark.parametrize("row", CHAINS, ids=lambda row: row.name)
def test_a_chain_reads_all_inputs_and_takes_milliseconds(row: Row) -> None:
    workload = _workload(row)
    assert len(workload.output_tensors) == 1
    assert [(t.name, t.shape) for t in workload.inputs] == [(i.name, i.shape) for i in row.inputs]
    assert workload.flops is not None
    assert 5e7 < workload.flops < 5e9


def _value_of(function: Any, *values: Any) -> Any:
    arrays = [tw.placeholder(f"x{n}", v.shape, "f64") for n, v in enumerate(values)]
    found = function(*arrays)
    return evaluate(tw.Workload.of(found, inputs=arrays), list(values))[0]


def _mish(x: Any) -> Any:
    return x * np.tanh(np.log1p(np.exp(x)))


def _softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


ACTIVATIONS: list[tuple[Any, Any]] = [
    (lambda x: activations.clamp(x, -1, 2), lambda x: np.clip(x, -1, 2)),
    (activations.leaky_relu, lambda x: np.maximum(x, 0.01 * x)),
    (activations.gelu, lambda x: x * (1 + np.vectorize(erf)(x / 2**0.5)) / 2),
    (activations.swish, lambda x: x / (1 + np.exp(-x))),
    (activations.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    (activations.softplus, lambda x: np.log1p(np.exp(x))),
    (activations.mish, _mish),
    (lambda x: activations.softmax(x, 1), _softmax),
    (lambda x: activations.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1, keepdims=True))),
]


@pytest.mark.parametrize("case", range(len(ACTIVATIONS)))
def test_activation_functions_are_those_of_numpy(case: int) -> None:
    ours, theirs = ACTIVATIONS[case]
    np.testing.assert_allclose(_value_of(ours, X), theirs(X), rtol=1e-6, atol=1e-9)


def test_softplus_and_mish_of_great_numbers_are_finite() -> None:
    great = np.array([[50.0, 1000.0, -1000.0]])
    np.testing.assert_allclose(_value_of(activations.softplus, great), [[50, 1000, 0]])
    np.testing.assert_allclose(_value_of(activations.mish, great), [[50, 1000, 0]])


def _standard(x: Any, axes: tuple[int, ...]) -> Any:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5)


def test_norms_are_those_of_numpy() -> None:
    mean, var, weight, bias = VECTORS
    columns = [v[:, None, None] for v in VECTORS]
    batch = (X - columns[0]) / np.sqrt(columns[1] + 1e-5) * columns[2] + columns[3]
    np.testing.assert_allclose(_value_of(norms.batch_norm, X, mean, var, weight, bias), batch)
    groups = _standard(X.reshape(2, 2, 2, 3, 5), (2, 3, 4)).reshape(X.shape)
    np.testing.assert_allclose(
        _value_of(lambda x, w, b: norms.group_norm(x, 2, w, b), X, weight, bias),
        groups * columns[2] + columns[3],
    )
    np.testing.assert_allclose(_value_of(norms.instance_norm, X), _standard(X, (2, 3)))
    w, b = X[0, 0], X[1, 1]
    np.testing.assert_allclose(
        _value_of(norms.layer_norm, X, w, b), _standard(X, (2, 3)) * w + b, atol=1e-12
    )
