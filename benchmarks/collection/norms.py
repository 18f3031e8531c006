"""Normalisations of channels-first arrays [N, C, ...], with 1e-5 added to the variance."""

from __future__ import annotations

from typing import Any

import tilewright as tw

EPS = 1e-5


def along_channels(vector: Any, x: Any) -> Any:
    """Return `vector`, with one element per channel, in a shape that broadcasts to `x`."""
    return vector[(slice(None), *(None for _ in x.shape[2:]))]


def batch_norm(x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
    """Return F.batch_norm by given statistics."""
    mean, var, weight, bias = (along_channels(v, x) for v in (mean, var, weight, bias))
    return (x - mean) * tw.rsqrt(var + EPS) * weight + bias


def group_norm(x: Any, groups: int, weight: Any, bias: Any) -> Any:
    n, channels, *rest = x.shape
    apart = x.reshape(n, groups, channels // groups, *rest)
    standard = standardised(apart, tuple(range(2, apart.ndim))).reshape(x.shape)
    return standard * along_channels(weight, x) + along_channels(bias, x)


def instance_norm(x: Any) -> Any:
    return standardised(x, tuple(range(2, x.ndim)))


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """Return F.layer_norm over the last axes, which are those of `weight`."""
    return standardised(x, tuple(range(x.ndim - weight.ndim, x.ndim))) * weight + bias


def standardised(x: Any, axes: tuple[int, ...]) -> Any:
    """Return `x` with mean 0 and variance 1 over `axes`."""
    d = x - x.mean(axes, keepdims=True)
    return d * tw.rsqrt((d * d).mean(axes, keepdims=True) + EPS)
