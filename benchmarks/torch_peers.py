"""How a practised user asks PyTorch (CPU) for each computation of `benchmarks/suite/cases.py`.

`out=` is used wherever PyTorch takes it. Convolutions are in `torch_window_peers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from benchmarks import torch_window_peers
from benchmarks.peer_types import LAYERNORM_EPS, Array, Sizes, fastest
from benchmarks.torch_window_peers import finish

Call = Callable[[], Tensor]
"""Gives the result, in the layout of the workload (perhaps as a view)."""


def torch_peer(
    peer: str, epilogue: str, inputs: Sequence[Array], output: Array, sizes: Sizes, threads: int
) -> tuple[Call, Callable[[], Array]]:
    """A call, and what gives the last call's result as an array of the output's shape."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    x = [torch.from_numpy(a) for a in inputs]
    y = torch.from_numpy(output)
    steps = epilogue.split("+") if epilogue else []
    call = _WAYS[peer](x, y, sizes, steps)
    held = [call()]

    def again() -> Tensor:
        held[0] = call()
        return held[0]

    return again, lambda: held[0].numpy().reshape(output.shape)


Way = Callable[[Sequence[Tensor], Tensor, Sizes, Sequence[str]], Call]


def _matmul(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, b, *rest = x
    if steps[:1] == ["bias"]:
        bias, *rest = rest
        return lambda: finish(torch.addmm(bias, a, b, out=y), steps[1:], rest)
    if steps:
        return lambda: finish(torch.mm(a, b, out=y), steps, rest)
    return partial(torch.mm, a, b, out=y)


def _matmul_nt(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.mm, x[0], x[1].t(), out=y)


def _matmul_tn(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.mm, x[0].t(), x[1], out=y)


def _gemv(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    if steps:
        return partial(torch.addmv, x[2], x[0], x[1], out=y)
    return partial(torch.mv, x[0], x[1], out=y)


def _batch_matmul(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.bmm, x[0], x[1], out=y)


def _batch_matmul_nt(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.bmm, x[0], x[1].mT, out=y)


def _attention(left: Tensor, right: Tensor, y: Tensor) -> Call:
    """Products over (batch, heads) of views: copied by the library, or one bmm for each batch."""

    def each() -> Tensor:
        for a, b, out in zip(left, right, y, strict=True):
            torch.bmm(a, b, out=out)
        return y

    def whole() -> Tensor:
        return y.copy_(torch.matmul(left, right))

    return fastest(each, partial(torch.matmul, left, right, out=y) if y.is_contiguous() else whole)


def _scores(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return _attention(x[0].permute(0, 2, 1, 3), x[1].permute(0, 2, 3, 1), y)


def _scores_softmax(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    scores = torch.empty_like(y)
    multiply = _scores(x, scores, sizes, steps)
    return lambda: torch.softmax(multiply(), -1, out=y)


def _attention_values(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    multiply = _attention(x[0], x[1].permute(0, 2, 1, 3), y.permute(0, 2, 1, 3))

    def call() -> Tensor:
        multiply()
        return y

    return call


def _colsum(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    (a,) = x
    ones = torch.ones(a.shape[0], dtype=a.dtype)
    return fastest(partial(torch.sum, a, dim=0, out=y), partial(torch.mv, a.t(), ones, out=y))


def _global_avg_pool(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.mean, x[0], dim=(1, 2), out=y)


def _transpose(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(y.copy_, x[0].t())


def _softmax(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.softmax, x[0], 1, out=y)


def _layernorm(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, gamma, beta = x
    return partial(nnf.layer_norm, a, (a.shape[1],), gamma, beta, LAYERNORM_EPS)


def _norm(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.linalg.vector_norm, x[0], dim=(1, 2), out=y)


def _add_relu(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, b = x
    return lambda: torch.add(a, b, out=y).relu_()


def _scaled_product(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, scale, b = x
    scaled = torch.empty_like(a)
    return lambda: torch.mm(torch.mul(a, scale, out=scaled), b, out=y)


def _row_dot(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.linalg.vecdot, x[0], x[1], out=y)


def _three_way(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    tensor, b, c = x
    return lambda: torch.sum(torch.matmul(tensor, c).mul_(b), dim=1, out=y)


def _tensor_product(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, b = x

    def contract() -> Tensor:
        return y.copy_(torch.tensordot(a, b, ([0, 2], [2, 0])).permute(1, 0, 2))

    return contract


def _max_plus(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, b = x
    sums = torch.empty_like(y)

    def multiply() -> Tensor:
        torch.add(a[:, :1], b[:1], out=y)
        for k in range(1, a.shape[1]):
            torch.maximum(y, torch.add(a[:, k : k + 1], b[k : k + 1], out=sums), out=y)
        return y

    return multiply


def _l1_distance(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.cdist, x[0], x[1], p=1.0)


def _stencil(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    image = x[0][None, None]
    weight = torch.tensor([[0, 0.125, 0], [0.125, 0.5, 0.125], [0, 0.125, 0]], dtype=y.dtype)
    kernel = weight[None, None]
    return lambda: nnf.conv2d(image, kernel, padding=1)[0, 0]


def _logsumexp(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    return partial(torch.logsumexp, x[0], dim=1, out=y)


def _cost_volume(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    """Each pixel's windows of G as a matrix, by strides alone, times its vector of F."""
    f, g = x
    h, w, c = f.shape
    row, column, one = g.stride()
    windows: Any = g.as_strided((h, w, y.shape[2], c), (row, column, column, one))
    return lambda: torch.matmul(windows, f[..., None])[..., 0]


def _gated(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, b = x
    return lambda: torch.sigmoid(b, out=y).mul_(a)


_WAYS: dict[str, Way] = {
    "matmul": _matmul, "matmul_nt": _matmul_nt, "matmul_tn": _matmul_tn, "gemv": _gemv,
    "batch_matmul": _batch_matmul, "batch_matmul_nt": _batch_matmul_nt,
    "transpose_batch_matmul": _scores, "transpose_batch_matmul_softmax": _scores_softmax,
    "attention_values": _attention_values,
    "conv1d_nlc": torch_window_peers.convolution, "conv2d_nhwc": torch_window_peers.convolution,
    "conv3d_ndhwc": torch_window_peers.convolution,
    "conv2d_nhwc_bn_relu": torch_window_peers.conv_bn_relu,
    "conv2d_capsule_nhwijc": torch_window_peers.capsules,
    "conv2d_transpose_nhwc": torch_window_peers.transposed,
    "depthwise_conv2d_nhwc": torch_window_peers.depthwise,
    "max_pool2d_nhwc": torch_window_peers.max_pool,
    "global_avg_pool_nhwc": _global_avg_pool, "softmax_mn": _softmax, "layernorm_mn": _layernorm,
    "norm_bmn": _norm, "colsum_mn": _colsum, "elementwise_add_relu": _add_relu,
    "transpose_mn": _transpose,
    "scaled_product": _scaled_product, "row_dot": _row_dot, "three_way": _three_way,
    "tensor_product": _tensor_product, "max_plus": _max_plus, "l1_distance": _l1_distance,
    "stencil": _stencil, "logsumexp": _logsumexp, "cost_volume": _cost_volume, "gated": _gated,
}  # fmt: skip
