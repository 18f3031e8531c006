"""Which stages are computed together, and the sketches that fit them: by structure, never by name.

Stages are looked at from the last to the first. The first of these that fits takes a stage, with
those before it that only it needs: formulas chosen by an index, a reduction whose tiles an
elementwise stage is computed from, blocks of columns; what is left is a stage alone, or with
others in its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..algebra.scalar import Load, Reducer, Scalar, children, loads
from ..limits import MAX_INLINED_DEPTH
from ..target import Target
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .analysis import StageView, math_calls, view_stage
from .fused.columns import ColumnSketch, column_group
from .fused.group import FusionGroup, Stages, is_loop
from .fused.rows import RowSketch, own_rows, row_group
from .fused.walks import is_along_columns
from .inner_product.roles import inner_product_roles
from .inner_product.sketch import InnerProductSketch
from .knobs import PartSketch
from .phases import inserts_zeros, is_padding
from .tile.roles import TileRoles, assign_roles, lane_step, tile_roles
from .tile.sketch import TileSketch
from .transform.transform import TransformSketch, transform_group
from .transpose.turn import turn_sketch
from .transpose.turned_sum import TurnedSumSketch, find_turned_sum

MOST_NODES_INLINED = 256
"""Operations of an expression with all that is computed inside it. Each use of a stage is a copy,
which the code generator finds to be one value, but everything before it has to go through."""


def stages_inlined(workload: Workload) -> tuple[str, ...]:
    """Elementwise stages that are cheaper to compute where they are read, in program order."""
    found: dict[str, _Size] = {}
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
        summed = all(r.reducer is Reducer.SUM for r in readers)
        zeros = summed and (inserts_zeros(stage) or is_padding(stage))
        if again <= 1.0 or (cheap and again <= 3.0) or zeros:
            grown = {**found, stage.name: _size_with(stage.body, found)}
            if all(_size_with(reader.body, grown).is_small for reader in readers):
                found = grown
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Size:
    """Operations and levels of an expression."""

    nodes: int
    depth: int

    @property
    def is_small(self) -> bool:
        return self.nodes <= MOST_NODES_INLINED and self.depth <= MAX_INLINED_DEPTH // 2


def _size_with(body: Scalar, inside: Mapping[str, _Size]) -> _Size:
    """The size of `body` with the stages `inside` it, without putting them there."""
    if isinstance(body, Load):
        return inside.get(body.tensor, _Size(1, 1))
    below = [_size_with(child, inside) for child in children(body)]
    return _Size(
        1 + sum(size.nodes for size in below), 1 + max((size.depth for size in below), default=0)
    )


def _points(stage: Stage) -> int:
    total = 1
    for axis in (*stage.axes, *stage.reduce_axes):
        total *= axis.extent
    return total


def clusters(
    workload: Workload,
    views: dict[str, StageView],
    target: Target,
    *,
    absorb: bool = True,
    columns: bool = True,
    dots_apart: bool = False,
) -> list[list[PartSketch]]:
    """The program's clusters in order, each with the sketches that fit it, the likeliest first.
    Unless `absorb`, no stage is computed in the rows of another, and unless `columns`, none in its
    blocks of columns; with `dots_apart`, none from the tiles of a reduction that can be dot
    products, whose results are few."""
    return _Clusters(workload, views, target, absorb, columns, dots_apart, list(views)).all()


@dataclass(slots=True)
class _Clusters:
    """See `clusters`; `remaining` are the stages that no cluster has taken yet."""

    workload: Workload
    views: dict[str, StageView]
    target: Target
    absorb: bool
    columns: bool
    dots_apart: bool
    remaining: list[str]

    def all(self) -> list[list[PartSketch]]:
        found: list[list[PartSketch]] = []
        while self.remaining:
            name = self.remaining.pop()
            found.append(
                self._transforms(name)
                or self._tile_with_epilogue(name)
                or self._columns(name)
                or self._tiles_or_rows(name)
            )
        found.reverse()
        return found

    def _take(self, inside: tuple[StageView, ...]) -> None:
        """Note that stages are computed in a cluster."""
        for view in inside:
            self.remaining.remove(view.name)

    @property
    def _stages(self) -> Stages:
        return Stages(self.workload, self.views, self.target, tuple(self.remaining))

    def _transforms(self, name: str) -> list[PartSketch]:
        """Stages that choose formulas by an index."""
        group = transform_group(self._stages, self.views[name])
        if group is None:
            return []
        self._take(group.inside)
        return [TransformSketch(self.workload, group, self.target)]

    def _tile_with_epilogue(self, name: str) -> list[PartSketch]:
        """An elementwise stage, computed from the tiles of a reduction."""
        views, workload, target = self.views, self.workload, self.target
        anchor = _anchor(workload, views, views[name], self.remaining)
        if anchor is None:
            return []
        if self.dots_apart and _dots(workload, views, anchor, target) is not None:
            return []
        roles = assign_roles(views[anchor])
        assert roles is not None
        self.remaining.remove(anchor)
        tiles = tile_roles(views[anchor], roles, target)
        return [TileSketch(workload, views[anchor], r, target, views[name]) for r in tiles]

    def _columns(self, name: str) -> list[PartSketch]:
        """Stages with the same columns."""
        group = column_group(self._stages, self.views[name]) if self.columns else None
        if group is None:
            return []
        self._take(group.inside)
        return [ColumnSketch(self.workload, group, self.target)]

    def _tiles_or_rows(self, name: str) -> list[PartSketch]:
        """What fits every stage: a reduction in tiles, alone, or rows."""
        roles = assign_roles(self.views[name])
        return self._rows(name) if roles is None else self._tiles(name, roles)

    def _tiles(self, name: str, roles: TileRoles) -> list[PartSketch]:
        """A reduction alone, with lanes along `roles.columns` and otherwise."""
        workload, view, target = self.workload, self.views[name], self.target
        parts: list[PartSketch] = []
        lone = is_along_columns(view) and len(view.reads) == 1 and view.reuse <= 1
        if not lone:  # what is read once and only added has nothing to gain from tiles
            tiles = tile_roles(view, roles, target) if view.reuse > 1 else (roles,)
            parts += [TileSketch(workload, view, chosen, target) for chosen in tiles]
        dots = _dots(workload, self.views, name, target)
        if dots is not None:
            parts.append(dots)
        if view.reuse <= 1 or lane_step(roles) > 1:
            alone = FusionGroup(view, (), own_rows(view))
            parts.append(RowSketch(workload, alone, target))
        return parts

    def _rows(self, name: str) -> list[PartSketch]:
        """A stage with others in its rows, or alone and turned."""
        workload, view, target = self.workload, self.views[name], self.target
        alone = FusionGroup(view, (), own_rows(view))
        group = row_group(self._stages, view) if self.absorb else alone
        parts: list[PartSketch] = []
        turned_sum = None if group.inside else find_turned_sum(view)
        if turned_sum is not None:
            parts.append(TurnedSumSketch(workload, view, turned_sum, target))
        turn = None if group.inside else turn_sketch(workload, view, target)
        if turn is not None:
            parts.append(turn)
        if turn is None or turn.turn.narrow:
            parts.append(RowSketch(workload, group, target))
        self._take(group.inside)
        return parts


def _dots(
    workload: Workload, views: dict[str, StageView], name: str, target: Target
) -> InnerProductSketch | None:
    """The sketch of dot products for a stage, None where it does not fit. Its output axes are left
    undivided."""
    view = views[name]
    if view.presplit:
        inlined = tuple(s.name for s in workload.stages if s.name not in views)
        view = view_stage(workload, name, inlined, whole=True)
    roles = inner_product_roles(view, target.lanes(view.dtype))
    return InnerProductSketch(workload, view, roles, target) if roles else None


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
            all(is_loop(i, loop) for i, loop in zip(r.index, view.spatial, strict=True))
            for r in view.reads
            if r.tensor == name and len(r.index) == len(view.spatial)
        )
        alone = set(_readers(views, name)) == {view.name}
        if not direct or not alone or read.conditional or name in workload.outputs:
            continue
        if assign_roles(views[name]) is None or views[name].reuse <= 1:
            continue
        if views[name].shape == view.shape:
            return name
    return None


def _readers(views: dict[str, StageView], name: str) -> list[str]:
    """Stages that read `name` once inlined stages are in place."""
    return [v.name for v in views.values() if any(r.tensor == name for r in v.reads)]
