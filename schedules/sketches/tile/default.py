"""Settings of a tiled stage, and its default setting. The default needs neither measurements nor
models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ...errors import require
from ..knobs import Knobbed
from .limits import feasible_tiles
from .operands import is_hw_prefetchable
from .settings import TileKnobs, TileSettings
from .stage import TileStage

Domains = TileKnobs[tuple[int, ...]]
"""The values of each knob."""


@dataclass(frozen=True)
class TileChoices(TileStage, Knobbed[TileSettings[IntArray], TileSettings[int]]):
    """The settings of a tiled stage."""

    SETTINGS = TileSettings

    def settings_of(self, values: Mapping[str, Any]) -> Any:
        return TileSettings(**values, stage=self)

    @cached_property
    def offered(self) -> Domains:
        """The values of each knob."""
        return TileKnobs(**{knob.name: knob.values for knob in self.knobs})

    def feasible(self, settings: IntArray) -> BoolArray:
        return feasible_tiles(self.values(settings))

    def default(self) -> tuple[int, ...]:
        return _default(self)


def _default(sketch: TileChoices) -> tuple[int, ...]:
    """Return a feasible setting whose tile has few loads per multiply-add and leaves registers
    free.

    All threads are used. Columns are packed, or a nonresident operand is read in place with
    prefetches.
    """
    for tried in _usual(sketch):
        settings = sketch.feasible_of(vars(tried))
        t = sketch.values(settings)
        is_good = ~_is_wasteful(t)
        if is_good.any():
            settings, t = settings[is_good], sketch.values(settings[is_good])
            crowded = t.sums + t.tile_vectors + 1 > sketch.target.vector_registers - 2
            chains = t.tile_rows * t.tile_vectors
            square = chains / (chains + t.tile_rows + t.tile_vectors)
            # Without column operands, most loads are of rows, and those of rows beyond the last
            # one are tested.
            counts_tests = sketch.nonresident or not sketch.roles.column_reads
            square = square * (_full(t) if counts_tests else 1.0)
            fine = t.column_blocks - t.peel_remainders - t.reduction_blocks + t.prefetch
            least = t.skip_padding + t.unroll_window * sketch.is_sliding
            best = np.lexsort((-np.arange(len(settings)), fine, square, ~crowded, least))[-1]
            return _with_tasks(sketch, tuple(int(i) for i in settings[best]))
    return _with_tasks(sketch, _any_feasible(sketch))


def _full(t: TileSettings[IntArray]) -> FloatArray | float:
    """Return the fraction of the tiles' elements that exist, shape (P,)."""
    full: FloatArray | float = 1.0
    for axis in (t.columns, t.rows):
        full = full * axis.extent / (axis.tiles * axis.size)
    return full


def _usual(sketch: TileChoices) -> Iterator[Domains]:
    """Yield the values of each knob among which the default is chosen. The most promising ones are
    first.

    A nonresident operand is read in place, and each thread computes one range of columns. Otherwise
    columns and rows are packed. Inside the loops of a later stage, padding is skipped if possible,
    because whole rows may be padding. For sliding windows, whole rows of an image are unrolled and
    padding is skipped.
    """
    offered, threads, main = sketch.offered, sketch.target.threads, sketch.roles.main

    def columns(most: int) -> tuple[int, ...]:
        return tuple(count for count in offered.column_blocks if count <= most)

    of_padding = offered.skip_padding[-1 if sketch.block_conds else 0 :]
    base = replace(
        _first_values(offered),
        tile_vectors=offered.tile_vectors,
        tile_rows=offered.tile_rows,
        peel_remainders=offered.peel_remainders,
        parallel=(min(1, offered.parallel[-1]),),
        skip_padding=of_padding if sketch.outer else of_padding[:1],
    )
    if sketch.nonresident:
        is_followed = all(is_hw_prefetchable(read, main) for read in sketch.nonresident)
        yield replace(
            base,
            skip_padding=offered.skip_padding,
            unroll_window=offered.unroll_window,
            reduction_blocks=offered.reduction_blocks,
            column_blocks=columns(threads),
            row_tiles_innermost=offered.row_tiles_innermost[-1:],
            prefetch=(int(not is_followed),),
        )
    base = replace(base, column_blocks=columns(2 * threads), pack_columns=offered.pack_columns[-1:])
    if sketch.is_sliding:
        is_offered = main.extent in offered.unroll_reduction
        base = replace(
            base,
            unroll_reduction=(main.extent,) if is_offered else base.unroll_reduction,
            skip_padding=offered.skip_padding[-1:],
            row_blocks_outermost=offered.row_blocks_outermost[-1:],
            copy_rows=offered.copy_rows[:2][-1:],
            prefetch=offered.prefetch if sketch.distant_windows else base.prefetch,
        )
        column_blocks = offered.column_blocks[:1]
        yield replace(base, unroll_window=offered.unroll_window, column_blocks=column_blocks)
    elif sketch.prefetched_runs:  # rows are read in place and prefetched
        taps = offered.unroll_window[:2][-1:]
        skips = sketch.border is not None or bool(sketch.block_conds)
        yield replace(base, unroll_window=taps, prefetch=(1,), skip_padding=(int(skips),))
    yield replace(base, copy_rows=offered.copy_rows[:2][-1:])


def _first_values(offered: Domains) -> Domains:
    return TileKnobs(**{name: values[:1] for name, values in vars(offered).items()})


def _is_wasteful(t: TileSettings[IntArray]) -> BoolArray:
    """Return whether a setting is unsuitable for a nonresident operand, shape (P,). Either two
    consecutive tiles of the operand exceed half of the cache, or its taps are unrolled and padding
    is not skipped."""
    stage, taps = t.stage, prod(loop.extent for loop in t.stage.roles.taps)
    rows = taps * -(-stage.roles.main.extent // t.reduction_blocks)
    waits = 2 * rows * t.nr * stage.view.dtype.bytes > stage.target.own_cache_bytes // 2
    found: BoolArray = waits | (t.unroll_window > 0) & (t.skip_padding == 0)
    return found & bool(stage.nonresident)


def _any_feasible(sketch: TileChoices) -> tuple[int, ...]:
    """Return the first feasible setting with one tile per block of columns. Raise ScheduleError if
    there is none."""
    offered = sketch.offered
    tried = replace(
        _first_values(offered),
        tile_vectors=offered.tile_vectors,
        tile_rows=offered.tile_rows,
        copy_rows=offered.copy_rows,
        pack_columns=offered.pack_columns,
        reduction_blocks=offered.reduction_blocks,
        parallel=offered.parallel,
        column_blocks=offered.column_blocks[-1:],
    )
    settings = sketch.feasible_of(vars(tried))
    require(len(settings) > 0, sketch.view.name, "no tile fits the target")
    return tuple(int(i) for i in settings[0])


def _with_tasks(sketch: TileChoices, setting: tuple[int, ...]) -> tuple[int, ...]:
    """Return `setting`, changed so that threads divide rows too if the tasks are too few.

    This is so if there is only one block of columns, and the batches are too few or differ in work.
    """
    roles, threads, offered = sketch.roles, sketch.target.threads, sketch.offered
    t = sketch.chosen(setting)
    batches = 1 if sketch.is_uneven else prod(loop.extent for loop in roles.batch)
    enough = t.columns.blocks > 1 or batches >= 2 * threads
    if threads == 1 or enough or 2 not in offered.parallel:
        return setting
    has_two, most = len(roles.rows) > 1, 1 if roles.outer_rows else 2 * threads
    counts = offered.row_blocks2 if has_two else offered.row_blocks
    for count in reversed([count for count in counts if count <= most]):
        divided = replace(t, parallel=2)
        changed = sketch.setting_of(
            replace(divided, row_blocks2=count) if has_two else replace(divided, row_blocks=count)
        )
        if sketch.feasible(np.asarray([changed]))[0]:
            return changed
    return setting
