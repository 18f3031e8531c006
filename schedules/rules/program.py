"""The space of a workload: its stages in clusters, each cluster with a sketch of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import Protocol

import numpy as np

from ..affine import Affine, affine, var
from ..errors import ScheduleError
from ..primitives import Inline
from ..rewrites import Rewrite
from ..scalar import Reducer, loads
from ..space import Access, BoolArray, FloatArray, IntArray, Knob, ScheduleSpace, Sketch
from ..target import Target
from ..trace import Trace
from ..workload import Stage, Workload
from .analysis import Loop, StageView, math_calls, view_stage
from .column_cluster import ColumnCluster, column_cluster
from .columns import ColumnSketch
from .dots import DotSketch, dot_roles
from .orders import axes_last
from .phases import inserts_zeros
from .plain import PlainSketch
from .products import beforehand
from .rewriting import rewrites_for, rewritten
from .rows import RowSketch
from .rows_trace import RowCluster, contiguous_reduction, is_along_columns
from .tile import TileSketch
from .tile_roles import assign_roles, lane_step, tile_roles
from .transform import TransformSketch, transform_cluster
from .turn import turn_sketch
from .turned_sum import TurnedSumSketch, find_turned_sum
from .writer import TraceWriter

MAX_SKETCHES = 4
"""Combinations of alternatives beyond this add little and are not searched."""


class Part(Sketch, Protocol):
    """A sketch of one cluster: it can add its steps to a trace that has other clusters' steps."""

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class ProgramSketch:
    """Several clusters one after the other; knobs are those of the parts, in order.

    `workload` is the one the parts speak of: that of the space after `rewrites`.
    """

    workload: Workload
    inlined: tuple[str, ...]
    parts: tuple[Part, ...]
    rewrites: tuple[Rewrite, ...] = ()

    @property
    def name(self) -> str:
        rewrites = (step.label for step in self.rewrites)
        return "+".join((*rewrites, *(part.name for part in self.parts)))

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        if len(self.parts) == 1:
            return self.parts[0].knobs
        return tuple(
            Knob(f"{n}.{knob.name}", knob.values)
            for n, part in enumerate(self.parts)
            for knob in part.knobs
        )

    def own_settings(self, settings: IntArray) -> list[IntArray]:
        """The columns of `settings` that belong to each part."""
        ends = np.cumsum([len(part.knobs) for part in self.parts])[:-1]
        return [np.asarray(own) for own in np.split(np.atleast_2d(settings), ends, axis=1)]

    @cached_property
    def heaviest(self) -> int:
        """The part whose loops stand for the program's in the traffic model."""
        costs = [
            float(part.columns(np.asarray([part.default()]))["flops"][0]) for part in self.parts
        ]
        return int(np.argmax(costs))

    @property
    def loop_axes(self) -> tuple[int, ...]:
        return self.parts[self.heaviest].loop_axes

    @property
    def accesses(self) -> tuple[Access, ...]:
        return self.parts[self.heaviest].accesses

    def extents(self, settings: IntArray) -> IntArray:
        """(P, L) trip counts of the heaviest part's loops."""
        return self.parts[self.heaviest].extents(self.own_settings(settings)[self.heaviest])

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether every part can be held."""
        own = self.own_settings(settings)
        result = np.ones(len(own[0]), np.bool_)
        for part, part_settings in zip(self.parts, own, strict=True):
            result &= part.feasible(part_settings)
        return result

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See `joined`."""
        own = self.own_settings(settings)
        return self.joined([part.columns(s) for part, s in zip(self.parts, own, strict=True)])

    def joined(self, each: Sequence[dict[str, FloatArray]]) -> dict[str, FloatArray]:
        """Columns of the program from those of its parts: counts are added up; what describes the
        innermost loop is the heaviest part's."""
        total = dict(each[self.heaviest])
        for name in _ADDED:
            total[name] = np.sum([columns[name] for columns in each], axis=0)
        return total

    def default(self) -> tuple[int, ...]:
        return tuple(i for part in self.parts for i in part.default())

    def trace(self, setting: Sequence[int]) -> Trace:
        """The trace of one feasible setting."""
        writer = TraceWriter(self.workload)
        writer.do(*(Inline(name) for name in self.inlined))
        for part, own in zip(self.parts, self.own_settings(np.asarray([setting])), strict=True):
            part.write(writer, tuple(int(i) for i in own[0]))
        return Trace((*self.rewrites, *writer.trace.steps))


_ADDED = (
    "flops", "vector_ops", "vector_loads", "vector_stores", "scalar_accesses", "math_calls",
    "conflict_misses", "packed_bytes", "strided_packed_bytes", "regions",
)  # fmt: skip


def space_for(workload: Workload, target: Target) -> ScheduleSpace:
    """Every schedule that is searched for `workload` on `target`.

    There is always at least one sketch, and its default is legal: what no rule fits is left as
    plain loops. Products computed in steps come first, other rewritten forms last.
    """
    workload = workload.normalised()
    steps: tuple[Rewrite, ...] = beforehand(workload)
    form = rewritten(workload, steps)
    sketches = _sketches(form, target, steps) if steps else []
    order = axes_last(form, target)
    if order:
        sketches += _sketches(rewritten(form, order), target, (*steps, *order))
    sketches += _sketches(workload, target) or [PlainSketch(workload, target)]
    for steps in rewrites_for(workload):
        sketches += _sketches(rewritten(workload, steps), target, steps)
    return ScheduleSpace(workload, target, tuple(sketches))


def _sketches(
    workload: Workload, target: Target, rewrites: tuple[Rewrite, ...] = ()
) -> list[Sketch]:
    """The sketches of one form of the workload; none where no combination of rules fits."""
    inlined = _inlined(workload)
    views = {
        s.name: view_stage(workload, s.name, inlined)
        for s in workload.stages
        if s.name not in inlined
    }
    ways = [_clusters(workload, views, target)]
    if any(isinstance(part, ColumnSketch) for parts in ways[0] for part in parts):
        ways.append(_clusters(workload, views, target, columns=False))
    if any(_has_few_rows(part, target) for parts in ways[0] for part in parts):
        ways.append(_clusters(workload, views, target, absorb=False))
    if any(isinstance(part, TileSketch) and part.epilogue for parts in ways[0] for part in parts):
        apart = _clusters(workload, views, target, dots_apart=True)
        if any(isinstance(part, DotSketch) for parts in apart for part in parts):
            ways.append([_dots_only(parts) for parts in apart])
    sketches: list[Sketch] = []
    for parts in islice(_likeliest(ways), MAX_SKETCHES):
        sketch = ProgramSketch(workload, inlined, tuple(parts), rewrites)
        if _works(lambda s=sketch: s.trace(s.default())):  # type: ignore[misc]
            sketches.append(sketch)
    return sketches


def _dots_only(parts: list[Part]) -> list[Part]:
    """The sketch of dot products if there is one: the others have been offered."""
    return [part for part in parts if isinstance(part, DotSketch)] or parts


def _likeliest(ways: list[list[list[Part]]]) -> Iterator[tuple[Part, ...]]:
    """Combinations of each cluster's sketches, by how far they are from the likeliest ones in sum:
    the second choice of any cluster comes before the third of another."""
    for total in count():
        rest = [_of_rank(way, total) for way in ways]
        yield from (parts for found in rest for parts in found)
        if all(total >= sum(len(parts) - 1 for parts in way) for way in ways):
            return


def _of_rank(way: list[list[Part]], total: int) -> Iterator[tuple[Part, ...]]:
    """Combinations whose places in the lists add up to `total`; later clusters change first."""
    if not way:
        if total == 0:
            yield ()
        return
    most_later = sum(len(parts) - 1 for parts in way[1:])
    for place, part in enumerate(way[0][: total + 1]):
        if total - place <= most_later:
            yield from ((part, *others) for others in _of_rank(way[1:], total - place))


def _has_few_rows(part: Part, target: Target) -> bool:
    """Whether a part computes several stages in fewer rows than there are threads."""
    return (
        isinstance(part, RowSketch)
        and bool(part.cluster.inside)
        and part.rows_in_all() < target.threads
    )


def _works(make: Callable[[], Trace]) -> bool:
    """Whether a rule's sketch fits an unusual expression; the primitives have the last word."""
    try:
        make()
    except ScheduleError:
        return False
    return True


def _inlined(workload: Workload) -> tuple[str, ...]:
    """Elementwise stages that are cheaper to compute where they are read, in program order."""
    found: list[str] = []
    outputs = set(workload.outputs)
    for stage in workload.stages:
        if stage.reducer is not None or stage.name in outputs:
            continue
        readers = workload.consumers(stage.name)
        times = sum(
            _points(reader) * sum(1 for ld in loads(reader.body) if ld.tensor == stage.name)
            for reader in readers
        )
        cheap = math_calls(stage.body) == 0 and len(loads(stage.body)) <= 2
        again = times / max(_points(stage), 1)
        spread = inserts_zeros(stage) and all(r.reducer is Reducer.SUM for r in readers)
        if again <= 1.0 or (cheap and again <= 3.0) or spread:
            found.append(stage.name)
    return tuple(found)


def _points(stage: Stage) -> int:
    total = 1
    for axis in (*stage.axes, *stage.reduce_axes):
        total *= axis.extent
    return total


def _clusters(
    workload: Workload,
    views: dict[str, StageView],
    target: Target,
    *,
    absorb: bool = True,
    dots_apart: bool = False,
    columns: bool = True,
) -> list[list[Part]]:
    """The program's clusters in order, each with the sketches that fit it, the likeliest first.
    Unless `absorb`, no stage is computed in the rows of another, and unless `columns`, none in its
    blocks of columns; with `dots_apart`, none from the tiles of a reduction that can be dot
    products, whose results are few."""
    remaining = list(views)
    found: list[list[Part]] = []
    while remaining:
        name = remaining.pop()
        view = views[name]
        transform = transform_cluster(workload, views, name, remaining)
        if transform is not None:
            for inner in transform.inside:
                remaining.remove(inner.name)
            found.append([TransformSketch(workload, transform, target)])
            continue
        anchor = _anchor(workload, views, view, remaining)
        if anchor is not None and dots_apart and _dots(workload, views, anchor, target):
            anchor = None
        if anchor is not None:
            roles = assign_roles(views[anchor])
            assert roles is not None
            remaining.remove(anchor)
            tiles = tile_roles(views[anchor], roles, target)
            found.append([TileSketch(workload, views[anchor], r, target, view) for r in tiles])
            continue
        by_column = _by_column(workload, views, name, remaining, target) if columns else None
        if by_column is not None:
            for inner in by_column.inside:
                remaining.remove(inner.name)
            found.append([ColumnSketch(workload, by_column, target)])
            continue
        roles = assign_roles(view)
        may_absorb = absorb and roles is None
        members, rows = _row_members(workload, views, name, remaining, may_absorb)
        parts: list[Part] = []
        if roles is not None:
            lone = is_along_columns(view) and len(view.reads) == 1 and _reuse(view) <= 1
            if not lone:  # what is read once and only added has nothing to gain from tiles
                tiles = tile_roles(view, roles, target) if _reuse(view) > 1 else (roles,)
                parts += [TileSketch(workload, view, chosen, target) for chosen in tiles]
            dots = _dots(workload, views, name, target)
            if dots is not None:
                parts.append(dots)
            if _reuse(view) <= 1 or lane_step(roles) > 1:
                alone = RowCluster(view, (), _own_rows(view))
                parts.append(RowSketch(workload, alone, target))
        else:
            turned_sum = None if members else find_turned_sum(view)
            if turned_sum is not None:
                parts.append(TurnedSumSketch(workload, view, turned_sum, target))
            turn = None if members else turn_sketch(workload, view, target)
            if turn is not None:
                parts.append(turn)
            cluster = RowCluster(view, tuple(views[m] for m in members), rows)
            if turn is None or turn.turn.narrow:
                parts.append(RowSketch(workload, cluster, target))
            for member in members:
                remaining.remove(member)
        found.append(parts)
    found.reverse()
    return found


def _by_column(
    workload: Workload,
    views: dict[str, StageView],
    name: str,
    remaining: list[str],
    target: Target,
) -> ColumnCluster | None:
    """Stage `name` with others that have its columns, if the rows of the narrowest block stay in a
    core's own caches; tiles of a product have more to gain."""
    if _is_product(views[name]):
        return None
    others = [other for other in remaining if not _is_product(views[other])]
    cluster = column_cluster(workload, views, name, others)
    if cluster is None:
        return None
    block = cluster.read_bytes * target.lanes(views[name].dtype)
    return cluster if block <= target.own_cache_bytes else None


def _is_product(view: StageView) -> bool:
    """Whether a stage can be tiled, and uses what it reads again."""
    return assign_roles(view) is not None and _reuse(view) > 1


def _dots(
    workload: Workload, views: dict[str, StageView], name: str, target: Target
) -> DotSketch | None:
    """The sketch of dot products for a stage, None where it does not fit. Its output axes are left
    undivided."""
    view = views[name]
    if view.presplit:
        inlined = tuple(s.name for s in workload.stages if s.name not in views)
        view = view_stage(workload, name, inlined, whole=True)
    roles = dot_roles(view, target.lanes(view.dtype))
    return DotSketch(workload, view, roles, target) if roles else None


def _reuse(view: StageView) -> float:
    """How often an element that is read is used, on average: about 1 for pure reductions."""
    read = 0
    for r in view.reads:
        size = 1
        for extent in r.shape:
            size *= extent
        read += size
    return view.points / max(read, 1)


def _anchor(
    workload: Workload, views: dict[str, StageView], view: StageView, remaining: list[str]
) -> str | None:
    """The tiled reduction that an elementwise stage is computed from directly, if there is one."""
    if view.is_reduction or view.presplit:
        return None
    for read in view.reads:
        name = read.tensor
        if name not in remaining or not views[name].is_reduction:
            continue
        direct = all(
            all(_is_loop(i, loop) for i, loop in zip(r.index, view.spatial, strict=True))
            for r in view.reads
            if r.tensor == name and len(r.index) == len(view.spatial)
        )
        alone = set(_readers(views, name)) == {view.name}
        if not direct or not alone or read.conditional or name in workload.outputs:
            continue
        if assign_roles(views[name]) is None or _reuse(views[name]) <= 1:
            continue
        if views[name].shape == view.shape:
            return name
    return None


def _is_loop(index: Affine, loop: Loop) -> bool:
    """Whether `index` is just `loop`; a loop of one iteration is written as zero."""
    return index == (var(loop.name) if loop.extent > 1 else affine(0))


def _readers(views: dict[str, StageView], name: str) -> list[str]:
    """Stages that read `name` once inlined stages are in place."""
    return [v.name for v in views.values() if any(r.tensor == name for r in v.reads)]


def _own_rows(view: StageView) -> int:
    """How many leading axes of a stage that is alone are walked outside: all that vectors and
    reductions do not need."""
    if contiguous_reduction(view) is not None:
        return len(view.spatial)
    return max(len(view.spatial) - 1, 0)


def _row_members(
    workload: Workload,
    views: dict[str, StageView],
    name: str,
    remaining: list[str],
    may_absorb: bool,
) -> tuple[list[str], int]:
    """Earlier stages that can be computed inside the rows of stage `name`, and how many axes the
    rows are."""
    view = views[name]
    rows = _own_rows(view) or len(view.spatial)
    if not may_absorb or view.presplit:
        return [], _own_rows(view)
    members: list[str] = []
    inside = {name}
    for other in reversed(remaining):
        candidate = views[other]
        if other in workload.outputs or not set(_readers(views, other)) <= inside:
            continue
        if candidate.presplit or not _readers(views, other):
            continue
        if assign_roles(candidate) is not None and _reuse(candidate) > 1:
            continue
        shared = min(_shared_rows(views[reader], other) for reader in _readers(views, other))
        shared = min(shared, rows)
        if shared < 1:
            continue
        rows = shared
        members.insert(0, other)
        inside.add(other)
    return members, rows if members else _own_rows(view)


def _shared_rows(reader: StageView, tensor: str) -> int:
    """How many leading axes of `reader` are the leading axes of every read of `tensor`."""
    count = len(reader.spatial)
    for read in reader.reads:
        if read.tensor != tensor:
            continue
        same = 0
        for index, loop in zip(read.index, reader.spatial, strict=False):
            if not _is_loop(index, loop):
                break
            same += 1
        count = min(count, same)
    return count
