"""The row sketch: stages that share their leading axes are computed one row at a time. The shared
axes are the rows.

    rows (parallel) | block of rows | stages, each: a pass along the row, in vectors

With several stages, each stage has a private buffer of one row: a softmax is one loop over rows
with four short loops inside. Within a row, an elementwise stage is vectorised along the contiguous
axis, and a reduction as `reductions.py` describes. If `staggered.py` finds steps that can overlap,
rows are software-pipelined. A group may also be a single reduction that reads each element about
once and so does not profit from tiles. If such a reduction has fewer results than there are
threads, the threads divide the reduction or its columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Protocol, TypeVar

import numpy as np

from ...algebra.affine import Affine, affine, var
from ...arrays import BoolArray, IntArray
from ...leaves import Leaf
from ...plan import Access, Level, Outline, Plan, access_of, axes_of
from ...primitives import Parallel, Stream
from ..analysis.reductions import contiguous_reduction, is_along_columns
from ..analysis.stages import StageLoop, StageView, windows_of
from ..analysis.tile_roles import is_product
from ..groups import (
    FusionGroup,
    GroupSketch,
    Stages,
    absorb_producers,
    is_loop,
    leading_axes,
    reads_boxes,
)
from ..knobs import POWERS
from ..writer import TraceWriter
from .common_axes import Walk, common_axes
from .row_nests import Rows, RowSettings, RowWriter


class StoreKnobs(Protocol):
    """Knobs of all sketches of rows."""

    @property
    def parallel(self) -> Any: ...

    @property
    def nontemporal_stores(self) -> Any: ...


StoreArrays = TypeVar("StoreArrays", bound=StoreKnobs)
StoreInts = TypeVar("StoreInts", bound=StoreKnobs)


def own_rows(view: StageView) -> int:
    """Return the number of leading axes of a stage that are needed neither for vectors nor for the
    reduction."""
    if contiguous_reduction(view) is not None:
        return len(view.spatial)
    return max(len(view.spatial) - 1, 0)


def row_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Return the group of `view` and earlier stages that can be computed in its rows. Return None
    if there are no such stages, or if a row would be a single element of elementwise stages.
    Products are excluded because tiles are faster."""

    def common(other: StageView, reader: StageView) -> int:
        reader = view if reader.name == view.name else reader  # its axes may be in another order
        if is_product(other):
            return -1
        # Axes of an earlier stage are split after it has moved into the row.
        split = {f"{step.loop}{part}" for step in other.axis_splits for part in "oi"}
        whole = takewhile(lambda loop: loop.name not in split, other.spatial)
        return min(leading_axes(other.name, reader), len(tuple(whole)))

    most = FusionGroup(view, (), own_rows(view) or len(view.spatial))
    found = absorb_producers(stages, most, common, 1, reads_boxes)
    walks = any(stage.reduce or len(stage.spatial) > found.shared_axes for stage in found.stages)
    return found if found.producers and walks else None


def inner_row_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Return the group of `view` and earlier stages whose rows are not the leading axes of `view`,
    or None if there is none.

    An example are the channels of images stored plane by plane, with statistics of each channel.
    The loops of the rows are moved outwards.
    """
    if view.is_reduction or any(loop.dim < 0 for loop in view.spatial):
        return None
    shared = [
        {loop.name for loop in view.spatial if any(is_loop(i, loop) for i in read.index)}
        for read in view.reads
        if read.tensor in stages.left
    ]
    rows = frozenset.intersection(*map(frozenset, shared)) if shared else frozenset()
    order = sorted(view.spatial, key=lambda loop: loop.name not in rows)
    if not rows or tuple(order) == view.spatial or view.spatial[-1].name in rows:
        return None
    return row_group(stages, replace(view, spatial=tuple(order)))


@dataclass(frozen=True)
class RowPart(GroupSketch[StoreArrays, StoreInts], ABC):
    """A sketch of the stages of a group whose shared axes are the rows."""

    name = "rows"

    @cached_property
    def _outline(self) -> Outline:
        """The axes and accesses of the plan.

        The axes are the shared axes and the axes of the passes over a row (`_walks`). Axes of the
        last stage have the names of its loops. Intermediate values are stored for one row or block
        of rows at a time.
        """
        group, last = self.group, self.group.last
        found: dict[str, Access] = {}
        for view in group.stages:
            rows = [loop.name for loop in view.spatial[: group.shared_axes]]
            own = [walk.get(view.name) for walk in self._walks]
            names = [loop.name if loop else "" for loop in own]
            every, tensors = (*rows, *names), {read.tensor for read in view.reads}
            windows = {tensor: windows_of(view, tensor, {}) for tensor in tensors}
            for read in view.reads:
                window = windows[read.tensor]
                one = access_of(read.tensor, read.dtype.bytes, read.index, every, window)
                if read.tensor in group.producer_names:
                    one = replace(one, private_levels=group.shared_axes + self.block_levels)
                found[read.tensor] = max(found.get(read.tensor, one), one, key=_reach)
        index = [_dim_index(last, dim) for dim in range(len(last.shape))]
        written = access_of(last.name, last.dtype.bytes, index, (*rows, *names))
        axes = [(loop.name, loop.extent) for loop in last.spatial[: group.shared_axes]]
        for n, walk in enumerate(self._walks):
            name = walk[last.name].name if last.name in walk else f"walk{n}"
            axes.append((name, max(loop.extent for loop in walk.values())))
        return Outline(axes_of(axes), (*found.values(), replace(written, is_output=True)))

    @cached_property
    def _walks(self) -> Sequence[Walk]:
        """The axes of the passes over a row, outermost first."""
        own = {view.name: self._own_axes(view) for view in self.group.stages}
        return common_axes(self.group.stages, own)

    block_levels = 0
    """Number of plan levels inside the shared axes that contain all stages."""

    def _own_axes(self, view: StageView) -> list[StageLoop]:
        own = [*view.spatial[self.group.shared_axes :], *view.reduce]
        steps = {x.name: {r.element_stride(x.name) for r in view.reads} for x in own}
        return sorted(own, key=lambda loop: 1 in steps[loop.name] and loop.extent > 1)

    def plan(self, settings: IntArray) -> Plan:
        levels = tuple(Level(n, 1) for n in range(len(self._outline.axes)))
        stores = self.nontemporal(settings)
        return Plan(self._outline, levels, len(stores), nontemporal=stores)

    def nontemporal(self, settings: IntArray) -> BoolArray:
        """Return whether the result is written with non-temporal stores, shape (P,)."""
        stores: IntArray = self.values(settings).nontemporal_stores
        return stores > 0

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        v = self.chosen(setting)
        task = self._loops(writer, setting)
        if v.parallel and task:
            writer.do(Parallel(task))
        if v.nontemporal_stores:
            writer.do(Stream(self.group.last.name))

    @abstractmethod
    def _loops(self, w: TraceWriter, setting: Sequence[int]) -> str:
        """Emit the loops of a setting. Return the loop that threads divide, or "" if it is already
        parallel."""


def _dim_index(view: StageView, dim: int) -> Affine:
    """Return dimension `dim` of the index of the element that a stage computes."""
    index, size = affine(0), 1
    for loop in reversed([loop for loop in view.spatial if loop.dim == dim]):
        index, size = index + var(loop.name) * size, size * loop.extent
    return index


def _reach(access: Access) -> int:
    """Return the number of axes that an access depends on."""
    return sum(any(column) for column in zip(*access.strides, strict=True))


@dataclass(frozen=True)
class RowSketch(RowPart[RowSettings[IntArray], RowSettings[int]]):
    """The sketch of stages that are computed one row at a time. The knobs have the same values for
    every stage of the group."""

    SETTINGS = RowSettings

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.group, self.lanes, self.target.threads)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Values of the knob `interleave_rows`: numbers of rows whose stages are computed together.

        The latency of one row's sums is then hidden by other rows. The rows are adjacent along the
        last shared axis. Their buffers must fit half of the smallest cache.
        """
        steps, walks = self.rows.steps, self.rows.walks
        kept = len(steps) + 1 if steps else sum(1 for walk in walks if walk > 1)
        row = kept * max(walks) * self.group.last.dtype.bytes
        cache = min((cache.bytes for cache in self.target.caches), default=0)
        along = self.group.last.spatial[self.group.shared_axes - 1].extent
        return tuple(n for n in POWERS[:3] if along % n == 0 and (n == 1 or 2 * n * row <= cache))

    @cached_property
    def can_stagger(self) -> bool:
        """Whether rows can be software-pipelined and divided evenly among threads."""
        return len(self.rows.steps) > 1 and self._has_tasks(1)

    def _has_tasks(self, block: int) -> bool:
        """Return whether one thread, and all threads, can evenly divide blocks of pipelined
        rows."""
        return all(self.rows.rows_per_task(n, block) > 0 for n in (1, self.target.threads))

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a setting is profitable, shape (P,). Every setting is legal.

        A setting is profitable if (1) only a parallel setting divides the reduction, (2) a parallel
        setting divides the reduction if there is nothing else to divide, and (3) threads divide
        blocks of software-pipelined rows evenly.
        """
        v = self.values(settings)
        ok: BoolArray = (v.split_reduction == 1) | (v.parallel > 0)
        if self.group.repeats == 1 and self.rows.can_divide:  # threads can divide nothing else
            ok &= (v.split_reduction > 1) | (v.parallel == 0)
        if self.can_stagger:
            fits = [block for block in self.blocks if self._has_tasks(block)]
            ok &= (v.software_pipelining == 0) | np.isin(v.interleave_rows, fits)
        return ok

    @property
    def default_block(self) -> int:
        """Index of the default in `blocks`: the largest block that can be software-pipelined."""
        fits = (n for n, rows in enumerate(self.blocks) if self._has_tasks(rows))
        return max(fits) if self.can_stagger else len(POWERS)

    def nontemporal(self, settings: IntArray) -> BoolArray:
        """Return whether the result is written with non-temporal stores, shape (P,). They are not
        used if the reduction is in chunks, each of which updates the result."""
        is_chunked = is_along_columns(self.group.last)
        whole = self.values(settings).reduction_chunk == 0 if is_chunked else True
        return super().nontemporal(settings) & whole

    def leaves(self, settings: IntArray) -> tuple[Leaf, ...]:
        return tuple(self.rows.leaves(self.values(settings)))

    def _loops(self, w: TraceWriter, setting: Sequence[int]) -> str:
        return RowWriter(w, self.rows, self.chosen(setting)).write()
