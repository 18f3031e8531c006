"""The tile sketch: reductions with a spatial vector axis, computed a register tile at a time.

It fits every stage whose reads leave some spatial axis out, so that a register tile of outputs
reuses what it loads: matrix products in any layout, convolutions of any rank, grouped and
batched forms, and expressions nobody has named. The loops, outer to inner:

    batch axes | blocks of columns and rows (either order) | blocks of the reduction
      [pack the column operands] [copy the row operands]
        tiles of columns and rows (either order) | reduction | unrolled tile | vector

"Columns" is the vector axis V; "rows" are up to two spatial axes the column operands do not use.

Here are the knobs and what they choose between. Which loop plays which part is in `tile_roles`,
what can be packed or copied in `tile_operands`, how large tiles and blocks are in `tile_loops`,
which settings fit in `tile_limits`, what one does in `tile_model`, its trace in `tile_trace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ...plan import Outline, Plan
from ...primitives.zeros import neutral_conditions
from ...space import Knob
from ...target import Target
from ...workload.flops import useful_points
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView, once
from ..knobs import Knobbed
from ..streams import stream_values
from ..writer import TraceWriter
from .border import Border, border_of
from .default import tile_default
from .first_tile import packed_on_the_way
from .hints import has_hints
from .limits import feasible_tiles
from .loops import tile_outline, tile_plan, tile_sizes
from .next_batch import next_panels
from .next_rows import far_rows
from .operands import TileOperands
from .outer_border import OuterBorder
from .passing import PASSING_DEPTHS, passing_reads
from .reduction_parts import reduction_parts
from .roles import TileRoles, ceil_div, lane_step, slides, taps_apart
from .short_runs import short_run_reads
from .trace import write_tile_trace

BLOCK_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 256, 512)
"""Into how many blocks an axis is divided, as far as it has tiles; and into one a tile."""

MAX_TAPS = 7
"""Longest reduction loop that is written out in full."""

MAX_SLIDING_TAPS = 13
"""The same where windows of neighbouring rows overlap: whole windows share what they load."""


@dataclass(frozen=True)
class TileSketch(Knobbed):
    """See the module. `epilogue` names the elementwise stage that is computed from each tile, if
    there is one; its loops are then the outer loops, and the reduction is computed inside."""

    workload: Workload
    view: StageView
    roles: TileRoles
    target: Target
    epilogue: StageView | None = None

    @property
    def name(self) -> str:
        return "tile"

    @property
    def output(self) -> str:
        """The tensor that tiles are written to."""
        return self.epilogue.name if self.epilogue else self.view.name

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        roles = self.roles
        columns = ceil_div(roles.columns.extent, self.lanes)
        rows = [loop.extent for loop in roles.rows] + [1, 1]
        most_rows = min(self.target.vector_registers - 2, rows[0])
        parallel = (0, 1, 2) if self.target.threads > 1 else (0,)
        operands = self.operands
        packing = (0, *(1,) * bool(operands.packable), *(2,) * bool(operands.packed_ahead))
        copies = operands.copyable and not self.is_read_in_place
        return (
            Knob("vectors", tuple(n for n in (1, 2, 3, 4, 5, 6, 8) if n <= max(columns, 1))),
            Knob("rows", tuple(range(1, most_rows + 1))),
            Knob("rows2", tuple(n for n in (1, 2, 3, 4, 5, 6, 7, 8) if n <= rows[1])),
            Knob("column_blocks", _counts(columns)),
            Knob("row_blocks", _counts(rows[0])),
            Knob("row2_blocks", _counts(rows[1])),
            Knob("k_blocks", self._depth_blocks()),
            Knob("unroll", self._steps_written_out()),
            Knob("tap_unroll", tuple(range(len(self.short_taps()) + 1))),
            Knob("rows_outside", (0, 1)),
            Knob("row_tiles_inside", (0, 1)),
            Knob("pack_columns", packing),
            Knob("pack_on_the_way", (0, 1) if packed_on_the_way(self) else (0,)),
            Knob("copy_rows", (0, 1) if copies else (0,)),
            Knob("skip_padding", (0, 1) if self.border or self._skips_around else (0,)),
            Knob("tails", (0, 1, 2)),
            Knob("stream", self._stream_values()),
            Knob("parallel", parallel),
            Knob("fetch", (0, 1) if has_hints(self) else (0,)),
            Knob("parts", reduction_parts(self)),
        )

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

    def _stream_values(self) -> tuple[int, ...]:
        if self.is_scattered:
            return (0,)
        return stream_values(self.workload, self.output, self.target)

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
        if roles.main.extent <= self._most_taps:
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
    def _skips_around(self) -> bool:
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
        shape = np.stack([v["rows"] > 1, v["rows2"] > 1, v["tap_unroll"]], axis=1).astype(np.int64)
        settings, place = np.unique(shape, axis=0, return_inverse=True)
        shares = [self._shares[rows, rows2, taps] for rows, rows2, taps in settings.tolist()]
        return np.asarray(shares, np.float64)[place.reshape(-1)]

    @cached_property
    def _shares(self) -> dict[tuple[int, int, int], float]:
        """By whether tiles have more than one row, and second row, and taps written out."""
        cases = product((0, 1), (0, 1), range(len(self.short_taps()) + 1))
        return {
            (rows, rows2, taps): self.outer_border.share(self._around(rows + 1, rows2 + 1, taps))
            for rows, rows2, taps in cases
        }

    @cached_property
    def useful_share(self) -> float:
        """How much of the reduction is not padding."""
        stages = {stage.name: stage for stage in self.workload.stages}
        return useful_points(stages[self.view.name], stages) / max(self.view.points, 1)

    @cached_property
    def passing(self) -> tuple[Read, ...]:
        """Column operands that pass by: see there."""
        rows = prod(loop.extent for loop in (*self.roles.rows, *self.roles.outer_rows))
        unmoved = (r for r in once(self.roles.column_reads) if not self.roles.moves_with_rows(r))
        return passing_reads(tuple(unmoved), self.roles.columns, rows, self.target)

    @cached_property
    def far_rows(self) -> tuple[Read, ...]:
        """Row operands whose next tile is asked for ahead, where no column operand is."""
        return () if self.passing else far_rows(self)

    @cached_property
    def next_panels(self) -> tuple[Read, ...]:
        """Column operands whose next batch is asked for ahead, together with rows."""
        return next_panels(self)

    @cached_property
    def short_runs(self) -> tuple[Read, ...]:
        """Row operands whose lines nobody foresees: see there."""
        return short_run_reads(self)

    @cached_property
    def edge_tiles(self) -> IntArray:
        """How many tiles touch padding along the rows, for each value of the knob of rows."""
        assert self.border is not None
        edges = [self.border.edges(tile) for tile in self.knobs[1].values]
        return np.asarray([count - (stop - start) for start, stop, count in edges], np.int64)

    @cached_property
    def edge_columns(self) -> IntArray:
        """How many tiles of columns touch padding, for each value of the knob of vectors."""
        assert self.border is not None
        tiles = [self.border.lane_edges(n * self.lanes) for n in self.knobs[0].values]
        return np.asarray([count - (stop - start) for start, stop, count in tiles], np.int64)

    @cached_property
    def is_sliding(self) -> bool:
        """Whether rows share vectors of columns between taps: windows that overlap."""
        moved = tuple(r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        rows = self.roles.rows[:1]
        return bool(moved and rows) and slides(self.view, moved, rows[0])

    @property
    def _most_taps(self) -> int:
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

    def _steps_written_out(self) -> tuple[int, ...]:
        k = self.roles.main.extent
        if self.apart > 1:
            return tuple(range(1, min(MAX_TAPS, ceil_div(k, self.apart)) + 1))
        return tuple(u for u in (1, 2, 4, k) if k % u == 0 and u <= self._most_taps)

    def _depth_blocks(self) -> tuple[int, ...]:
        """Numbers of blocks of the reduction. Without reuse a few rows of the operand at a time
        can be read from end to end, which is what prefetchers are made for."""
        k = self.roles.main.extent
        counts = {c for c in (1, 2, 3, 4, 6, 8, 16) if k // c >= 32 or c == 1}
        if not self.roles.is_reused:
            counts |= {k // c for c in (4, 8, 16) if k >= 4 * c}
        if self.passing:
            counts |= {ceil_div(k, c) for c in PASSING_DEPTHS if k >= 2 * c}
        return tuple(sorted(counts))

    def short_taps(self) -> tuple[Loop, ...]:
        """The innermost tap loops that are short enough to be written out, innermost first."""
        short: list[Loop] = []
        for loop in reversed(self.roles.taps):
            if loop.extent > MAX_TAPS or self.view.ends(loop.name):
                break
            if loop.extent > 1:
                short.append(loop)
        return tuple(short)

    def sizes(self, settings: IntArray) -> dict[str, IntArray]:
        """Tile and block sizes, see `tile_loops`."""
        return tile_sizes(self, self.values(settings))

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether tile, panel and code fit the target, and no knob is without effect."""
        v = self.values(settings)
        return feasible_tiles(self, v, tile_sizes(self, v))

    @cached_property
    def outline(self) -> Outline:
        """The axes of a tile, and what it touches."""
        return tile_outline(self)

    def plan(self, settings: IntArray) -> Plan:
        """Blocks, tiles, and what is inside of them: see `loops.py`."""
        v = self.values(settings)
        return tile_plan(self, v, tile_sizes(self, v))

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible with no model: see `tile_default`."""
        return tile_default(self)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        sizes = self.sizes(np.asarray([list(setting)]))
        s = {key: int(value[0]) for key, value in sizes.items()}
        write_tile_trace(writer, self, self.chosen(setting), s)


def _counts(most: int) -> tuple[int, ...]:
    return tuple(sorted({c for c in BLOCK_COUNTS if c < most} | {most}))
