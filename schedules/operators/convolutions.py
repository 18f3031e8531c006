"""Convolutions in channels-last and channels-first layouts: windows with stride, padding, dilation
and groups. `windows.py` describes the windows and the layouts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from ..errors import WorkloadError
from ..frontend.expr import (
    all_of,
    compute_labelled,
    eq,
    maximum,
    padded,
    placeholder,
    reduce_axis,
    select,
    sum,
)
from ..frontend.expr_core import Expr, Index
from .registry import FLOATS, PRODUCTS, Draft, Operator, Param, Sizes, Types
from .windows import (
    LAYOUTS,
    SPATIAL,
    ConvolutionWindow,
    Images,
    Layout,
    arranged,
    axis_size,
    image_params,
    kernel_axes,
    per_axis,
    window_params,
    windows_of,
)


def _channels(p: Sizes) -> tuple[int, int, int]:
    """Return the groups, and the input and output channels of a group. Raise WorkloadError if the
    groups do not divide the channels."""
    groups = p["groups"]
    for name in ("CI", "CO"):
        if p[name] % groups:
            raise WorkloadError(f"groups={groups} must divide {name}={p[name]}", code="bad_extent")
    return groups, p["CI"] // groups, p["CO"] // groups


def _conv(p: Sizes, t: Types, axes: str, layout: Layout) -> Draft:
    """Build a convolution. The weights have the input channels of one group."""
    windows = windows_of(p, axes)
    groups, ci, co = _channels(p)
    shape = layout.image(p["N"], [v.size for v in windows], p["CI"])
    images = Images.of(placeholder("X", shape, t.data), layout, windows)
    kernel = [v.kernel for v in windows]
    w = placeholder("W", arranged(layout.weights, kernel, I=ci, O=p["CO"]), t.weight)
    c, taps = reduce_axis(ci, "c"), images.taps

    def element(n: Index, at: tuple[Index, ...], o: Index) -> Expr:
        first = (o // co) * ci if groups > 1 else 0
        weight = w.element(arranged(layout.weights, taps, I=c, O=o))
        return sum(images.read(n, at, c + first) * weight, axis=(*taps, c))

    y = images.result(("co", p["CO"]), element)
    flops = 2 * y.tensor.elements * ci * prod(kernel)
    return Draft(y, (images.x, w), flops, channel=layout.channel)


def _conv_bn_relu(p: Sizes, t: Types, axes: str, layout: Layout) -> Draft:
    """Build relu((conv + bias) * bn_scale + bn_offset), with four operations per output element."""
    conv = _conv(p, t, axes, layout)
    acc = conv.output
    bias, scale, offset = (
        placeholder(name, (p["CO"],), acc.dtype) for name in ("bias", "bn_scale", "bn_offset")
    )

    def element(*index: Index) -> Expr:
        co = index[layout.channel]
        return maximum((acc[index] + bias[co]) * scale[co] + offset[co], 0)

    labelled = [(a.name, a.extent) for a in acc.stages[-1].axes]
    z = compute_labelled("Z", labelled, element)
    return Draft(z, (*conv.inputs, bias, scale, offset), conv.flops + 4 * z.tensor.elements)


def _depthwise(p: Sizes, t: Types, axes: str, layout: Layout) -> Draft:
    windows = windows_of(p, axes)
    order = layout.depthwise_weights
    shape = layout.image(p["N"], [v.size for v in windows], p["C"])
    images = Images.of(placeholder("X", shape, t.data), layout, windows)
    kernel = [v.kernel for v in windows]
    w = placeholder("W", arranged(order, kernel, I=1, O=p["C"]), t.weight)

    def element(n: Index, at: tuple[Index, ...], c: Index) -> Expr:
        weight = w.element(arranged(order, images.taps, I=0, O=c))
        return sum(images.read(n, at, c) * weight, axis=images.taps)

    y = images.result(("c", p["C"]), element)
    flops = 2 * y.tensor.elements * prod(kernel)
    return Draft(y, (images.x, w), flops, channel=layout.channel)


def _transposed(p: Sizes, t: Types, axes: str, layout: Layout) -> Draft:
    """Build a transposed convolution as a gather: output h reads input i = (h + pad -
    r*dilation)/stride for each tap r with an integer i."""
    windows = windows_of(p, axes)
    outs = tuple(_transposed_out(p, v) for v in windows)
    groups, ci, co = _channels(p)
    shape = layout.image(p["N"], [v.size for v in windows], p["CI"])
    images = Images.of(placeholder("X", shape, t.data), layout, windows)
    order, kernel = layout.transposed_weights, [v.kernel for v in windows]
    w = placeholder("W", arranged(order, kernel, I=p["CI"], O=co), t.weight)
    c, taps = reduce_axis(ci, "c"), images.taps

    def element(n: Index, at: tuple[Index, ...], o: Index) -> Expr:
        starts = [i + v.pad - tap * v.dilation for v, i, tap in zip(windows, at, taps, strict=True)]
        inside = [start // v.stride for v, start in zip(windows, starts, strict=True)]
        whole = [eq(start % v.stride, 0) for v, start in zip(windows, starts, strict=True)]
        channel, out = (c + (o // co) * ci, o % co) if groups > 1 else (c, o)
        read = padded(images.x, *layout.image(n, inside, channel))
        weight = w.element(arranged(order, taps, I=channel, O=out))
        return sum(select(all_of(*whole), read, 0) * weight, axis=(*taps, c))

    y = images.result(("co", p["CO"]), element, outs)
    useful = prod(_useful_taps(v, out) for v, out in zip(windows, outs, strict=True))
    flops = 2 * p["N"] * p["CI"] * co * useful
    return Draft(y, (images.x, w), flops, channel=layout.channel)


def _transposed_out(p: Sizes, v: ConvolutionWindow) -> int:
    """Return the extent of the output axis of a transposed convolution. Raise WorkloadError if it
    has no points, or if the points added at the end are too many."""
    more = axis_size(p, "out_pad", v.name, 0)
    if more and more >= max(v.stride, v.dilation):
        raise WorkloadError(
            f"out_pad={more} of {v.name} must be less than its stride or its dilation",
            code="bad_extent",
        )
    out = (v.size - 1) * v.stride - 2 * v.pad + v.dilation * (v.kernel - 1) + more + 1
    if out < 1:
        raise WorkloadError(
            f"the output of {v.name} would have {out} points; pad is too large",
            code="bad_extent",
        )
    return out


def _useful_taps(v: ConvolutionWindow, out: int) -> int:
    """Return the number of pairs of an input i and a tap r with 0 <= i*stride - pad + r*dilation <
    out."""
    total = 0
    for tap in range(0, v.kernel * v.dilation, v.dilation):
        # i*stride >= pad - tap and i*stride <= out - 1 + pad - tap
        low = max(0, -(-(v.pad - tap) // v.stride))
        high = min(v.size - 1, (out - 1 + v.pad - tap) // v.stride)
        total += max(0, high - low + 1)
    return total


def _capsule(p: Sizes, t: Types) -> Draft:
    """Build Y[n,h,w,i,j,co] = sum_{r,s,k,c} X[n,..,..,i,k,c] W[r,s,k,j,c,co]."""
    h, w = windows_of(p, "HW")
    q = p["capsule"]
    x = placeholder("X", (p["N"], h.size, w.size, q, q, p["CI"]), t.data)
    f = placeholder("W", (h.kernel, w.kernel, q, q, p["CI"], p["CO"]), t.weight)
    r, s = reduce_axis(h.kernel, "rh"), reduce_axis(w.kernel, "rw")
    k, c = reduce_axis(q, "k"), reduce_axis(p["CI"], "c")

    def element(*at: Index) -> Expr:
        n, oh, ow, i, j, co = at
        read = padded(x, n, h.at(oh, r), w.at(ow, s), i, k, c)
        return sum(read * f[r, s, k, j, c, co], axis=(r, s, k, c))

    shape = (p["N"], h.out, w.out, q, q, p["CO"])
    labels = ("n", "h", "w", "i", "j", "co")
    y = compute_labelled("Y", tuple(zip(labels, shape, strict=True)), element)
    taps = h.kernel * w.kernel * q * p["CI"]
    return Draft(y, (x, f), 2 * y.tensor.elements * taps)


_WHAT = {1: "along one axis", 2: "of images", 3: "of volumes"}
_GROUPS = Param("groups", 1, doc="divides CI and CO")
_CHANNELS = (Param("CI"), Param("CO"))


def _convolutions(layout: Layout) -> Iterator[Operator]:
    """Yield the operators in `layout`, whose texts and names are made from the order of its
    axes."""
    for axes in SPATIAL.values():
        rank, suffix = len(axes), layout.suffix(axes)
        taps, outs = kernel_axes(axes), [f"O{a}" for a in axes]
        x, y = layout.text(axes, "CI"), layout.text(outs, "CO")
        weights = ",".join(arranged(layout.weights, taps, I="CI/groups", O="CO"))
        params = (*image_params(axes), *_CHANNELS, *window_params(axes), _GROUPS)
        points = "*".join(["N", *outs])
        yield Operator(
            f"conv{rank}d_{suffix}", f"convolution {_WHAT[rank]}", f"X[{x}] W[{weights}] Y[{y}]",
            f"2*{points}*CO*(CI/groups)*{'*'.join(taps)}", params, PRODUCTS,
            partial(_conv, axes=axes, layout=layout), epilogues=True,
        )  # fmt: skip
        if rank == 2:
            yield Operator(
                f"conv2d_{suffix}_bn_relu", f"conv2d_{suffix}, bias, batch norm and relu in one",
                f"X[{x}] W[{weights}] bias[CO] bn_scale[CO] bn_offset[CO] Z[{y}]",
                f"conv2d + 4*{points}*CO", params, FLOATS,
                partial(_conv_bn_relu, axes=axes, layout=layout),
            )  # fmt: skip


def _depthwise_operator(layout: Layout) -> Operator:
    axes = SPATIAL[2]
    weights = ",".join(arranged(layout.depthwise_weights, kernel_axes(axes), I="1", O="C"))
    return Operator(
        f"depthwise_conv2d_{layout.suffix(axes)}", "each channel with a separate window",
        f"X[{layout.text(axes, 'C')}] W[{weights}] Y[{layout.text(['OH', 'OW'], 'C')}]",
        "2*N*OH*OW*C*KH*KW", (*image_params(axes), Param("C"), *window_params(axes)), PRODUCTS,
        partial(_depthwise, axes=axes, layout=layout), epilogues=True,
    )  # fmt: skip


def _transposed_operator(axes: str, layout: Layout) -> Operator:
    order, rank = layout.transposed_weights, len(axes)
    weights = ",".join(arranged(order, kernel_axes(axes), I="CI", O="CO/groups"))
    shapes = f"X[{layout.text(axes, 'CI')}] W[{weights}] Y[{{}}]"
    out_pad = Param("out_pad", 0, 0, per_axis("out_pad", axes), "points added at the end of Y")
    return Operator(
        f"conv{rank}d_transpose_{layout.suffix(axes)}",
        "transposed convolution, O = (I-1)*stride - 2*pad + dilation*(K-1) + out_pad + 1",
        shapes.format(layout.text([f"O{a}" for a in axes], "CO")),
        f"2*N*CI*(CO/groups)*{'*'.join(f'U({a})' for a in axes)}, U: useful taps",
        (*image_params(axes), *_CHANNELS, *window_params(axes), _GROUPS, out_pad), PRODUCTS,
        partial(_transposed, axes=axes, layout=layout), epilogues=True,
    )  # fmt: skip


OPERATORS = (
    *(op for layout in LAYOUTS for op in _convolutions(layout)),
    *(_depthwise_operator(layout) for layout in LAYOUTS),
    *(_transposed_operator(axes, layout) for layout in LAYOUTS for axes in SPATIAL.values()),
    Operator("conv2d_capsule_nhwijc", "convolution of capsules (small matrices)",
             "X[N,H,W,q,q,CI] W[KH,KW,q,q,CI,CO] Y[N,OH,OW,q,q,CO], q=capsule",
             "2*N*OH*OW*q*q*CO*KH*KW*q*CI",
             (*image_params("HW"), *_CHANNELS, *window_params("HW", dilation=False),
              Param("capsule", 4)), PRODUCTS, _capsule, epilogues=True),
)  # fmt: skip
