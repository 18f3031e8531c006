"""Which array expressions become stages, and that they have the keys of their lambda spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.schedules import operators, padded
from tilewright.schedules.limits import MAX_COPIED_NODES, MAX_STAGES
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.workload import Workload

M, N, K = 6, 8, 5
A, B = tw.placeholder("A", (M, K)), tw.placeholder("B", (K, N))
X, BIAS = tw.placeholder("X", (M, N)), tw.placeholder("bias", (N,))


def stages(*outputs: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(s.name, s.tensor.shape) for s in Workload.of(*outputs).stages]


def softmax(x: Any) -> Any:
    e = tw.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(x: Any, gamma: Any, beta: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d * tw.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + tw.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * (x * x * x))))


OPERATORS: list[tuple[Callable[[], Any], Workload]] = [
    (lambda: A @ B, operators.matmul(M=M, N=N, K=K)),
    (lambda: tw.einsum("ik,kj->ij", A, B), operators.matmul(M=M, N=N, K=K)),
    (lambda: tw.einsum("ki,kj->ij", A, X), operators.matmul_tn(M=K, N=N, K=M)),
    (lambda: A @ tw.placeholder("W", (N, K)).T, operators.matmul_nt(M=M, N=N, K=K)),
    (lambda: A @ tw.placeholder("x", (K,)), operators.gemv(N=M, K=K)),
    (lambda: tw.relu(A @ B + BIAS), operators.matmul(M=M, N=N, K=K, epilogue="bias+relu")),
    (lambda: gelu(A @ B), operators.matmul(M=M, N=N, K=K, epilogue="gelu")),
    (lambda: softmax(X), operators.softmax_mn(M=M, N=N)),
    (lambda: layernorm(X, BIAS, tw.placeholder("beta", (N,))), operators.layernorm_mn(M=M, N=N)),
    (lambda: tw.relu(X + tw.placeholder("B", (M, N))), operators.elementwise_add_relu(M=M, N=N)),
    (lambda: X.T, operators.transpose_mn(M=M, N=N)),
    (lambda: X.sum(0), operators.colsum_mn(M=M, N=N)),
    (
        lambda: tw.placeholder("x", (2, 3, 4, 5)).mean((1, 2)),
        operators.global_avg_pool_nhwc(N=2, H=3, W=4, C=5),
    ),
    (
        lambda: softmax(
            tw.einsum(
                "bihd,bjhd->bhij",
                tw.placeholder("q", (1, 6, 2, 4)),
                tw.placeholder("v", (1, 6, 2, 4)),
            )
        ),
        operators.transpose_batch_matmul_softmax(batch=1, seq=6, heads=2, dim=4),
    ),
]


@pytest.mark.parametrize("case", range(len(OPERATORS)))
def test_array_programs_have_the_keys_of_the_operators(case: int) -> None:
    build, wanted = OPERATORS[case]
    assert Workload.of(build()).key == wanted.key


def test_a_chain_has_the_key_of_one_lambda() -> None:
    ours = tw.where(X > 0, X * 2 + BIAS, tw.tanh(X) - 1).astype("f16")
    theirs = tw.compute(
        "Y",
        (M, N),
        lambda i, j: tw.cast(
            tw.select(X[i, j] > 0, X[i, j] * 2 + BIAS[j], tw.tanh(X[i, j]) - 1), "f16"
        ),
    )
    assert stages(ours) == [("out", (M, N))]
    assert Workload.of(ours, inputs=[X, BIAS]).key == Workload.of(theirs, inputs=[X, BIAS]).key


def test_padding_has_the_key_of_padded() -> None:
    x = tw.placeholder("x", (5, 7))
    ours = tw.pad(x, ((1, 2), (0, 3)), value=2)
    theirs = tw.compute("Y", (8, 10), lambda i, j: padded(x, i - 1, j, fill=2))
    assert Workload.of(ours).key == Workload.of(theirs).key


def test_an_array_is_indexed_in_a_lambda() -> None:
    """It is computed in place, so that a convolution of a padded array reads no temporary."""
    x, w = tw.placeholder("x", (1, 7, 7, 4)), tw.placeholder("w", (3, 3, 4, 5))
    p = tw.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    r, s, c = tw.reduce_axis(3), tw.reduce_axis(3), tw.reduce_axis(4)
    y = tw.compute(
        "Y",
        (1, 7, 7, 5),
        lambda n, i, j, o: tw.sum(p[n, i + r, j + s, c] * w[r, s, c, o], axis=(r, s, c)),
    )
    assert Workload.of(y).key == operators.conv2d_nhwc(H=7, W=7, CI=4, CO=5, K=3, pad=1).key


def test_a_lambda_shares_the_stages_of_an_array_that_it_reads_twice() -> None:
    centred = X - X.mean(0)
    k = tw.reduce_axis(N)
    y = tw.compute("Y", (M, N), lambda i, j: centred[i, j] + tw.sum(centred[i, k], axis=k))
    assert stages(y) == [("sum", (N,)), ("div", (N,)), ("Y_sum", (M,)), ("Y", (M, N))]


def test_elementwise_chains_and_views_are_one_stage() -> None:
    t = tw.tanh(X + BIAS)
    assert len(stages(t * t + t)) == 1, "one stage computes it once per element anyway"
    assert len(stages(tw.concat([tw.exp(X), -X], 0)[::2].T.reshape(-1))) == 1
    assert len(stages(tw.roll(tw.flip(X), 3, 0)[..., None] + BIAS[:, None])) == 1


def test_a_reduction_that_is_only_rearranged_is_the_output_itself() -> None:
    assert stages((A @ B).T) == [("out", (N, M))]
    assert stages((A @ B)[:, ::2][None]) == [("out", (1, M, N // 2))]
    assert stages(X.max(-1, keepdims=True)) == [("out", (M, 1))]
    assert stages((A @ B).T + 1) == [("sum", (M, N)), ("out", (N, M))]
    product = A @ B
    assert stages(product.T, product) == [("out", (M, N)), ("out1", (N, M))]


def test_costly_elements_are_computed_once() -> None:
    assert stages(tw.exp(A) @ B) == [("exp", (M, K)), ("out", (M, N))]
    assert stages(tw.relu(A) @ B) == [("out", (M, N))], "a maximum is as fast as a read"
    assert stages(X * tw.sqrt(BIAS)) == [("sqrt", (N,)), ("out", (M, N))]
    assert stages(X * (BIAS + 1)) == [("out", (M, N))]
    e = tw.exp(X)
    assert stages(e.sum(-1), e + 1) == [("exp", (M, N)), ("out", (M,)), ("out1", (M, N))]
    assert stages(tw.tile(tw.sqrt(X), 3)) == [("sqrt", (M, N)), ("out", (M, 3 * N))]


def test_padding_never_computes_a_reduction_outside() -> None:
    """The index of a padded reduction is outside, so that the reduction is a stage before it."""
    assert [shape for _, shape in stages(tw.pad(A @ B, 1))] == [(M, N), (M + 2, N + 2)]


def test_an_expression_that_is_used_often_becomes_stages() -> None:
    y = tw.placeholder("y", (3,), "f64")
    powers: Any = y
    for _ in range(60):
        powers = powers * powers * 0.5 + 0.5
    workload = Workload.of(powers)
    assert 1 < len(workload.stages) < MAX_STAGES
    data = np.array([0.25, -0.5, 1.0])
    wanted = data
    for _ in range(60):
        wanted = wanted * wanted * 0.5 + 0.5
    np.testing.assert_allclose(evaluate(workload, [data])[0], wanted, rtol=1e-9)


@pytest.mark.parametrize(
    "step", [tw.tanh, lambda x: x.T, lambda x: x + 1, lambda x: tw.pad(x, 1)[1:-1]]
)
def test_a_deep_expression_is_cut_into_stages(step: Callable[[Any], Any]) -> None:
    x = tw.placeholder("x", (4,), "f64")
    y: Any = x
    for _ in range(250):
        y = step(y)
    data = np.array([0.5, -1.0, 2.0, 0.0])
    workload = Workload.of(y)
    assert len(workload.stages) < 12
    assert evaluate(workload, [data])[0].shape == (4,)


def test_names_are_made_up_and_given() -> None:
    top = X.max(-1).named("sum")
    y = (X - top[:, None]).sum(0)
    assert stages(y + X.sum(0)) == [
        ("sum", (M,)), ("sum1", (N,)), ("sum2", (N,)), ("out", (N,)),
    ]  # fmt: skip
    z = tw.relu(X).named("Z")
    assert stages(z) == [("Z", (M, N))]
    assert stages(z + 1, z) == [("Z", (M, N)), ("out", (M, N))]
    assert Workload.of(z).key == Workload.of(tw.relu(X)).key
    assert stages(X.named("copy")) == [("copy", (M, N))]
    assert stages(tw.placeholder("out", (2,)) + 1) == [("out1", (2,))]


def test_the_names_of_a_workload_do_not_depend_on_what_was_built_before() -> None:
    first = Workload.of(softmax(X)).to_json()
    stages(softmax(X), layernorm(X, BIAS, BIAS))
    assert Workload.of(softmax(X)).to_json() == first


def test_outputs_share_the_stages_that_they_need() -> None:
    mean = X.mean(-1, keepdims=True)
    centred = X - mean
    found = stages(centred, (centred * centred).sum(-1))
    assert [shape for _, shape in found] == [(M,), (M,), (M, N), (M,)]


def test_a_copied_expression_has_at_most_the_stated_size() -> None:
    y: Any = X
    for _ in range(MAX_COPIED_NODES):
        y = y + BIAS * X
    assert len(stages(y)) <= 2
    assert len(stages(tw.maximum(y, 1) * y)) >= 2
