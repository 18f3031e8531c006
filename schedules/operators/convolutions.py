"""Convolutions in channels-last layout: windows with stride, padding, dilation and groups.

An output axis has (I + 2*pad - dilation*(K-1) - 1)//stride + 1 points for an input axis of extent
I. Reads that may be in the padding have guards and give zero there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..algebra.scalar import Reducer
from ..errors import WorkloadError
from ..frontend.expr import (
    all_of,
    compute,
    compute_labelled,
    eq,
    maximum,
    padded,
    placeholder,
    reduce_axis,
    reduction,
    select,
    sum,
)
from ..frontend.expr_core import Expr, Index
from .registry import ANY, FLOATS, PRODUCTS, Draft, Operator, Param, Sizes, Types


@dataclass(frozen=True, slots=True)
class ConvolutionWindow:
    """The windows along one axis: `kernel` taps each, on an input axis of extent `size`."""

    name: str
    size: int
    kernel: int
    stride: int
    pad: int
    dilation: int

    @property
    def out(self) -> int:
        """The extent of the output axis. Raise WorkloadError if the window exceeds the padded
        input."""
        room = self.size + 2 * self.pad - self.dilation * (self.kernel - 1) - 1
        if room < 0:
            raise WorkloadError(
                f"the window of {self.name} spans {self.dilation * (self.kernel - 1) + 1}, more"
                f" than the {self.size + 2 * self.pad} of the padded input",
                code="bad_extent",
            )
        return room // self.stride + 1

    def at(self, position: Index, tap: Index) -> Index:
        """Return the input coordinate that tap `tap` reads for the output at `position`."""
        index: Index = position * self.stride + tap * self.dilation - self.pad
        return index


def _windows(p: Sizes, axes: str) -> tuple[ConvolutionWindow, ...]:
    """Return the window of each axis, from parameters such as `K`, `KH`, `pad` and `pad_h`."""

    def size(general: str, one: str) -> int:
        return p[one] if one in p else p.get(general, 1)

    return tuple(
        ConvolutionWindow(
            a,
            p[a],
            size("K", f"K{a}"),
            size("stride", f"stride_{a.lower()}"),
            p[f"pad_{a.lower()}"] if f"pad_{a.lower()}" in p else p.get("pad", 0),
            size("dilation", f"dilation_{a.lower()}"),
        )
        for a in axes
    )


def _conv(p: Sizes, t: Types, axes: str) -> Draft:
    """Build a convolution: X[N,*axes,CI] W[*kernel,CI/groups,CO] Y[N,*out,CO]."""
    windows = _windows(p, axes)
    groups, ci, co = p["groups"], p["CI"], p["CO"]
    for name, channels in (("CI", ci), ("CO", co)):
        if channels % groups:
            raise WorkloadError(f"groups={groups} must divide {name}={channels}", code="bad_extent")
    x = placeholder("X", (p["N"], *(w.size for w in windows), ci), t.data)
    w = placeholder("W", (*(v.kernel for v in windows), ci // groups, co), t.weight)
    taps = [reduce_axis(v.kernel, f"r{v.name.lower()}") for v in windows]
    c = reduce_axis(ci // groups, "c")
    labels = ["n", *(v.name.lower() for v in windows), "co"]
    shape = (p["N"], *(v.out for v in windows), co)

    def element(n: Index, *rest: Index) -> Expr:
        *positions, o = rest
        group = (o // (co // groups)) * (ci // groups) if groups > 1 else 0
        inside = [v.at(i, r) for v, i, r in zip(windows, positions, taps, strict=True)]
        return sum(padded(x, n, *inside, c + group) * w[(*taps, c, o)], axis=(*taps, c))

    y = compute_labelled("Y", tuple(zip(labels, shape, strict=True)), element)
    taps_a_channel = prod(v.kernel for v in windows)
    return Draft(y, (x, w), 2 * y.tensor.elements * (ci // groups) * taps_a_channel)


def _conv1d(p: Sizes, t: Types) -> Draft:
    return _conv(p, t, "L")


def _conv2d(p: Sizes, t: Types) -> Draft:
    return _conv(p, t, "HW")


def _conv3d(p: Sizes, t: Types) -> Draft:
    return _conv(p, t, "DHW")


def _conv2d_bn_relu(p: Sizes, t: Types) -> Draft:
    """Build relu((conv + bias) * bn_scale + bn_offset), with four operations per output element."""
    conv = _conv2d(p, t)
    acc = conv.output
    bias, scale, offset = (
        placeholder(name, (p["CO"],), acc.dtype) for name in ("bias", "bn_scale", "bn_offset")
    )
    z = compute(
        "Z",
        acc.shape,
        lambda n, h, w, co: maximum((acc[n, h, w, co] + bias[co]) * scale[co] + offset[co], 0),
    )
    return Draft(z, (*conv.inputs, bias, scale, offset), conv.flops + 4 * z.tensor.elements)


def _depthwise(p: Sizes, t: Types) -> Draft:
    h, w = _windows(p, "HW")
    x = placeholder("X", (p["N"], h.size, w.size, p["C"]), t.data)
    f = placeholder("W", (h.kernel, w.kernel, p["C"]), t.weight)
    r, s = reduce_axis(h.kernel, "rh"), reduce_axis(w.kernel, "rw")

    def element(n: Index, i: Index, j: Index, c: Index) -> Expr:
        return sum(padded(x, n, h.at(i, r), w.at(j, s), c) * f[r, s, c], axis=(r, s))

    shape = (p["N"], h.out, w.out, p["C"])
    y = compute_labelled("Y", tuple(zip(("n", "h", "w", "c"), shape, strict=True)), element)
    return Draft(y, (x, f), 2 * y.tensor.elements * h.kernel * w.kernel)


def _transposed(p: Sizes, t: Types) -> Draft:
    """Build a transposed convolution as a gather: output h reads input i = (h + pad - r)/stride for
    each tap r with an integer i."""
    windows = _windows(p, "HW")
    outs = tuple((v.size - 1) * v.stride - 2 * v.pad + v.kernel for v in windows)
    for v, out in zip(windows, outs, strict=True):
        if out < 1:
            raise WorkloadError(
                f"the output of {v.name} would have {out} points; pad is too large",
                code="bad_extent",
            )
    x = placeholder("X", (p["N"], *(v.size for v in windows), p["CI"]), t.data)
    f = placeholder("W", (*(v.kernel for v in windows), p["CI"], p["CO"]), t.weight)
    r, s = (reduce_axis(v.kernel, f"r{v.name.lower()}") for v in windows)
    c = reduce_axis(p["CI"], "c")

    def element(n: Index, h: Index, w: Index, co: Index) -> Expr:
        starts = [i + v.pad - tap for v, i, tap in zip(windows, (h, w), (r, s), strict=True)]
        inside = [start // v.stride for v, start in zip(windows, starts, strict=True)]
        whole = [eq(start % v.stride, 0) for v, start in zip(windows, starts, strict=True)]
        read = select(all_of(*whole), padded(x, n, *inside, c), 0)
        return sum(read * f[r, s, c, co], axis=(r, s, c))

    y = compute("Y", (p["N"], *outs, p["CO"]), element)
    useful = prod(_useful_taps(v, out) for v, out in zip(windows, outs, strict=True))
    return Draft(y, (x, f), 2 * p["N"] * p["CI"] * p["CO"] * useful)


def _useful_taps(v: ConvolutionWindow, out: int) -> int:
    """Return the number of pairs of an input i and a tap r with 0 <= i*stride - pad + r < out."""
    total = 0
    for tap in range(v.kernel):
        # i*stride >= pad - tap and i*stride <= out - 1 + pad - tap
        low = max(0, -(-(v.pad - tap) // v.stride))
        high = min(v.size - 1, (out - 1 + v.pad - tap) // v.stride)
        total += max(0, high - low + 1)
    return total


def _capsule(p: Sizes, t: Types) -> Draft:
    """Build Y[n,h,w,i,j,co] = sum_{r,s,k,c} X[n,..,..,i,k,c] W[r,s,k,j,c,co]."""
    h, w = _windows(p, "HW")
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


def _max_pool(p: Sizes, t: Types) -> Draft:
    h, w = _windows(p, "HW")
    x = placeholder("X", (p["N"], h.size, w.size, p["C"]), t.data)
    r, s = reduce_axis(h.kernel, "rh"), reduce_axis(w.kernel, "rw")
    least = Reducer.MAX.identity(x.dtype)

    def element(n: Index, i: Index, j: Index, c: Index) -> Expr:
        read = padded(x, n, h.at(i, r), w.at(j, s), c, fill=least)
        return reduction(Reducer.MAX, read, (r, s))

    shape = (p["N"], h.out, w.out, p["C"])
    y = compute_labelled("Y", tuple(zip(("n", "h", "w", "c"), shape, strict=True)), element)
    return Draft(y, (x,), y.tensor.elements * h.kernel * w.kernel)


def _window_params(axes: str, *, dilation: bool = True) -> tuple[Param, ...]:
    """Return the parameters `K`, `stride`, `pad` and `dilation`. Each can also be set for a single
    axis."""

    def per_axis(prefix: str) -> tuple[str, ...]:
        letters = axes if prefix == "K" else [f"_{a.lower()}" for a in axes]
        return tuple(f"{prefix}{a}" for a in letters) if len(axes) > 1 else ()

    params = (
        Param("K", per_axis=per_axis("K"), doc="taps of the window"),
        Param("stride", 1, per_axis=per_axis("stride")),
        Param("pad", 0, 0, per_axis=per_axis("pad"), doc="zeros added at both ends"),
        Param("dilation", 1, per_axis=per_axis("dilation"), doc="distance between taps"),
    )
    return params if dilation else params[:3]


_CHANNELS = (Param("CI"), Param("CO"))
_GROUPS = Param("groups", 1, doc="divides CI and CO")
_IMAGE = (Param("N", 1), Param("H"), Param("W"))
_CONV2D = (*_IMAGE, *_CHANNELS, *_window_params("HW"), _GROUPS)

OPERATORS = (
    Operator("conv1d_nlc", "convolution along one axis",
             "X[N,L,CI] W[K,CI/groups,CO] Y[N,OL,CO]", "2*N*OL*CO*(CI/groups)*K",
             (Param("N", 1), Param("L"), *_CHANNELS, *_window_params("L"), _GROUPS),
             PRODUCTS, _conv1d, epilogues=True),
    Operator("conv2d_nhwc", "convolution of images",
             "X[N,H,W,CI] W[KH,KW,CI/groups,CO] Y[N,OH,OW,CO]",
             "2*N*OH*OW*CO*(CI/groups)*KH*KW", _CONV2D, PRODUCTS, _conv2d, epilogues=True),
    Operator("conv2d_nhwc_bn_relu", "conv2d_nhwc, bias, batch norm and relu in one",
             "X[N,H,W,CI] W[KH,KW,CI/groups,CO] bias[CO] bn_scale[CO] bn_offset[CO] Z[N,OH,OW,CO]",
             "conv2d + 4*N*OH*OW*CO", _CONV2D, FLOATS, _conv2d_bn_relu),
    Operator("conv3d_ndhwc", "convolution of volumes",
             "X[N,D,H,W,CI] W[KD,KH,KW,CI/groups,CO] Y[N,OD,OH,OW,CO]",
             "2*N*OD*OH*OW*CO*(CI/groups)*KD*KH*KW",
             (Param("N", 1), Param("D"), Param("H"), Param("W"), *_CHANNELS,
              *_window_params("DHW"), _GROUPS), PRODUCTS, _conv3d, epilogues=True),
    Operator("depthwise_conv2d_nhwc", "each channel with a separate window",
             "X[N,H,W,C] W[KH,KW,C] Y[N,OH,OW,C]", "2*N*OH*OW*C*KH*KW",
             (*_IMAGE, Param("C"), *_window_params("HW")), PRODUCTS, _depthwise, epilogues=True),
    Operator("conv2d_transpose_nhwc", "transposed convolution, O = (I-1)*stride - 2*pad + K",
             "X[N,H,W,CI] W[KH,KW,CI,CO] Y[N,OH,OW,CO]", "2*N*CI*CO*U(H)*U(W), U: useful taps",
             (*_IMAGE, *_CHANNELS, *_window_params("HW", dilation=False)), PRODUCTS, _transposed,
             epilogues=True),
    Operator("conv2d_capsule_nhwijc", "convolution of capsules (small matrices)",
             "X[N,H,W,q,q,CI] W[KH,KW,q,q,CI,CO] Y[N,OH,OW,q,q,CO], q=capsule",
             "2*N*OH*OW*q*q*CO*KH*KW*q*CI",
             (*_IMAGE, *_CHANNELS, *_window_params("HW", dilation=False), Param("capsule", 4)),
             PRODUCTS, _capsule, epilogues=True),
    Operator("max_pool2d_nhwc", "greatest value of each window",
             "X[N,H,W,C] Y[N,OH,OW,C]", "N*OH*OW*C*KH*KW",
             (*_IMAGE, Param("C"), *_window_params("HW")), ANY, _max_pool),
)  # fmt: skip

__all__ = ["OPERATORS", "ConvolutionWindow"]
