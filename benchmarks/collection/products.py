"""Products of matrices, vectors and tensors."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from benchmarks.collection.row import Input, Row
from tilewright import operators


def _pair(name: str, a: tuple[int, ...], b: tuple[int, ...], ours: Any, torch: Any = None) -> Row:
    """Return a row with the operands a and b, by default of `a @ b`."""
    inputs = (Input("a", a), Input("b", b, role="weight"))
    return Row(name, inputs, torch or (lambda F, a, b: a @ b), ours)


def _matmul(name: str, m: int, n: int, k: int) -> Row:
    return _pair(name, (m, k), (k, n), lambda a, b: operators.matmul(M=m, N=n, K=k))


def _triangular(name: str, values: Any, n: int) -> Row:
    """Return the product of two upper or two lower triangular matrices, which is triangular, too.
    Only the terms that may differ from 0 are written."""
    inputs = tuple(Input(x, (n, n), values=values) for x in "ab")

    def torch(F: Any, a: Any, b: Any) -> Any:
        return (a @ b).triu() if values == "upper" else (a @ b).tril()

    def ours(a: Any, b: Any) -> Any:
        k = tw.reduce_axis(n, "k")

        def element(i: Any, j: Any) -> Any:
            product = a[i, k] * b[k, j]
            if values == "upper":
                terms = tw.select(i <= k, tw.select(k <= j, product, 0), 0)
            else:
                terms = tw.select(k <= i, tw.select(j <= k, product, 0), 0)
            return tw.sum(terms, axis=k)

        return tw.compute("c", (n, n), element)

    return Row(name, inputs, torch, ours)


_B, _M, _N, _K = 16, 256, 256, 512
_VECTOR = (Input("w", (4096, 8192), role="weight"), Input("x", (8192,)))

ROWS = (
    _matmul("matmul_square", 1024, 1024, 1024),
    _matmul("matmul_standard", 768, 1024, 2048),
    _pair(
        "matmul_batched", (_B, _M, _K), (_B, _K, _N),
        lambda a, b: operators.batch_matmul(B=_B, M=_M, N=_N, K=_K),
    ),
    Row("matrix_vector", _VECTOR, lambda F, w, x: w @ x,
        lambda w, x: operators.gemv(N=4096, K=8192)),
    Row("matrix_times_scalar", (Input("a", (4096, 4096)),), lambda F, a: a * 3.14,
        lambda a: a * 3.14),
    _matmul("matmul_large_k", 128, 128, 65536),
    _matmul("matmul_small_k", 3072, 3072, 32),
    _matmul("matmul_irregular", 1025, 1481, 737),
    _matmul("matmul_tall_skinny", 5000, 5000, 16),
    _pair("tensor_3d_matmul", (8, 256, 1024), (1024, 512), lambda a, b: a @ b),
    _pair("tensor_4d_matmul", (4, 64, 64, 256), (256, 384),
          lambda a, b: tw.einsum("bijl,lk->bijk", a, b),
          lambda F, a, b: F.torch.einsum("bijl,lk->bijk", a, b)),
    _pair("matmul_diagonal", (1024,), (1024, 1024), lambda a, b: a[:, None] * b,
          lambda F, a, b: a.diag() @ b),
    Row("matmul_symmetric", tuple(Input(x, (1024, 1024), values="symmetric") for x in "ab"),
        lambda F, a, b: a @ b, lambda a, b: a @ b),
    _triangular("matmul_upper_triangular", "upper", 1024),
    _triangular("matmul_lower_triangular", "lower", 1024),
    _pair("matmul_transposed_a", (2048, 768), (2048, 1024),
          lambda a, b: operators.matmul_tn(M=768, N=1024, K=2048), lambda F, a, b: a.T @ b),
    _pair("matmul_transposed_b", (768, 2048), (1024, 2048),
          lambda a, b: operators.matmul_nt(M=768, N=1024, K=2048), lambda F, a, b: a @ b.T),
    _pair("matmul_transposed_both", (2048, 768), (1024, 2048),
          lambda a, b: a.T @ b.T, lambda F, a, b: a.T @ b.T),
)  # fmt: skip
