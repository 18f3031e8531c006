"""Normalisations, reductions and elementwise operators."""

from __future__ import annotations

from ..frontend.expr import (
    compute,
    max,
    maximum,
    placeholder,
    reduce_axis,
    sum,
)
from ..frontend.expr_core import TensorExpr
from ..frontend.functions import exp, rsqrt, sqrt
from .contractions import ATTENTION, transpose_batch_matmul
from .registry import ANY, FLOATS, Draft, Operator, Param, Sizes, Types

_LAYERNORM_EPS = 1e-5


def _softmax(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["M"], p["N"]), t.data)
    k = reduce_axis(p["N"], "k")
    top = compute("top", (p["M"],), lambda i: max(a[i, k], axis=k))
    e = compute("e", a.shape, lambda i, j: exp(a[i, j] - top[i]))
    total = compute("total", (p["M"],), lambda i: sum(e[i, k], axis=k))
    y = compute("Y", a.shape, lambda i, j: e[i, j] / total[i])
    return Draft(y, (a,), 5 * a.tensor.elements)


def _attention_softmax(p: Sizes, t: Types) -> Draft:
    scores = transpose_batch_matmul(p, t)
    c = scores.output
    rows = c.shape[:3]
    k = reduce_axis(p["seq"], "k")
    top = compute("top", rows, lambda b, h, i: max(c[b, h, i, k], axis=k))
    e = compute("e", c.shape, lambda b, h, i, j: exp(c[b, h, i, j] - top[b, h, i]))
    total = compute("total", rows, lambda b, h, i: sum(e[b, h, i, k], axis=k))
    y = compute("Y", c.shape, lambda b, h, i, j: e[b, h, i, j] / total[b, h, i])
    return Draft(y, scores.inputs, scores.flops + 5 * c.tensor.elements)


def _layernorm(p: Sizes, t: Types) -> Draft:
    """Build layer normalisation. The variance is computed after the mean to avoid cancellation."""
    m, n = p["M"], p["N"]
    a = placeholder("A", (m, n), t.data)
    gamma, beta = placeholder("gamma", (n,), t.weight), placeholder("beta", (n,), t.weight)
    k = reduce_axis(n, "k")
    mean = compute("mean", (m,), lambda i: sum(a[i, k], axis=k) / n)
    square = compute(
        "square", (m,), lambda i: sum((a[i, k] - mean[i]) * (a[i, k] - mean[i]), axis=k)
    )
    scale = compute("scale", (m,), lambda i: rsqrt(square[i] / n + _LAYERNORM_EPS))
    y = compute("Y", (m, n), lambda i, j: (a[i, j] - mean[i]) * scale[i] * gamma[j] + beta[j])
    return Draft(y, (a, gamma, beta), 8 * m * n)


def _norm(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["B"], p["M"], p["N"]), t.data)
    i, j = reduce_axis(p["M"], "i"), reduce_axis(p["N"], "j")
    y = compute("Y", (p["B"],), lambda b: sqrt(sum(a[b, i, j] * a[b, i, j], axis=(i, j))))
    return Draft(y, (a,), 2 * a.tensor.elements)


def _colsum(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["M"], p["N"]), t.data)
    i = reduce_axis(p["M"], "i")
    y = compute("Y", (p["N"],), lambda j: sum(a[i, j], axis=i))
    return Draft(y, (a,), a.tensor.elements)


def _add_relu(p: Sizes, t: Types) -> Draft:
    a, b = (placeholder(name, (p["M"], p["N"]), t.data) for name in ("A", "B"))
    y = compute("Y", a.shape, lambda i, j: maximum(a[i, j] + b[i, j], 0))
    return Draft(y, (a, b), 2 * a.tensor.elements)


def _transpose(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["M"], p["N"]), t.data)
    y: TensorExpr = compute("Y", (p["N"], p["M"]), lambda i, j: a[j, i])
    return Draft(y, (a,), 0)


_MN = (Param("M"), Param("N"))

OPERATORS = (
    Operator("softmax_mn", "softmax of each row", "A[M,N] Y[M,N]", "5*M*N", _MN, FLOATS, _softmax),
    Operator("transpose_batch_matmul_softmax", "attention scores and their softmax",
             "Q[batch,seq,heads,dim] V[batch,seq,heads,dim] Y[batch,heads,seq,seq]",
             "2*batch*heads*seq^2*dim + 5*batch*heads*seq^2", ATTENTION, FLOATS,
             _attention_softmax),
    Operator("layernorm_mn", "layer normalisation of each row, eps 1e-5",
             "A[M,N] gamma[N] beta[N] Y[M,N]", "8*M*N", _MN, FLOATS, _layernorm),
    Operator("norm_bmn", "Euclidean norm of each matrix", "A[B,M,N] Y[B]", "2*B*M*N",
             (Param("B"), *_MN), FLOATS, _norm),
    Operator("colsum_mn", "sum of each column", "A[M,N] Y[N]", "M*N", _MN, ANY, _colsum),
    Operator("elementwise_add_relu", "relu(A + B)", "A[M,N] B[M,N] Y[M,N]", "2*M*N", _MN, ANY,
             _add_relu),
    Operator("transpose_mn", "transposed copy", "A[M,N] Y[N,M]", "0", _MN, ANY, _transpose),
)  # fmt: skip
