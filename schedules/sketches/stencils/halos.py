"""Stages that read neighbours of each other's elements: the group, and the elements that a tile of
its last stage needs of every stage.

A tile of the last stage needs a larger region of each earlier stage: the tile and its halo. Regions
of neighbouring tiles overlap, and the overlap is computed in both tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

from ...algebra.affine import Affine, Index, Interval, var
from ...errors import ScheduleError
from ...primitives.boxes import TensorRegion, region_of
from ..analysis.stages import SHORT_AXIS, StageView
from ..groups import FusionGroup, Stages
from .results import LEAST_SHARED, is_further_result

TRIAL_TILE = 32
"""Side of the tile, in rows and in vectors, at which a group is judged: about the largest tile
whose buffers stay in the second cache."""

SMALL_TILES = (2, 4, 8)
"""Rows of small tiles, of which one must be legal. A stage that reads each element of another one
twice needs an even number of rows."""

MOST_TAPS = 64
"""Most elements of a window whose reduction is written out for each vector."""

MOST_RECOMPUTED = 1.5
"""Most evaluations of all stages in tiles, relative to one evaluation of each element."""


@dataclass(frozen=True, slots=True)
class RegionDim:
    """The elements of one dimension of a stage that one tile needs."""

    extent: int
    axis: int
    """The axis of the last stage along which the region moves from tile to tile, or -1."""
    mean: float
    """Average elements of a region, which are fewer in the last tile."""
    last: int
    """Most elements of the region of a tile that is not full: of the last one, or of one behind the
    end of some result."""
    scale: int = 0
    """Elements by which the region moves if the tile moves by `per` elements along `axis`."""
    per: int = 1


@dataclass(frozen=True)
class TileRegions:
    """The regions that a tile of `extents` elements of the last stage needs, by stage."""

    group: FusionGroup
    extents: tuple[int, ...]
    """Elements of a tile along each axis of the last stage."""

    @cached_property
    def dims(self) -> dict[str, tuple[RegionDim, ...]]:
        """The dimensions of the region of each stage. Raise ScheduleError if the region of a stage
        is no box of a fixed size, as ComputeAt requires."""
        inner, outer = dict[str, Interval](), dict[str, Interval]()
        places, found = dict[str, dict[str, Affine]](), dict[str, tuple[RegionDim, ...]]()
        for n, count in enumerate(self.counts):
            outer[_origin(n)] = Interval(0, count - 1)
        for view in self.group.results:
            names = [loop.name for loop in view.spatial]
            inner |= {x: Interval(0, n - 1) for x, n in zip(names, self.extents, strict=True)}
            own = tuple(
                var(_origin(n)) * extent + var(name) if self.counts[n] > 1 else var(name)
                for n, (name, extent) in enumerate(zip(names, self.extents, strict=True))
            )
            places[view.name] = dict(zip(names, own, strict=True))
            own_region = region_of([own], inner, outer, view.name)
            found[view.name] = self._moved(own_region, view.shape)
        for view in reversed(self.group.intermediates):
            indices: list[Index] = []
            for reader in self.group.stages:
                if reader.name in places:
                    inner |= {x.name: Interval(0, x.extent - 1) for x in reader.reduce}
                    reads = (r.index for r in reader.reads if r.tensor == view.name)
                    at = places[reader.name]
                    indices += [tuple(i.substitute(at) for i in index) for index in reads]
            region = region_of(indices, inner, outer, view.name)
            names = [f"{view.name}#{d}" for d in range(len(region.spans))]
            inner |= {x: Interval(0, n - 1) for x, n in zip(names, region.extent, strict=True)}
            element = region.element(tuple(map(var, names)))
            places[view.name] = {x.name: element[x.dim] for x in view.spatial if x.dim >= 0}
            found[view.name] = self._moved(region, view.shape)
        return found

    @property
    def are_boxes(self) -> bool:
        """Whether the regions of all stages are boxes of a fixed size."""
        try:
            return bool(self.dims)
        except ScheduleError:
            return False

    def _moved(self, region: TensorRegion, shape: Sequence[int]) -> tuple[RegionDim, ...]:
        """Return the dimensions of a region in a tensor of the given shape, with which the region
        of the last tile ends."""
        made = []
        for span, size in zip(region.spans, shape, strict=True):
            moving = [n for n in range(len(self.extents)) if _origin(n) in span.base.vars()]
            if len(moving) != 1 or not span.base.is_linear_in(_origin(moving[0])):
                here = min(span.extent, size)
                made.append(RegionDim(span.extent, -1, here, here))
                continue
            axis, step = moving[0], max(span.step, 1)
            apart = span.base.coefficient(_origin(axis))
            blocks = self.counts[axis]
            # Results that end earlier than others may have several tiles that are not full.
            rest = min(self._full(axis), blocks - 1)
            elements = [
                max(min(span.extent, -(-(size - span.base.const - apart * n) // step)), 0)
                for n in range(rest, blocks)
            ]
            last = max(*elements, 1)
            mean = max(span.extent * rest + sum(elements), 1) / blocks
            common = gcd(apart, self.extents[axis])
            scale, per = apart // common, self.extents[axis] // common
            made.append(RegionDim(span.extent, axis, mean, last, scale, per))
        return tuple(made)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each axis, in which the longest result has elements."""
        sizes = zip(extents_of(self.group), self.extents, strict=True)
        return tuple(-(-size // extent) for size, extent in sizes)

    def _full(self, axis: int) -> int:
        """Return the number of tiles along `axis` that are full tiles of all results."""
        least = min(view.spatial[axis].extent for view in self.group.results)
        return least // self.extents[axis]

    def points(self, view: StageView) -> int:
        """Return the elements of a stage that one tile computes."""
        return prod(dim.extent for dim in self.dims[view.name])

    def _mean_points(self, view: StageView) -> float:
        return prod(dim.mean for dim in self.dims[view.name])

    def row(self, view: StageView) -> int:
        """Return the elements along the last axis of a stage that one tile needs."""
        return self.dims[view.name][-1].extent

    def last_row(self, view: StageView) -> int:
        """Return the most elements along the last axis that a tile behind the full tiles of a strip
        computes, which may be fewer."""
        return self.dims[view.name][-1].last

    @property
    def full_tiles(self) -> int:
        """The number of full tiles in a strip."""
        return self._full(len(self.extents) - 1)

    @property
    def tiles(self) -> int:
        return prod(self.counts)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the private buffers."""
        return sum(self.points(view) * view.dtype.bytes for view in self.group.intermediates)

    @property
    def recomputed(self) -> float:
        """Evaluations of all stages in all tiles, relative to one for each element. The last tiles
        of a row or column are shorter."""
        made = sum(self.tiles * self._mean_points(view) * _work(view) for view in self.group.stages)
        return made / sum(view.outputs * _work(view) for view in self.group.stages)


def _work(view: StageView) -> int:
    return (view.operations + 1) * prod(loop.extent for loop in view.reduce)


def _origin(axis: int) -> str:
    return f"#{axis}"


def extents_of(group: FusionGroup) -> tuple[int, ...]:
    """Return the extent of the longest result along each axis."""
    sizes = zip(*((loop.extent for loop in view.spatial) for view in group.results), strict=True)
    return tuple(map(max, sizes))


def tiled_axes(group: FusionGroup) -> tuple[int, ...]:
    """Return the axes of the last stage, except the last one, along which some stage of the group
    reads several neighbours, or neighbours read the same element. They are the axes of a tile, with
    the last axis."""
    last = group.last
    found = set[int]()
    for view in group.stages:
        lead = len(last.spatial) - len(view.spatial)
        for dim, loop in enumerate(view.spatial[:-1]):
            is_tiled = reads_neighbours(view, loop.name) or _reads_quotients(view, loop.name)
            if lead + dim >= 0 and is_tiled:
                found.add(lead + dim)
    return tuple(sorted(found))


def _reads_quotients(view: StageView, loop: str) -> bool:
    """Return whether neighbours along `loop` read the same element of a tensor."""
    return any(not index.is_linear_in(loop) for read in view.reads for index in read.index)


def reads_neighbours(view: StageView, loop: str) -> bool:
    """Return whether one element of a stage reads several elements of a tensor along `loop`."""
    windows = {axis.name for axis in view.reduce}
    indices: dict[tuple[str, int], set[Affine]] = {}
    for read in view.reads:
        for dim, index in enumerate(read.index):
            if loop in index.vars():
                if windows & index.vars():
                    return True
                indices.setdefault((read.tensor, dim), set()).add(index)
    return any(len(found) > 1 for found in indices.values())


def stencil_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Return the group of `view` and earlier stages, if stages of the group read neighbouring
    elements. Return None if there is no earlier stage or no such read."""
    if not is_local(view) or view.spatial[-1].extent < SHORT_AXIS:
        return None
    group, members = FusionGroup(view), {view.name}
    for name in reversed(stages.left):
        other = stages.views[name]
        if not is_local(other):
            continue
        if stages.only_needed_by(name, members):
            results = group.more_results
        elif is_further_result(other, group, stages):
            results = (name, *group.more_results)
        else:
            continue
        more = replace(group, producers=(other, *group.producers), more_results=results)
        if _fits(more, stages):
            group = more
            members.add(name)
    reads = any(reads_neighbours(x, loop.name) for x in group.stages for loop in x.spatial)
    return group if group.producers and reads else None


def group_of_scales(stages: Stages, view: StageView) -> FusionGroup | None:
    """Return the group of `view` and earlier stages if stages of the group read others at quotients
    of their axes, as an image of twice the size does.

    Return None if no data are read by several of these stages. Tiles would then save only that
    stages of small sizes are stored.
    """
    views = {name: stages.unsplit(stages.views[name]) for name in (*stages.left, view.name)}
    whole = replace(stages, views={**stages.views, **views})
    group = stencil_group(whole, views[view.name])
    if group is None or not any(stages.views[x.name].axis_splits for x in group.stages):
        return None
    names = {x.name for x in group.stages}
    least = LEAST_SHARED * max(x.outputs for x in group.results)
    readers = Counter(name for x in group.stages for name in {r.tensor for r in x.reads} - names)
    large = (prod(stages.workload.tensors[name].shape) for name, n in readers.items() if n > 1)
    return group if any(size >= least for size in large) else None


def is_local(view: StageView) -> bool:
    """Return whether a stage can be computed in tiles: elementwise, or a reduction over a small
    window, without other splits."""
    plain = not (view.phase_steps or view.axis_splits or view.is_ordered)
    if not plain or not view.spatial or any(loop.dim < 0 for loop in view.spatial):
        return False
    return not view.is_reduction or _is_window(view)


def _is_window(view: StageView) -> bool:
    """Return whether a reduction is over a small window of neighbours: an index that depends on a
    reduction axis also depends on another axis, except in tensors of weights, which have no other
    axes."""
    taps = {loop.name for loop in view.reduce}
    if prod(loop.extent for loop in view.reduce) > MOST_TAPS:
        return False
    images = [r for r in view.reads if any(i.vars() - taps for i in r.index)]
    moving = [i.vars() for read in images for i in read.index if i.vars() & taps]
    return bool(moving) and all(names - taps for names in moving)


def _fits(group: FusionGroup, stages: Stages) -> bool:
    """Return whether tiles need boxes of all stages that stay in the caches of a core, and whether
    few elements are computed more than once."""
    target, sizes = stages.target, extents_of(group)
    lanes = target.lanes(group.last.dtype)
    axes = {*tiled_axes(group), len(sizes) - 1}

    def regions(rows: int, vectors: int) -> TileRegions:
        wanted = [rows] * (len(sizes) - 1) + [vectors * lanes]
        tile = (min(wanted[n], size) if n in axes else 1 for n, size in enumerate(sizes))
        return TileRegions(group, tuple(tile))

    large = regions(TRIAL_TILE, TRIAL_TILE)
    if not (large.are_boxes and any(regions(rows, 1).are_boxes for rows in SMALL_TILES)):
        return False
    is_cheap = large.recomputed <= MOST_RECOMPUTED
    return is_cheap and 2 * large.buffer_bytes <= target.own_cache_bytes
