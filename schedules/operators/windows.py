"""Windows on the spatial axes of images, in channels-last and channels-first layouts.

An output axis has (I + 2*pad - dilation*(K-1) - 1)//stride + 1 points for an input axis of extent
I. Reads that may be in the padding have guards and give a constant there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..errors import WorkloadError
from ..frontend.array.arrays import TensorArray
from ..frontend.expr import compute_labelled, padded, reduce_axis
from ..frontend.expr_core import Expr, Index, ReduceAxis
from ..frontend.reading import TensorExpr
from .registry import Param, Sizes

T = TypeVar("T")

SPATIAL = {1: "L", 2: "HW", 3: "DHW"}
"""The spatial axes for each number of dimensions."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of the axes of images and weights, one letter each; `*` stands for the spatial axes
    or the taps. Images have N (batch) and C (channels), weights I (input) and O (output channels).
    """

    images: str
    weights: str
    transposed_weights: str
    depthwise_weights: str

    @property
    def channel(self) -> int:
        """The position of the channels in an image. It is negative if they are after the spatial
        axes."""
        at = self.images.index("C")
        return at if at < self.images.index("*") else at - len(self.images)

    def image(self, n: T, spatial: Sequence[T], c: T) -> tuple[T, ...]:
        """Return the parts of an image's shape or index in the order of its axes."""
        return arranged(self.images, spatial, N=n, C=c)

    def parts(self, index: Sequence[T]) -> tuple[T, tuple[T, ...], T]:
        """Return the batch entry, the spatial position and the channel of an index in an image."""
        first, after = self.images.index("*"), len(self.images) - 1 - self.images.index("*")
        spatial = tuple(index[first : len(index) - after])
        return index[self.images.index("N")], spatial, index[self.channel]

    def suffix(self, axes: str) -> str:
        """Return the end of the names of operators with the spatial axes `axes`, such as "nhwc"."""
        return "".join(self.image("N", axes, "C")).casefold()

    def text(self, axes: Sequence[str], channels: str) -> str:
        """Return the shape of an image as text, such as "N,H,W,CI"."""
        return ",".join(self.image("N", axes, channels))


CHANNELS_LAST = Layout("N*C", "*IO", "*IO", "*O")
CHANNELS_FIRST = Layout("NC*", "OI*", "IO*", "OI*")
LAYOUTS = (CHANNELS_LAST, CHANNELS_FIRST)


def arranged(order: str, spatial: Sequence[T], **others: T) -> tuple[T, ...]:
    """Return `spatial` and `others` in the order of axes `order`, such as "OI*". Others that it
    does not have are left out."""
    found: list[T] = []
    for axis in order:
        found += spatial if axis == "*" else (others[axis],)
    return tuple(found)


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


def windows_of(p: Sizes, axes: str) -> tuple[ConvolutionWindow, ...]:
    """Return the window of each axis, from parameters such as `K`, `KH`, `pad` and `pad_h`."""
    return tuple(
        ConvolutionWindow(
            a,
            p[a],
            axis_size(p, "K", a),
            axis_size(p, "stride", a),
            axis_size(p, "pad", a, 0),
            axis_size(p, "dilation", a),
        )
        for a in axes
    )


def axis_size(p: Sizes, name: str, axis: str, default: int = 1) -> int:
    """Return the value for the spatial axis `axis` of the parameter `name`, or `default` if the
    operator does not have it."""
    one = f"{name}{axis}" if name == "K" else f"{name}_{axis.lower()}"
    return p[one] if one in p else p.get(name, default)


@dataclass(frozen=True, slots=True)
class Images:
    """Images, and the windows on them of which each gives one position of the result."""

    x: TensorExpr
    layout: Layout
    windows: tuple[ConvolutionWindow, ...]
    taps: tuple[ReduceAxis, ...]

    @staticmethod
    def of(x: TensorExpr, layout: Layout, windows: tuple[ConvolutionWindow, ...]) -> Images:
        taps = tuple(reduce_axis(v.kernel, f"r{v.name.lower()}") for v in windows)
        return Images(x, layout, windows, taps)

    def read(self, n: Index, at: Sequence[Index], c: Index, fill: float = 0) -> Expr:
        """Return the element of channel `c` that the taps read for the output position `at`, or
        `fill` in the padding."""
        inside = [v.at(i, tap) for v, i, tap in zip(self.windows, at, self.taps, strict=True)]
        return padded(self.x, *self.layout.image(n, inside, c), fill=fill)

    def result(
        self,
        channels: tuple[str, int],
        element: Callable[[Index, tuple[Index, ...], Index], Expr],
        outs: Sequence[int] | None = None,
    ) -> TensorArray:
        """Return the images Y, with `channels` (name, number) and spatial extents `outs`, whose
        element is `element(batch entry, position, channel)`."""
        names = [v.name.lower() for v in self.windows]
        spatial = list(zip(names, outs or [v.out for v in self.windows], strict=True))
        batch = self.layout.parts(self.x.shape)[0]
        axes = self.layout.image(("n", batch), spatial, channels)
        return compute_labelled("Y", axes, lambda *index: element(*self.layout.parts(index)))


def window_params(axes: str, *, dilation: bool = True) -> tuple[Param, ...]:
    """Return the parameters `K`, `stride`, `pad` and `dilation`. Each can also be set for a single
    axis."""
    params = (
        Param("K", per_axis=per_axis("K", axes), doc="taps of the window"),
        Param("stride", 1, per_axis=per_axis("stride", axes)),
        Param("pad", 0, 0, per_axis=per_axis("pad", axes), doc="zeros added at both ends"),
        Param("dilation", 1, per_axis=per_axis("dilation", axes), doc="distance between taps"),
    )
    return params if dilation else params[:3]


def per_axis(name: str, axes: str) -> tuple[str, ...]:
    """Return the names that set the parameter `name` for single axes, if there are several."""
    letters = axes if name == "K" else [f"_{a.lower()}" for a in axes]
    return tuple(f"{name}{a}" for a in letters) if len(axes) > 1 else ()


def image_params(axes: str) -> tuple[Param, ...]:
    """Return the parameters of the batch and the spatial axes."""
    return (Param("N", 1), *(Param(a) for a in axes))


def kernel_axes(axes: str) -> tuple[str, ...]:
    """Return the names of the taps: "KH" and "KW", or "K" for one axis."""
    return per_axis("K", axes) or ("K",)
