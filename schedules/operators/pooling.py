"""Pooling in channels-last and channels-first layouts: greatest values and means of windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from ..algebra.scalar import Reducer
from ..frontend.array.arrays import TensorArray
from ..frontend.expr import placeholder, reduction, sum
from ..frontend.expr_core import Expr, Index
from .registry import ANY, FLOATS, Draft, Operator, Param, Sizes, Types
from .windows import (
    LAYOUTS,
    SPATIAL,
    Images,
    Layout,
    image_params,
    kernel_axes,
    window_params,
    windows_of,
)


def _images(p: Sizes, t: Types, axes: str, layout: Layout) -> Images:
    windows = windows_of(p, axes)
    shape = layout.image(p["N"], [v.size for v in windows], p["C"])
    return Images.of(placeholder("X", shape, t.data), layout, windows)


def _max_pool(p: Sizes, t: Types, axes: str, layout: Layout) -> Draft:
    images = _images(p, t, axes, layout)
    least = Reducer.MAX.identity(images.x.dtype)

    def element(n: Index, at: tuple[Index, ...], c: Index) -> Expr:
        return reduction(Reducer.MAX, images.read(n, at, c, fill=least), images.taps)

    return _pooled(images, images.result(("c", p["C"]), element))


def _avg_pool(p: Sizes, t: Types, axes: str, layout: Layout) -> Draft:
    """Build the means of windows, in which the zeros of the padding count."""
    images = _images(p, t, axes, layout)
    taps = prod(v.kernel for v in images.windows)

    def element(n: Index, at: tuple[Index, ...], c: Index) -> Expr:
        return sum(images.read(n, at, c), axis=images.taps) / taps

    return _pooled(images, images.result(("c", p["C"]), element))


def _pooled(images: Images, y: TensorArray) -> Draft:
    return Draft(y, (images.x,), y.tensor.elements * prod(v.kernel for v in images.windows))


def _global_avg_pool(p: Sizes, t: Types, layout: Layout) -> Draft:
    x = placeholder("X", layout.image(p["N"], [p["H"], p["W"]], p["C"]), t.data)
    _, spatial, _ = layout.parts(range(x.ndim))
    return Draft(x.mean(spatial).named("Y"), (x,), x.tensor.elements)


def _pools(axes: str, layout: Layout) -> Iterator[Operator]:
    rank, suffix = len(axes), layout.suffix(axes)
    outs = [f"O{a}" for a in axes]
    shapes = f"X[{layout.text(axes, 'C')}] Y[{layout.text(outs, 'C')}]"
    flops = "*".join(["N", *outs, "C", *kernel_axes(axes)])
    sizes = (*image_params(axes), Param("C"))
    yield Operator(
        f"max_pool{rank}d_{suffix}", "greatest value of each window", shapes, flops,
        (*sizes, *window_params(axes)), ANY, partial(_max_pool, axes=axes, layout=layout),
    )  # fmt: skip
    yield Operator(
        f"avg_pool{rank}d_{suffix}", "mean of each window, padding counts as zeros", shapes, flops,
        (*sizes, *window_params(axes, dilation=False)), FLOATS,
        partial(_avg_pool, axes=axes, layout=layout),
    )  # fmt: skip


def _global_pool(layout: Layout) -> Operator:
    return Operator(
        f"global_avg_pool_{layout.suffix('HW')}", "mean over each image",
        f"X[{layout.text('HW', 'C')}] Y[N,C]", "N*H*W*C", (*image_params("HW"), Param("C")), FLOATS,
        partial(_global_avg_pool, layout=layout),
    )  # fmt: skip


OPERATORS = (
    *(op for layout in LAYOUTS for axes in SPATIAL.values() for op in _pools(axes, layout)),
    *(_global_pool(layout) for layout in LAYOUTS),
)
