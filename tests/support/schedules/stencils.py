"""Random programs of stages that read neighbouring elements of each other."""

from __future__ import annotations

import random

from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.expr import (
    cast,
    compute,
    maximum,
    padded,
    placeholder,
    reduce_axis,
)
from tilewright.schedules.frontend.expr import max as max_over
from tilewright.schedules.frontend.expr import sum as sum_over
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.frontend.reading import TensorExpr
from tilewright.schedules.workload.workload import Workload

OUTER, LAST = (1, 2, 3, 4, 5, 7, 9, 13, 18), (1, 3, 8, 9, 13, 17, 23, 33, 41)
"""Extents of the input along the last axis and along the others."""

DTYPES = (DType.F32, DType.F32, DType.F64, DType.U8, DType.I32)


def stencil_program(rng: random.Random) -> Workload:
    """Draw a program of 2 to 6 stages with 1 to 3 axes, whose reads have random offsets and strides
    of 1 or 2, are at quotients of the axes, or are padded. Several stages may read one stage. There
    may be several outputs, of different extents, and stages may read outputs."""
    while True:
        try:
            return _program(rng).normalised()
        except WorkloadError:  # an image smaller than a window
            continue


def _program(rng: random.Random) -> Workload:
    rank = rng.choice((1, 2, 2, 2, 3))
    shape = (*(rng.choice(OUTER) for _ in range(rank - 1)), rng.choice(LAST))
    dtype = rng.choice(DTYPES)
    image = placeholder("X", shape, dtype)
    tensors: list[TensorExpr] = [image]
    unread: list[TensorExpr] = []
    joining = rng.choice((0.2, 0.8, 0.8))  # the probability that a stage reads the one before
    for number in range(rng.randint(2, 6)):
        recent = tensors[-3:]
        sources = [rng.choice(recent) for _ in range(rng.choice((1, 1, 2)))]
        if unread and unread[-1] not in sources and rng.random() < joining:
            sources.append(unread[-1])
        made = _stage(f"t{number}", sources, rng)
        unread = [x for x in unread if all(x is not source for source in sources)] + [made]
        tensors.append(made)
    read = [x for x in tensors[1:] if all(x is not one for one in unread)]
    kept = rng.sample(read, min(rng.choice((0, 0, 0, 1, 1, 2)), len(read)))
    outputs = [*unread, *kept]
    return Workload.of(*dict.fromkeys(outputs), inputs=[image])


def _stage(name: str, sources: list[TensorExpr], rng: random.Random) -> TensorExpr:
    rank = len(sources[0].shape)
    if all(x.shape == sources[0].shape for x in sources) and rng.random() < 0.25:
        return _padded_stage(name, sources, rng)
    if rng.random() < 0.2:
        return _window_stage(name, sources[-1], rng)
    if rng.random() < 0.15:
        return _repeated_stage(name, sources[-1], rng)
    reads = [
        (x, tuple(rng.choice((0, 0, 1, 2)) for _ in range(rank)))
        for x in sources
        for _ in range(rng.choice((1, 2, 3)))
    ]
    steps = tuple(rng.choice((1, 1, 1, 1, 2)) for _ in range(rank))
    shape = tuple(
        min((x.shape[d] - 1 - at[d]) // steps[d] + 1 for x, at in reads) for d in range(rank)
    )
    if min(shape) < 1:
        raise WorkloadError("the image is smaller than the window")

    def value(*axes: Index) -> Expr:
        terms = [
            x[tuple(i * s + o for i, s, o in zip(axes, steps, at, strict=True))] for x, at in reads
        ]
        return _combined(terms, rng)

    return compute(name, shape, value)


def _window_stage(name: str, source: TensorExpr, rng: random.Random) -> TensorExpr:
    """Draw the sum or the greatest element of a window, which may step by 2. Some windows are
    combined with an element that their taps do not move."""
    sizes = tuple(rng.choice((1, 2, 3)) for _ in source.shape)
    steps = tuple(rng.choice((1, 1, 1, 2)) for _ in source.shape)
    limits = zip(source.shape, sizes, steps, strict=True)
    shape = tuple((n - size) // step + 1 for n, size, step in limits)
    if min(shape) < 1:
        raise WorkloadError("the image is smaller than the window")
    taps = [reduce_axis(size, f"r{n}") for n, size in enumerate(sizes)]
    reducer, has_fixed = rng.choice((sum_over, max_over)), rng.random() < 0.2

    def value(*axes: Index) -> Expr:
        first = tuple(i * step for i, step in zip(axes, steps, strict=True))
        terms = [source[tuple(i + r for i, r in zip(first, taps, strict=True))]]
        if has_fixed:
            terms.append(source[first])
        return reducer(_combined(terms, rng), axis=tuple(taps))

    return compute(name, shape, value)


def _repeated_stage(name: str, source: TensorExpr, rng: random.Random) -> TensorExpr:
    """Draw a stage that reads each element of `source` for several of its own, along some axes."""
    divisors = tuple(rng.choice((1, 2, 2, 3, 4)) for _ in source.shape)
    swaps = tuple(rng.choice((0, 0, 1, 2)) for _ in source.shape)
    reads = [tuple(rng.choice((0, 0, 1)) for _ in source.shape) for _ in range(rng.choice((1, 2)))]
    shape = tuple(
        (n - max(at[d] for at in reads) - swap * (by - 1)) * by - rng.choice((0, 0, 1))
        for d, (n, by, swap) in enumerate(zip(source.shape, divisors, swaps, strict=True))
    )
    if min(shape) < 1:
        raise WorkloadError("the image is smaller than the window")

    def value(*axes: Index) -> Expr:
        places = list(zip(axes, divisors, swaps, strict=True))
        found = [i // by + swap * (i % by) for i, by, swap in places]
        terms = [source[tuple(i + o for i, o in zip(found, at, strict=True))] for at in reads]
        return _combined(terms, rng)

    return compute(name, shape, value)


def _padded_stage(name: str, sources: list[TensorExpr], rng: random.Random) -> TensorExpr:
    rank = len(sources[0].shape)
    reads = [(x, tuple(rng.choice((-1, 0, 1)) for _ in range(rank))) for x in sources for _ in "ab"]

    def value(*axes: Index) -> Expr:
        terms = [padded(x, *(i + o for i, o in zip(axes, at, strict=True))) for x, at in reads]
        return _combined(terms, rng)

    return compute(name, sources[0].shape, value)


def _combined(terms: list[Expr], rng: random.Random) -> Expr:
    terms = [cast(term, "i32") if term.dtype is DType.U8 else term for term in terms]
    found = terms[0]
    for term in terms[1:]:
        match rng.randrange(4):
            case 0:
                found = found - term
            case 1:
                found = maximum(found, term)
            case _:
                found = found + term
    return found * rng.choice((1, 2, 3))
