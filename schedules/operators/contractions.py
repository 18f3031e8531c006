"""Matrix products: sums of products without a window."""

from __future__ import annotations

from ..frontend.expr import compute, placeholder, reduce_axis, sum
from ..frontend.reading import TensorExpr
from .registry import PRODUCTS, Draft, Operator, Param, Sizes, Types


def _matmul(p: Sizes, t: Types) -> Draft:
    a, b = placeholder("A", (p["M"], p["K"]), t.data), placeholder("B", (p["K"], p["N"]), t.weight)
    k = reduce_axis(p["K"], "k")
    c = compute("C", (p["M"], p["N"]), lambda i, j: sum(a[i, k] * b[k, j], axis=k))
    return _product(p, c, a, b)


def _matmul_nt(p: Sizes, t: Types) -> Draft:
    a, b = placeholder("A", (p["M"], p["K"]), t.data), placeholder("B", (p["N"], p["K"]), t.weight)
    k = reduce_axis(p["K"], "k")
    c = compute("C", (p["M"], p["N"]), lambda i, j: sum(a[i, k] * b[j, k], axis=k))
    return _product(p, c, a, b)


def _matmul_tn(p: Sizes, t: Types) -> Draft:
    a, b = placeholder("A", (p["K"], p["M"]), t.data), placeholder("B", (p["K"], p["N"]), t.weight)
    k = reduce_axis(p["K"], "k")
    c = compute("C", (p["M"], p["N"]), lambda i, j: sum(a[k, i] * b[k, j], axis=k))
    return _product(p, c, a, b)


def _product(p: Sizes, c: TensorExpr, a: TensorExpr, b: TensorExpr) -> Draft:
    return Draft(c, (a, b), 2 * c.tensor.elements * p["K"])


def _gemv(p: Sizes, t: Types) -> Draft:
    w, x = placeholder("W", (p["N"], p["K"]), t.weight), placeholder("x", (p["K"],), t.data)
    k = reduce_axis(p["K"], "k")
    y = compute("y", (p["N"],), lambda n: sum(w[n, k] * x[k], axis=k))
    return _product(p, y, w, x)


def _batch_matmul(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["B"], p["M"], p["K"]), t.data)
    b = placeholder("B", (p["B"], p["K"], p["N"]), t.weight)
    k = reduce_axis(p["K"], "k")
    shape = (p["B"], p["M"], p["N"])
    c = compute("C", shape, lambda n, i, j: sum(a[n, i, k] * b[n, k, j], axis=k))
    return _product(p, c, a, b)


def _batch_matmul_nt(p: Sizes, t: Types) -> Draft:
    a = placeholder("A", (p["B"], p["M"], p["K"]), t.data)
    b = placeholder("B", (p["B"], p["N"], p["K"]), t.weight)
    k = reduce_axis(p["K"], "k")
    shape = (p["B"], p["M"], p["N"])
    c = compute("C", shape, lambda n, i, j: sum(a[n, i, k] * b[n, j, k], axis=k))
    return _product(p, c, a, b)


def transpose_batch_matmul(p: Sizes, t: Types) -> Draft:
    """Build C[b,h,i,j] = sum_k Q[b,i,h,k] V[b,j,h,k], attention scores without a transpose."""
    shape = (p["batch"], p["seq"], p["heads"], p["dim"])
    q, v = placeholder("Q", shape, t.data), placeholder("V", shape, t.weight)
    k = reduce_axis(p["dim"], "k")
    out = (p["batch"], p["heads"], p["seq"], p["seq"])
    c = compute("C", out, lambda b, h, i, j: sum(q[b, i, h, k] * v[b, j, h, k], axis=k))
    return Draft(c, (q, v), 2 * c.tensor.elements * p["dim"])


_MNK = (Param("M"), Param("N"), Param("K"))
_BMNK = (Param("B"), *_MNK)
ATTENTION = (Param("batch", 1), Param("seq"), Param("heads"), Param("dim"))

OPERATORS = (
    Operator("matmul", "matrix product", "A[M,K] B[K,N] C[M,N]", "2*M*N*K",
             _MNK, PRODUCTS, _matmul, epilogues=True),
    Operator("matmul_nt", "matrix product, B stored transposed", "A[M,K] B[N,K] C[M,N]",
             "2*M*N*K", _MNK, PRODUCTS, _matmul_nt, epilogues=True),
    Operator("matmul_tn", "matrix product, A stored transposed", "A[K,M] B[K,N] C[M,N]",
             "2*M*N*K", _MNK, PRODUCTS, _matmul_tn, epilogues=True),
    Operator("gemv", "matrix times vector", "W[N,K] x[K] y[N]", "2*N*K",
             (Param("N"), Param("K")), PRODUCTS, _gemv, epilogues=True),
    Operator("batch_matmul", "one matrix product per batch entry", "A[B,M,K] B[B,K,N] C[B,M,N]",
             "2*B*M*N*K", _BMNK, PRODUCTS, _batch_matmul, epilogues=True),
    Operator("batch_matmul_nt", "batch_matmul, B stored transposed", "A[B,M,K] B[B,N,K] C[B,M,N]",
             "2*B*M*N*K", _BMNK, PRODUCTS, _batch_matmul_nt, epilogues=True),
    Operator("transpose_batch_matmul", "attention scores without a transpose",
             "Q[batch,seq,heads,dim] V[batch,seq,heads,dim] C[batch,heads,seq,seq]",
             "2*batch*heads*seq^2*dim", ATTENTION, PRODUCTS, transpose_batch_matmul,
             epilogues=True),
)  # fmt: skip
