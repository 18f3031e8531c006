"""How a practised user asks NumPy for convolutions and pooling: channels last, weights converted
beforehand, padding and gathering inside the call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.peer_types import Array, Call, Sizes
from benchmarks.windows import Windows

COLUMN_BYTES = 32 << 20
"""Columns gathered for one matrix product; more leave the caches, and memory altogether."""


def convolution(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    """X[N,*axes,CI] with W[*taps,CI/groups,CO], any number of axes."""
    data, weight = x
    windows = Windows.of(sizes, data.ndim - 2)
    return _convolution(data, weight, y, windows, sizes.get("groups", 1))


def capsules(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    """A convolution along h, w and i: (k,c) are its input channels, (j,co) its output channels."""
    data, weight = x
    n, h, w, q, _, _ = data.shape
    kernel = np.ascontiguousarray(weight.transpose(0, 1, 2, 4, 3, 5))
    taps = weight.shape[:2]
    flat_kernel = kernel.reshape(*taps, 1, q * weight.shape[4], -1)
    flat_y = y.reshape(n, *y.shape[1:4], -1)
    windows = Windows.of(sizes, 2).and_a_point()
    return _convolution(data.reshape(n, h, w, q, -1), flat_kernel, flat_y, windows, 1)


def _convolution(data: Array, weight: Array, y: Array, windows: Windows, groups: int) -> Call:
    """im2col and a matrix product for each group and each block that fits the caches."""
    co, cig = weight.shape[-1], weight.shape[-2]
    if windows.pointwise and groups == 1:
        flat = data.reshape(-1, data.shape[-1]), weight.reshape(-1, co)
        return partial(np.matmul, *flat, out=y.reshape(-1, co))
    fill, views = _windows(data, windows)
    depth, cog, rank = prod(windows.taps) * cig, co // groups, len(windows.taps)
    kernels = np.ascontiguousarray(weight.reshape(depth, groups, cog).transpose(1, 0, 2))
    blocks = _blocks(y.shape[:-1], depth * data.itemsize)
    most_rows = max(prod(y[block].shape[:-1]) for block in blocks)
    columns = np.zeros((most_rows, depth), data.dtype)
    results = np.zeros((most_rows, cog), data.dtype)
    gathered = (*range(rank + 1), *range(rank + 2, 2 * rank + 2), rank + 1)  # channels last
    calls: list[Call] = [fill]
    for block, group in product(blocks, range(groups)):
        channels = slice(group * cig, (group + 1) * cig)
        part = views[block][(*[slice(None)] * (rank + 1), channels)].transpose(gathered)
        out = y[block][..., group * cog : (group + 1) * cog]
        rows = columns[: out.size // cog]
        calls.append(partial(np.copyto, rows.reshape(part.shape), part))
        if groups == 1:
            calls.append(partial(np.matmul, rows, kernels[0], out=out.reshape(-1, cog)))
            continue
        result = results[: len(rows)]
        calls.append(partial(np.matmul, rows, kernels[group], out=result))
        calls.append(partial(np.copyto, out, result.reshape(out.shape)))
    return partial(_all, calls)


def _blocks(outer: tuple[int, ...], column_bytes: int) -> list[tuple[slice, ...]]:
    """Blocks of images, or of lines of one image, whose columns take about COLUMN_BYTES."""
    images, lines, *rest = outer
    line_bytes = prod(rest) * column_bytes
    if line_bytes * lines <= COLUMN_BYTES:
        step = max(1, COLUMN_BYTES // (line_bytes * lines))
        return [(slice(i, i + step),) for i in range(0, images, step)]
    step = max(1, COLUMN_BYTES // line_bytes)
    starts = product(range(images), range(0, lines, step))
    return [(slice(i, i + 1), slice(line, line + step)) for i, line in starts]


def _windows(data: Array, windows: Windows, outside: float = 0.0) -> tuple[Call, Array]:
    """A call that fills the padded copy of `data`, and (n, *out, c, *taps) windows on it."""
    spatial = data.shape[1:-1]
    sizes = [size + 2 * pad for size, pad in zip(spatial, windows.pad, strict=True)]
    padded = np.full((data.shape[0], *sizes, data.shape[-1]), outside, data.dtype)
    inner = [slice(p, p + size) for p, size in zip(windows.pad, spatial, strict=True)]
    inside = padded[(slice(None), *inner)]
    every = tuple(range(1, data.ndim - 1))
    views = sliding_window_view(padded, windows.spans, axis=every)
    outer = [slice(None, None, stride) for stride in windows.stride]
    taps = [slice(None, None, dilation) for dilation in windows.dilation]
    fill = partial(np.copyto, inside, data)
    return fill, views[(slice(None), *outer, slice(None), *taps)]


def _at(views: Array, tap: tuple[int, ...]) -> Array:
    """What every window has at `tap`."""
    index: Any = (..., *tap)
    found: Array = views[index]
    return found


def depthwise(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    """One multiply and add a tap, over the whole image."""
    data, weight = x
    windows = Windows.of(sizes, 2)
    fill, views = _windows(data, windows)
    (first, *others) = product(*(range(k) for k in windows.taps))
    part = np.zeros_like(y)

    def convolve() -> None:
        fill()
        np.multiply(_at(views, first), weight[first], out=y)
        for tap in others:
            np.multiply(_at(views, tap), weight[tap], out=part)
            np.add(y, part, out=y)

    return convolve


def max_pool(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    """One maximum a tap, over the whole image."""
    windows = Windows.of(sizes, 2)
    fill, views = _windows(x[0], windows, -np.inf)
    (first, *others) = product(*(range(k) for k in windows.taps))

    def pool() -> None:
        fill()
        np.copyto(y, _at(views, first))
        for tap in others:
            np.maximum(y, _at(views, tap), out=y)

    return pool


def transposed(x: Sequence[Array], y: Array, sizes: Sizes) -> Call:
    """One matrix product for all taps, then each tap's part added where it lands."""
    data, weight = x
    n, h, w, ci = data.shape
    windows = Windows.of(sizes, 2)
    (kh, kw), (sh, sw), (ph, pw) = windows.taps, windows.stride, windows.pad
    kernel = np.ascontiguousarray(weight.transpose(2, 0, 1, 3)).reshape(ci, -1)
    parts = np.zeros((n, h, w, kh, kw, weight.shape[3]), data.dtype)
    whole = np.zeros((n, (h - 1) * sh + kh, (w - 1) * sw + kw, weight.shape[3]), data.dtype)
    flat, columns = data.reshape(-1, ci), parts.reshape(n * h * w, -1)
    inside = whole[:, ph : ph + y.shape[1], pw : pw + y.shape[2]]

    def convolve() -> None:
        np.matmul(flat, kernel, out=columns)
        whole.fill(0)
        for r, s in product(range(kh), range(kw)):
            place = whole[:, r : r + (h - 1) * sh + 1 : sh, s : s + (w - 1) * sw + 1 : sw]
            np.add(place, parts[:, :, :, r, s], out=place)
        np.copyto(y, inside)

    return convolve


def _all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()
