"""Normalisations, attention, recurrent cells and losses of the library, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.schedules import operators
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.workload import Workload

Array = np.ndarray
MATRICES = [{"M": 5, "N": 7}, {"M": 3, "N": 1}]
BATCHES = [{"B": 2, "M": 5, "N": 3}, {"B": 1, "M": 7, "N": 1}]
IMAGES = [{"N": 3, "C": 6, "H": 5, "W": 3}, {"N": 1, "C": 4, "H": 1, "W": 7}]


def normal(workload: Workload) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=t.shape).astype(t.dtype.numpy) for t in workload.inputs]


def check(workload: Workload, inputs: list[Array], *wanted: Array) -> None:
    """Compare the outputs with those computed in f64."""
    found = evaluate(workload, inputs)
    assert len(found) == len(wanted)
    for output, values in zip(found, wanted, strict=True):
        np.testing.assert_allclose(output, values, rtol=2e-5, atol=1e-6)


def wide(inputs: list[Array]) -> list[Array]:
    return [x.astype(np.float64) for x in inputs]


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


ALONG: dict[str, Callable[[Array, int], Array]] = {
    "softmax": softmax,
    "log_softmax": lambda x, axis: np.log(softmax(x, axis)),
    "cumsum": lambda x, axis: x.cumsum(axis),
    "argmax": lambda x, axis: x.argmax(axis),
}


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("name", ALONG)
def test_operators_along_an_axis(name: str, case: int) -> None:
    rows = operators.build(f"{name}_mn", MATRICES[case])
    (a,) = normal(rows)
    check(rows, [a], ALONG[name](a.astype(np.float64), 1))
    middle = operators.build(f"{name}_bmn", BATCHES[case])
    (a,) = normal(middle)
    check(middle, [a], ALONG[name](a.astype(np.float64), 1))


def test_positions_are_of_the_first_of_equal_values() -> None:
    workload = operators.build("argmax_mn", M=2, N=5, dtype="i8")
    a = np.array([[3, 1, 3, 2, 3], [-1, -1, -2, -1, -1]], np.int8)
    np.testing.assert_array_equal(evaluate(workload, [a])[0], [0, 0])
    sums = operators.build("cumsum_mn", M=1, N=3, dtype="u8")
    found = evaluate(sums, [np.full((1, 3), 200, np.uint8)])[0]
    np.testing.assert_array_equal(found, [[200, 400, 600]])


@pytest.mark.parametrize("case", [0, 1])
def test_normalisations_of_rows(case: int) -> None:
    rms = operators.build("rms_norm_mn", MATRICES[case])
    inputs = normal(rms)
    a, gamma = wide(inputs)
    check(rms, inputs, a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5) * gamma)
    l2 = operators.build("l2_norm_mn", MATRICES[case])
    inputs = normal(l2)
    inputs[0][1] = 0
    (a,) = wide(inputs)
    check(l2, inputs, a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-12))


def statistics(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    return x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


def standardised(x: Array, axes: tuple[int, ...]) -> Array:
    mean, var = statistics(x, axes)
    return np.asarray((x - mean) / np.sqrt(var + 1e-5))


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("first", [True, False])
def test_normalisations_of_images(first: bool, case: int) -> None:
    sizes = IMAGES[case]
    suffix = "nchw" if first else "nhwc"

    def images(x: Array) -> Array:
        return x if first else np.moveaxis(x, -1, 1)

    def given(x: Array) -> Array:
        return x if first else np.moveaxis(x, 1, -1)

    def column(v: Array) -> Array:
        return v[:, None, None]

    workload = operators.build(f"batch_norm_{suffix}", sizes)
    inputs = normal(workload)
    inputs[2] = abs(inputs[2])
    x, mean, var, gamma, beta = wide(inputs)
    y = (images(x) - column(mean)) / np.sqrt(column(var) + 1e-5) * column(gamma) + column(beta)
    check(workload, inputs, given(y))

    def scaled(name: str, standard: Callable[[Array], Array], **more: int) -> None:
        workload = operators.build(f"{name}_{suffix}", {**sizes, **more})
        inputs = normal(workload)
        x, gamma, beta = wide(inputs)
        y = standard(images(x)) * column(gamma) + column(beta)
        check(workload, inputs, given(y))
        assert workload.flops == 8 * x.size

    def grouped(x: Array) -> Array:
        apart = x.reshape(len(x), 2, -1)
        return standardised(apart, (2,)).reshape(x.shape)

    scaled("batch_norm_train", lambda x: standardised(x, (0, 2, 3)))
    scaled("instance_norm", lambda x: standardised(x, (2, 3)))
    scaled("group_norm", grouped, groups=2)


def test_instances_are_groups_of_one_channel() -> None:
    sizes = {"N": 2, "C": 4, "H": 3, "W": 5}
    groups = operators.build("group_norm_nchw", sizes, groups=4)
    instances = operators.build("instance_norm_nchw", sizes)
    inputs = normal(groups)
    check(groups, inputs, *evaluate(instances, inputs))
    with pytest.raises(WorkloadError, match="groups=3 must divide C=4"):
        operators.build("group_norm_nchw", sizes, groups=3)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(
    "sizes",
    [
        {"B": 2, "H": 3, "S": 5, "D": 7},
        {"H": 1, "S": 3, "T": 7, "D": 1},
        {"H": 1, "S": 7, "T": 3, "D": 5},
    ],
)
def test_attention(sizes: dict[str, int], causal: int) -> None:
    workload = operators.build("scaled_dot_product_attention", sizes, causal=causal)
    inputs = normal(workload)
    q, k, v = wide(inputs)
    assert k.shape[2] == sizes.get("T", sizes["S"])
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(sizes["D"])
    seen = np.tril(np.ones(scores.shape[2:], bool)) if causal else np.ones(scores.shape[2:], bool)
    weights = softmax(np.where(seen, scores, -np.inf), -1)
    check(workload, inputs, weights @ v)
    heads = sizes.get("B", 1) * sizes["H"]
    assert workload.flops == heads * int(seen.sum()) * (4 * sizes["D"] + 6)


def test_causal_is_a_flag() -> None:
    with pytest.raises(WorkloadError, match=r"causal must be 0\.\.1, got 2"):
        operators.build("scaled_dot_product_attention", H=1, S=2, D=3, causal=2)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@pytest.mark.parametrize("sizes", [{"N": 3, "I": 5, "H": 7}, {"N": 1, "I": 7, "H": 3}])
def test_recurrent_cells(sizes: dict[str, int]) -> None:
    gru = operators.build("gru_cell", sizes)
    inputs = normal(gru)
    x, h, w_ih, w_hh, b_ih, b_hh = wide(inputs)
    of_x, of_h = (np.split(v, 3, 1) for v in (x @ w_ih.T + b_ih, h @ w_hh.T + b_hh))
    r, z = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
    n = np.tanh(of_x[2] + r * of_h[2])
    check(gru, inputs, (1 - z) * n + z * h)
    lstm = operators.build("lstm_cell", sizes)
    inputs = normal(lstm)
    x, h, c, w_ih, w_hh, b_ih, b_hh = wide(inputs)
    i, f, g, o = np.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, 1)
    cell = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    check(lstm, inputs, sigmoid(o) * np.tanh(cell), cell)


LOSSES: dict[str, Callable[[Array, Array], Any]] = {
    "mse_loss": lambda a, b: ((a - b) ** 2).mean(),
    "huber_loss": lambda a, b: np.where(
        abs(a - b) < 1, (a - b) ** 2 / 2, abs(a - b) - 0.5
    ).mean(),
    "hinge_loss": lambda a, b: np.maximum(1 - a * b, 0).mean(),
}  # fmt: skip


@pytest.mark.parametrize("sizes", MATRICES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, sizes: dict[str, int]) -> None:
    workload = operators.build(name, sizes)
    inputs = normal(workload)
    inputs[0] *= 2  # beyond the bounds of the pieces
    a, b = wide(inputs)
    check(workload, inputs, np.array([LOSSES[name](a, b)]))


@pytest.mark.parametrize("sizes", MATRICES)
def test_losses_of_distributions(sizes: dict[str, int]) -> None:
    entropy = operators.build("cross_entropy", sizes)
    a = 9 * normal(entropy)[0]
    target = np.arange(sizes["M"], dtype=np.int32) * 3 % sizes["N"]
    chosen = np.log(softmax(a.astype(np.float64), 1))[np.arange(sizes["M"]), target]
    check(entropy, [a, target], np.array([-chosen.mean()]))
    divergence = operators.build("kl_div", sizes)
    inputs = normal(divergence)
    inputs[1] = softmax(inputs[1], 1)
    inputs[1][0, 0] = 0  # a term without a logarithm
    a, b = wide(inputs)
    terms = np.where(b > 0, b * (np.log(np.where(b > 0, b, 1)) - a), 0)
    check(divergence, inputs, np.array([terms.sum() / sizes["M"]]))


@pytest.mark.parametrize("sizes", MATRICES)
def test_similarity(sizes: dict[str, int]) -> None:
    workload = operators.build("cosine_similarity", sizes)
    inputs = normal(workload)
    inputs[0][1] = 0
    a, b = wide(inputs)
    norms = [np.maximum(np.linalg.norm(x, axis=1), 1e-8) for x in (a, b)]
    check(workload, inputs, (a * b).sum(1) / (norms[0] * norms[1]))
