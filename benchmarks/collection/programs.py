"""Programs beyond contractions and rows, as their authors write them.

Running sums, masked products, gathers, reductions and normalisations along any axis, short last
axes, and functions.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
from benchmarks.collection.row import Input, Row
from tilewright import operators

_SQUARE = (Input("a", (1024, 1024)), Input("b", (1024, 1024)))
_ROWS = Input("a", (2048, 1024))
_MIDDLE = Input("a", (64, 512, 256))
_ELEMENTS = (Input("a", (2048, 2048)),)
_LAYER = (Input("x", (1024, 512)), Input("w", (512, 1024), role="weight"))
_HEADS = (1, 8, 512, 64)


def _text(expr: str, *tensors: str, **ranges: int) -> Any:
    return tw.parse(expr, tensors=list(tensors), ranges=ranges)


def _product(condition: str) -> Any:
    text = f"C[i,j] += where({condition}, A[i,k], 0.0) * B[k,j]"
    return _text(text, "A=f32[1024,1024]", "B=f32[1024,1024]")


def _band(F: Any, a: Any) -> Any:
    return F.torch.triu(F.torch.tril(a, 64), -64)


def _blocks(F: Any, a: Any, b: Any) -> Any:
    """The product of a block-diagonal matrix as a product of batches."""
    return F.torch.stack([
        block @ rows for block, rows in zip(
            (a[at:at + 128, at:at + 128] for at in range(0, 1024, 128)), b.split(128), strict=True
        )
    ]).reshape(1024, 1024)  # fmt: skip


def _softmax(x: Any, axis: int) -> Any:
    e = tw.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + tw.erf(x * 0.7071067811865476))


def _picked(scores: Any, labels: Any) -> Any:
    return -(tw.one_hot(labels, 1000, "f32") * scores).sum(1).mean()


def _in_two_blocks(a: Any) -> Any:
    return tw.cumsum(a, 1) + tw.cumsum(a.sum(1), 0, exclusive=True).reshape(1024, 1)


def _vocabulary(rows: int, columns: int, count: int) -> tuple[Input, Input]:
    index = Input("i", (count,), "i32", values="class", high=rows)
    return Input("table", (rows, columns), role="weight"), index


ROWS = (
    Row("running_sum_as_condition", (_ROWS,), lambda F, a: a.cumsum(1),
        lambda a: _text("Y[i,j] += where(k <= j, A[i,k], 0.0)", "A=f32[2048,1024]", j=1024)),
    Row("running_sum_as_product", _SQUARE[:1], lambda F, a: a.cumsum(1),
        lambda a: _text("M[k,j] = where(k <= j, 1.0, 0.0); Y[i,j] += A[i,k] * M[k,j]",
                        "A=f32[1024,1024]", k=1024, j=1024)),
    Row("integral_of_an_image", _SQUARE[:1], lambda F, a: a.cumsum(0).cumsum(1),
        lambda a: _text("Y[i,j] += where(k <= i && l <= j, A[k,l], 0.0)", "A=f32[1024,1024]",
                        i=1024, j=1024)),
    Row("running_sum_in_two_blocks", _SQUARE[:1],
        lambda F, a: a.reshape(-1).cumsum(0).reshape(a.shape), _in_two_blocks),
    Row("product_then_running_sum", _LAYER,
        lambda F, x, w: (x @ w).cumsum(1), lambda x, w: tw.cumsum(x @ w, 1)),
    Row("triangular_product", _SQUARE, lambda F, a, b: a.tril() @ b,
        lambda a, b: _product("k <= i")),
    Row("banded_product", _SQUARE, lambda F, a, b: _band(F, a) @ b,
        lambda a, b: _product("(k <= i + 64) & (i <= k + 64)")),
    Row("block_diagonal_product", _SQUARE, _blocks,
        lambda a, b: _product("i//128 == k//128")),
    Row("causal_attention", tuple(Input(x, _HEADS) for x in "qkv"),
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: operators.scaled_dot_product_attention(B=1, H=8, S=512, D=64, causal=1)),
    Row("one_hot_product", _vocabulary(5000, 128, 4096), lambda F, table, i: table[i.long()],
        lambda table, i: tw.one_hot(i, 5000, "f32") @ table),
    Row("one_hot_loss", (Input("a", (4096, 1000)),
                         Input("i", (4096,), "i32", values="class", high=1000)),
        lambda F, a, i: -a.gather(1, i.long()[:, None]).mean(), _picked),
    Row("embeddings", (*_vocabulary(50000, 128, 8192), Input("p", (8192, 128), role="weight")),
        lambda F, table, i, p: F.embedding(i, table) + p,
        lambda table, i, p: tw.take(table, i, 0) + p),
    Row("histogram", (Input("i", (1_000_000,), "i32", values="class", high=64),),
        lambda F, i: F.torch.bincount(i, minlength=64),
        lambda i: _text("H[b] += where(I[n] == b, 1, 0)", "I=i32[1000000]", b=64)),
    Row("mean_over_middle_axis", (_MIDDLE,), lambda F, a: a.mean(1), lambda a: a.mean(1)),
    Row("argmin_over_middle_axis", (_MIDDLE,), lambda F, a: a.argmin(1), lambda a: a.argmin(1)),
    Row("sum_over_second_of_four_axes", (Input("a", (1000, 50, 20, 10)),),
        lambda F, a: a.sum(1), lambda a: a.sum(1)),
    Row("diagonal_product", (Input("d", (2048,)), Input("a", (2048, 2048))),
        lambda F, d, a: d[:, None] * a, lambda d, a: d.reshape(2048, 1) * a),
    Row("softmax_over_channels_13x13", (Input("a", (64, 128, 13, 13)),),
        lambda F, a: F.softmax(a, 1), lambda a: _softmax(a, 1)),
    Row("softmax_of_ten", (Input("a", (100_000, 10)),),
        lambda F, a: F.softmax(a, 1), lambda a: _softmax(a, 1)),
    Row("colour_to_grey", (Input("a", (2048, 2048, 3)), Input("w", (3,), role="weight")),
        lambda F, a, w: a @ w, lambda a, w: a @ w),
    Row("group_norm_channels_last",
        (Input("a", (8, 56, 56, 64)), Input("g", (64,)), Input("b", (64,))),
        lambda F, a, g, b: F.group_norm(a.permute(0, 3, 1, 2), 8, g, b).permute(0, 2, 3, 1),
        lambda a, g, b: operators.group_norm_nhwc(N=8, H=56, W=56, C=64, groups=8)),
    Row("first_layer", (Input("x", (1, 3, 224, 224)), Input("w", (64, 3, 7, 7), role="weight")),
        lambda F, x, w: F.conv2d(x, w, stride=2, padding=3),
        lambda x, w: operators.conv2d_nchw(N=1, H=224, W=224, CI=3, CO=64, K=7, stride=2, pad=3)),
    Row("convolution_of_16_channels",
        (Input("x", (8, 16, 56, 56)), Input("w", (16, 16, 3, 3), role="weight")),
        lambda F, x, w: F.conv2d(x, w, padding=1),
        lambda x, w: operators.conv2d_nchw(N=8, H=56, W=56, CI=16, CO=16, K=3, pad=1)),
    Row("gelu_by_erf", _ELEMENTS, lambda F, a: F.gelu(a), _gelu),
    Row("hyperbolic_tangent", _ELEMENTS, lambda F, a: a.tanh(), tw.tanh),
    Row("soft_plus", _ELEMENTS, lambda F, a: F.softplus(a), tw.softplus),
    Row("product_gelu_softmax", _LAYER,
        lambda F, x, w: F.softmax(F.gelu(x @ w), 1), lambda x, w: _softmax(_gelu(x @ w), 1)),
)  # fmt: skip
