"""PyTorch's functions of sliding windows other than convolutions: pooling and stencils."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from typing import Any

from tilewright.schedules.algebra.affine import Var
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Const,
    Load,
    Reducer,
    Scalar,
    loads,
)
from tilewright.schedules.workload.tensors import Stage

from ..forms.convolution import bare
from ..forms.pool import PoolForm
from ..variants import PeerVariant
from .convolutions import framed

Value = Callable[[], Any]


def pool_variants(form: PoolForm, data: Value) -> Iterator[PeerVariant]:
    """Yield calls of PyTorch's pooling that ignore elements outside the tensor or count them as
    zeros. The caller compares the results and rejects wrong ones."""
    import torch

    functions, rank = torch.nn.functional, len(form.taps)
    shape = form.image(data()).shape[2:]
    around = tuple((-lo, hi - n + 1) for n, (lo, hi) in zip(shape, form.spans, strict=True))
    alike = all(before >= 0 and after <= before for before, after in around)  # the rest is cropped
    pad = tuple(before for before, _ in around)
    none = (0,) * rank

    def variant(name: str, pool: Callable[[Any], Any]) -> PeerVariant:
        return PeerVariant(name, lambda: lambda: form.unfolded(pool(form.image(data()))))

    if form.reducer is Reducer.SUM:
        average = getattr(functions, f"avg_pool{rank}d")
        if max(form.dilation) > 1:
            return
        for within in (True, False) if alike else ():
            call = partial(average, kernel_size=form.taps, stride=form.stride, padding=pad,
                           count_include_pad=within)  # fmt: skip
            said = "" if within else ", of what is inside"
            yield variant(f"avg_pool{rank}d{said}", call)
            if within:
                yield variant(f"avg_pool{rank}d, mul_", partial(_times, call, prod(form.taps)))
        if alike and rank > 1:
            call = partial(average, kernel_size=form.taps, stride=form.stride, padding=pad,
                           divisor_override=1)  # fmt: skip
            yield variant(f"avg_pool{rank}d, divided by 1", call)
        plain = partial(average, kernel_size=form.taps, stride=form.stride)
        yield variant(f"pad, avg_pool{rank}d", partial(_framed, plain, around, 0.0))
        times = partial(_times, plain, prod(form.taps))
        yield variant(f"pad, avg_pool{rank}d, mul_", partial(_framed, times, around, 0.0))
        return
    greatest = getattr(functions, f"max_pool{rank}d")
    if form.reducer is Reducer.MIN:
        greatest = partial(_negated, greatest)
    name = f"max_pool{rank}d" + (", negated" if form.reducer is Reducer.MIN else "")
    if alike:
        yield variant(name, lambda x: greatest(x, form.taps, form.stride, pad, form.dilation))

    def unpadded(x: Any) -> Any:
        return greatest(x, form.taps, form.stride, none, form.dilation)

    outside = -inf if form.reducer is Reducer.MAX else inf
    for value, said in ((outside, "infinity"), (0.0, "zeros")):
        yield variant(f"pad with {said}, {name}", partial(_framed, unpadded, around, value))


def _negated(pool: Any, x: Any, *how: Any) -> Any:
    return pool(x.neg(), *how).neg_()


def _times(call: Any, factor: int, x: Any) -> Any:
    return call(x).mul_(factor)


def _framed(call: Any, around: Any, value: float, x: Any) -> Any:
    return call(framed(x, around, value))


@dataclass(frozen=True, slots=True)
class StencilForm:
    """A weighted sum of neighbours in `data`. `weights` has the weight of each offset in the last
    dimensions; the first `lead` dimensions have no offsets."""

    data: str
    lead: int
    weights: Mapping[tuple[int, ...], float]


def stencil_form(stage: Stage) -> StencilForm | None:
    """Match `stage` as a sum of neighbours with constant weights, or return None."""
    reads = loads(stage.body)
    tensors = {load.tensor for load in reads}
    total = _weights(stage, stage.body) if stage.is_elementwise else None
    if total is None or len(tensors) != 1 or len(total) < 2:
        return None
    lead = next((n for n in range(len(stage.axes)) if any(offsets[n] for offsets in total)), None)
    if lead is None or not 1 <= len(stage.axes) - lead <= 3:
        return None
    return StencilForm(tensors.pop(), lead, {k[lead:]: v for k, v in total.items()})


def _weights(stage: Stage, node: Scalar) -> dict[tuple[int, ...], float] | None:
    """Return the weight of each neighbour in `node`; a constant has no offsets."""
    node = bare(node)
    match node:
        case Const():
            return {(): float(node.value)}
        case Load():
            offsets = []
            for axis, index in zip(stage.axes, node.index, strict=False):
                if len(index.terms) != 1 or index.terms[0] != (Var(axis.name), 1):
                    return None
                offsets.append(index.const)
            return {tuple(offsets): 1.0} if len(node.index) == len(stage.axes) else None
        case Binary():
            a, b = _weights(stage, node.a), _weights(stage, node.b)
            if a is None or b is None:
                return None
            return _combined(node.op, a, b)
        case _:
            return None


def _combined(
    op: BinaryOp, a: dict[tuple[int, ...], float], b: dict[tuple[int, ...], float]
) -> dict[tuple[int, ...], float] | None:
    if op in (BinaryOp.ADD, BinaryOp.SUB):
        sign = 1.0 if op is BinaryOp.ADD else -1.0
        total = dict(a)
        for offsets, weight in b.items():
            total[offsets] = total.get(offsets, 0.0) + sign * weight
        return total
    if op is BinaryOp.MUL and list(a) == [()]:
        a, b = b, a
    if op not in (BinaryOp.MUL, BinaryOp.DIV) or list(b) != [()] or not b[()]:
        return None
    factor = b[()] if op is BinaryOp.MUL else 1 / b[()]
    return {offsets: weight * factor for offsets, weight in a.items()}


def stencil_variants(form: StencilForm, data: Value) -> Iterator[PeerVariant]:
    """Yield calls that compute the stencil as a convolution with a small constant kernel and zero
    padding."""
    import torch

    if () in form.weights:
        return
    rank = len(next(iter(form.weights)))
    reach = [max(abs(offsets[n]) for offsets in form.weights) for n in range(rank)]
    kernel = torch.zeros([1, 1, *(2 * n + 1 for n in reach)], dtype=data().dtype)
    for offsets, weight in form.weights.items():
        kernel[(0, 0, *(o + n for o, n in zip(offsets, reach, strict=True)))] = weight
    function = getattr(torch.nn.functional, f"conv{rank}d")

    def call() -> Any:
        x = data()
        return function(x.reshape((-1, 1, *x.shape[form.lead :])), kernel, padding=reach).view(
            x.shape
        )

    yield PeerVariant(f"conv{rank}d with a constant kernel", lambda: call)
