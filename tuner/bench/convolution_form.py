"""Recognise a convolution by its indices: what other libraries want to be told about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schedules.algebra.affine import Affine, Eq0, FloorDiv, Ge0, Var, interval
from schedules.algebra.affine import Interval as Range
from schedules.algebra.scalar import (
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
from schedules.workload.tensors import Stage


@dataclass(frozen=True, slots=True)
class ConvolutionForm:
    """A convolution of a data tensor with a weight tensor, zero outside of the data.

    `data_order` permutes data to (batch, channel, spatial...), `weight_order` weights to
    (out channel, channel, window...). A `depthwise` one has an output channel for each channel
    of the data, and its weights have only one channel dimension; `groups` of channels are
    convolved apart. Of a `transposed` one the output is larger than the data, by `stride`, and
    weights are permuted to (channel, out channel, window...). `output_order[i]` is the place
    of stage axis i in (batch, out channel, spatial...), whose extents are `output_shape`; a
    library may give more spatial elements at the end, because it pads both sides alike.

    Conditions of a transposed one are not looked at: whoever uses it compares the result.
    """

    data: str
    weight: str
    data_order: tuple[int, ...]
    weight_order: tuple[int, ...]
    output_order: tuple[int, ...]
    output_shape: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    depthwise: bool = False
    groups: int = 1
    transposed: bool = False


def convolution_form(stage: Stage) -> ConvolutionForm | None:
    """`stage` as a convolution with at least one window axis, None if it is not one."""
    loads = _factors(stage)
    if loads is None:
        return None
    for data, weight in (loads, loads[::-1]):
        form = _form(stage, data, weight)
        if form is not None:
            return form
    return None


def _factors(stage: Stage) -> tuple[Load, Load] | None:
    """The two reads of a sum of products; padding around either is set aside."""
    body = _bare(stage.body)
    if stage.reducer is not Reducer.SUM or not isinstance(body, Binary):
        return None
    a, b = _bare(body.a), _bare(body.b)
    if body.op is not BinaryOp.MUL or not (isinstance(a, Load) and isinstance(b, Load)):
        return None
    return a, b


def _bare(node: Scalar) -> Scalar:
    """`node` without casts and without the selects that write padding with zeros."""
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


def _form(stage: Stage, data: Load, weight: Load) -> ConvolutionForm | None:
    spatial = [a.name for a in stage.axes]
    window = [a.name for a in stage.reduce_axes]
    extent = {a.name: a.extent for a in (*stage.axes, *stage.reduce_axes)}
    ranges = {name: Range(0, n - 1) for name, n in extent.items()}
    weight_names = [_name(i) for i in weight.index]
    outer_dims: list[tuple[int, str]] = []
    inner_dims: list[tuple[int, str]] = []
    found: list[tuple[int, str, str, int, int, int]] = []
    grouped: tuple[str, int] | None = None
    transposed = 0
    for dim, index in enumerate(data.index):
        group = _group(index, extent)
        if group is not None and grouped is None:
            channel_name, grouped = group
            inner_dims.append((dim, channel_name))
            continue
        turned = _turned_window(index, spatial, window)
        if turned is not None:
            found.append((dim, *turned))
            transposed += 1
            continue
        names = [atom.name for atom, _ in index.terms if isinstance(atom, Var)]
        if len(names) != len(index.terms):
            return None
        outer = [n for n in names if n in spatial]
        inner = [n for n in names if n in window]
        match outer, inner:
            case [one], [] if _name(index) == one:
                outer_dims.append((dim, one))
            case [], [one] if _name(index) == one:
                inner_dims.append((dim, one))
            case [x], [w]:
                stride, dilation = index.coefficient(x), index.coefficient(w)
                if stride < 1 or dilation < 1 or interval(index, ranges).lo != index.const:
                    return None
                found.append((dim, x, w, stride, dilation, -index.const))
            case _:
                return None
    if not found or min(pad for *_, pad in found) < 0 or transposed not in (0, len(found)):
        return None
    batches = [d for d in outer_dims if d[1] not in weight_names]
    shared = [d for d in outer_dims if d[1] in weight_names]
    seen = {n for _, n in (*outer_dims, *inner_dims)} | {n for _, x, w, *_ in found for n in (x, w)}
    rest = [n for n in extent if n not in seen]
    match batches, shared, inner_dims, rest:
        case [batch], [], [channel], [out] if out in spatial:
            weights = [out, channel[1]]
        case [batch], [channel], [], []:
            out, weights = channel[1], [channel[1]]
        case _:
            return None
    if grouped is not None and (shared or transposed or grouped[0] != out):
        return None
    if transposed:
        weights.reverse()
    weights += [w for _, _, w, *_ in found]
    if sorted(map(str, weight_names)) != sorted(weights):
        return None
    order = [batch[1], out, *(x for _, x, *_ in found)]
    return ConvolutionForm(
        data=data.tensor,
        weight=weight.tensor,
        data_order=(batch[0], channel[0], *(dim for dim, *_ in found)),
        weight_order=tuple(weight_names.index(n) for n in weights),
        output_order=tuple(order.index(n) for n in spatial),
        output_shape=tuple(extent[n] for n in order),
        stride=tuple(f[3] for f in found),
        pad=tuple(f[5] for f in found),
        dilation=tuple(f[4] for f in found),
        depthwise=bool(shared),
        groups=1 if grouped is None else grouped[1],
        transposed=bool(transposed),
    )


def _group(index: Affine, extent: Mapping[str, int]) -> tuple[str, tuple[str, int]] | None:
    """`c + CG * (f // OG)`: the name of c, that of f, and into how many groups it is divided."""
    plain = [atom.name for atom, c in index.terms if isinstance(atom, Var) and c == 1]
    divided = [(atom, c) for atom, c in index.terms if isinstance(atom, FloorDiv)]
    if len(plain) != 1 or len(divided) != 1 or len(index.terms) != 2 or index.const:
        return None
    ((division, coefficient),) = divided
    out = _name(division.numerator)
    if out is None or coefficient != extent[plain[0]] or extent[out] % division.divisor:
        return None
    return plain[0], (out, extent[out] // division.divisor)


def _turned_window(
    index: Affine, spatial: Sequence[str], window: Sequence[str]
) -> tuple[str, str, int, int, int] | None:
    """`(x - d*w + pad) // stride`: the names of x and w, stride, dilation d, pad."""
    if len(index.terms) != 1 or index.const or not isinstance(index.terms[0][0], FloorDiv):
        return None
    division, coefficient = index.terms[0]
    assert isinstance(division, FloorDiv)
    inside = division.numerator
    names = [atom.name for atom, _ in inside.terms if isinstance(atom, Var)]
    outer, inner = [n for n in names if n in spatial], [n for n in names if n in window]
    if coefficient != 1 or len(inside.terms) != 2 or len(outer) != 1 or len(inner) != 1:
        return None
    dilation = -inside.coefficient(inner[0])
    if inside.coefficient(outer[0]) != 1 or dilation < 1:
        return None
    return outer[0], inner[0], division.divisor, dilation, inside.const


def _name(index: Affine) -> str | None:
    """The variable `index` consists of, None if it is more than that."""
    names: Sequence[str] = [atom.name for atom, _ in index.terms if isinstance(atom, Var)]
    if len(index.terms) == len(names) == 1 and not index.const and index.coefficient(names[0]) == 1:
        return names[0]
    return None
