"""Computations no library has, for `tilewright tune examples/my_ops.py:FUNCTION`.

Each function returns a `Workload`. The tuner sees only the structure of the expression: these get
the same treatment as `matmul`.
"""

from __future__ import annotations

from tilewright.schedules import (
    Workload,
    compute,
    exp,
    max,
    maximum,
    padded,
    placeholder,
    reduce_axis,
    select,
    sum,
)


def attention_scores() -> Workload:
    """softmax(Q K^T / 8) over the keys of each query: a contraction and two reductions of rows."""
    heads, length, depth = 4, 128, 64
    q = placeholder("Q", (heads, length, depth))
    k = placeholder("K", (heads, length, depth))
    shape, rows = (heads, length, length), (heads, length)
    d, key = reduce_axis(depth, "d"), reduce_axis(length, "key")
    scores = compute("scores", shape, lambda h, i, j: sum(q[h, i, d] * k[h, j, d], axis=d) * 0.125)
    top = compute("top", rows, lambda h, i: max(scores[h, i, key], axis=key))
    power = compute("power", shape, lambda h, i, j: exp(scores[h, i, j] - top[h, i]))
    total = compute("total", rows, lambda h, i: sum(power[h, i, key], axis=key))
    out = compute("P", shape, lambda h, i, j: power[h, i, j] / total[h, i])
    return Workload.of(out, inputs=(q, k), name="attention_scores")


def banded_matvec() -> Workload:
    """y = A x for a matrix kept as its 9 diagonals; beyond the ends, x counts as zero."""
    rows, band = 100_000, 9
    diagonals = placeholder("diagonals", (band, rows))
    x = placeholder("x", (rows,))
    b = reduce_axis(band, "b")
    y = compute("y", (rows,), lambda i: sum(diagonals[b, i] * padded(x, i + b - band // 2), axis=b))
    return Workload.of(y, inputs=(diagonals, x), name="banded_matvec")


def causal_relu() -> Workload:
    """relu(X W) on and below the diagonal, zero above it: a contraction with an epilogue."""
    rows, inner, columns = 200, 300, 256
    x, w = placeholder("X", (rows, inner)), placeholder("W", (inner, columns))
    r = reduce_axis(inner, "r")
    product = compute("product", (rows, columns), lambda i, j: sum(x[i, r] * w[r, j], axis=r))
    y = compute("Y", product.shape, lambda i, j: select(i >= j, maximum(product[i, j], 0.0), 0.0))
    return Workload.of(y, inputs=(x, w), name="causal_relu")
