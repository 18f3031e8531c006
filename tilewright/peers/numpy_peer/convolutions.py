"""Convolutions in NumPy as an experienced user writes them.

A convolution gathers columns (im2col) and computes one product per group. A transposed convolution
computes one product for all taps and adds the contribution of each tap at its positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..forms.convolution import ConvolutionForm
from ..variants import Call, PeerVariant
from .padding import at, framed

Array = NDArray[Any]
MOST_BYTES = 1 << 30
"""The limit on the bytes of the gathered columns, or of the contributions of all taps."""


def convolution_variants(
    form: ConvolutionForm, data: Callable[[], Array], weight: Array, out: Array
) -> Iterator[PeerVariant]:
    """Yield variants that write the convolution of `data()` with `weight` to `out`."""
    prepare = _transposed if form.transposed else _columns
    name = "product, taps added" if form.transposed else "columns and np.matmul for each group"
    yield PeerVariant(name, lambda: prepare(form, data, weight, out))
    if not form.transposed and form.depthwise:
        yield PeerVariant("one tap at a time", lambda: _taps(form, data, weight, out))


def _padded(form: ConvolutionForm, data: Callable[[], Array]) -> tuple[Call, Array]:
    return framed(lambda: form.image(data()), form.spans)


def _windows(form: ConvolutionForm, padded: Array, taps: tuple[int, ...]) -> Array:
    spans = [d * (k - 1) + 1 for d, k in zip(form.dilation, taps, strict=True)]
    views = sliding_window_view(padded, spans, axis=tuple(range(2, padded.ndim)))
    steps = [slice(None, None, s) for s in form.stride]
    apart = [slice(None, None, d) for d in form.dilation]
    return views[(slice(None), slice(None), *steps, *apart)]


def _columns(form: ConvolutionForm, data: Callable[[], Array], weight: Array, out: Array) -> Call:
    kernel = form.kernel(weight)
    fill, padded = _padded(form, data)
    rank = len(form.stride)
    windows = _windows(form, padded, kernel.shape[2:])
    batch, places = windows.shape[0], windows.shape[2 : 2 + rank]
    grouped = windows.reshape(batch, form.groups, -1, *windows.shape[2:]) if (
        form.groups > 1) else windows[:, None]  # fmt: skip
    order = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    gathered = grouped.transpose(order)
    depth = prod(kernel.shape[1:])
    if gathered.size * out.itemsize > MOST_BYTES:
        raise ValueError(f"columns have over {MOST_BYTES >> 30} GiB")
    columns = np.empty(gathered.shape, out.dtype)
    flat = columns.reshape(form.groups, -1, depth)
    kernels = np.ascontiguousarray(kernel.reshape(form.groups, -1, depth).transpose(0, 2, 1))
    result = np.empty((form.groups, flat.shape[1], kernels.shape[2]), out.dtype)
    placed = result.reshape(form.groups, batch, *places, -1)
    back = placed.transpose(1, 0, 2 + rank, *range(2, 2 + rank))
    unfolded = form.unfolded(back.reshape(batch, -1, *places))
    shared = np.shares_memory(unfolded, result)

    def call() -> None:
        fill()
        np.copyto(columns, gathered)
        np.matmul(flat, kernels, out=result)
        found = unfolded if shared else form.unfolded(back.reshape(batch, -1, *places))
        np.copyto(out, found)

    return call


def _taps(form: ConvolutionForm, data: Callable[[], Array], weight: Array, out: Array) -> Call:
    """Return a call for groups of one channel. For each tap, it multiplies the whole image by one
    weight and adds the product."""
    kernel = form.kernel(weight)
    if kernel.shape[0] != form.groups:
        raise ValueError("a channel has several outputs")
    fill, padded = _padded(form, data)
    rank = len(form.stride)
    windows = _windows(form, padded, kernel.shape[2:])
    target = out.transpose(np.argsort(form.output_order)).reshape(form.output_shape)
    if not np.shares_memory(target, out):
        raise ValueError("the output is not a view")
    part = np.empty_like(target)
    weights = kernel[:, 0].reshape(1, form.groups, *[1] * rank, *kernel.shape[2:])
    (first, *others) = product(*map(range, kernel.shape[2:]))

    def call() -> None:
        fill()
        np.multiply(at(windows, first), at(weights, first), out=target)
        for tap in others:
            np.multiply(at(windows, tap), at(weights, tap), out=part)
            np.add(target, part, out=target)

    return call


def _transposed(
    form: ConvolutionForm, data: Callable[[], Array], weight: Array, out: Array
) -> Call:
    if form.groups > 1:
        raise ValueError("a transposed convolution with groups is not supported")
    kernel = form.kernel(weight)  # [C, O, *taps]
    image = form.image(data())
    (batch, channels, *sizes), taps = image.shape, kernel.shape[2:]
    flat_kernel = np.ascontiguousarray(kernel.reshape(channels, -1))
    outs = kernel.shape[1]
    if batch * prod(sizes) * flat_kernel.shape[1] * out.itemsize > MOST_BYTES:
        raise ValueError(f"parts have over {MOST_BYTES >> 30} GiB")
    parts = np.empty((batch, *sizes, outs, *taps), out.dtype)
    rank = len(sizes)
    whole_sizes = [
        max((n - 1) * s + d * (k - 1), hi) + 1
        for n, s, d, k, (_, hi) in zip(
            sizes, form.stride, form.dilation, taps, form.spans, strict=True
        )
    ]
    whole = np.zeros((batch, *whole_sizes, outs), out.dtype)
    inside = whole[(slice(None), *(slice(lo, hi + 1) for lo, hi in form.spans))]
    to_channels = (0, *range(2, 2 + rank), 1)
    back = inside.transpose(0, rank + 1, *range(1, rank + 1))

    def call() -> None:
        lines = form.image(data()).transpose(to_channels).reshape(-1, channels)
        np.matmul(lines, flat_kernel, out=parts.reshape(-1, flat_kernel.shape[1]))
        whole.fill(0)
        for tap in product(*map(range, taps)):
            steps = tuple(
                slice(d * t, d * t + (n - 1) * s + 1, s)
                for t, n, s, d in zip(tap, sizes, form.stride, form.dilation, strict=True)
            )
            place = whole[(slice(None), *steps)]
            np.add(place, at(parts, tap), out=place)
        np.copyto(out, form.unfolded(back))

    return call
