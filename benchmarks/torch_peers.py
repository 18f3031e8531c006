"""How a practised user asks PyTorch (CPU) for each computation of `benchmarks/suite/cases.py`.

Every computation comes as several ways, of which `tuner.bench.ways` takes the fastest. `out=` is
used wherever PyTorch takes it. Products and convolutions are spelled by `tuner.measure`, as for
`tilewright bench`; those with windows are in `torch_window_peers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from benchmarks import torch_window_peers
from benchmarks.peer_types import LAYERNORM_EPS, Array, Sizes
from benchmarks.torch_window_peers import Request, epilogue_of
from tuner.bench.torch_products import product_ways
from tuner.bench.ways import Way

Call = Callable[[], Tensor]
"""Gives the result, in the layout of the workload (perhaps as a view)."""


def torch_ways(
    peer: str,
    epilogue: str,
    inputs: Sequence[Array],
    output: Array,
    sizes: Sizes,
    threads: int,
    *,
    constant: bool = False,
) -> list[Way]:
    """Ways of filling or giving the result; `constant`: the weights never change."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    x = [torch.from_numpy(a) for a in inputs]
    steps = tuple(epilogue.split("+")) if epilogue else ()
    request = Request(x, torch.from_numpy(output), sizes, steps, constant)
    found = _WAYS[peer](request)
    return found if isinstance(found, list) else [Way("torch", lambda: found)]


Ways = Callable[[Request], list[Way] | Call]
"""Several ways, or the one there is."""


def way(name: str, call: Call) -> Way:
    return Way(name, lambda: call)


def _matmul(r: Request) -> list[Way]:
    a, b, *rest = r.x
    return product_ways(a, b, r.y, epilogue_of(r.steps, rest), constant=r.constant)


def _matmul_nt(r: Request) -> list[Way]:
    a, b, *rest = r.x
    return product_ways(a, b.t(), r.y, epilogue_of(r.steps, rest), constant=r.constant)


def _matmul_tn(r: Request) -> list[Way]:
    return product_ways(r.x[0].t(), r.x[1], r.y, constant=r.constant)


def _gemv(r: Request) -> list[Way]:
    """y[n] += W[n, k] * x[k]: the weights first, as a product of one column, or of one row."""
    weight, vector, *rest = r.x
    (bias,) = rest or (None,)
    row = epilogue_of(r.steps, rest)
    flat = r.y[None, :]
    ways = product_ways(vector[None, :], weight.t(), flat, row, constant=r.constant)
    if bias is None:
        return [way("torch.mv plain", partial(torch.mv, weight, vector, out=r.y)), *ways]
    plain = partial(torch.addmv, bias, weight, vector, out=r.y)
    return [way("torch.addmv", plain), *ways]


def _batch_matmul(r: Request) -> list[Way]:
    return product_ways(r.x[0], r.x[1], r.y)


def _batch_matmul_nt(r: Request) -> list[Way]:
    return product_ways(r.x[0], r.x[1].mT, r.y)


def _attention(left: Tensor, right: Tensor, y: Tensor, after: Callable[[], Tensor]) -> list[Way]:
    """Products over (batch, heads) of views: copied by the library, or one bmm for each batch."""

    def each() -> Tensor:
        for a, b, out in zip(left, right, y, strict=True):
            torch.bmm(a, b, out=out)
        return after()

    def whole() -> Tensor:
        if y.is_contiguous():
            torch.matmul(left, right, out=y)
        else:
            y.copy_(torch.matmul(left, right))
        return after()

    pairs = [
        (a, b.t(), out)
        for lefts, rights, outs in zip(left, right, y, strict=True)
        for a, b, out in zip(lefts, rights, outs, strict=True)
    ]

    def by_onednn() -> Tensor:
        linear = torch.ops.mkldnn._linear_pointwise.default
        for a, b, out in pairs:
            out.copy_(linear(a, b, None, "none", [], ""))
        return after()

    return [
        way("torch.bmm for each", each),
        way("torch.matmul", whole),
        way("oneDNN linear for each", by_onednn),
    ]


def _scores(r: Request) -> list[Way]:
    q, k = r.x
    return _attention(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1), r.y, lambda: r.y)


def _scores_softmax(r: Request) -> list[Way]:
    q, k = r.x
    scores = torch.empty_like(r.y)
    softmax = partial(torch.softmax, scores, -1, out=r.y)
    return _attention(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1), scores, softmax)


def _attention_values(r: Request) -> list[Way]:
    p, v = r.x
    return _attention(p, v.permute(0, 2, 1, 3), r.y.permute(0, 2, 1, 3), lambda: r.y)


def _colsum(r: Request) -> list[Way]:
    (a,) = r.x
    ones = torch.ones(a.shape[0], dtype=a.dtype)
    return [
        way("torch.sum", partial(torch.sum, a, dim=0, out=r.y)),
        way("torch.mv with ones", partial(torch.mv, a.t(), ones, out=r.y)),
    ]


def _global_avg_pool(r: Request) -> list[Way]:
    (a,) = r.x
    image = a.permute(0, 3, 1, 2)
    return [
        way("torch.mean", partial(torch.mean, a, dim=(1, 2), out=r.y)),
        way("adaptive_avg_pool2d", lambda: nnf.adaptive_avg_pool2d(image, 1).flatten(1)),
    ]


def _transpose(r: Request) -> list[Way]:
    turned = r.x[0].t()
    return [
        way("copy_", partial(r.y.copy_, turned)),
        way("contiguous", turned.contiguous),
    ]


def _softmax(r: Request) -> list[Way]:
    (a,) = r.x
    return [
        way("torch.softmax", partial(torch.softmax, a, 1, out=r.y)),
        way("softmax without out", partial(nnf.softmax, a, 1)),
    ]


def _layernorm(r: Request) -> list[Way]:
    a, gamma, beta = r.x
    width = (a.shape[1],)

    def native() -> Tensor:
        return torch.native_layer_norm(a, width, gamma, beta, LAYERNORM_EPS)[0]

    return [
        way("layer_norm", partial(nnf.layer_norm, a, width, gamma, beta, LAYERNORM_EPS)),
        way("native_layer_norm", native),
    ]


def _norm(r: Request) -> list[Way]:
    (a,) = r.x
    flat = a.flatten(1)
    return [
        way("vector_norm", partial(torch.linalg.vector_norm, a, dim=(1, 2), out=r.y)),
        way("vecdot", lambda: torch.linalg.vecdot(flat, flat, out=r.y).sqrt_()),
        way("bmm", lambda: torch.bmm(flat[:, None], flat[:, :, None]).flatten().sqrt_()),
    ]


def _add_relu(r: Request) -> list[Way]:
    a, b = r.x
    return [
        way("add, relu_", lambda: torch.add(a, b, out=r.y).relu_()),
        way("add, clamp_", lambda: torch.add(a, b, out=r.y).clamp_(min=0)),
    ]


def _scaled_product(r: Request) -> list[Way]:
    """Whichever way the product is asked for, the scaled operand comes before it."""
    a, scale, b = r.x
    scaled = torch.empty_like(a)

    def after_scaling(product: Way) -> Way:
        def prepare() -> Call:
            multiply = product.prepare()

            def call() -> Tensor:
                torch.mul(a, scale, out=scaled)
                found: Tensor = multiply()
                return found

            return call

        return Way(f"mul, {product.name}", prepare)

    return [after_scaling(each) for each in product_ways(scaled, b, r.y)]


def _row_dot(r: Request) -> list[Way]:
    a, b = r.x
    return [
        way("vecdot", partial(torch.linalg.vecdot, a, b, out=r.y)),
        way("bmm", lambda: torch.bmm(a[:, None], b[:, :, None]).flatten()),
        way("einsum", lambda: torch.einsum("ik,ik->i", a, b)),
    ]


def _three_way(r: Request) -> list[Way]:
    tensor, b, c = r.x
    return [
        way("matmul, mul_, sum", lambda: torch.sum(
            torch.matmul(tensor, c).mul_(b), dim=1, out=r.y
        )),
        way("einsum", lambda: torch.einsum("ijk,jr,kr->ir", tensor, b, c)),
    ]  # fmt: skip


def _tensor_product(r: Request) -> list[Way]:
    a, b = r.x

    def contract() -> Tensor:
        return r.y.copy_(torch.tensordot(a, b, ([0, 2], [2, 0])).permute(1, 0, 2))

    def einsum() -> Tensor:
        return r.y.copy_(torch.einsum("kim,mjkl->jil", a, b))

    return [way("tensordot", contract), way("einsum", einsum)]


def _max_plus(r: Request) -> Call:
    (a, b), y = r.x, r.y
    sums = torch.empty_like(y)

    def multiply() -> Tensor:
        torch.add(a[:, :1], b[:1], out=y)
        for k in range(1, a.shape[1]):
            torch.maximum(y, torch.add(a[:, k : k + 1], b[k : k + 1], out=sums), out=y)
        return y

    return multiply


def _l1_distance(r: Request) -> Call:
    return partial(torch.cdist, r.x[0], r.x[1], p=1.0)


def _stencil(r: Request) -> Call:
    image = r.x[0][None, None]
    weight = torch.tensor([[0, 0.125, 0], [0.125, 0.5, 0.125], [0, 0.125, 0]], dtype=r.y.dtype)
    kernel = weight[None, None]
    return lambda: nnf.conv2d(image, kernel, padding=1)[0, 0]


def _logsumexp(r: Request) -> Call:
    return partial(torch.logsumexp, r.x[0], dim=1, out=r.y)


def _cost_volume(r: Request) -> Call:
    """Each pixel's windows of G as a matrix, by strides alone, times its vector of F."""
    f, g = r.x
    h, w, c = f.shape
    row, column, one = g.stride()
    windows: Any = g.as_strided((h, w, r.y.shape[2], c), (row, column, column, one))
    return lambda: torch.matmul(windows, f[..., None])[..., 0]


def _gated(r: Request) -> Call:
    (a, b), y = r.x, r.y
    return lambda: torch.sigmoid(b, out=y).mul_(a)


_WAYS: dict[str, Ways] = {
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
