"""Chains of KernelBench's level 2 that begin with a convolution of images."""

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
    swish,
)
from benchmarks.collection.chain_inputs import data, statistics, vectors, weights
from benchmarks.collection.layers import avg_pool, conv, max_pool
from benchmarks.collection.norms import along_channels, batch_norm, group_norm, instance_norm
from benchmarks.collection.row import Input, Row


def biased(x: Any, w: Any, b: Any, **how: Any) -> Any:
    """Return F.conv2d with a bias."""
    y = conv(x, w, **how)
    return y + along_channels(b, y)


def _inputs(n: int, channels: int, size: int, outs: int, taps: int = 3) -> tuple[Input, ...]:
    """Return images, and the weights and the bias of a convolution."""
    return (
        data(n, channels, size, size),
        weights(outs, channels, taps, taps),
        *vectors(outs, "conv_bias"),
    )


def _residual_of_torch(F: Any, x: Any, w: Any, b: Any, gamma: Any, beta: Any) -> Any:
    y = F.conv2d(x, w, b)
    activated = F.hardswish(F.torch.tanh(F.group_norm(y, 16, gamma, beta)))
    return F.torch.logsumexp(y + activated, 1, keepdim=True)


def _residual(x: Any, w: Any, b: Any, gamma: Any, beta: Any) -> Any:
    y = biased(x, w, b)
    return logsumexp(y + hardswish(tw.tanh(group_norm(y, 16, gamma, beta))), 1)


def _outer_bias(channels: int) -> Input:
    return Input("bias", (channels, 1, 1), role="weight")


ROWS = (
    Row(
        "conv2d_relu_bias",
        (*_inputs(8, 32, 64, 64), _outer_bias(64)),
        torch=lambda F, x, w, b, bias: F.relu(F.conv2d(x, w, b)) + bias,
        ours=lambda x, w, b, bias: tw.relu(biased(x, w, b)) + bias,
    ),
    Row(
        "conv2d_mish_mish",
        _inputs(4, 16, 64, 64),
        torch=lambda F, x, w, b: F.mish(F.mish(F.conv2d(x, w, b))),
        ours=lambda x, w, b: mish(mish(biased(x, w, b))),
    ),
    Row(
        "conv2d_instance_norm_divide",
        _inputs(8, 32, 64, 64),
        torch=lambda F, x, w, b: F.instance_norm(F.conv2d(x, w, b)) / 2.0,
        ours=lambda x, w, b: instance_norm(biased(x, w, b)) / 2.0,
    ),
    Row(
        "conv2d_add_scale_sigmoid_group_norm",
        (*_inputs(8, 8, 64, 32), _outer_bias(32), Input("scale", (32, 1, 1), role="weight"),
         *vectors(32, "gamma", "beta")),
        torch=lambda F, x, w, b, bias, scale, gamma, beta: F.group_norm(
            F.torch.sigmoid((F.conv2d(x, w, b) + bias) * scale), 8, gamma, beta
        ),
        ours=lambda x, w, b, bias, scale, gamma, beta: group_norm(
            tw.sigmoid((biased(x, w, b) + bias) * scale), 8, gamma, beta
        ),
    ),
    Row(
        "conv2d_min_tanh_tanh",
        _inputs(8, 16, 64, 64),
        torch=lambda F, x, w, b: F.torch.tanh(
            F.torch.tanh(F.conv2d(x, w, b).min(1, keepdim=True).values)
        ),
        ours=lambda x, w, b: tw.tanh(tw.tanh(biased(x, w, b).min(1, keepdims=True))),
    ),
    Row(
        "conv2d_min_add_multiply",
        (*_inputs(8, 32, 48, 64), _outer_bias(64)),
        torch=lambda F, x, w, b, bias: (F.conv2d(x, w, b).clamp(max=0.5) + bias) * 2.0,
        ours=lambda x, w, b, bias: (tw.minimum(biased(x, w, b), 0.5) + bias) * 2.0,
    ),
    Row(
        "conv2d_scale_min",
        _inputs(4, 32, 64, 128),
        torch=lambda F, x, w, b: (F.conv2d(x, w, b) * 2.0).min(1, keepdim=True).values,
        ours=lambda x, w, b: (biased(x, w, b) * 2.0).min(1, keepdims=True),
    ),
    Row(
        "conv2d_subtract_hardswish_max_pool_mish",
        _inputs(8, 32, 56, 64),
        torch=lambda F, x, w, b: F.mish(F.max_pool2d(F.hardswish(F.conv2d(x, w, b) - 0.5), 2)),
        ours=lambda x, w, b: mish(max_pool(hardswish(biased(x, w, b) - 0.5), 2)),
    ),
    Row(
        "conv2d_subtract_tanh_subtract_avg_pool",
        _inputs(8, 32, 56, 64),
        torch=lambda F, x, w, b: F.avg_pool2d(F.torch.tanh(F.conv2d(x, w, b) - 0.5) - 0.2, 2),
        ours=lambda x, w, b: avg_pool(tw.tanh(biased(x, w, b) - 0.5) - 0.2, 2),
    ),
    Row(
        "conv2d_softplus_tanh_multiply_batch_norm",
        (*_inputs(4, 32, 64, 64), *statistics(64)),
        torch=lambda F, x, w, b, *norm: F.batch_norm(F.mish(F.conv2d(x, w, b)), *norm),
        ours=lambda x, w, b, *norm: batch_norm(mish(biased(x, w, b)), *norm),
    ),
    Row(
        "conv2d_multiply_leaky_relu_gelu",
        (*_inputs(8, 32, 48, 64), Input("scale", (64, 1, 1), role="weight")),
        torch=lambda F, x, w, b, scale: F.gelu(F.leaky_relu(F.conv2d(x, w, b) * scale)),
        ours=lambda x, w, b, scale: gelu(leaky_relu(biased(x, w, b) * scale)),
    ),
    Row(
        "conv2d_relu_hardswish",
        _inputs(16, 8, 64, 64),
        torch=lambda F, x, w, b: F.hardswish(F.relu(F.conv2d(x, w, b))),
        ours=lambda x, w, b: hardswish(tw.relu(biased(x, w, b))),
    ),
    Row(
        "conv2d_avg_pool_sigmoid_sum",
        _inputs(8, 8, 96, 64),
        torch=lambda F, x, w, b: F.torch.sigmoid(
            F.avg_pool2d(F.conv2d(x, w, b), 4)
        ).sum((1, 2, 3)),
        ours=lambda x, w, b: tw.sigmoid(avg_pool(biased(x, w, b), 4)).sum((1, 2, 3)),
    ),
    Row(
        "conv2d_gelu_global_avg_pool",
        _inputs(8, 16, 64, 64),
        torch=lambda F, x, w, b: F.adaptive_avg_pool2d(F.gelu(F.conv2d(x, w, b)), 1),
        ours=lambda x, w, b: gelu(biased(x, w, b)).mean((2, 3)),
    ),
    Row(
        "conv2d_batch_norm_scale",
        (*_inputs(8, 32, 64, 64), *statistics(64)),
        torch=lambda F, x, w, b, *norm: F.batch_norm(F.conv2d(x, w, b), *norm) * 2.0,
        ours=lambda x, w, b, *norm: batch_norm(biased(x, w, b), *norm) * 2.0,
    ),
    Row(
        "conv2d_tanh_scale_bias_max_pool",
        (*_inputs(8, 8, 96, 64), _outer_bias(64)),
        torch=lambda F, x, w, b, bias: F.max_pool2d(
            F.torch.tanh(F.conv2d(x, w, b)) * 2.0 + bias, 4
        ),
        ours=lambda x, w, b, bias: max_pool(tw.tanh(biased(x, w, b)) * 2.0 + bias, 4),
    ),
    Row(
        "conv2d_group_norm_scale_max_pool_clamp",
        (*_inputs(8, 8, 96, 64), *vectors(64, "gamma", "beta"),
         Input("scale", (64, 1, 1), role="weight")),
        torch=lambda F, x, w, b, gamma, beta, scale: F.max_pool2d(
            F.group_norm(F.conv2d(x, w, b), 16, gamma, beta) * scale, 4
        ).clamp(0.0, 1.0),
        ours=lambda x, w, b, gamma, beta, scale: clamp(
            max_pool(group_norm(biased(x, w, b), 16, gamma, beta) * scale, 4), 0.0, 1.0
        ),
    ),
    Row(
        "conv2d_subtract_subtract_mish",
        _inputs(8, 8, 64, 64),
        torch=lambda F, x, w, b: F.mish(F.conv2d(x, w, b) - 0.5 - 0.2),
        ours=lambda x, w, b: mish(biased(x, w, b) - 0.5 - 0.2),
    ),
    Row(
        "conv2d_group_norm_tanh_hardswish_residual_logsumexp",
        (*_inputs(8, 8, 64, 64), *vectors(64, "gamma", "beta")),
        torch=_residual_of_torch,
        ours=_residual,
    ),
    Row(
        "conv2d_strided_batch_norm_swish",
        (data(8, 3, 128, 128), weights(32, 3, 3, 3), *vectors(32, "conv_bias"), *statistics(32)),
        torch=lambda F, x, w, b, *norm: F.silu(
            F.batch_norm(F.conv2d(x, w, b, stride=2, padding=1), *norm)
        ),
        ours=lambda x, w, b, *norm: swish(batch_norm(biased(x, w, b, stride=2, pad=1), *norm)),
    ),
)  # fmt: skip
