"""The knobs of a tile, and which settings of them are worth a try."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...arrays import BoolArray, IntArray
from ...space import Knob
from ..knobs import Knobbed
from ..streams import stream_values
from .first_tile import packed_on_the_way
from .limits import feasible_tiles
from .loops import tile_sizes
from .prefetch import can_prefetch
from .reduction_parts import reduction_parts
from .roles import ceil_div
from .stage import MAX_TAPS, MOST_VECTORS, TileStage

VECTORS = (1, 2, 3, 4, 5, 6, MOST_VECTORS)
"""How many vectors of columns a tile has."""

BLOCK_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 256, 512)
"""Into how many blocks an axis is divided, as far as it has tiles; and into one a tile."""

PASSING_DEPTHS = (32, 64, 128, 256, 512)
"""How deep blocks of the reduction are tried: rows of an operand that is read in place."""


@dataclass(frozen=True)
class TileKnobs(TileStage, Knobbed):
    """What there is to choose for a stage, by name."""

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
            Knob("vectors", tuple(n for n in VECTORS if n <= max(columns, 1))),
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
            Knob("skip_padding", (0, 1) if self.border or self.skips_around else (0,)),
            Knob("tails", (0, 1, 2)),
            Knob("stream", self._stream_values()),
            Knob("parallel", parallel),
            Knob("prefetch", (0, 1) if can_prefetch(self) else (0,)),
            Knob("split_k", reduction_parts(self)),
        )

    def _stream_values(self) -> tuple[int, ...]:
        if self.is_scattered:
            return (0,)
        return stream_values(self.workload, self.output, self.target)

    def _steps_written_out(self) -> tuple[int, ...]:
        k = self.roles.main.extent
        if self.apart > 1:
            return tuple(range(1, min(MAX_TAPS, ceil_div(k, self.apart)) + 1))
        return tuple(u for u in (1, 2, 4, k) if k % u == 0 and u <= self.most_taps)

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

    def sizes(self, settings: IntArray) -> dict[str, IntArray]:
        """Tile and block sizes, see `tile_loops`."""
        return tile_sizes(self, self.values(settings))

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether tile, panel and code fit the target, and no knob is without effect."""
        v = self.values(settings)
        return feasible_tiles(self, v, tile_sizes(self, v))


def _counts(most: int) -> tuple[int, ...]:
    return tuple(sorted({c for c in BLOCK_COUNTS if c < most} | {most}))
