"""Activation functions of arrays, with the names that they have in torch.nn.functional."""

from __future__ import annotations

from typing import Any

import tilewright as tw


def clamp(x: Any, low: float, high: float) -> Any:
    return tw.minimum(tw.maximum(x, low), high)


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    return tw.where(x > 0, x, slope * x)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + tw.erf(x * 0.5**0.5))


def swish(x: Any) -> Any:
    return x * tw.sigmoid(x)


def hardswish(x: Any) -> Any:
    return x * clamp(x + 3, 0, 6) / 6


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), which is x itself above 20."""
    return tw.where(x > 20, x, tw.log1p(tw.exp(tw.minimum(x, 20))))


def mish(x: Any) -> Any:
    return x * tw.tanh(softplus(x))


def softmax(x: Any, axis: int) -> Any:
    e = tw.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def logsumexp(x: Any, axis: int) -> Any:
    """Return log(sum(exp(x))) over `axis`, which remains with the extent 1."""
    most = x.max(axis, keepdims=True)
    return most + tw.log(tw.exp(x - most).sum(axis, keepdims=True))
