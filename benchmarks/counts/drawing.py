"""Small workloads of every kind of sketch at awkward extents, and random settings of their spaces.

A *place* is one part of a program: the statements of the lowered nest that one sketch wrote, with
what that sketch says of them. What a sketch is asked for is in this file alone.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from benchmarks.spaces.replay import CPUS, THREADS, target_of
from tilewright.costmodel.counts.counting import counts
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.frontend.expr import compute, placeholder
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.frontend.reading import TensorExpr
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Allocate, Nest, PrefetchHint, Stmt, leaves
from tilewright.schedules.nest.prepacking import split_prepack
from tilewright.schedules.operators import build
from tilewright.schedules.plan import Plan
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Sketch
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

SHORT = (1, 2, 3, 5, 7, 8)
MIDDLE = (9, 13, 16, 17, 23, 31, 33)
LONG = (37, 45, 64, 65, 96, 101, 127)
"""Extents: few, a prime or a neighbour of vector lengths, and several vectors."""

LITTLE = (Cache(4096, 4), Cache(16384, 8), Cache(1 << 17, 16, shared=True))
"""Caches that small workloads overflow: what is streamed, asked for ahead or cut into blocks."""

MOST_TRIES = 40
"""Settings drawn for one that is feasible."""

Drawing = Callable[[random.Random], Workload]


@dataclass(frozen=True, slots=True)
class Counted:
    """One part of one setting: its kind of sketch, where it comes from in words, what the sketch
    counts and plans of which workload, and its statements of the nest."""

    kind: str
    text: str
    columns: Mapping[str, float]
    plan: Plan
    workload: Workload
    stages: frozenset[str]
    nest: Nest
    statements: tuple[Stmt, ...]


def _text(
    notation: str, extents: Callable[[random.Random], dict[str, int]], **shapes: str
) -> Drawing:
    """An expression with tensors of f32 whose shapes are named by extents: `A="ik"`."""

    def draw(rng: random.Random) -> Workload:
        sizes = extents(rng)
        tensors = {
            name: ("f32", tuple(sizes[axis] for axis in shape)) for name, shape in shapes.items()
        }
        used = {n: e for n, e in sizes.items() if n.islower()}
        return from_notation(notation, tensors, used)

    return draw


def _axes(**choices: tuple[int, ...]) -> Callable[[random.Random], dict[str, int]]:
    return lambda rng: {name: rng.choice(values) for name, values in choices.items()}


def _operator(name: str, more: Mapping[str, tuple[Any, ...]]) -> Drawing:
    def draw(rng: random.Random) -> Workload:
        return build(name, {key: rng.choice(values) for key, values in more.items()})

    return draw


def _winograd(rng: random.Random) -> Workload:
    sizes = {"H": rng.choice((8, 9, 10)), "W": rng.choice((8, 11)), "CI": rng.choice((3, 8, 16))}
    found = build("conv2d_nhwc", {**sizes, "CO": rng.choice((8, 18)), "K": 3, "pad": 1})
    return found.allowing(1e-3)


def _stencils(rng: random.Random, rows: int, columns: int) -> Workload:
    """A stage of neighbours in a row or in several rows, and one that reads neighbours of it."""
    image = placeholder("X", (rows + 4, columns + 4))
    offsets = [(rng.randrange(3), rng.randrange(3)) for _ in range(rng.choice((1, 2, 3)))]
    shape = (rows + 2, columns + 2)
    first = compute("a", shape, lambda y, x: _total(image, y, x, [(0, 0), *offsets]))
    taps = rng.choice(([(0, 0), (0, 1), (0, 2)], [(0, 0), (1, 0), (2, 0)], [(0, 0), (1, 1)]))
    out = compute("b", (rows, columns), lambda y, x: _total(first, y, x, taps))
    return Workload.of(out, inputs=[image])


def _total(tensor: TensorExpr, y: Index, x: Index, offsets: Sequence[tuple[int, int]]) -> Expr:
    terms = [tensor[y + dy, x + dx] for dy, dx in offsets]
    return reduce(operator.add, terms) * 3


_EPILOGUES = ("", "", "bias", "relu", "bias+relu", "add", "bias+gelu")
_TYPES = ("f32", "f32", "f32", "f64", "i32")
_MNK = {"M": (*SHORT, *MIDDLE, *LONG), "N": (*MIDDLE, *LONG), "K": (*MIDDLE, *LONG)}
_PRODUCT = {**_MNK, "epilogue": _EPILOGUES}
_IMAGE = {"H": (4, 5, 7, 9), "W": (6, 8, 11, 13), "CI": (1, 3, 5, 8), "CO": (7, 16, 18, 33)}
_WINDOW = {**_IMAGE, "K": (1, 2, 3), "epilogue": _EPILOGUES}

FAMILIES: dict[str, tuple[Drawing, ...]] = {
    "products": (
        _operator("matmul", {**_PRODUCT, "dtype": ("f32", "f32", "bf16")}),
        _operator("matmul", {**_MNK, "dtype": _TYPES}),
        _operator("matmul", {**_PRODUCT, "constant": ("B",)}),
        _operator("matmul_nt", _PRODUCT),
        _operator("matmul_tn", _PRODUCT),
        _operator("batch_matmul", {**_MNK, "B": (2, 3, 5)}),
        _operator("transpose_batch_matmul", {"seq": MIDDLE, "heads": (2, 3), "dim": (8, 17, 32)}),
    ),
    "windows": (
        _operator("conv1d_nlc", {
            "L": MIDDLE, "CI": SHORT, "CO": MIDDLE, "K": (1, 3, 5), "stride": (1, 2),
            "pad": (0, 1, 2), "dilation": (1, 2),
        }),
        _operator("conv2d_nhwc", {**_WINDOW, "N": (1, 2), "pad": (0, 1)}),
        _operator("conv2d_nhwc", {**_WINDOW, "stride": (2,), "pad": (0, 1)}),
        _operator("conv2d_nhwc", {**_WINDOW, "dilation": (2,), "pad": (0, 2)}),
        _operator("conv2d_nhwc", {**_WINDOW, "constant": ("W",), "pad": (1,)}),
        _operator("depthwise_conv2d_nhwc", {
            "H": (5, 9), "W": (7, 12), "C": (13, 16, 33), "K": (3,), "stride": (1, 2),
            "pad": (0, 1),
        }),
        _operator("conv2d_transpose_nhwc", {
            "H": (3, 4), "W": (3, 5), "CI": (3, 5), "CO": (7, 17), "K": (3, 4), "stride": (2,),
            "pad": (0, 1),
        }),
    ),
    "inner_products": (
        _text("C[i,j] += A[i,k] * B[j,k]", _axes(i=(2, 3, 5, 8, 12), j=(64, 70), k=(256, 512)),
              A="ik", B="jk"),
        _text("C[i,j] += A[k,i] * B[j,k]", _axes(i=(2, 3), j=(64, 97), k=(256, 511)),
              A="ki", B="jk"),
    ),
    "rows": (
        _operator("elementwise_add_relu", {"M": SHORT + MIDDLE, "N": MIDDLE + LONG}),
        _operator("softmax_mn", {"M": SHORT + MIDDLE, "N": MIDDLE + LONG}),
        _operator("layernorm_mn", {"M": SHORT + MIDDLE, "N": MIDDLE + LONG}),
        _operator("norm_bmn", {"B": (1, 3), "M": MIDDLE, "N": MIDDLE}),
        _operator("gemv", {"N": MIDDLE + LONG, "K": LONG}),
        _text("Y[i,j] = X[i,j] * b[j]", _axes(i=SHORT + MIDDLE, j=MIDDLE + LONG), X="ij", b="j"),
        _text("Y[i,j] = X[i,j] * c[i]", _axes(i=SHORT + MIDDLE, j=MIDDLE + LONG), X="ij", c="i"),
        _text("S[i] += X[i,j]", _axes(i=SHORT + MIDDLE, j=LONG), X="ij"),
        _text("S[z] += X[i,j]", _axes(i=MIDDLE, j=LONG, z=(1,)), X="ij"),
        _text("S[i,j] += X[i,k,j]", _axes(i=SHORT, j=MIDDLE, k=MIDDLE), X="ikj"),
        _text("Y[i,j] = exp(X[i,j])", _axes(i=(64,), j=(96, 128)), X="ij"),
    ),
    "columns": (
        _operator("colsum_mn", {"M": MIDDLE, "N": LONG}),
        _operator("global_avg_pool_nhwc", {"N": (1, 2), "H": (5, 7), "W": (4, 7), "C": LONG}),
        _text("M[j] max= X[i,j]; E[i,j] = exp(X[i,j] - M[j]); S[j] += E[i,j];"
              " Y[i,j] = E[i,j] / S[j]", _axes(i=MIDDLE, j=LONG), X="ij"),
        _text("S[b,j] += X[b,i,j]; Y[b,i,j] = X[b,i,j] - S[b,j]",
              _axes(b=(1, 2, 3), i=MIDDLE, j=LONG), X="bij"),
    ),
    "statistics": (
        _operator("group_norm_nhwc", {
            "N": (2, 3), "H": (3, 5), "W": (4, 7), "C": (48, 96), "groups": (4, 6, 12),
        }),
        _operator("group_norm_nchw", {
            "N": (1, 3), "H": (3, 5), "W": (4, 7), "C": (6, 12), "groups": (2, 3),
        }),
        _operator("batch_norm_train_nchw", {
            "N": SHORT, "H": (3, 5), "W": (4, 7), "C": (*SHORT, *MIDDLE),
        }),
        _text("S[c] += X[n,c,p]; Y[n,c,p] = X[n,c,p] * S[c]",
              _axes(n=SHORT, c=MIDDLE, p=MIDDLE + LONG), X="ncp"),
    ),
    "transposes": (
        _operator("transpose_mn", {"M": MIDDLE + LONG, "N": MIDDLE + LONG}),
        _text("Y[b,j,i] = X[b,i,j] * 2", _axes(b=SHORT, i=MIDDLE, j=MIDDLE), X="bij"),
        _text("Y[c,h,w] = X[h,w,c]", _axes(h=(5, 7), w=(6, 13), c=MIDDLE), X="hwc"),
        _text("S[i] += X[j,i] * 2", _axes(i=MIDDLE, j=MIDDLE), X="ji"),
        _text("S[j] += X[i,j] * Y[j,i]", _axes(i=LONG, j=MIDDLE), X="ij", Y="ji"),
    ),
    "transforms": (
        _winograd,
    ),
    "stencils": (
        lambda rng: _stencils(rng, rng.choice((5, 9, 16, 23)), rng.choice(MIDDLE + LONG)),
    ),
    "programs": (
        _text("T[i,j] += A[i,k] * B[k,j]; C[i,l] += T[i,j] * D[j,l]",
              _axes(i=MIDDLE, j=MIDDLE, k=MIDDLE, l=MIDDLE), A="ik", B="kj", D="jl"),
        _operator("transpose_batch_matmul_softmax", {
            "seq": (13, 17), "heads": (2,), "dim": (8, 16),
        }),
    ),
}  # fmt: skip
"""Workloads by family; kinds of sketches are what their spaces have."""


def machine(rng: random.Random) -> Target:
    """One of the machines of the replay, with its own caches or with little ones."""
    target = target_of(rng.choice(CPUS), rng.choice(THREADS))
    return replace(target, caches=LITTLE) if rng.random() < 0.5 else target


def counted(count: int, seed: int, families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Counted]:
    """Every part of `count` settings, drawn for the families in turn. Each has random numbers of
    its own: what is drawn for one does not depend on the others."""
    for number in range(count):
        yield from drawn(families[number % len(families)], f"{seed} {number}")


def drawn(family: str, seed: str) -> Iterator[Counted]:
    """The parts of one setting; none where the primitives refuse it."""
    rng = random.Random(f"{family} {seed}")
    workload = _drawn_workload(FAMILIES[family], rng)
    space = space_for(workload, machine(rng))
    sketch = rng.choice(space.sketches)
    setting = _feasible(sketch, rng)
    try:
        nest = lower(workload, sketch.trace(setting))
    except ScheduleError:
        return
    yield from parts_of(sketch, setting, nest, space.target)


def _drawn_workload(family: Sequence[Drawing], rng: random.Random) -> Workload:
    while True:
        try:
            return rng.choice(family)(rng).normalised()
        except WorkloadError:  # a window larger than its image
            continue


def _feasible(sketch: Sketch, rng: random.Random) -> tuple[int, ...]:
    """A feasible setting drawn at random; the default where none is found soon."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    found = np.random.default_rng(rng.getrandbits(32)).integers(0, sizes, (MOST_TRIES, len(sizes)))
    feasible = found[sketch.feasible(found)]
    return tuple(int(i) for i in feasible[0]) if len(feasible) else tuple(sketch.default())


def parts_of(
    sketch: Sketch, setting: tuple[int, ...], nest: Nest, target: Target
) -> Iterator[Counted]:
    """What each part of a program says, with its statements."""
    own = sketch.split_settings(np.asarray([setting]))
    plans = [part.plan(mine) for part, mine in zip(sketch.parts, own, strict=True)]
    stages = frozenset(stage.name for stage in sketch.workload.stages)
    divided = _divided(nest, plans)
    for part, mine, plan, statements in zip(sketch.parts, own, plans, divided, strict=True):
        values = {name: float(column[0]) for name, column in counts(part, mine).items()}
        chosen = {k.name: k.values[i] for k, i in zip(part.knobs, mine[0].tolist(), strict=True)}
        shapes = ", ".join(f"{t.name}{list(t.shape)}" for t in part.workload.tensors.values())
        text = f"{target.cpu} x{target.threads} {shapes} {chosen}"
        yield Counted(part.name, text, values, plan, part.workload, stages, nest, statements)


def _divided(nest: Nest, plans: Sequence[Plan]) -> list[tuple[Stmt, ...]]:
    """The nest's statements outside of all loops by the part that wrote them: in the order of the
    parts, each up to the last that has to do with the part's output."""
    statements = list(_outermost(split_prepack(nest).rest))
    if len(plans) == 1:
        return [tuple(statements)]
    divided: list[tuple[Stmt, ...]] = []
    for plan in plans:
        output = next(access.buffer for access in plan.accesses if access.is_output)
        last = max(n for n, stmt in enumerate(statements) if output in _roots(stmt))
        divided.append(tuple(statements[: last + 1]))
        statements = statements[last + 1 :]
    return divided


def _roots(stmt: Stmt) -> set[str]:
    """Stages that a statement computes, by the names of the buffers it writes."""
    found = (leaf for leaf in leaves((stmt,)) if not isinstance(leaf, PrefetchHint))
    return {leaf.buffer.split(".")[0] for leaf in found}


def _outermost(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            yield from _outermost(stmt.body)
        else:
            yield stmt
