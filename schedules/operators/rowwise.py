"""Operators along one axis, and elementwise operators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..frontend.array.arrays import ArrayExpr, LazyArray, TensorArray, tensor_array
from ..frontend.expr import compute, maximum, placeholder, reduce_axis, sum
from ..frontend.functions import exp, log, sqrt
from ..frontend.reading import TensorExpr
from .contractions import ATTENTION, transpose_batch_matmul
from .registry import ANY, FLOATS, Draft, Operator, Param, Sizes, Types


def _softmax_of(x: ArrayExpr, axis: int) -> LazyArray:
    e = exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _operand(p: Sizes, t: Types, axes: str) -> TensorArray:
    return placeholder("A", [p[axis] for axis in axes], t.data)


def _softmax(p: Sizes, t: Types, axes: str, axis: int) -> Draft:
    a = _operand(p, t, axes)
    return Draft(_softmax_of(a, axis).named("Y"), (a,), 5 * a.tensor.elements)


def _log_softmax(p: Sizes, t: Types, axes: str, axis: int) -> Draft:
    a = _operand(p, t, axes)
    d = a - a.max(axis, keepdims=True)
    y = d - log(exp(d).sum(axis, keepdims=True))
    return Draft(y.named("Y"), (a,), 5 * a.tensor.elements)


def _cumsum(p: Sizes, t: Types, axes: str, axis: int) -> Draft:
    a = _operand(p, t, axes)
    return Draft(a.cumsum(axis).named("Y"), (a,), a.tensor.elements)


def _argmax(p: Sizes, t: Types, axes: str, axis: int) -> Draft:
    a = _operand(p, t, axes)
    return Draft(a.argmax(axis).named("Y"), (a,), a.tensor.elements)


def _attention_softmax(p: Sizes, t: Types) -> Draft:
    scores = transpose_batch_matmul(p, t)
    y = _softmax_of(tensor_array(scores.output), -1).named("Y")
    return Draft(y, scores.inputs, scores.flops + 5 * y.tensor.elements)


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


def _embedding(p: Sizes, t: Types) -> Draft:
    table = placeholder("T", (p["V"], p["D"]), t.data)
    rows = placeholder("I", (p["N"],), "i32")
    return Draft(table.take(rows, 0).named("Y"), (table, rows), 0)


_MN = (Param("M"), Param("N"))


def _along(axes: str, axis: int, where: str) -> Iterator[Operator]:
    """Yield the operators along `axis`, an integer, of an array with the axes `axes`."""
    params = tuple(Param(a) for a in axes)
    shape, rest = ",".join(axes), ",".join(a for a in axes if a != axes[axis])
    product, suffix = "*".join(axes), axes.casefold()
    for name, summary, result, flops, dtypes, build in (
        ("softmax", "softmax of", shape, f"5*{product}", FLOATS, _softmax),
        ("log_softmax", "logarithm of the softmax of", shape, f"5*{product}", FLOATS, _log_softmax),
        ("cumsum", "running sum of", shape, product, ANY, _cumsum),
        ("argmax", "position of the first greatest value of", rest, product, ANY, _argmax),
    ):
        yield Operator(
            f"{name}_{suffix}", f"{summary} {where}", f"A[{shape}] Y[{result}]", flops, params,
            dtypes, partial(build, axes=axes, axis=axis),
        )  # fmt: skip


OPERATORS = (
    *_along("MN", 1, "each row"),
    *_along("BMN", 1, "each column of each matrix"),
    Operator("transpose_batch_matmul_softmax", "attention scores and their softmax",
             "Q[batch,seq,heads,dim] V[batch,seq,heads,dim] Y[batch,heads,seq,seq]",
             "2*batch*heads*seq^2*dim + 5*batch*heads*seq^2", ATTENTION, FLOATS,
             _attention_softmax),
    Operator("norm_bmn", "Euclidean norm of each matrix", "A[B,M,N] Y[B]", "2*B*M*N",
             (Param("B"), *_MN), FLOATS, _norm),
    Operator("colsum_mn", "sum of each column", "A[M,N] Y[N]", "M*N", _MN, ANY, _colsum),
    Operator("elementwise_add_relu", "relu(A + B)", "A[M,N] B[M,N] Y[M,N]", "2*M*N", _MN, ANY,
             _add_relu),
    Operator("embedding", "rows of a table, zeros for an index outside", "T[V,D] I[N] Y[N,D]", "0",
             (Param("V"), Param("D"), Param("N")), ANY, _embedding),
    Operator("transpose_mn", "transposed copy", "A[M,N] Y[N,M]", "0", _MN, ANY, _transpose),
)  # fmt: skip
