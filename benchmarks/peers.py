"""How a practised user asks NumPy for each computation of `benchmarks/suite/cases.py`.

Outputs and temporaries are allocated and written once beforehand; a call is only NumPy's work.
Functions take any float type: in float64 they are what every side's result is compared with.
PyTorch's ways are in `torch_peers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import pi, sqrt

import numpy as np

from benchmarks import window_peers
from benchmarks.peer_types import LAYERNORM_EPS, Array, Call, Sizes
from tilewright.peers.variants import PeerVariant


def numpy_peer(
    peer: str, epilogue: str, inputs: Sequence[Array], output: Array, sizes: Sizes
) -> Call:
    """A call that fills `output` from `inputs`; both are in the order of the workload."""
    return _with_epilogue(_WAYS[peer], epilogue, inputs, output, sizes)


def numpy_variants(
    peer: str,
    epilogue: str,
    inputs: Sequence[Array],
    output: Array,
    sizes: Sizes,
    *,
    constant: bool = False,
) -> list[PeerVariant]:
    """Every way of filling `output`; `constant`: the weights (the second input) never change."""
    found = {_plain_name(peer): _WAYS[peer], **_MORE_WAYS.get(peer, {})}
    if constant:
        found |= _CONSTANT_WAYS.get(peer, {})

    def prepared(plan: Plan) -> Callable[[], Call]:
        return lambda: _with_epilogue(plan, epilogue, inputs, output, sizes)

    return [PeerVariant(name, prepared(plan)) for name, plan in found.items()]


def _plain_name(peer: str) -> str:
    """What the first way of a computation is made of."""
    if "matmul" in peer or peer in ("gemv", "attention_values"):
        return "np.matmul"
    return "columns and np.matmul" if _WAYS[peer] is window_peers.convolution else "ufuncs"


Plan = Callable[[Sequence[Array], Array, Sizes], Call]


def _with_epilogue(
    plan: Plan, epilogue: str, inputs: Sequence[Array], output: Array, sizes: Sizes
) -> Call:
    extra = {"bias": 1, "add": 1}
    steps = epilogue.split("+") if epilogue else []
    count = sum(extra.get(step, 0) for step in steps)
    operands = list(inputs[: len(inputs) - count])
    rest = list(inputs[len(inputs) - count :])
    main = plan(operands, output, sizes)
    calls: list[Call] = [main]
    for step in steps:
        match step:
            case "bias" | "add":
                calls.append(partial(np.add, output, rest.pop(0), out=output))
            case "relu":
                calls.append(partial(np.maximum, output, 0, out=output))
            case "relu6":
                calls.append(partial(np.clip, output, 0, 6, out=output))
            case "gelu":
                calls.append(_gelu(output))
            case _:
                raise ValueError(f"no NumPy spelling of the epilogue {step!r}")
    return main if len(calls) == 1 else partial(_all, calls)


def _all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _matmul(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.matmul, x[0], x[1], out=y)


def _matmul_nt(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.matmul, x[0], x[1].T, out=y)


def _matmul_tn(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.matmul, x[0].T, x[1], out=y)


def _gelu(y: Array) -> Call:
    """In place, the tanh form: 0.5 y (1 + tanh(sqrt(2/pi) (y + 0.044715 y^3)))."""
    inner = np.empty_like(y)

    def gelu() -> None:
        np.multiply(y, y, out=inner)
        np.multiply(inner, y, out=inner)
        np.multiply(inner, 0.044715, out=inner)
        np.add(inner, y, out=inner)
        np.multiply(inner, sqrt(2 / pi), out=inner)
        np.tanh(inner, out=inner)
        np.add(inner, 1, out=inner)
        np.multiply(inner, 0.5, out=inner)
        np.multiply(y, inner, out=y)

    return gelu


def _batch_matmul_nt(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.matmul, x[0], x[1].transpose(0, 2, 1), out=y)


def _scores(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    q, v = x
    return partial(np.matmul, q.transpose(0, 2, 1, 3), v.transpose(0, 2, 3, 1), out=y)


def _scores_softmax(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    return partial(_all, [_scores(x, y, sizes), _softmax([y], y, sizes)])


def _attention_values(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    p, v = x
    return partial(np.matmul, p, v.transpose(0, 2, 1, 3), out=y.transpose(0, 2, 1, 3))


def _conv_bn_relu(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    *operands, bias, scale, offset = x
    convolve = window_peers.convolution(operands, y, sizes)

    def normalise() -> None:
        np.add(y, bias, out=y)
        np.multiply(y, scale, out=y)
        np.add(y, offset, out=y)
        np.maximum(y, 0, out=y)

    return partial(_all, [convolve, normalise])


def _colsum(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.sum, x[0], axis=0, out=y)


def _colsum_as_product(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.matmul, np.ones(x[0].shape[0], y.dtype), x[0], out=y)


def _global_avg_pool(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.mean, x[0], axis=(1, 2), out=y)


def _transpose(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.copyto, y, x[0].T)


def _softmax(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    """Along the last axis; `y` may be the input itself."""
    (a,) = x
    top, total = (np.empty((*a.shape[:-1], 1), a.dtype) for _ in range(2))

    def softmax() -> None:
        np.max(a, axis=-1, keepdims=True, out=top)
        np.subtract(a, top, out=y)
        np.exp(y, out=y)
        np.sum(y, axis=-1, keepdims=True, out=total)
        np.divide(y, total, out=y)

    return softmax


def _layernorm(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    a, gamma, beta = x
    mean = np.empty((a.shape[0], 1), a.dtype)
    square = np.empty(a.shape[0], a.dtype)

    def normalise() -> None:
        np.mean(a, axis=1, keepdims=True, out=mean)
        np.subtract(a, mean, out=y)
        np.vecdot(y, y, out=square)
        np.divide(square, a.shape[1], out=square)
        np.add(square, LAYERNORM_EPS, out=square)
        np.sqrt(square, out=square)
        np.divide(y, square[:, None], out=y)
        np.multiply(y, gamma, out=y)
        np.add(y, beta, out=y)

    return normalise


def _norm(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    flat = x[0].reshape(x[0].shape[0], -1)

    def norm() -> None:
        np.vecdot(flat, flat, out=y)
        np.sqrt(y, out=y)

    return norm


def _add_relu(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    a, b = x

    def add() -> None:
        np.add(a, b, out=y)
        np.maximum(y, 0, out=y)

    return add


def _scaled_product(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    a, scale, b = x
    scaled = np.empty_like(a)

    def multiply() -> None:
        np.multiply(a, scale, out=scaled)
        np.matmul(scaled, b, out=y)

    return multiply


def _row_dot(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.vecdot, x[0], x[1], out=y)


def _three_way(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    """Contract the largest tensor first: fewer operations than the expression has."""
    tensor, b, c = x
    i, j, k = tensor.shape
    inner = np.empty((i * j, c.shape[1]), tensor.dtype)
    folded, flat = inner.reshape(i, j, -1), tensor.reshape(i * j, k)

    def contract() -> None:
        np.matmul(flat, c, out=inner)
        np.multiply(folded, b, out=folded)
        np.sum(folded, axis=1, out=y)

    return contract


def _tensor_product(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    """Transposed copies, one product, one transposed copy back."""
    a, b = x
    k, i, m = a.shape
    _, j, _, n = b.shape
    left = np.empty((i, k, m), a.dtype)
    right = np.empty((k, m, j, n), a.dtype)
    product = np.empty((i, j, n), a.dtype)
    flat = (left.reshape(i, -1), right.reshape(k * m, -1), product.reshape(i, -1))

    def contract() -> None:
        np.copyto(left, a.transpose(1, 0, 2))
        np.copyto(right, b.transpose(2, 0, 1, 3))
        np.matmul(flat[0], flat[1], out=flat[2])
        np.copyto(y, product.transpose(1, 0, 2))

    return contract


def _max_plus(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    """One outer sum for each k: a cube of all sums would leave the caches."""
    a, b = x
    sums = np.empty_like(y)

    def multiply() -> None:
        np.add(a[:, :1], b[:1], out=y)
        for k in range(1, a.shape[1]):
            np.add(a[:, k : k + 1], b[k : k + 1], out=sums)
            np.maximum(y, sums, out=y)

    return multiply


def _l1_distance(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    a, b = x
    apart = np.empty(b.shape, b.dtype)

    def distances() -> None:
        for i in range(a.shape[0]):
            np.subtract(b, a[i], out=apart)
            np.abs(apart, out=apart)
            np.sum(apart, axis=1, out=y[i])

    return distances


def _stencil(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    (a,) = x
    neighbours = np.empty_like(a)

    def step() -> None:
        neighbours.fill(0)
        neighbours[1:] += a[:-1]
        neighbours[:-1] += a[1:]
        neighbours[:, 1:] += a[:, :-1]
        neighbours[:, :-1] += a[:, 1:]
        np.multiply(neighbours, 0.125, out=neighbours)
        np.multiply(a, 0.5, out=y)
        np.add(y, neighbours, out=y)

    return step


def _logsumexp(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    (a,) = x
    top, each = np.empty((a.shape[0], 1), a.dtype), np.empty_like(a)

    def reduce() -> None:
        np.max(a, axis=1, keepdims=True, out=top)
        np.subtract(a, top, out=each)
        np.exp(each, out=each)
        np.sum(each, axis=1, out=y)
        np.log(y, out=y)
        np.add(y, top[:, 0], out=y)

    return reduce


def _cost_volume(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    f, g = x
    width, shifts = f.shape[1], y.shape[2]

    def match() -> None:
        for d in range(shifts):
            np.vecdot(f, g[:, d : d + width], out=y[:, :, d])

    return match


def _gated(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    a, b = x

    def gate() -> None:
        np.negative(b, out=y)
        np.exp(y, out=y)
        np.add(y, 1, out=y)
        np.divide(a, y, out=y)

    return gate


def _dot(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(np.dot, x[0], x[1], out=y)


def _exchanged(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    """The transposed product, into a view of the output."""
    return partial(np.matmul, x[1].T, x[0].T, out=y.T)


def _turned_weights(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    return _matmul([x[0], np.asfortranarray(x[1])], y, sizes)


def _turned_weights_nt(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    return _matmul([x[0], np.ascontiguousarray(x[1].T)], y, sizes)


def _each_dot(x: Sequence[Array], y: Array, _: Sizes) -> Call:
    return partial(_all, [partial(np.dot, a, b, out=c) for a, b, c in zip(*x, y, strict=True)])


def _einsum(subscripts: str) -> Plan:
    """By its subscripts, in the order NumPy finds best."""

    def plan(x: Sequence[Array], y: Array, _: Sizes) -> Call:
        order = np.einsum_path(subscripts, *x, optimize="optimal")[0]
        return partial(np.einsum, subscripts, *x, out=y, optimize=order)

    return plan


_MORE_WAYS: dict[str, dict[str, Plan]] = {
    "matmul": {"np.dot": _dot, "operands exchanged": _exchanged},
    "gemv": {"np.dot": _dot},
    "batch_matmul": {"np.dot for each": _each_dot},
    "colsum_mn": {"product with ones": _colsum_as_product},
    "scaled_product": {"einsum": _einsum("ik,k,kj->ij")},
    "row_dot": {"einsum": _einsum("ik,ik->i")},
    "three_way": {"einsum": _einsum("ijk,jr,kr->ir")},
    "tensor_product": {"einsum": _einsum("kim,mjkl->jil")},
    "norm_bmn": {"einsum": lambda x, y, _: _root_of(_einsum("bmn,bmn->b")([*x, *x], y, _), y)},
}
"""What else a practised user would try."""

_CONSTANT_WAYS: dict[str, dict[str, Plan]] = {
    "matmul": {"weights turned": _turned_weights},
    "matmul_nt": {"weights turned": _turned_weights_nt},
}


def _root_of(call: Call, y: Array) -> Call:
    return partial(_all, [call, partial(np.sqrt, y, out=y)])


_WAYS: dict[str, Plan] = {
    "matmul": _matmul, "matmul_nt": _matmul_nt, "matmul_tn": _matmul_tn, "gemv": _matmul,
    "batch_matmul": _matmul, "batch_matmul_nt": _batch_matmul_nt,
    "transpose_batch_matmul": _scores, "transpose_batch_matmul_softmax": _scores_softmax,
    "attention_values": _attention_values,
    "conv1d_nlc": window_peers.convolution, "conv2d_nhwc": window_peers.convolution,
    "conv3d_ndhwc": window_peers.convolution, "conv2d_nhwc_bn_relu": _conv_bn_relu,
    "conv2d_capsule_nhwijc": window_peers.capsules,
    "conv2d_transpose_nhwc": window_peers.transposed,
    "depthwise_conv2d_nhwc": window_peers.depthwise, "max_pool2d_nhwc": window_peers.max_pool,
    "global_avg_pool_nhwc": _global_avg_pool, "softmax_mn": _softmax, "layernorm_mn": _layernorm,
    "norm_bmn": _norm, "colsum_mn": _colsum, "elementwise_add_relu": _add_relu,
    "transpose_mn": _transpose,
    "scaled_product": _scaled_product, "row_dot": _row_dot, "three_way": _three_way,
    "tensor_product": _tensor_product, "max_plus": _max_plus, "l1_distance": _l1_distance,
    "stencil": _stencil, "logsumexp": _logsumexp, "cost_volume": _cost_volume, "gated": _gated,
}  # fmt: skip
"""By operator of the library, or by what an expression computes."""
