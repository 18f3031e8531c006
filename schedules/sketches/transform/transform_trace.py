"""Writing down the trace of one setting of the transform sketch, step by step."""

from __future__ import annotations

from collections.abc import Callable

from ...algebra.scalar import Scalar
from ...nest.loop_ir import LoopKind
from ...primitives import ComputeAt, Parallel, Unroll, Vectorize
from ..groups import FusionGroup
from ..writer import TraceWriter

AROUND, WITHIN, OUTSIDE = 0, 1, 2
"""Where stages inside are computed: around all formulas of a vector, within each of the first axis
(half the registers), or the same with that axis outside all loops, which then run once for each of
its formulas. That reads the data again, and writes to fewer places at a time: planes a power of two
apart compete for the same cache sets."""

TASKS_A_THREAD = 4
"""So that work evens out."""

Choices = Callable[[Scalar], dict[str, int]]


def write_transform_trace(
    writer: TraceWriter,
    group: FusionGroup,
    choices: Choices,
    lanes: int,
    threads: int,
    v: dict[str, int],
) -> None:
    """Add the steps that schedule `group` with knob values `v` to `writer`."""
    w, last = writer, group.last
    w.do(*last.presplit)
    formulas = _formula_loops(w, last.name, choices)
    leaf, chain = w.writer_of(last.name)
    others = [loop.var for loop in chain if loop.var not in formulas]
    lane = w.best_vector_loop(leaf, others)
    outer = [name for name in others if name != lane]
    inner = ""
    if lane is not None:
        vectors, inner = w.split(lane, _width(lanes, w.loop(lane).extent))
        outer.append(vectors)
    outside, within = (formulas[:1], formulas[1:]) if v["place"] == OUTSIDE else ([], formulas)
    w.reorder(*outside, *outer, *within, *([inner] if inner else []))
    place = outer[-1] if outer else formulas[0]
    if v["place"] == WITHIN and len(formulas) > 1:
        place = formulas[0]
    for view in reversed(group.inside):
        w.do(ComputeAt(view.name, place, register=True))
    for view in group.stages:
        _write_out(w, view.name, place, lanes, inner if view is last else "")
    if v["parallel"] and outer:
        _share(w, outer, outside, threads)
    w.do(*(Unroll(name) for name in formulas if w.loop(name).kind is LoopKind.SERIAL))


def _formula_loops(w: TraceWriter, name: str, choices: Choices) -> list[str]:
    """The loops that choose formulas, outer to inner, split off where a choice is periodic."""
    leaf, _ = w.writer_of(name)
    for loop, period in choices(leaf.value).items():
        if period and w.loop(loop).extent > period:
            w.split(loop, period)
    leaf, chain = w.writer_of(name)
    found = choices(leaf.value)
    return [loop.var for loop in chain if loop.var in found]


def _width(lanes: int, extent: int) -> int:
    """Lanes of a vector along a loop: all, or a power of two that a short loop fills."""
    while lanes > extent and lanes > 1:
        lanes //= 2
    return lanes


def _write_out(w: TraceWriter, name: str, place: str, lanes: int, lane: str) -> None:
    """Vectorise along `lane`, or the stage's own contiguous loop, and write out the rest."""
    leaf, _ = w.writer_of(name)
    own = [loop.var for loop in w.own_loops(name, inside=place)]
    if not lane:
        short = [n for n in own if w.loop(n).extent <= lanes]
        lane = w.best_vector_loop(leaf, short) or ""
        if lane:
            w.reorder(*(n for n in own if n != lane), lane)
        w.do(*(Unroll(n) for n in own if n != lane))
    if lane and w.loop(lane).extent > 1:
        w.do(Vectorize(lane))


def _share(w: TraceWriter, outer: list[str], outside: list[str], threads: int) -> None:
    """Divide all tiles among the threads; with a formula loop outside, only as many of the loops
    as give enough tasks, so that it stays outside the others."""
    tasks, task = 1, ""
    shared = outer
    if outside:
        shared = []
        for name in outer:
            if tasks < TASKS_A_THREAD * threads:
                shared.append(name)
                tasks *= w.loop(name).extent
        w.reorder(*shared, *outside)
    for name in shared:
        task = w.fuse(task, name) if task else name
    w.do(Parallel(task))
