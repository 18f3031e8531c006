"""Activation functions, and operations along rows: softmax, norms of rows, scans, reductions."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import tilewright as tw
from benchmarks.collection.row import Input, Row
from tilewright import operators

_M, _N = 2048, 8192
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
_MIDDLE = (16, 1024, 1023)
"""The shape of arrays that are reduced along the middle axis."""


def _each(name: str, torch: Any, ours: Any, shape: tuple[int, ...] = (_M, _N)) -> Row:
    return Row(name, (Input("x", shape),), torch, ours)


def _new_gelu(F: Any, x: Any) -> Any:
    return 0.5 * x * (1 + F.tanh(sqrt(2 / pi) * (x + 0.044715 * x.pow(3))))


ACTIVATIONS = (
    _each("relu", lambda F, x: F.relu(x), tw.relu),
    _each("leaky_relu", lambda F, x: F.leaky_relu(x, 0.01),
          lambda x: tw.where(x > 0, x, 0.01 * x)),
    _each("sigmoid", lambda F, x: x.sigmoid(), tw.sigmoid),
    _each("tanh", lambda F, x: x.tanh(), tw.tanh),
    _each("softmax", lambda F, x: F.softmax(x, 1), lambda x: operators.softmax_mn(M=_M, N=_N)),
    _each("log_softmax", lambda F, x: F.log_softmax(x, 1),
          lambda x: operators.log_softmax_mn(M=_M, N=_N)),
    _each("swish", lambda F, x: x * x.sigmoid(), lambda x: x * tw.sigmoid(x)),
    _each("gelu", lambda F, x: F.gelu(x), lambda x: 0.5 * x * (1 + tw.erf(x * sqrt(0.5)))),
    _each("selu", lambda F, x: F.selu(x),
          lambda x: _SELU_SCALE * tw.where(x > 0, x, _SELU_ALPHA * tw.expm1(x))),
    _each("hardsigmoid", lambda F, x: F.hardsigmoid(x),
          lambda x: tw.minimum(tw.maximum(x + 3, 0), 6) / 6),
    _each("softplus", lambda F, x: F.softplus(x),
          lambda x: tw.where(x > 20, x, tw.log1p(tw.exp(x)))),
    _each("softsign", lambda F, x: F.softsign(x), lambda x: x / (1 + abs(x))),
    _each("elu", lambda F, x: F.elu(x), lambda x: tw.where(x > 0, x, tw.expm1(x))),
    _each("hardtanh", lambda F, x: F.hardtanh(x),
          lambda x: tw.maximum(tw.minimum(x, 1), -1)),
    _each("new_gelu", _new_gelu,
          lambda x: 0.5 * x * (1 + tw.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))),
)  # fmt: skip


def _exclusive(F: Any, x: Any) -> Any:
    return F.torch.cat((F.torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)


_MASKED = (Input("x", (4096, 4096)), Input("mask", (4096, 4096), "u8", values="mask"))

SCANS = (
    _each("cumsum", lambda F, x: x.cumsum(1), lambda x: x.cumsum(1), (4096, 4096)),
    Row("cumprod", (Input("x", (4096, 4096), values="uniform", low=0.99, high=1.01),),
        lambda F, x: x.cumprod(1), lambda x: x.cumprod(1)),
    _each("cumsum_reverse", lambda F, x: x.flip(1).cumsum(1).flip(1),
          lambda x: x.cumsum(1, reverse=True), (4096, 4096)),
    _each("cumsum_exclusive", _exclusive, lambda x: x.cumsum(1, exclusive=True), (4096, 4096)),
    Row("masked_cumsum", _MASKED, lambda F, x, mask: (x * mask).cumsum(1),
        lambda x, mask: tw.where(mask > 0, x, 0).cumsum(1)),
)  # fmt: skip

REDUCTIONS = (
    _each("sum_middle", lambda F, x: x.sum(1, keepdim=True),
          lambda x: x.sum(1, keepdims=True), _MIDDLE),
    _each("mean_middle", lambda F, x: x.mean(1), lambda x: x.mean(1), _MIDDLE),
    _each("max_middle", lambda F, x: x.amax(1), lambda x: x.max(1), _MIDDLE),
    _each("min_middle", lambda F, x: x.amin(1), lambda x: x.min(1), _MIDDLE),
    _each("argmax_middle", lambda F, x: x.argmax(1), lambda x: x.argmax(1), _MIDDLE),
    _each("argmin_middle", lambda F, x: x.argmin(1), lambda x: x.argmin(1), _MIDDLE),
)  # fmt: skip

ROWS = (*ACTIVATIONS, *SCANS, *REDUCTIONS)
