"""Chains of KernelBench's level 2 that begin with a transposed convolution."""

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
    swish,
)
from benchmarks.collection.chain_inputs import data, statistics, vectors, weights
from benchmarks.collection.layers import avg_pool, conv_transpose, max_pool
from benchmarks.collection.norms import along_channels, batch_norm, group_norm, layer_norm
from benchmarks.collection.row import Input, Row


def biased(x: Any, w: Any, b: Any, **how: Any) -> Any:
    """Return F.conv_transpose2d or F.conv_transpose3d with a bias."""
    y = conv_transpose(x, w, **how)
    return y + along_channels(b, y)


def _inputs(shape: tuple[int, ...], outs: int, taps: int = 3) -> tuple[Input, ...]:
    """Return images or volumes of `shape`, and the weights and the bias of the layer."""
    kernel = (taps,) * (len(shape) - 2)
    return data(*shape), weights(shape[1], outs, *kernel), *vectors(outs, "conv_bias")


def _per_channel(name: str, channels: int, axes: int) -> Input:
    return Input(name, (channels, *(1,) * axes), role="weight")


_TWICE = {"stride": 2, "padding": 1, "output_padding": 1}
_OURS = {"stride": 2, "pad": 1, "out_pad": 1}
"""A layer with 3 taps whose result has twice the extents of its input."""


def _centred_of_torch(F: Any, x: Any, w: Any, b: Any, *norm: Any) -> Any:
    y = F.batch_norm(F.conv_transpose3d(x, w, b, **_TWICE), *norm)
    return y - y.mean((2, 3, 4), keepdim=True)


def _centred(x: Any, w: Any, b: Any, *norm: Any) -> Any:
    y = batch_norm(biased(x, w, b, **_OURS), *norm)
    return y - y.mean((2, 3, 4), keepdims=True)


def _residual(y: Any, bias: Any) -> Any:
    return ((y + bias) + y) * y + y


def _gated_of_torch(F: Any, x: Any, w: Any, b: Any, bias: Any) -> Any:
    y = F.torch.logsumexp(F.conv_transpose3d(x, w, b, **_TWICE), 1, keepdim=True)
    return (y * F.torch.sigmoid(y + 3) / 6 - bias).clamp(-1.0, 1.0)


def _gated(x: Any, w: Any, b: Any, bias: Any) -> Any:
    y = logsumexp(biased(x, w, b, **_OURS), 1)
    return clamp(y * tw.sigmoid(y + 3) / 6 - bias, -1.0, 1.0)


ROWS = (
    Row(
        "conv_transpose2d_bias_clamp_scale_clamp_divide",
        (*_inputs((8, 64, 32, 32), 32), _per_channel("bias", 32, 2)),
        torch=lambda F, x, w, b, bias: ((
            F.conv_transpose2d(x, w, b, **_TWICE) + bias
        ).clamp(0.0, 1.0) * 2.0).clamp(0.0, 1.0) / 2.0,
        ours=lambda x, w, b, bias: clamp(
            clamp(biased(x, w, b, **_OURS) + bias, 0.0, 1.0) * 2.0, 0.0, 1.0
        ) / 2.0,
    ),
    Row(
        "conv_transpose2d_subtract_tanh",
        (*_inputs((8, 32, 32, 32), 16, 4), _per_channel("bias", 16, 2)),
        torch=lambda F, x, w, b, bias: F.torch.tanh(
            F.conv_transpose2d(x, w, b, stride=2, padding=1) - bias
        ),
        ours=lambda x, w, b, bias: tw.tanh(biased(x, w, b, stride=2, pad=1) - bias),
    ),
    Row(
        "conv_transpose2d_max_pool_hardtanh_mean_tanh",
        _inputs((8, 32, 48, 48), 32),
        torch=lambda F, x, w, b: F.torch.tanh(
            F.hardtanh(F.max_pool2d(F.conv_transpose2d(x, w, b, padding=1), 2)).mean(
                (2, 3), keepdim=True
            )
        ),
        ours=lambda x, w, b: tw.tanh(
            clamp(max_pool(biased(x, w, b, pad=1), 2), -1.0, 1.0).mean((2, 3), keepdims=True)
        ),
    ),
    Row(
        "conv_transpose2d_batch_norm_tanh_max_pool_group_norm",
        (*_inputs((8, 32, 32, 32), 64, 5), *statistics(64), *vectors(64, "weight", "bias")),
        torch=lambda F, x, w, b, mean, var, gamma, beta, *norm: F.group_norm(
            F.max_pool2d(F.torch.tanh(F.batch_norm(
                F.conv_transpose2d(x, w, b, padding=1), mean, var, gamma, beta
            )), 2), 8, *norm
        ),
        ours=lambda x, w, b, mean, var, gamma, beta, *norm: group_norm(
            max_pool(tw.tanh(batch_norm(
                biased(x, w, b, pad=1), mean, var, gamma, beta
            )), 2), 8, *norm
        ),
    ),
    Row(
        "conv_transpose2d_mish_add_hardtanh_scale",
        _inputs((8, 64, 16, 16), 64),
        torch=lambda F, x, w, b: F.hardtanh(
            F.mish(F.conv_transpose2d(x, w, b, **_TWICE)) + 0.5
        ) * 2.0,
        ours=lambda x, w, b: clamp(mish(biased(x, w, b, **_OURS)) + 0.5, -1.0, 1.0) * 2.0,
    ),
    Row(
        "conv_transpose2d_gelu_group_norm",
        (*_inputs((8, 32, 32, 32), 32), *vectors(32, "gamma", "beta")),
        torch=lambda F, x, w, b, gamma, beta: F.group_norm(
            F.gelu(F.conv_transpose2d(x, w, b)), 8, gamma, beta
        ),
        ours=lambda x, w, b, gamma, beta: group_norm(gelu(biased(x, w, b)), 8, gamma, beta),
    ),
    Row(
        "conv_transpose2d_min_sum_gelu_add",
        (*_inputs((8, 32, 32, 32), 32), Input("bias", (1, 1, 1), role="weight")),
        torch=lambda F, x, w, b, bias: F.gelu(
            F.conv_transpose2d(x, w, b, **_TWICE).min(1, keepdim=True).values.sum(2, keepdim=True)
        ) + bias,
        ours=lambda x, w, b, bias: gelu(
            biased(x, w, b, **_OURS).min(1, keepdims=True).sum(2, keepdims=True)
        ) + bias,
    ),
    Row(
        "conv_transpose2d_global_avg_pool_bias_logsumexp_sum_multiply",
        (*_inputs((8, 32, 48, 48), 64), _per_channel("bias", 64, 2)),
        torch=lambda F, x, w, b, bias: F.torch.logsumexp(
            F.conv_transpose2d(x, w, b).mean((2, 3), keepdim=True) + bias, 1, keepdim=True
        ).sum((2, 3)) * 10.0,
        ours=lambda x, w, b, bias: logsumexp(
            biased(x, w, b).mean((2, 3), keepdims=True) + bias, 1
        ).sum((2, 3)) * 10.0,
    ),
    Row(
        "conv_transpose2d_softmax_bias_scale_sigmoid",
        (*_inputs((8, 32, 16, 16), 64, 4), _per_channel("bias", 64, 2)),
        torch=lambda F, x, w, b, bias: F.torch.sigmoid((F.torch.softmax(
            F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), 1
        ) + bias) * 2.0),
        ours=lambda x, w, b, bias: tw.sigmoid(
            (softmax(biased(x, w, b, **_OURS), 1) + bias) * 2.0
        ),
    ),
    Row(
        "conv_transpose3d_sum_layer_norm_avg_pool_gelu",
        (*_inputs((2, 16, 8, 16, 16), 32), Input("sum", (1,), role="weight"),
         *vectors(32, "gamma", "beta")),
        torch=lambda F, x, w, b, more, gamma, beta: F.gelu(F.avg_pool3d(F.layer_norm(
            F.conv_transpose3d(x, w, b, **_TWICE) + more, (32,), gamma, beta
        ), 2)),
        ours=lambda x, w, b, more, gamma, beta: gelu(avg_pool(layer_norm(
            biased(x, w, b, **_OURS) + more, gamma, beta
        ), 2)),
    ),
    Row(
        "conv_transpose3d_mean_add_softmax_tanh_scale",
        (*_inputs((4, 16, 16, 24, 24), 32), _per_channel("bias", 32, 3)),
        torch=lambda F, x, w, b, bias: F.torch.tanh(F.torch.softmax(
            F.conv_transpose3d(x, w, b, padding=1).mean(2, keepdim=True) + bias, 1
        )) * 2.0,
        ours=lambda x, w, b, bias: tw.tanh(softmax(
            biased(x, w, b, pad=1).mean(2, keepdims=True) + bias, 1
        )) * 2.0,
    ),
    Row(
        "conv_transpose3d_batch_norm_subtract_mean",
        (*_inputs((2, 16, 8, 16, 16), 32), *statistics(32)),
        torch=_centred_of_torch,
        ours=_centred,
    ),
    Row(
        "conv_transpose3d_sum_residual_multiply_residual",
        (*_inputs((2, 16, 8, 16, 16), 32), _per_channel("bias", 32, 3)),
        torch=lambda F, x, w, b, bias: _residual(F.conv_transpose3d(x, w, b, **_TWICE), bias),
        ours=lambda x, w, b, bias: _residual(biased(x, w, b, **_OURS), bias),
    ),
    Row(
        "conv_transpose3d_layer_norm_gelu_scale",
        (*_inputs((2, 16, 8, 16, 16), 32, 4), *vectors(32, "gamma", "beta")),
        torch=lambda F, x, w, b, gamma, beta: F.gelu(F.layer_norm(
            F.conv_transpose3d(x, w, b, stride=2, padding=1), (32,), gamma, beta
        )) * 2.0,
        ours=lambda x, w, b, gamma, beta: gelu(layer_norm(
            biased(x, w, b, stride=2, pad=1), gamma, beta
        )) * 2.0,
    ),
    Row(
        "conv_transpose3d_avg_pool_clamp_softmax_multiply",
        (*_inputs((4, 16, 8, 16, 16), 32),),
        torch=lambda F, x, w, b: F.torch.softmax(
            F.avg_pool3d(F.conv_transpose3d(x, w, b, **_TWICE), 2).clamp(0.0, 1.0), 1
        ) * 2.0,
        ours=lambda x, w, b: softmax(
            clamp(avg_pool(biased(x, w, b, **_OURS), 2), 0.0, 1.0), 1
        ) * 2.0,
    ),
    Row(
        "conv_transpose3d_logsumexp_hardswish_subtract_clamp",
        (*_inputs((4, 8, 8, 16, 16), 16), Input("bias", (1, 1, 1, 1), role="weight")),
        torch=_gated_of_torch,
        ours=_gated,
    ),
    Row(
        "conv_transpose3d_swish_group_norm_hardswish",
        (*_inputs((4, 8, 8, 16, 16), 16), *vectors(16, "gamma", "beta")),
        torch=lambda F, x, w, b, gamma, beta: F.hardswish(F.group_norm(
            F.silu(F.conv_transpose3d(x, w, b, **_TWICE)), 4, gamma, beta
        )),
        ours=lambda x, w, b, gamma, beta: hardswish(group_norm(
            swish(biased(x, w, b, **_OURS)), 4, gamma, beta
        )),
    ),
    Row(
        "conv_transpose3d_leaky_relu_multiply_leaky_relu_max_pool",
        (*_inputs((4, 16, 8, 16, 16), 32), _per_channel("scale", 32, 3)),
        torch=lambda F, x, w, b, scale: F.max_pool3d(F.leaky_relu(F.leaky_relu(
            F.conv_transpose3d(x, w, b, **_TWICE), 0.2
        ) * scale, 0.2), 2),
        ours=lambda x, w, b, scale: max_pool(leaky_relu(leaky_relu(
            biased(x, w, b, **_OURS), 0.2
        ) * scale, 0.2), 2),
    ),
)  # fmt: skip
