"""Chains of KernelBench's level 2 that begin with a matrix product."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from benchmarks.collection.activations import (
    clamp,
    gelu,
    leaky_relu,
    logsumexp,
    mish,
    softmax,
    swish,
)
from benchmarks.collection.chain_inputs import data, statistics, vectors, weights
from benchmarks.collection.norms import batch_norm, group_norm, standardised
from benchmarks.collection.row import Input, Row


def linear(x: Any, w: Any, b: Any) -> Any:
    """Return F.linear; the weights are [columns of the result, columns of x]."""
    return x @ w.T + b


def _inputs(rows: int, columns: int, outs: int) -> tuple[Input, ...]:
    """Return the rows of data, and the weights and the bias of a linear layer."""
    return data(rows, columns), weights(outs, columns), *vectors(outs, "linear_bias")


def _doubled_of_torch(F: Any, x: Any, w: Any, b: Any) -> Any:
    scaled = F.linear(x, w, b) * 2.0
    y = F.torch.logsumexp((scaled + scaled).clamp(-10.0, 10.0), 1, keepdim=True)
    return y * F.mish(y)


def _doubled(x: Any, w: Any, b: Any) -> Any:
    scaled = linear(x, w, b) * 2.0
    y = logsumexp(clamp(scaled + scaled, -10.0, 10.0), 1)
    return y * mish(y)


def _added_twice_of_torch(F: Any, x: Any, w: Any, b: Any, gamma: Any, beta: Any) -> Any:
    y = F.leaky_relu(F.group_norm(F.linear(x, w, b), 8, gamma, beta))
    return y + y


def _added_twice(x: Any, w: Any, b: Any, gamma: Any, beta: Any) -> Any:
    y = leaky_relu(group_norm(linear(x, w, b), 8, gamma, beta))
    return y + y


ROWS = (
    Row(
        "linear_subtract_multiply_relu",
        _inputs(512, 1024, 1024),
        torch=lambda F, x, w, b: F.relu((F.linear(x, w, b) - 2.0) * 1.5),
        ours=lambda x, w, b: tw.relu((linear(x, w, b) - 2.0) * 1.5),
    ),
    Row(
        "linear_divide_sum_scale",
        (data(512, 1024), weights(1024, 1024)),
        torch=lambda F, x, w: F.torch.sum(F.linear(x, w) / 2, 1, keepdim=True) * 1.5,
        ours=lambda x, w: (x @ w.T / 2).sum(1, keepdims=True) * 1.5,
    ),
    Row(
        "linear_scale_residual_clamp_logsumexp_mish",
        _inputs(512, 1024, 1024),
        torch=_doubled_of_torch,
        ours=_doubled,
    ),
    Row(
        "linear_instance_norm_sum_residual_multiply",
        (*_inputs(512, 1024, 1024), Input("y", (512, 1024))),
        torch=lambda F, x, w, b, y: (
            F.instance_norm(F.linear(x, w, b)[:, None, None])[:, 0, 0] + y
        ) * y,
        ours=lambda x, w, b, y: (standardised(linear(x, w, b), (1,)) + y) * y,
    ),
    Row(
        "linear_group_norm_hardtanh",
        (*_inputs(512, 1024, 1024), *vectors(1024, "gamma", "beta")),
        torch=lambda F, x, w, b, gamma, beta: F.hardtanh(
            F.group_norm(F.linear(x, w, b), 16, gamma, beta), -2.0, 2.0
        ),
        ours=lambda x, w, b, gamma, beta: clamp(
            group_norm(linear(x, w, b), 16, gamma, beta), -2.0, 2.0
        ),
    ),
    Row(
        "linear_scale_batch_norm",
        (*_inputs(512, 1024, 1024), Input("scale", (1024,), role="weight"), *statistics(1024)),
        torch=lambda F, x, w, b, scale, *norm: F.batch_norm(F.linear(x, w, b) * scale, *norm),
        ours=lambda x, w, b, scale, *norm: batch_norm(linear(x, w, b) * scale, *norm),
    ),
    Row(
        "linear_swish_sum_group_norm",
        (*_inputs(1024, 512, 1024), *vectors(1024, "bias", "gamma", "beta")),
        torch=lambda F, x, w, b, bias, gamma, beta: F.group_norm(
            F.silu(F.linear(x, w, b)) + bias, 32, gamma, beta
        ),
        ours=lambda x, w, b, bias, gamma, beta: group_norm(
            swish(linear(x, w, b)) + bias, 32, gamma, beta
        ),
    ),
    Row(
        "linear_batch_norm_gelu_relu",
        (*_inputs(1024, 512, 1024), *statistics(1024)),
        torch=lambda F, x, w, b, *norm: F.relu(F.gelu(F.batch_norm(F.linear(x, w, b), *norm))),
        ours=lambda x, w, b, *norm: tw.relu(gelu(batch_norm(linear(x, w, b), *norm))),
    ),
    Row(
        "linear_sigmoid_linear_logsumexp",
        (*_inputs(1024, 512, 1024), Input("w2", (512, 1024), role="weight"),
         *vectors(512, "second_bias")),
        torch=lambda F, x, w, b, w2, b2: F.torch.logsumexp(
            F.linear(F.torch.sigmoid(F.linear(x, w, b)), w2, b2), 1
        ),
        ours=lambda x, w, b, w2, b2: logsumexp(
            linear(tw.sigmoid(linear(x, w, b)), w2, b2), 1
        ),
    ),
    Row(
        "linear_max_pool_sum_scale",
        _inputs(512, 1024, 1024),
        torch=lambda F, x, w, b: F.max_pool1d(F.linear(x, w, b), 2).sum(1) * 0.5,
        ours=lambda x, w, b: linear(x, w, b).reshape(512, 512, 2).max(-1).sum(1) * 0.5,
    ),
    Row(
        "linear_group_norm_leaky_relu_sum",
        (*_inputs(512, 1024, 1024), *vectors(1024, "gamma", "beta")),
        torch=_added_twice_of_torch,
        ours=_added_twice,
    ),
    Row(
        "linear_softmax",
        _inputs(256, 1024, 2048),
        torch=lambda F, x, w, b: F.torch.softmax(F.linear(x, w, b), 1),
        ours=lambda x, w, b: softmax(linear(x, w, b), 1),
    ),
    Row(
        "linear_group_norm_min_bias",
        (*_inputs(512, 1024, 512), *vectors(512, "gamma", "beta"),
         Input("bias", (512, 1), role="weight")),
        torch=lambda F, x, w, b, gamma, beta, bias: F.group_norm(
            F.linear(x, w, b), 16, gamma, beta
        ).min(1).values + bias,
        ours=lambda x, w, b, gamma, beta, bias: group_norm(
            linear(x, w, b), 16, gamma, beta
        ).min(1) + bias,
    ),
    Row(
        "linear_batch_norm_scale_softmax",
        (*_inputs(512, 1024, 1024), *statistics(1024), Input("scale", (1,), role="weight")),
        torch=lambda F, x, w, b, mean, var, gamma, beta, scale: F.torch.softmax(
            scale * F.batch_norm(F.linear(x, w, b), mean, var, gamma, beta), 1
        ),
        ours=lambda x, w, b, mean, var, gamma, beta, scale: softmax(
            scale * batch_norm(linear(x, w, b), mean, var, gamma, beta), 1
        ),
    ),
    Row(
        "linear_bias_hardtanh_mish_group_norm",
        (*_inputs(512, 1024, 1024), *vectors(1024, "bias", "gamma", "beta")),
        torch=lambda F, x, w, b, bias, gamma, beta: F.group_norm(
            F.mish(F.hardtanh(F.linear(x, w, b) + bias)), 32, gamma, beta
        ),
        ours=lambda x, w, b, bias, gamma, beta: group_norm(
            mish(clamp(linear(x, w, b) + bias, -1.0, 1.0)), 32, gamma, beta
        ),
    ),
    Row(
        "linear_avg_pool_gelu_scale_max",
        _inputs(1024, 512, 512),
        torch=lambda F, x, w, b: (
            F.gelu(F.avg_pool1d(F.linear(x, w, b)[:, None], 16)[:, 0]) * 2.0
        ).max(1).values,
        ours=lambda x, w, b: (
            gelu(linear(x, w, b).reshape(1024, 32, 16).mean(-1)) * 2.0
        ).max(1),
    ),
    Row(
        "linear_add_swish_tanh_gelu_hardtanh",
        (*_inputs(512, 1024, 512), *vectors(512, "bias")),
        torch=lambda F, x, w, b, bias: F.hardtanh(
            F.gelu(F.torch.tanh(F.silu(F.linear(x, w, b) + bias)))
        ),
        ours=lambda x, w, b, bias: clamp(
            gelu(tw.tanh(swish(linear(x, w, b) + bias))), -1.0, 1.0
        ),
    ),
)  # fmt: skip
