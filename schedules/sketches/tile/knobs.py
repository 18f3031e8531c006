"""The knobs of a tile, and which settings of them are worth a try."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...arrays import BoolArray, IntArray
from ...hardware import FEWEST_ROWS
from ...space import Knob
from ..analysis.tile_roles import LEAST_DEPTH, ceil_div
from ..groups import TASKS_A_THREAD
from ..knobs import POWERS, Knobbed, stream_values
from .first_tile import packed_by_first_tile
from .limits import feasible_tiles
from .loops import tile_sizes
from .prefetch import can_prefetch
from .stage import MAX_TAPS, TileStage


@dataclass(frozen=True)
class TileKnobs(TileStage, Knobbed):
    """What there is to choose for a stage, by name."""

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        roles, registers = self.roles, self.target.vector_registers
        columns = ceil_div(roles.columns.extent, self.lanes)
        rows = [loop.extent for loop in roles.rows] + [1, 1]
        k, least = roles.main.extent, LEAST_DEPTH if roles.is_reused else FEWEST_ROWS
        divided = 2 if roles.is_reused else 1
        # Tiles go along long rows of an image where windows slide, which are read and written from
        # end to end; each row of a tile would be a stream of its own: measured slower.
        free = (0,) if self.is_sliding else (0, 1)
        copies = self.copyable and not self.is_read_in_place
        skips = self.border or (copies and self.decided_around(1, 1, 0))
        return (
            Knob("tile_vectors", _up_to(registers // 2 - 1, columns)),
            Knob("tile_rows", _up_to(registers - 2, rows[0])),
            Knob("tile_rows2", _up_to(registers - 2, rows[1])),
            Knob("column_blocks", _counts(columns)),
            Knob("row_blocks", _counts(rows[0])),
            Knob("row_blocks2", _counts(rows[1])),
            # Without reuse a few rows of the operand at a time can be read from end to end, which
            # is what prefetchers are made for.
            Knob("reduction_blocks", tuple(c for c in _counts(k) if c * least <= max(k, least))),
            Knob("unroll_reduction", self._steps_written_out()),
            Knob("unroll_window", tuple(range(len(self.short_taps()) + 1))),
            Knob("row_blocks_outermost", (0, 1) if roles.is_reused else (0,)),
            Knob("row_tiles_innermost", free),
            Knob("pack_columns", (0, *(1,) * bool(self.packable), *(2,) * bool(self.prepacked))),
            Knob("fuse_packing", (0, 1) if packed_by_first_tile(self) else (0,)),
            Knob("copy_rows", (0, 1) if copies else (0,)),
            Knob("skip_padding", (0, 1) if skips else (0,)),
            Knob("peel_remainders", (0, 1, 2)),
            Knob("nontemporal_stores", self._stream_values()),
            Knob("parallel", tuple(range(divided + 1)) if self.target.threads > 1 else (0,)),
            Knob("prefetch", (0, 1) if can_prefetch(self) else (0,)),
            Knob("split_reduction", self._reduction_parts()),
        )

    def _stream_values(self) -> tuple[int, ...]:
        if self.is_scattered or self.is_sliding:
            return (0,)
        return stream_values(self.workload, self.output, self.target)

    def _steps_written_out(self) -> tuple[int, ...]:
        k = self.roles.main.extent
        if self.step_distance > 1:
            return tuple(range(1, min(MAX_TAPS, ceil_div(k, self.step_distance)) + 1))
        return tuple(u for u in (*POWERS[:3], k) if k % u == 0 and u <= self.most_taps)

    def _reduction_parts(self) -> tuple[int, ...]:
        """Numbers of equal parts of the reduction: several for the threads where output tiles are
        too few for them, the reduction is long and nothing is computed from it in place. Each part
        is added up in a buffer of its own (RFactor), and the parts in their order at the end, by
        one thread: every element is the sum of the same products in an order that depends on
        nothing but the trace, and what error that may have is bounded for any order."""
        roles, view, threads = self.roles, self.view, self.target.threads
        rewritten = self.epilogue or self.is_scattered or view.axis_splits or view.phase_steps
        if threads == 1 or rewritten:
            return (1,)
        usual_tile = self.lanes * self.target.vector_registers // 2
        if view.outputs >= TASKS_A_THREAD * threads * usual_tile:
            return (1,)
        depth = roles.main.extent
        counts = (threads, 2 * threads)
        return (1, *(n for n in counts if depth % n == 0 and depth // n >= LEAST_DEPTH))

    def sizes(self, settings: IntArray) -> dict[str, IntArray]:
        """Tile and block sizes, see `tile_sizes`."""
        return tile_sizes(self, self.values(settings))

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether tile, panel and code fit the target, and no knob is without effect."""
        v = self.values(settings)
        return feasible_tiles(self, v, tile_sizes(self, v))


def _up_to(*most: int) -> tuple[int, ...]:
    return tuple(range(1, min(most) + 1))


def _counts(most: int) -> tuple[int, ...]:
    """Into how many blocks an axis is divided that has `most` tiles, if they are of one element:
    powers of two and thrice these, its halves, and one a tile."""
    found = {n for x in range(most.bit_length()) for n in (1 << x, 3 << x, -(-most >> x))}
    return tuple(sorted(n for n in found if n <= most))
