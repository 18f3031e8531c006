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
from math import gcd, prod

import numpy as np

from ..affine import Affine, Var
from ..primitives import Split
from ..space import Access, BoolArray, FloatArray, IntArray, Knob
from ..target import Target
from ..trace import Trace
from ..workload import Workload
from .analysis import Loop, Read, StageView, math_calls
from .tile_trace import write_tile_trace
from .writer import TraceWriter

BLOCK_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 256, 512)
MAX_UNROLLED = 48
"""Most multiply-adds in the unrolled body of the innermost loop, if it is unrolled at all."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class TileRoles:
    """Which loop plays which part. `rows` are innermost first, `outer_rows` are further axes the
    column operands do not use; `main` is the blocked reduction."""

    columns: Loop
    rows: tuple[Loop, ...]
    outer_rows: tuple[Loop, ...]
    batch: tuple[Loop, ...]
    taps: tuple[Loop, ...]
    main: Loop
    column_reads: tuple[Read, ...]
    row_reads: tuple[Read, ...]


def assign_roles(view: StageView) -> TileRoles | None:
    """The parts of the tile sketch for a stage, None if it does not fit: no reduction, or no
    spatial axis worth a vector."""
    if not view.is_reduction or not view.spatial or not view.reduce:
        return None
    columns = view.spatial[-1]
    column_reads = tuple(r for r in view.reads if r.uses(columns.name))
    if not column_reads:
        return None
    others = view.spatial[:-1]
    free = [loop for loop in reversed(others) if any(not r.uses(loop.name) for r in column_reads)]
    reused = any(loop.extent > 1 for loop in free)
    if not all(_vector_friendly(r, columns.name, reused) for r in column_reads):
        return None
    rows = [loop for loop in free if loop.extent > 1][:2]
    main = max(view.reduce, key=lambda loop: (loop.extent, view.reduce.index(loop)))
    return TileRoles(
        columns=columns,
        rows=tuple(rows),
        outer_rows=tuple(loop for loop in others if loop in free and loop not in rows),
        batch=tuple(loop for loop in others if loop not in free),
        taps=tuple(loop for loop in view.reduce if loop is not main),
        main=main,
        column_reads=column_reads,
        row_reads=tuple(r for r in view.reads if not r.uses(columns.name)),
    )


def _vector_friendly(read: Read, loop: str, reused: bool) -> bool:
    """Whether lanes along `loop` can be loaded whole, from the tensor or from a packed copy that
    is used more than once."""
    return read.element_stride(loop) == 1 or (reused and read.own_dim(loop) is not None)


@dataclass(frozen=True)
class TileSketch:
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
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        roles = self.roles
        columns = ceil_div(roles.columns.extent, self.lanes)
        rows = [loop.extent for loop in roles.rows] + [1, 1]
        most_rows = min(self.target.vector_registers - 2, rows[0])
        parallel = (0, 1, 2) if self.target.threads > 1 else (0,)
        k = roles.main.extent
        return (
            Knob("vectors", tuple(n for n in (1, 2, 3, 4, 5, 6, 8) if n <= max(columns, 1))),
            Knob("rows", tuple(range(1, most_rows + 1))),
            Knob("rows2", tuple(n for n in (1, 2, 3, 4, 5, 6, 7, 8) if n <= rows[1])),
            Knob("column_blocks", _counts(columns)),
            Knob("row_blocks", _counts(rows[0])),
            Knob("row2_blocks", _counts(rows[1])),
            Knob(
                "k_blocks",
                (1,)
                if self.epilogue
                else tuple(c for c in (1, 2, 3, 4, 6, 8, 16) if k // c >= 32 or c == 1),
            ),
            Knob("unroll", tuple(u for u in (1, 2, 4) if k % u == 0)),
            Knob("rows_outside", (0, 1)),
            Knob("row_tiles_inside", (0, 1)),
            Knob("pack_columns", (0, 1) if self.packable else (0,)),
            Knob("copy_rows", (0, 1) if self.copyable else (0,)),
            Knob("tails", (0, 1, 2)),
            Knob("parallel", parallel),
        )

    @property
    def packable(self) -> tuple[Read, ...]:
        """Column operands that can be packed: the column axis has a dimension of its own."""
        column = self.roles.columns.name
        return tuple(
            read
            for read in once(self.roles.column_reads)
            if read.own_dim(column) is not None and not self._moves_with_rows(read)
        )

    def _moves_with_rows(self, read: Read) -> bool:
        rows = (*self.roles.rows, *self.roles.outer_rows)
        return any(read.uses(loop.name) for loop in rows)

    @property
    def copyable(self) -> tuple[Read, ...]:
        """Operands that move with the rows: a block of them can be copied, padding included."""
        mixed = (r for r in self.roles.column_reads if self._moves_with_rows(r))
        return tuple(
            r for r in once((*self.roles.row_reads, *mixed)) if all(_plain(i) for i in r.index)
        )

    def _values(self, settings: IntArray) -> dict[str, IntArray]:
        settings = np.atleast_2d(settings)
        return {
            knob.name: np.asarray(knob.values, np.int64)[settings[:, j]]
            for j, knob in enumerate(self.knobs)
        }

    def _sizes(self, settings: IntArray) -> dict[str, IntArray]:
        """Tile and block sizes, in elements, and how many of each: arrays (P,)."""
        v = self._values(settings)
        roles = self.roles
        n = roles.columns.extent
        m = [loop.extent for loop in roles.rows] + [1, 1]
        nr = v["vectors"] * self.lanes
        s: dict[str, IntArray] = {"nr": nr, "mr": v["rows"], "mr2": v["rows2"]}
        s["col_tiles"] = -(-n // nr)
        s["col_per"] = -(-s["col_tiles"] // v["column_blocks"])
        s["col_blocks"] = -(-s["col_tiles"] // s["col_per"])
        for key, extent, tile, blocks in (
            ("row", m[0], v["rows"], v["row_blocks"]),
            ("row2", m[1], v["rows2"], v["row2_blocks"]),
        ):
            s[f"{key}_tiles"] = -(-extent // tile)
            s[f"{key}_per"] = -(-s[f"{key}_tiles"] // blocks)
            s[f"{key}_blocks"] = -(-s[f"{key}_tiles"] // s[f"{key}_per"])
        k, u = roles.main.extent, v["unroll"]
        s["kc"] = (((k - 1) // v["k_blocks"] + 1) + u - 1) // u * u
        s["k_count"] = -(-k // s["kc"])
        return s

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether tile, panel and code fit the target, and no knob is without effect."""
        v, s = self._values(settings), self._sizes(settings)
        registers = self.target.vector_registers
        reads = len(self.roles.column_reads)
        live = s["mr"] * s["mr2"] * v["vectors"] + v["vectors"] * max(reads, 1) + 1
        ok: BoolArray = live <= registers - (1 if registers > 16 else 0)
        # More copies of a step only bring spills: LLVM moves their loads to the front.
        ok &= (v["unroll"] == 1) | (s["mr"] * s["mr2"] * v["vectors"] * v["unroll"] <= MAX_UNROLLED)
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
        ok &= (v["pack_columns"] == 0) | (panel <= last // 2)
        must_pack = any(
            r.element_stride(self.roles.columns.name) not in (0, 1) for r in self.packable
        )
        if must_pack:
            ok &= v["pack_columns"] == 1
        m = [loop.extent for loop in self.roles.rows] + [1, 1]
        ragged_rows = (m[0] % s["mr"] != 0) | (m[1] % s["mr2"] != 0)
        ragged = ragged_rows | (self.roles.columns.extent % s["nr"] != 0)
        ok &= (v["tails"] == 0) | ragged
        ok &= (v["tails"] != 1) | ragged_rows
        ok &= v["parallel"] <= len(self.block_loops(rows_outside=False))
        if self.target.threads > 1:
            ok &= (v["parallel"] > 0) | (len(self.roles.batch) > 0)
        if not self.roles.rows and not self.roles.outer_rows:
            ok &= v["rows_outside"] == 0
        return ok

    @property
    def loop_axes(self) -> tuple[int, ...]:
        # axes: 0 columns, 1 rows, 2 rows2, 3 main, 4 batch, 5 taps
        return (4, 0, 1, 2, 3, 2, 1, 0, 5, 3, 2, 1, 0)

    def extents(self, settings: IntArray) -> IntArray:
        """(P, 13): batch, column/row/row2 blocks, k blocks, tiles of each, taps, k, tile."""
        s = self._sizes(settings)
        ones = np.ones_like(s["nr"])
        batch = prod(loop.extent for loop in (*self.roles.batch, *self.roles.outer_rows))
        taps = prod(loop.extent for loop in self.roles.taps)
        k = np.minimum(s["kc"], self.roles.main.extent)
        return np.stack(
            [
                ones * batch, s["col_blocks"], s["row_blocks"], s["row2_blocks"], s["k_count"],
                s["row2_per"], s["row_per"], s["col_per"], ones * taps, k,
                s["mr2"], s["mr"], np.minimum(s["nr"], self.roles.columns.extent),
            ],
            axis=1,
        )  # fmt: skip

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """How the nest touches each tensor over the axes of `loop_axes`."""
        roles = self.roles
        groups = [[roles.columns], list(roles.rows[:1]), list(roles.rows[1:2]), [roles.main]]
        groups += [[*roles.batch, *roles.outer_rows], list(roles.taps)]
        found = []
        for read in self._inner_reads:
            dims = tuple(
                tuple(_stride(index, [loop.name for loop in g]) for g in groups)
                for index in read.index
            )
            found.append(Access(read.tensor, read.dtype.bytes, dims))
        out = [tuple(1 if loop in g else 0 for g in groups) for loop in self.view.spatial]
        found.append(Access(self.view.name, self.view.dtype.bytes, tuple(out), is_output=True))
        return tuple(found)

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See COLUMNS."""
        v, s = self._values(settings), self._sizes(settings)
        f = {key: value.astype(np.float64) for key, value in {**v, **s}.items()}
        roles, view = self.roles, self.view
        outside = float(prod(loop.extent for loop in roles.outer_rows))
        batch = float(prod(loop.extent for loop in roles.batch)) * outside
        taps = float(prod(loop.extent for loop in roles.taps))
        k = float(roles.main.extent)
        vectors = v["vectors"].astype(np.float64)
        m = [loop.extent for loop in roles.rows] + [1, 1]
        n = roles.columns.extent
        over = v["tails"] == 0
        row_tiles = np.where(over, f["row_tiles"], m[0] / f["mr"])
        row2_tiles = np.where(over, f["row2_tiles"], m[1] / f["mr2"])
        exact_cols = np.ceil(n / self.lanes) / vectors
        col_tiles = np.where(v["tails"] == 2, exact_cols, f["col_tiles"])
        tiles = batch * col_tiles * row_tiles * row2_tiles
        depth = k * taps
        acc = f["mr"] * f["mr2"] * vectors
        ops = max(view.operations - 1, 1)
        broadcast = len(once(roles.row_reads)) * f["mr"] * f["mr2"]
        direct = len(once(roles.column_reads)) * vectors
        unpacked = v["pack_columns"] == 0
        panel = k * taps * f["nr"] * f["col_tiles"] * view.dtype.bytes * len(self.packable)
        again = outside * f["row_blocks"] * f["row2_blocks"]
        repeats = np.where((v["rows_outside"] == 1) | (v["parallel"] == 2), again, 1.0)
        repeats = repeats * batch / outside
        packed = np.where(unpacked, 0.0, panel * repeats)
        contiguous = all(r.element_stride(roles.columns.name) in (0, 1) for r in self.packable)
        copied = np.zeros_like(packed)
        for read in self.copyable:
            copied = copied + np.where(
                v["copy_rows"] == 1,
                prod(read.shape) * read.dtype.bytes
                * np.where(v["rows_outside"] == 1, 1.0, f["col_blocks"]), 0.0,
            )  # fmt: skip
        padded = any(r.padded for r in roles.row_reads)
        extra = np.where(padded & (v["copy_rows"] == 0), broadcast * 2.0, 0.0)
        counts = self._block_counts(f)
        tasks = np.full_like(tiles, batch / outside)
        for n in range(2):
            tasks = tasks * np.where(v["parallel"] > n, counts[n], 1.0)
        serial = self.target.threads == 1
        vector_ops = tiles * depth * (acc * ops + extra)
        return {
            "flops": vector_ops * self.lanes * 2.0,
            "vector_ops": vector_ops,
            "vector_loads": tiles * depth * (broadcast + direct),
            "vector_stores": tiles * acc * f["k_count"],
            "scalar_accesses": np.zeros_like(tiles),
            "conflict_misses": self._conflict_misses(f, tiles, depth),
            "math_calls": tiles * acc * (math_calls(self.epilogue.value) if self.epilogue else 0),
            "accumulators": acc,
            "live_registers": acc + direct + 1.0,
            "inner_trips": np.ceil(f["kc"] / v["unroll"]),
            "inner_entries": tiles * taps * f["k_count"],
            "code_ops": (acc * ops + broadcast + direct) * v["unroll"],
            "packed_bytes": packed + copied,
            "strided_packed_bytes": np.where(contiguous, 0.0, packed),
            "packed_accesses": self._packed_accesses(v),
            "masked_share": self._masked_share(v, s),
            "tasks": np.ones_like(tiles) if serial else tasks.astype(np.float64),
            "regions": np.zeros_like(tiles) if serial else np.ones_like(tiles),
        }

    def _masked_share(self, v: dict[str, IntArray], s: dict[str, IntArray]) -> FloatArray:
        """(P,) how much of the inner work stands under guards: all of it where unpacked operands
        are guarded in the reduction itself, a part where tiles are guarded but not split off."""
        m = [loop.extent for loop in self.roles.rows] + [1, 1]
        rows = (m[0] % s["mr"] != 0) | (m[1] % s["mr2"] != 0)
        columns = self.roles.columns.extent % s["nr"] != 0
        deep = (v["pack_columns"] == 0) & (self.roles.main.extent % s["kc"] != 0)
        share = 0.35 * ((v["tails"] == 0) & rows) + 0.35 * ((v["tails"] < 2) & columns)
        return np.where(deep, 1.0, share).astype(np.float64)

    def _packed_accesses(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) which of `accesses` are read through a copy, as the bits of a number."""
        bits = {read.tensor: 1 << b for b, read in enumerate(self._inner_reads)}
        columns = sum(bits[read.tensor] for read in self.packable)
        rows = sum(bits[read.tensor] for read in self.copyable)
        return ((v["pack_columns"] * columns) | (v["copy_rows"] * rows)).astype(np.float64)

    @property
    def _inner_reads(self) -> tuple[Read, ...]:
        return once((*self.roles.column_reads, *self.roles.row_reads))

    def _conflict_misses(
        self, f: dict[str, FloatArray], tiles: FloatArray, depth: float
    ) -> FloatArray:
        """Lines of operands used in place that do not survive from one tile to the next, because
        rows at a stride of a large power of two share the sets of a cache."""
        roles, total = self.roles, np.zeros_like(tiles)
        for read in once(roles.column_reads):
            step = read.element_stride(roles.main.name)
            if not step or self._moves_with_rows(read):
                continue
            used = (f["pack_columns"] == 0) | (read.own_dim(roles.columns.name) is None)
            lines = np.ceil(f["nr"] * read.dtype.bytes / 64.0)
            rows = np.minimum(f["kc"], roles.main.extent) * (depth / roles.main.extent)
            lost = lost_levels(self.target, step * read.dtype.bytes, lines, rows)
            total = total + np.where(used, tiles * depth * lines * lost, 0.0)
        for read in once(roles.row_reads):
            for loop in roles.rows[:1]:
                step = read.element_stride(loop.name)
                if not step:
                    continue
                ones = np.ones_like(tiles)
                lost = lost_levels(self.target, step * read.dtype.bytes, ones, f["mr"] * f["mr2"])
                per_step = f["mr"] * f["mr2"] * read.dtype.bytes / 64.0
                in_place = (f["copy_rows"] == 0) | (read not in self.copyable)
                total = total + np.where(in_place, tiles * depth * per_step * lost, 0.0)
        return total

    def outer_presplit(self) -> tuple[Split, ...]:
        """The splits of the view, of the loops that are outside: the epilogue's if there is one."""
        outer = self.epilogue.name if self.epilogue else self.view.name
        return tuple(
            Split(outer + step.loop[len(self.view.name) :], step.factor)
            for step in self.view.presplit
        )

    def block_loops(self, rows_outside: bool) -> list[str]:
        """Which axes have a block loop, outermost first."""
        rows = [loop.name for loop in self.roles.outer_rows] + [
            loop.name for loop in reversed(self.roles.rows)
        ]
        columns = [self.roles.columns.name]
        return [*rows, *columns] if rows_outside else [*columns, *rows]

    def _block_counts(self, f: dict[str, FloatArray]) -> list[FloatArray]:
        """How many iterations the first and the second block loop have."""
        ones = np.ones_like(f["nr"])
        by_name = {loop.name: ones * loop.extent for loop in self.roles.outer_rows}
        by_name |= {
            loop.name: f[f"{key}_blocks"]
            for loop, key in zip(self.roles.rows, ("row", "row2"), strict=False)
        }
        by_name[self.roles.columns.name] = f["col_blocks"]
        orders = [[by_name[n] for n in self.block_loops(outside)] for outside in (False, True)]
        picked = []
        for n in range(2):
            a, b = (order[n] if n < len(order) else ones for order in orders)
            picked.append(np.where(f["rows_outside"] == 1, b, a))
        return picked

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible with no model: a square-ish tile, packed columns."""
        best, best_score = None, -1.0
        names = [k.name for k in self.knobs]
        base = dict.fromkeys(names, 0)
        base["pack_columns"] = len(self.knobs[names.index("pack_columns")].values) - 1
        base["copy_rows"] = len(self.knobs[names.index("copy_rows")].values) - 1
        base["parallel"] = min(1, len(self.knobs[names.index("parallel")].values) - 1)
        columns = self.knobs[names.index("column_blocks")].values
        base["column_blocks"] = len([c for c in columns if c <= 2 * self.target.threads]) - 1
        for i, nv in enumerate(self.knobs[0].values):
            for j, mr in enumerate(self.knobs[1].values):
                for blocks in range(base["column_blocks"], -1, -1):
                    setting = {**base, "vectors": i, "rows": j, "column_blocks": blocks}
                    row = np.asarray([[setting[n] for n in names]])
                    if self.feasible(row)[0]:
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
        return best

    def trace(self, setting: Sequence[int]) -> Trace:
        """The trace of one feasible setting."""
        writer = TraceWriter(self.workload)
        self.write(writer, setting)
        return writer.trace

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        row = np.asarray([list(setting)])
        v = {key: int(value[0]) for key, value in self._values(row).items()}
        s = {key: int(value[0]) for key, value in self._sizes(row).items()}
        write_tile_trace(writer, self, v, s)


def lost_levels(
    target: Target, stride_bytes: int, lines_a_row: FloatArray, rows: FloatArray
) -> FloatArray:
    """(P,) how many caches cannot keep `rows` rows of `lines_a_row` lines at a stride: the sets
    such rows fall into, times the ways, hold fewer lines than there are."""
    lost = np.zeros_like(rows)
    for cache in target.caches[:2]:
        sets = max(cache.bytes // (cache.ways * cache.line_bytes), 1)
        apart = max(stride_bytes // cache.line_bytes, 1)
        reached = np.minimum(sets, sets // gcd(apart, sets) * lines_a_row)
        lost = lost + ((lines_a_row * rows > reached * cache.ways) & (reached < sets))
    return lost


def once(reads: Sequence[Read]) -> tuple[Read, ...]:
    """The first read of each tensor."""
    found: dict[str, Read] = {}
    for read in reads:
        found.setdefault(read.tensor, read)
    return tuple(found.values())


def _plain(index: Affine) -> bool:
    return all(isinstance(atom, Var) for atom, _ in index.terms)


def _stride(index: Affine, loops: Sequence[str]) -> int:
    """How far `index` moves when the innermost of `loops` that it uses does."""
    for name in reversed(loops):
        if name in index.vars():
            return index.coefficient(name) or 1
    return 0


def _counts(most: int) -> tuple[int, ...]:
    return tuple(sorted({c for c in BLOCK_COUNTS if c < most} | {most}))
