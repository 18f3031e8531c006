"""How a practised user asks PyTorch (CPU) for each computation of `benchmarks/suite/cases.py`.

Convolutions get channels-last tensors, weights converted beforehand. `out=` is used wherever
PyTorch takes it; where it does not, its allocator's cache gives the same memory again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from benchmarks.peers import LAYERNORM_EPS, Array, Sizes

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


def _finish(y: Tensor, steps: Sequence[str], rest: Sequence[Tensor]) -> Tensor:
    """What follows in place: `rest` are the tensors that are added."""
    added = iter(rest)
    for step in steps:
        match step:
            case "add" | "bias":
                y.add_(next(added))
            case "relu":
                y.relu_()
            case "relu6":
                y.clamp_(0, 6)
            case _:
                raise ValueError(f"no PyTorch spelling of the epilogue {step!r}")
    return y


def _matmul(x: Sequence[Tensor], y: Tensor, _: Sizes, steps: Sequence[str]) -> Call:
    a, b, *rest = x
    if steps[:1] == ["bias"]:
        bias, *rest = rest
        return lambda: _finish(torch.addmm(bias, a, b, out=y), steps[1:], rest)
    if steps:
        return lambda: _finish(torch.mm(a, b, out=y), steps, rest)
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


def _convolve(
    data: Tensor, weight: Tensor, groups: int, sizes: Sizes, steps: Sequence[str],
    rest: Sequence[Tensor],
) -> Call:  # fmt: skip
    """`data` NHWC, `weight` as conv2d takes it."""
    image = data.permute(0, 3, 1, 2)
    kernel = weight.contiguous(memory_format=torch.channels_last)
    bias = rest[0] if steps[:1] == ["bias"] else None
    after = steps[1:] if bias is not None else steps
    added = [r.permute(0, 3, 1, 2) for r in rest[0 if bias is None else 1 :]]
    stride, pad = sizes.get("stride", 1), sizes.get("pad", 0)
    dilation = sizes.get("dilation", 1)

    def convolve() -> Tensor:
        result = nnf.conv2d(image, kernel, bias, stride, pad, dilation, groups)
        return _finish(result, after, added).permute(0, 2, 3, 1)

    return convolve


def _conv2d(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    groups = sizes.get("groups", 1)
    return _convolve(x[0], x[1].permute(3, 2, 0, 1), groups, sizes, steps, x[2:])


def _depthwise(x: Sequence[Tensor], y: Tensor, sizes: Sizes, steps: Sequence[str]) -> Call:
    weight = x[1].permute(2, 0, 1).unsqueeze(1)
    return _convolve(x[0], weight, x[0].shape[3], sizes, steps, x[2:])


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
    "batch_matmul": _batch_matmul, "conv2d": _conv2d, "depthwise": _depthwise,
    "softmax": _softmax, "layernorm": _layernorm, "norm": _norm, "add_relu": _add_relu,
    "scaled_product": _scaled_product, "row_dot": _row_dot, "three_way": _three_way,
    "tensor_product": _tensor_product, "max_plus": _max_plus, "l1_distance": _l1_distance,
    "stencil": _stencil, "logsumexp": _logsumexp, "cost_volume": _cost_volume, "gated": _gated,
}  # fmt: skip
