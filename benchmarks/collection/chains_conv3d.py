"""Chains of KernelBench's level 2 that begin with a convolution of volumes."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from benchmarks.collection.activations import (
    clamp,
    gelu,
    hardswish,
    leaky_relu,
    logsumexp,
    mish,
    softmax,
)
from benchmarks.collection.chain_inputs import data, vectors, weights
from benchmarks.collection.layers import conv, max_pool
from benchmarks.collection.norms import along_channels, group_norm, instance_norm
from benchmarks.collection.row import Input, Row


def biased(x: Any, w: Any, b: Any) -> Any:
    """Return F.conv3d with a bias."""
    y = conv(x, w)
    return y + along_channels(b, y)


def _inputs(
    n: int, channels: int, depth: int, size: int, outs: int, taps: int = 3
) -> tuple[Input, ...]:
    """Return volumes, and the weights and the bias of a convolution."""
    return (
        data(n, channels, depth, size, size),
        weights(outs, channels, taps, taps, taps),
        *vectors(outs, "conv_bias"),
    )


def _per_channel(name: str, channels: int) -> Input:
    return Input(name, (channels, 1, 1, 1), role="weight")


ROWS = (
    Row(
        "conv3d_softmax_max_pool_max_pool",
        _inputs(4, 3, 18, 34, 16),
        torch=lambda F, x, w, b: F.max_pool3d(
            F.max_pool3d(F.torch.softmax(F.conv3d(x, w, b), 1), 2), 2
        ),
        ours=lambda x, w, b: max_pool(max_pool(softmax(biased(x, w, b), 1), 2), 2),
    ),
    Row(
        "conv3d_relu_leaky_relu_gelu_sigmoid_bias",
        (*_inputs(4, 8, 18, 34, 32), _per_channel("bias", 32)),
        torch=lambda F, x, w, b, bias: F.torch.sigmoid(
            F.gelu(F.leaky_relu(F.relu(F.conv3d(x, w, b))))
        ) + bias,
        ours=lambda x, w, b, bias: tw.sigmoid(
            gelu(leaky_relu(tw.relu(biased(x, w, b))))
        ) + bias,
    ),
    Row(
        "conv3d_divide_max_pool_global_avg_pool_bias_sum",
        (*_inputs(4, 8, 18, 34, 16), _per_channel("bias", 16)),
        torch=lambda F, x, w, b, bias: (
            F.adaptive_avg_pool3d(F.max_pool3d(F.conv3d(x, w, b) / 2.0, 2), 1) + bias
        ).sum(1),
        ours=lambda x, w, b, bias: (
            max_pool(biased(x, w, b) / 2.0, 2).mean((2, 3, 4), keepdims=True) + bias
        ).sum(1),
    ),
    Row(
        "conv3d_group_norm_mean",
        (*_inputs(4, 3, 24, 34, 24), *vectors(24, "gamma", "beta")),
        torch=lambda F, x, w, b, gamma, beta: F.group_norm(
            F.conv3d(x, w, b), 8, gamma, beta
        ).mean((1, 2, 3, 4)),
        ours=lambda x, w, b, gamma, beta: group_norm(
            biased(x, w, b), 8, gamma, beta
        ).mean((1, 2, 3, 4)),
    ),
    Row(
        "conv3d_min_softmax",
        _inputs(4, 3, 24, 34, 24),
        torch=lambda F, x, w, b: F.torch.softmax(F.conv3d(x, w, b).min(2).values, 1),
        ours=lambda x, w, b: softmax(biased(x, w, b).min(2), 1),
    ),
    Row(
        "conv3d_hardswish_relu_softmax_mean",
        _inputs(4, 3, 18, 34, 32),
        torch=lambda F, x, w, b: F.torch.softmax(
            F.relu(F.hardswish(F.conv3d(x, w, b))), 1
        ).mean((2, 3, 4)),
        ours=lambda x, w, b: softmax(
            tw.relu(hardswish(biased(x, w, b))), 1
        ).mean((2, 3, 4)),
    ),
    Row(
        "conv3d_max_pool_logsumexp_relu",
        _inputs(4, 16, 18, 34, 32),
        torch=lambda F, x, w, b: F.relu(
            F.torch.logsumexp(F.max_pool3d(F.conv3d(x, w, b), 2), 1, keepdim=True)
        ),
        ours=lambda x, w, b: tw.relu(logsumexp(max_pool(biased(x, w, b), 2), 1)),
    ),
    Row(
        "conv3d_mish_tanh",
        _inputs(4, 16, 18, 34, 16),
        torch=lambda F, x, w, b: F.torch.tanh(F.mish(F.conv3d(x, w, b))),
        ours=lambda x, w, b: tw.tanh(mish(biased(x, w, b))),
    ),
    Row(
        "conv3d_scale_tanh_multiply_sigmoid",
        (*_inputs(4, 3, 18, 66, 16), _per_channel("scale", 16), _per_channel("bias", 16)),
        torch=lambda F, x, w, b, scale, bias: F.torch.sigmoid(
            F.torch.tanh(F.conv3d(x, w, b) * scale) * bias
        ),
        ours=lambda x, w, b, scale, bias: tw.sigmoid(
            tw.tanh(biased(x, w, b) * scale) * bias
        ),
    ),
    Row(
        "conv3d_multiply_instance_norm_clamp_multiply_max",
        (*_inputs(4, 3, 18, 34, 16), _per_channel("scale", 16)),
        torch=lambda F, x, w, b, scale: (
            F.instance_norm(F.conv3d(x, w, b) * scale).clamp(-1.0, 1.0) * scale
        ).max(1).values,
        ours=lambda x, w, b, scale: (
            clamp(instance_norm(biased(x, w, b) * scale), -1.0, 1.0) * scale
        ).max(1),
    ),
    Row(
        "conv3d_leaky_relu_sum_clamp_gelu",
        (*_inputs(4, 8, 18, 34, 32), _per_channel("sum", 32)),
        torch=lambda F, x, w, b, more: F.gelu(
            (F.leaky_relu(F.conv3d(x, w, b), 0.2) + more).clamp(-1.0, 1.0)
        ),
        ours=lambda x, w, b, more: gelu(
            clamp(leaky_relu(biased(x, w, b), 0.2) + more, -1.0, 1.0)
        ),
    ),
)  # fmt: skip
