"""The tile sketch: reductions with a spatial vector axis, computed a register tile at a time.

It fits every stage whose reads leave some spatial axis out, so that a register tile of outputs
reuses what it loads: matrix products in any layout, convolutions of any rank, grouped and
batched forms, and expressions nobody has named. The loops, outer to inner:

    batch axes | blocks of columns and rows (either order) | blocks of the reduction
      [pack the column operands] [copy the row operands]
        tiles of columns and rows (either order) | reduction | unrolled tile | vector

"Columns" is the vector axis V; "rows" are up to two spatial axes the column operands do not use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from ..flops import useful_points
from ..primitives.zeros import neutral_conditions
from ..space import Access, BoolArray, FloatArray, IntArray, Knob
from ..target import Target
from ..workload import Workload
from .analysis import Loop, Read, StageView, once
from .border import MOST_BORDER_TILES, Border, border_of
from .hints import can_hint, has_hints
from .knobs import Knobbed
from .next_rows import far_rows
from .outer_border import OuterBorder
from .parts import reduction_parts
from .passing import PASSING_DEPTHS, passing_default, passing_reads
from .short_runs import asks_ahead, short_run_reads
from .streams import stream_values
from .tile_loops import tile_accesses, tile_extents, tile_loop_axes, tile_sizes
from .tile_model import tile_columns
from .tile_operands import TileOperands
from .tile_roles import TileRoles, ceil_div, lane_step, slides, taps_apart
from .tile_trace import write_tile_trace
from .writer import TraceWriter

BLOCK_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 256, 512)
MAX_UNROLLED = 48
"""Most multiply-adds in the unrolled body of the innermost loop, if it is unrolled at all."""

MAX_WRITTEN_OUT = 96
"""The same where taps are written out, so that neighbouring outputs share what they load."""

MAX_WHOLE = 200
"""The same where the whole reduction is written out and no loop is left."""

MAX_TAPS = 7
"""Longest reduction loop that is written out in full."""


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
            Knob("copy_rows", (0, 1) if copies else (0,)),
            Knob("skip_padding", (0, 1) if self.border or self._skips_around else (0,)),
            Knob("tails", (0, 1, 2)),
            Knob("stream", self._stream_values()),
            Knob("parallel", parallel),
            Knob("fetch", (0, 1) if has_hints(self) else (0,)),
            Knob("parts", reduction_parts(self)),
        )

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
        if roles.main.extent <= MAX_TAPS:
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
        return tuple(u for u in (1, 2, 4, k) if k % u == 0 and u <= MAX_TAPS)

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
        s = tile_sizes(self, v)
        registers = self.target.vector_registers
        reads = len(self.roles.column_reads)
        live = s["mr"] * s["mr2"] * v["vectors"] + v["vectors"] * max(reads, 1) + 1
        ok: BoolArray = live <= registers - (1 if registers > 16 else 0)
        # More copies of a step only bring spills: LLVM moves their loads to the front.
        body = s["mr"] * s["mr2"] * v["vectors"] * v["unroll"] * s["taps_inside"]
        plain = (v["unroll"] == 1) & (v["tap_unroll"] == 0)
        whole = v["unroll"] * s["taps_inside"] * self.view.outputs == self.view.points
        most = np.where(v["tap_unroll"] > 0, MAX_WRITTEN_OUT, MAX_UNROLLED)
        ok &= plain | (body <= np.where(whole, MAX_WHOLE, most))
        # With one vector a row, all rows of a step are loaded ahead: they need registers as well.
        ok &= (v["vectors"] > 1) | (v["unroll"] == 1) | (2 * s["mr"] * s["mr2"] + 1 <= registers)
        if self.is_sliding:  # what one tap has loaded waits for the next
            waiting = s["mr"] * s["mr2"] * v["vectors"] * (s["taps_inside"] > 1)
            if self.lane_step > 1:  # so do the vectors that phases are taken from
                waiting = waiting * (1 + self.lane_step)
            ok &= live + waiting <= registers
            # Tiles along long rows of the image, which are read and written from end to end: with
            # tiles of rows inside, lines of many rows are written in parts and pages change.
            ok &= v["row_tiles_inside"] == 0
            # Each row of a tile would be a stream of its own, a line at a time: measured slower.
            ok &= v["stream"] == 0
        # One spelling for each structure: block counts that give other block counts are skipped.
        ok &= s["col_blocks"] == np.minimum(v["column_blocks"], s["col_tiles"])
        ok &= s["row_blocks"] == np.minimum(v["row_blocks"], s["row_tiles"])
        ok &= s["row2_blocks"] == np.minimum(v["row2_blocks"], s["row2_tiles"])
        ok &= v["column_blocks"] <= s["col_tiles"]
        ok &= v["row_blocks"] <= s["row_tiles"]
        ok &= v["row2_blocks"] <= s["row2_tiles"]
        ok &= s["k_count"] == v["k_blocks"]
        last = self.target.caches[-1].bytes
        taps = prod(loop.extent for loop in self.roles.taps)
        size = self.view.dtype.bytes
        panel = s["kc"] * taps * s["nr"] * s["col_per"] * size
        whole_ahead = (v["pack_columns"] == 2) & (not self.operands.packed_inside(ahead=True))
        ok &= (v["pack_columns"] == 0) | whole_ahead | (panel <= last // 2)
        if self.epilogue:  # partial sums of a block wait in a private buffer
            rows = s["mr"] * s["row_per"] * s["mr2"] * s["row2_per"]
            block = rows * s["nr"] * s["col_per"] * size
            small = block <= self.target.caches[min(1, len(self.target.caches) - 1)].bytes // 2
            whole = [loop.extent > 1 for loop in (*self.roles.rows, self.roles.columns)]
            ok &= (v["k_blocks"] == 1) | (small & (v["tails"] == 0) & all(whole))
            one = (s["mr"] * s["row_per"] == 1) & bool(self.roles.rows)
            one |= (s["mr2"] * s["row2_per"] == 1) & (len(self.roles.rows) > 1)
            ok &= (v["k_blocks"] == 1) | ~one
        if self.epilogue and any(x.dim == self.roles.columns.dim for x in self.roles.batch):
            # Tiles of columns across two groups read rows of both, which are no block.
            ok &= (v["copy_rows"] == 0) | (self.roles.columns.extent % s["nr"] == 0)
        if not self.epilogue:  # partial sums are read again
            ok &= (v["stream"] == 0) | (v["k_blocks"] == 1)
        alone = (v["stream"] == 0) & (v["skip_padding"] == 0) & (v["pack_columns"] < 2)
        ok &= (v["parts"] == 1) | (alone & (v["parallel"] > 0))
        if self.apart > 1:
            ok &= (v["unroll"] == 1) | ((v["k_blocks"] == 1) & (v["parts"] == 1))
        ok &= (v["fetch"] == 0) | can_hint(self, v, s)
        skipping = (v["copy_rows"] == 1) & (self.share_around(v) < 1.0)
        if self.border:
            skipping |= self._can_skip(v, s)
        ok &= (v["skip_padding"] == 0) | skipping
        must_pack = any(
            r.element_stride(self.roles.columns.name) not in (0, 1) for r in self.operands.packable
        )
        if must_pack:
            ok &= v["pack_columns"] >= 1
        m = [loop.extent for loop in self.roles.rows] + [1, 1]
        ragged_rows = (m[0] % s["mr"] != 0) | (m[1] % s["mr2"] != 0)
        ragged = ragged_rows | (self.roles.columns.extent % s["nr"] != 0)
        ok &= (v["tails"] == 0) | ragged
        ok &= (v["tails"] != 1) | ragged_rows
        ok &= v["parallel"] <= len(self.roles.block_loops(rows_outside=False))
        if self.target.threads > 1:
            batches = prod(loop.extent for loop in self.roles.batch)
            ok &= (v["parallel"] > 0) | (batches > 1 and not self.is_uneven)
        if not self.roles.rows and not self.roles.outer_rows:
            ok &= v["rows_outside"] == 0
        return ok

    def _can_skip(self, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
        """(P,) whether padding is decided by the tile: rows in one block and as they are, whole
        tiles, the taps written out, and not too many tiles at the edges."""
        assert self.border is not None
        taps = [loop.name for loop in self.short_taps()]
        needed = max((taps.index(name) + 1 for name in self.border.taps if name in taps), default=0)
        ok: BoolArray = (v["copy_rows"] == 0) & (s["row_blocks"] == 1) & (v["tap_unroll"] >= needed)
        if self.roles.main.name in self.border.taps:
            ok &= v["unroll"] == self.roles.main.extent
        rows = self.roles.rows[0].extent if self.roles.rows else 1
        ok &= (v["tails"] > 0) | (rows % s["mr"] == 0)
        if any(read.padded for read in self.operands.panels):  # a copy takes the conditions with it
            ok &= v["pack_columns"] == 0
        if self.border.lane_conds:  # tiles of columns are cut as those of rows are
            edges = self.edge_columns[np.searchsorted(self.knobs[0].values, v["vectors"])]
            ok &= (s["col_tiles"] % s["col_blocks"] == 0) & (edges <= MOST_BORDER_TILES)
            ok &= ((s["col_blocks"] == 1) | (edges < s["col_per"])) & (v["tails"] != 1)
            ok &= (v["tails"] == 2) | (self.roles.columns.extent % s["nr"] == 0)
        few: BoolArray = self.edge_tiles[v["rows"] - 1] <= MOST_BORDER_TILES
        return ok & few

    @cached_property
    def loop_axes(self) -> tuple[int, ...]:
        return tile_loop_axes(self.roles)

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        return tile_accesses(self)

    def extents(self, settings: IntArray) -> IntArray:
        """(P, L) trip counts."""
        v = self.values(settings)
        return tile_extents(self, v, tile_sizes(self, v))

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See COLUMNS."""
        v = self.values(settings)
        return tile_columns(self, v, tile_sizes(self, v))

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible with no model: a square-ish tile, packed columns."""
        if self.passing and (streaming := passing_default(self)):
            return streaming
        best, best_score = None, -1.0
        names = [k.name for k in self.knobs]
        base = dict.fromkeys(names, 0)
        base["pack_columns"] = len(self.knobs[names.index("pack_columns")].values) - 1
        base["copy_rows"] = len(self.knobs[names.index("copy_rows")].values) - 1
        base["parallel"] = min(1, len(self.knobs[names.index("parallel")].values) - 1)
        if self.is_sliding:  # whole rows of an image, taps written out, padding left out
            for name, values in ((k.name, k.values) for k in self.knobs):
                if name in ("tap_unroll", "skip_padding", "rows_outside"):
                    base[name] = len(values) - 1
        if asks_ahead(self):  # rows read in place, with hints
            base |= {"copy_rows": 0, "fetch": 1, "skip_padding": int(self.border is not None)}
            base["tap_unroll"] = min(1, len(self.short_taps()))
        columns = self.knobs[names.index("column_blocks")].values
        base["column_blocks"] = len([c for c in columns if c <= 2 * self.target.threads]) - 1
        for i, nv in enumerate(self.knobs[0].values):
            for j, mr in enumerate(self.knobs[1].values):
                for blocks in range(base["column_blocks"], -1, -1):
                    setting = {**base, "vectors": i, "rows": j, "column_blocks": blocks}
                    if asks_ahead(self):
                        setting["tails"] = int(self.roles.rows[0].extent % mr > 0)
                    if self.is_sliding:
                        setting["column_blocks"] = 0
                        ragged = self.roles.columns.extent % (nv * self.lanes)
                        setting["tails"] = 2 if ragged or self.roles.rows[0].extent % mr else 0
                    row = np.asarray([[setting[n] for n in names]])
                    spare = self.target.vector_registers - 2 >= mr * nv + nv + 1
                    if self.feasible(row)[0] and spare:
                        score = mr * nv / (mr + nv)
                        if score > best_score:
                            best, best_score = tuple(int(x) for x in row[0]), score
                        break
        if best is None:
            rng = np.random.default_rng(0)
            sizes = [len(k.values) for k in self.knobs]
            rows = rng.integers(0, sizes, (20000, len(sizes)))
            good = rows[self.feasible(rows)]
            assert len(good), f"no setting fits {self.view.name}"
            best = tuple(int(x) for x in good[0])
        return self._with_tasks(best)

    def _with_tasks(self, setting: tuple[int, ...]) -> tuple[int, ...]:
        """`setting` with rows divided among threads as well where columns are a single block, and
        batches too few or not alike."""
        names = [knob.name for knob in self.knobs]
        outermost = "row2_blocks" if len(self.roles.rows) > 1 else "row_blocks"
        at = {name: names.index(name) for name in ("parallel", outermost)}
        both = self.knobs[at["parallel"]].values
        blocks = self.sizes(np.asarray([setting]))["col_blocks"][0]
        batches = 1 if self.is_uneven else prod(loop.extent for loop in self.roles.batch)
        enough = blocks > 1 or batches >= 2 * self.target.threads
        if self.target.threads == 1 or enough or 2 not in both:
            return setting
        counts = self.knobs[at[outermost]].values
        most = 1 if self.roles.outer_rows else 2 * self.target.threads
        for n in reversed([n for n, c in enumerate(counts) if c <= most]):
            changed = list(setting)
            changed[at["parallel"]], changed[at[outermost]] = both.index(2), n
            if self.feasible(np.asarray([changed]))[0]:
                return tuple(changed)
        return setting

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        sizes = self.sizes(np.asarray([list(setting)]))
        s = {key: int(value[0]) for key, value in sizes.items()}
        write_tile_trace(writer, self, self.chosen(setting), s)


def _counts(most: int) -> tuple[int, ...]:
    return tuple(sorted({c for c in BLOCK_COUNTS if c < most} | {most}))
