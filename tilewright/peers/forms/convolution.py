"""Recognises a convolution by its indices, with the parameters that other libraries take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilewright.schedules.algebra.affine import Affine, FloorDiv, Var
from tilewright.schedules.algebra.comparisons import Eq0, Ge0
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Load,
    Reducer,
    Scalar,
    Select,
)
from tilewright.schedules.workload.tensors import Stage


@dataclass(frozen=True, slots=True)
class ConvolutionForm:
    """A convolution of a data tensor with a weight tensor, as a stage computes it.

    Elements outside the data count as zero. The conditions of padding are not examined, so the
    caller must compare the results.
    """

    data: str
    weight: str
    data_order: tuple[int, ...]
    """Permutes the data to (batch..., channel..., spatial...)."""
    data_sides: tuple[int, int]
    """The extents of the batch and of the channel after their axes are folded."""
    weight_order: tuple[int, ...]
    """Permutes the weights to (out channel..., channel..., window...)."""
    weight_sides: tuple[int, int]
    """The extents of the two folded channels; in exchanged order if `transposed`."""
    has_taps: tuple[bool, ...]
    """Whether the weights have a dimension for each window; a window of one element needs none."""
    weight_flips: tuple[int, ...]
    """The dimensions along which the weights are reversed."""
    output_axes: tuple[int, ...]
    """The extents of (batch..., out channel..., spatial...)."""
    output_order: tuple[int, ...]
    """Permutes `output_axes` to the stage's axes."""
    output_shape: tuple[int, ...]
    """The shape of the result: (batch, out channel, spatial...)."""
    channel_axis: int | None
    """The axis of the out channels, or None if they are not one axis."""
    stride: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """The least and greatest coordinate of the data that is read. For a transposed convolution: of
    the library's output before its edges are cropped."""
    dilation: tuple[int, ...]
    groups: int = 1
    """The number of groups of channels that are convolved separately."""
    transposed: bool = False
    """Whether the output is larger than the data, by the factor `stride`."""

    @property
    def depthwise(self) -> bool:
        """Whether every channel is convolved separately."""
        return self.groups == self.data_sides[1] > 1

    def image(self, data: Any) -> Any:
        """Return the data as (batch, channel, spatial...)."""
        turned = permuted(data, self.data_order)
        return reshaped(turned, (*self.data_sides, *turned.shape[-len(self.stride) :]))

    def kernel(self, weight: Any) -> Any:
        """Return the weights as (out channel, channel, window...), with the channels exchanged if
        transposed."""
        if self.weight_flips:
            weight = flipped(weight, self.weight_flips)
        turned = permuted(weight, self.weight_order)
        count = sum(self.has_taps)
        widths = iter(turned.shape[turned.ndim - count :])
        taps = [next(widths) if has_tap else 1 for has_tap in self.has_taps]
        return reshaped(turned, (*self.weight_sides, *taps))

    def unfolded(self, result: Any) -> Any:
        """Return a library's result with its end cropped, in the order of the stage's axes."""
        cut = result[tuple(slice(0, n) for n in self.output_shape)]
        return permuted(reshaped(cut, self.output_axes), self.output_order)


def permuted(x: Any, order: Sequence[int]) -> Any:
    """Permute the dimensions of a PyTorch tensor or NumPy array."""
    return x.permute(order) if hasattr(x, "permute") else x.transpose(order)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """Return `x` with the shape `shape`, or `x` itself if it has that shape: PyTorch's reshape may
    change the strides of dimensions of one element, and then hide the channels-last memory
    format."""
    return x if tuple(x.shape) == shape else x.reshape(shape)


def flipped(x: Any, dims: Sequence[int]) -> Any:
    """Reverse the tensor or array along the dimensions `dims`."""
    if hasattr(x, "flip"):
        return x.flip(dims)
    return x[tuple(slice(None, None, -1 if n in dims else 1) for n in range(x.ndim))]


def convolution_form(stage: Stage, *, promoted: bool = False) -> ConvolutionForm | None:
    """Match `stage` as a convolution with at least one window axis, or return None.

    With `promoted`, axes without a window, except the first, become spatial axes with a window of
    one element (up to three spatial axes in total) instead of parts of the batch. A product then
    also matches, as a convolution of an image with weights without a window.
    """
    loads = _factors(stage)
    if loads is None:
        return None
    found = []
    for data, weight in (loads, loads[::-1]):
        roles = _roles(stage, data, weight)
        form = None if roles is None else roles.form(data.tensor, weight.tensor, promoted)
        if form is not None:
            found.append(form)
    # A transposed convolution written as a sum over the data also matches as a convolution over the
    # weights, and a convolution of stride 1 also matches as transposed. Neither is intended.
    found.sort(key=lambda form: 1 if not form.transposed else 0 if max(form.stride) > 1 else 2)
    return found[0] if found else None


def is_convolution(stage: Stage) -> bool:
    """Return whether the stage is a convolution of floating-point numbers."""
    return stage.tensor.dtype.is_float and convolution_form(stage) is not None


def bare(node: Scalar) -> Scalar:
    """Return `node` without casts and without the selects that write zero padding."""
    while True:
        match node:
            case Cast():
                node = node.x
            case Select(cond=All(conds), on_false=Const(value=0)) if all(
                isinstance(c, Ge0 | Eq0) for c in conds
            ):
                node = node.on_true
            case _:
                return node


def _factors(stage: Stage) -> tuple[Load, Load] | None:
    """Return the two reads of a sum of products, without padding, or None for any other stage."""
    body = bare(stage.body)
    if not stage.reduces_by(Reducer.SUM) or not isinstance(body, Binary):
        return None
    a, b = bare(body.a), bare(body.b)
    if body.op is not BinaryOp.MUL or not (isinstance(a, Load) and isinstance(b, Load)):
        return None
    return a, b


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A window that slides along one dimension of the data: output x and window axis w read index
    stride * x + dilation * w + offset.

    In a transposed convolution, output x reads each index i with stride * i + dilation * w == x +
    offset.
    """

    dim: int
    """The dimension of the data."""
    x: str
    """The name of the output axis."""
    w: str | None
    """The name of the window axis, or None if there is none."""
    stride: int
    dilation: int
    offset: int
    tap: int | None = None
    """The dimension of the weights that w indexes, if w is not an axis but follows from i and x."""


def window_of(
    dim: int, index: Affine, spatial: Sequence[str], summed: Sequence[str]
) -> SlidingWindow | None:
    """Match `index` as a window that slides along one of the axes `spatial`, or return None."""
    names = [atom.name for atom, _ in index.terms if isinstance(atom, Var)]
    if len(names) != len(index.terms):
        return None
    match [n for n in names if n in spatial], [n for n in names if n in summed]:
        case [x], [] if index.coefficient(x) >= 1:
            return SlidingWindow(dim, x, None, index.coefficient(x), 1, index.const)
        case [x], [w] if index.coefficient(x) >= 1:
            return SlidingWindow(dim, x, w, index.coefficient(x), index.coefficient(w), index.const)
    return None


@dataclass(slots=True)
class _Roles:
    """The role of each axis in the convolution of a data tensor with a weight tensor."""

    stage: Stage
    plain: dict[str, int] = field(default_factory=dict)
    """Axes that index one dimension of the data without any other axis, with this dimension."""
    weights: dict[str, int] = field(default_factory=dict)
    """Axes that index one dimension of the weights without any other axis, with this dimension."""
    windows: list[SlidingWindow] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    """The axes of the data over which a transposed convolution sums."""
    grouped: tuple[str, int] | None = None
    """The axis of the out channels and the number of groups."""
    transposed: bool = False

    @property
    def extent(self) -> dict[str, int]:
        return {a.name: a.extent for a in self.stage.all_axes}

    def form(self, data: str, weight: str, promoted: bool) -> ConvolutionForm | None:
        """Return the convolution with these roles, or None if an axis has no role."""
        extent, outer = self.extent, [a.name for a in self.stage.axes]
        batch = [n for n in self.plain if n in outer and n not in self.weights]
        shared = [n for n in self.plain if n in outer and n in self.weights]
        channels = [n for n in self.plain if n not in outer]
        slid = [w.x for w in self.windows]
        out = [n for n in outer if n not in self.plain and n not in slid]
        taps = [w.w for w in self.windows if w.w is not None]
        if sorted(self.weights) != sorted([*shared, *channels, *out, *taps]):
            return None
        if {*self.plain, *slid, *taps, *out, *self.positions} != set(extent):
            return None
        if self.grouped is not None and (shared or self.transposed or [self.grouped[0]] != out):
            return None
        windows = list(self.windows)
        if promoted:
            moved = batch[1 : 1 + max(0, 3 - len(windows))]
            batch = [n for n in batch if n not in moved]
            windows += [SlidingWindow(self.plain[n], n, None, 1, 1, 0) for n in moved]
            windows.sort(key=lambda w: w.dim)
        if not 1 <= len(windows) <= 3:
            return None

        def size(names: Sequence[str]) -> int:
            return prod(extent[n] for n in names)

        groups = size(shared) if self.grouped is None else self.grouped[1]
        order = [*batch, *shared, *out, *(w.x for w in windows)]
        wide, narrow = (out, channels) if not self.transposed else (channels, out)
        mine = [*shared, *out]
        return ConvolutionForm(
            data=data,
            weight=weight,
            data_order=(
                *(self.plain[n] for n in (*batch, *shared, *channels)),
                *(w.dim for w in windows),
            ),
            data_sides=(size(batch), size(channels) * groups),
            weight_order=(
                *(self.weights[n] for n in (*shared, *wide, *narrow)),
                *(_tap(w, self.weights) for w in windows if _has_tap(w)),
            ),
            weight_sides=(size(shared) * size(wide), size(narrow)),
            has_taps=tuple(map(_has_tap, windows)),
            weight_flips=tuple(_tap(w, self.weights) for w in windows if w.dilation < 0),
            output_axes=tuple(extent[n] for n in order),
            output_order=tuple(order.index(n) for n in outer),
            output_shape=(size(batch), size(mine), *(extent[w.x] for w in windows)),
            channel_axis=outer.index(mine[0]) if len(mine) == 1 else None,
            stride=tuple(w.stride for w in windows),
            spans=tuple(_span(w, extent, self.transposed) for w in windows),
            dilation=tuple(abs(w.dilation) for w in windows),
            groups=groups,
            transposed=self.transposed,
        )


def _has_tap(window: SlidingWindow) -> bool:
    return window.w is not None or window.tap is not None


def _tap(window: SlidingWindow, weights: Mapping[str, int]) -> int:
    """Return the dimension of the weights that the window indexes."""
    if window.tap is not None:
        return window.tap
    assert window.w is not None
    return weights[window.w]


def _span(window: SlidingWindow, extent: Mapping[str, int], transposed: bool) -> tuple[int, int]:
    last = extent[window.x] - 1
    if transposed:
        return window.offset, window.offset + last
    reach = 0 if window.w is None else window.dilation * (extent[window.w] - 1)
    low, high = min(reach, 0), max(reach, 0)
    return window.offset + low, window.offset + window.stride * last + high


def _roles(stage: Stage, data: Load, weight: Load) -> _Roles | None:
    """Return the roles of the axes, or None if an index does not occur in convolutions."""
    found = _Roles(stage)
    spatial, summed = [a.name for a in stage.axes], [a.name for a in stage.reduce_axes]
    turned = 0
    for dim, index in enumerate(data.index):
        name, group = axis_of(index), _group(index, found.extent)
        if group is not None and found.grouped is None:
            name, found.grouped = group
        if name is not None:
            if name in found.plain:
                return None
            found.plain[name] = dim
            continue
        window = _transposed_window(dim, index, spatial, summed)
        turned += window is not None
        window = window or window_of(dim, index, spatial, summed)
        if window is None:
            return None
        found.windows.append(window)
    for dim, index in enumerate(weight.index):
        name = axis_of(index)
        if name is not None:
            if name in found.weights:
                return None
            found.weights[name] = dim
            continue
        window = _window_over_weights(dim, index, found.plain, spatial, summed)
        if window is None:
            return None
        turned += 1
        found.windows.append(window)
        (position,) = index.vars() - {window.x}
        found.positions.append(position)
        del found.plain[position]
    found.windows.sort(key=lambda w: w.dim)
    slid = [w.x for w in found.windows]
    if len(set(slid)) != len(slid) or turned not in (0, len(slid)):
        return None
    if any(w.dilation == 0 for w in found.windows) or {*slid} & {*found.plain, *found.weights}:
        return None
    found.transposed = turned > 0
    return found


def _window_over_weights(
    dim: int,
    index: Affine,
    plain: Mapping[str, int],
    spatial: Sequence[str],
    summed: Sequence[str],
) -> SlidingWindow | None:
    """Match an index `x + pad - stride * i` of the weights, where only i indexes the data. It
    occurs in a transposed convolution that is written as a sum over the data."""
    found = window_of(dim, index, spatial, summed)
    if found is None or found.w is None or found.w not in plain:
        return None
    if found.stride != 1 or found.dilation >= 0:
        return None
    at = plain[found.w]
    return SlidingWindow(at, found.x, None, -found.dilation, 1, found.offset, tap=dim)


def _group(index: Affine, extent: Mapping[str, int]) -> tuple[str, tuple[str, int]] | None:
    """Match `c + CG * (f // OG)`; return the names of c and f, and the number of groups."""
    plain = [atom.name for atom, c in index.terms if isinstance(atom, Var) and c == 1]
    divided = [(atom, c) for atom, c in index.terms if isinstance(atom, FloorDiv)]
    if len(plain) != 1 or len(divided) != 1 or len(index.terms) != 2 or index.const:
        return None
    ((division, coefficient),) = divided
    out = axis_of(division.numerator)
    if out is None or coefficient != extent[plain[0]] or extent[out] % division.divisor:
        return None
    return plain[0], (out, extent[out] // division.divisor)


def _transposed_window(
    dim: int, index: Affine, spatial: Sequence[str], summed: Sequence[str]
) -> SlidingWindow | None:
    """Match `(x - d*w + pad) // stride` with a stride of more than 1."""
    if len(index.terms) != 1 or index.const or not isinstance(index.terms[0][0], FloorDiv):
        return None
    division, coefficient = index.terms[0]
    assert isinstance(division, FloorDiv)
    found = window_of(dim, division.numerator, spatial, summed)
    if coefficient != 1 or found is None or found.w is None or found.stride != 1:
        return None
    if found.dilation >= 0:
        return None
    return SlidingWindow(dim, found.x, found.w, division.divisor, -found.dilation, found.offset)


def axis_of(index: Affine) -> str | None:
    """Return the axis that `index` consists of, or None for any other index."""
    names: Sequence[str] = [atom.name for atom, _ in index.terms if isinstance(atom, Var)]
    if len(index.terms) == len(names) == 1 and not index.const and index.coefficient(names[0]) == 1:
        return names[0]
    return None
