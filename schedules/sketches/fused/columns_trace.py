"""Writing down the trace of one setting of the column sketch, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...primitives import CacheWrite, ComputeAt, Merge, Parallel, Stream, Unroll, Vectorize
from ..analysis import Loop, StageView
from ..groups import FusionGroup, merged
from ..writer import TraceWriter


@dataclass(frozen=True, slots=True)
class Block:
    """A block of columns: `width` columns, walked over in groups of `vectors` of `lanes`."""

    width: int
    vectors: int
    lanes: int


def column_walk(group: FusionGroup, view: StageView) -> tuple[Loop, ...] | None:
    """The loops of a reduction over all rows, see `merged`: shared ones, those it reduces,
    columns."""
    *lead, column = view.spatial
    return (*lead, *view.reduce, column) if len(lead) == group.shared else None


def write_column_trace(
    writer: TraceWriter, group: FusionGroup, block: Block, v: dict[str, int]
) -> None:
    """Add the steps that schedule `group` with knob values `v` to `writer`."""
    _ColumnTrace(
        writer, group, block, merged(group, partial(column_walk, group)) if v["merge"] else {}
    ).write()
    if v["parallel"]:
        writer.do(Parallel(writer.own_loops(group.last.name)[0].var))
    if v["stream"]:
        writer.do(Stream(group.last.name))


@dataclass(frozen=True, slots=True)
class _Walk:
    """The loops of a stage within a block: groups of vectors, rows, vectors of a group, lanes."""

    group: str
    rows: tuple[str, ...]
    middle: str
    lane: str


@dataclass(frozen=True, slots=True)
class _ColumnTrace:
    writer: TraceWriter
    group: FusionGroup
    block: Block
    merged: dict[str, str]

    def write(self) -> None:
        place = self._blocks()
        for view in reversed(self.group.inside):
            self.writer.do(ComputeAt(view.name, place))
        walks: dict[str, _Walk] = {}
        for view in self.group.stages:
            walks[view.name] = self._stage(view, place)
        for reduced, view_name in self.merged.items():
            self._merge(walks[view_name], walks[reduced])

    def _blocks(self) -> str:
        """The loop over blocks of columns, of all matrices, around everything."""
        w, last = self.writer, self.group.last
        own = w.writer_of(last.name)[1]
        spatial = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        lead, others = spatial[: self.group.shared], spatial[self.group.shared : -1]
        blocks, within = w.split(spatial[-1], self.block.width)
        w.reorder(*lead, blocks, *others, *reduce, within)
        place = ""
        for name in (*lead, blocks):
            place = w.fuse(place, name) if place else name
        return place

    def _stage(self, view: StageView, place: str) -> _Walk:
        """Walk over the rows with a few vectors of columns at a time; what a reduction adds up
        stays in registers."""
        w, lanes = self.writer, self.block.lanes
        own = w.own_loops(view.name, inside=place)
        *others, column = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        group, rest = w.split(column, lanes * self.block.vectors)
        middle, lane = w.split(rest, lanes)
        if view.is_reduction:
            w.reorder(*others, group, *reduce, middle, lane)
            w.do(Vectorize(lane), Unroll(middle), CacheWrite(view.name, group, f"{view.name}.acc"))
            return _Walk(group, tuple(reduce), middle, lane)
        w.reorder(group, *others, middle, lane)
        w.do(Vectorize(lane), Unroll(middle))
        return _Walk(group, tuple(others), middle, lane)

    def _merge(self, first: _Walk, second: _Walk) -> None:
        """One walk of two. Rows of one iteration have no loop of their own where a stage was
        moved, so the ones left are those of more."""
        w = self.writer
        one, other = ([x for x in walk.rows if w.loop(x).extent > 1] for walk in (first, second))
        w.do(Merge(first.group, second.group))
        w.do(*(Merge(a, b) for a, b in zip(one, other, strict=True)))
        w.do(Merge(first.middle, second.middle), Merge(first.lane, second.lane))
