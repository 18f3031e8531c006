"""What is known of a reduction computed a register tile at a time, whatever its knobs say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from ...arrays import FloatArray, IntArray
from ...primitives.zeros import neutral_conditions
from ...target import Target
from ...workload.flops import useful_points
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView
from .border import Border, border_of
from .far_reads import far_rows, next_panels, short_runs, streamed_columns
from .operands import TileOperands
from .outer_border import OuterBorder
from .roles import TileRoles, lane_step, slides, taps_apart

MAX_TAPS = 7
"""Longest reduction loop that is written out in full."""

MAX_SLIDING_TAPS = 13
"""The same where windows of neighbouring rows overlap: whole windows share what they load."""


MOST_VECTORS = 8
"""Vectors of columns in a tile."""


@dataclass(frozen=True)
class TileStage:
    """The stage `view` with `roles` on `target`. `epilogue` names the elementwise stage that is
    computed from each tile, if there is one; its loops are then the outer loops, and the reduction
    is computed inside."""

    workload: Workload
    view: StageView
    roles: TileRoles
    target: Target
    epilogue: StageView | None = None

    @property
    def output(self) -> str:
        """The tensor that tiles are written to."""
        return self.epilogue.name if self.epilogue else self.view.name

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def loads_by_shape(self) -> dict[tuple[int, ...], tuple[float, ...]]:
        """What `step_loads` counted before, by the shape: a search meets few shapes often."""
        return {}

    @cached_property
    def operands(self) -> TileOperands:
        """What is read, and what of it can be packed or copied."""
        return TileOperands(self.workload, self.view, self.roles, self.target)

    @property
    def is_scattered(self) -> bool:
        """Whether lanes are written to places apart from each other."""
        return self.roles.columns is not self.view.spatial[-1]

    @cached_property
    def border(self) -> Border | None:
        """Padding that tiles can leave out, if there is any and the rows' taps may be written
        out."""
        roles, stage = self.roles, self.workload.stage(self.view.name)
        if roles.is_reused and not roles.rows:
            return None
        loops = (*self.view.spatial, *self.view.reduce)
        rows = roles.rows[0] if roles.rows else None
        found = border_of(self.view.value, stage.reducer, loops, rows, roles.columns)
        short = {loop.name for loop in self.short_taps()}
        if roles.main.extent <= self.most_taps:
            short.add(roles.main.name)
        return found if found and found.taps <= short else None

    @cached_property
    def outer_border(self) -> OuterBorder:
        """All conditions of padding: those that loops outside of a tile decide can be tested there,
        whatever the rows do."""
        reducer = self.workload.stage(self.view.name).reducer
        conds = () if reducer is None else neutral_conditions(self.view.value, reducer)
        loops = (*self.view.spatial, *self.view.reduce)
        return OuterBorder(tuple(dict.fromkeys(conds)), {x.name: x.extent for x in loops})

    @cached_property
    def skips_around(self) -> bool:
        """Whether some padding can be left out though rows are copied."""
        if not self.operands.copyable or self.is_read_in_place:
            return False
        return bool(self.outer_border.decided(self._around(1, 1, 0)))

    def _around(self, rows: int, rows2: int, tap_unroll: int) -> frozenset[str]:
        """The loops outside of the innermost one of a tile of so many rows."""
        roles = self.roles
        within = [loop for loop, n in zip(roles.rows, (rows, rows2), strict=False) if n > 1]
        within += [*self.short_taps()[:tap_unroll], roles.main, roles.columns]
        return frozenset(self.outer_border.extents) - {loop.name for loop in within}

    def share_around(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) how much of the reduction is left where padding that loops outside of a tile decide
        is left out."""
        several = [(v[name] > 1).astype(np.int64) for name in ("rows", "rows2")]
        return self._shares[several[0], several[1], v["tap_unroll"]]

    @cached_property
    def _shares(self) -> FloatArray:
        """By whether tiles have more than one row, and second row, and taps written out."""
        taps = len(self.short_taps()) + 1
        shares = [
            self.outer_border.share(self._around(rows + 1, rows2 + 1, written_out))
            for rows, rows2, written_out in product((0, 1), (0, 1), range(taps))
        ]
        return np.asarray(shares).reshape(2, 2, taps)

    @cached_property
    def useful_share(self) -> float:
        """How much of the reduction is not padding."""
        stages = {stage.name: stage for stage in self.workload.stages}
        return useful_points(stages[self.view.name], stages) / max(self.view.points, 1)

    @cached_property
    def passing(self) -> tuple[Read, ...]:
        """Column operands that are read in place, once, beside a few rows."""
        return streamed_columns(self.roles, self.target)

    @cached_property
    def far_rows(self) -> tuple[Read, ...]:
        """Row operands whose next tile is far, where no column operand passes by."""
        return () if self.passing else far_rows(self.roles, self.target)

    @cached_property
    def next_panels(self) -> tuple[Read, ...]:
        """Column operands whose next batch is prefetched, together with rows."""
        alone = self.far_rows and not self.epilogue
        return next_panels(self.roles, self.operands, self.target) if alone else ()

    @cached_property
    def short_runs(self) -> tuple[Read, ...]:
        """Row operands of which short runs are used, where no column operand passes by."""
        return () if self.passing else short_runs(self.view, self.roles, self.target)

    @property
    def prefetched_runs(self) -> tuple[Read, ...]:
        """Those of `short_runs` that can be prefetched: an epilogue's tiles of columns may lie
        across two groups, and read runs of both."""
        columns = self.roles.columns
        across = self.epilogue and any(loop.dim == columns.dim for loop in self.roles.batch)
        return () if across else self.short_runs

    def edge_tiles(self, rows: IntArray) -> IntArray:
        """(P,) how many tiles of so many rows touch padding along them."""
        return self._edge_tiles[rows]

    def edge_columns(self, vectors: IntArray) -> IntArray:
        """(P,) how many tiles of so many vectors of columns touch padding."""
        return self._edge_columns[vectors]

    # Proofs for each size of a tile: once, not for every array of settings.

    @cached_property
    def _edge_tiles(self) -> IntArray:
        assert self.border is not None
        return _edges(range(self.target.vector_registers), self.border.edges)

    @cached_property
    def _edge_columns(self) -> IntArray:
        assert self.border is not None
        return _edges(range(0, (MOST_VECTORS + 1) * self.lanes, self.lanes), self.border.lane_edges)

    @cached_property
    def is_sliding(self) -> bool:
        """Whether rows share vectors of columns between taps: windows that overlap."""
        moved = tuple(r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        rows = self.roles.rows[:1]
        return bool(moved and rows) and slides(self.view, moved, rows[0])

    @property
    def most_taps(self) -> int:
        return MAX_SLIDING_TAPS if self.is_sliding else MAX_TAPS

    @cached_property
    def lane_step(self) -> int:
        """How many elements lanes are apart where windows move in steps along them, otherwise 1."""
        return lane_step(self.roles)

    @property
    def is_read_in_place(self) -> bool:
        """Whether copies have no use: vectors are shared without one, and padding is left out."""
        return self.is_sliding and (
            self.border is not None or not any(r.padded for r in self.operands.every)
        )

    @property
    def is_uneven(self) -> bool:
        """Whether batches differ in how much there is to add up: phases with fewer taps."""
        batch = {loop.name for loop in self.roles.batch}
        reduced = {loop.name for loop in self.view.reduce}
        used = (guard.index.vars() for guard in self.view.guards)
        return any(names & batch and names & reduced for names in used)

    @cached_property
    def apart(self) -> int:
        """How many steps of the reduction lie between two that are written out together: 1, or as
        many as move the operand from one vector to the next, where nothing else shares it."""
        return 1 if self.roles.is_reused else taps_apart(self.roles, self.lanes)

    def short_taps(self) -> tuple[Loop, ...]:
        """The innermost tap loops that are short enough to be written out, innermost first."""
        short: list[Loop] = []
        for loop in reversed(self.roles.taps):
            if loop.extent > MAX_TAPS or self.view.ends(loop.name):
                break
            if loop.extent > 1:
                short.append(loop)
        return tuple(short)


def _edges(sizes: range, edges: Callable[[int], tuple[int, int, int]]) -> IntArray:
    """How many tiles of each of `sizes` are not clear of padding, see `Border.edges`; 0 of none."""
    found = [(0, 0, 0), *map(edges, sizes[1:])]
    return np.asarray([count - (stop - start) for start, stop, count in found], np.int64)
