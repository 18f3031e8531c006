"""Memory use of tiles: private copies, operands outside a core's caches, and strided rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray, Number
from ...hardware import PAGE_BYTES
from ...memory_use import DistantRuns, MemoryUse, PrivateCopy, StridedRows
from ...plan import Access
from ..analysis.stages import StageRead, once
from ..writer import TILES
from .leaves import TileNest
from .loops import copy_places
from .operands import is_hw_prefetchable
from .prefetch import (
    panel_lines_per_step,
    prefetches_panels,
    runs_per_iteration,
    windows_per_iteration,
)
from .settings import TileSettings
from .stage import TileStage

LATE_STORES = 0.3
"""Fraction of the cost of an exposed line that a store takes although its tile prefetches the line
or does not load it. Short runs do not fill the buffers of stores in time. Source: measured,
`benchmarks.prior judge`: 0 proposes slower settings first on the Zen 5, 0.6 ranks those with AVX2
worse."""

MOST_ROWS_FOLLOWED = 2
"""Most rows of a page that a hardware prefetcher follows while a tile reads them together. Source:
measured, depthwise windows of 4x64x128x128 on a Zen 3. Tiles of one to four vectors and 1, 2, 3, 4,
5, and 7 rows take 2.5, 2.9, 3.7, 4.0, 4.5, and 5.0 ms, with software prefetches."""

LATE_WINDOWS = 0.75
"""Fraction of the cost of an exposed line of a window that a tile takes although it prefetches the
line, if no hardware prefetcher follows the tile's rows. Source: measured, as above: prefetches save
a tenth to a quarter of the time of tiles of 7 rows, and of two blocks of columns."""


def tile_memory(nest: TileNest) -> MemoryUse:
    """Return the memory use of the nests of a tile sketch."""
    t = nest.t
    tiles = nest.loops[TILES].executions / (t.split_reduction * t.k_count)
    steps = np.asarray(nest.plan.leaf_loops[-1].executions * nest.clear)
    distant = (*_columns(nest, steps), *_rows(nest, steps), *_panels(nest, steps))
    return MemoryUse(
        tuple(_copies(nest)),
        (*distant, *_short_runs(nest, tiles), *_windows(nest, tiles)),
        tuple(_strided(nest, tiles, steps)),
        tuple(_stored(nest, tiles)),
    )


def _copies(nest: TileNest) -> Iterator[PrivateCopy]:
    """Yield the copies: panels of columns and blocks of rows."""
    t, stage, plan = nest.t, nest.stage, nest.plan
    columns, rows = copy_places(t, plan.levels)
    access_of = {access.buffer: access for access in plan.accesses}
    column = stage.roles.columns.name
    strided = [r for r in stage.packable if r.element_stride(column) not in (0, 1)]
    strided = [r for r in strided if r not in stage.windows]
    is_gathered = any(not stage.is_transposed(r) for r in strided)
    for read in stage.packable if t.packs.any() else ():
        sides, times = plan.region(access_of[read.tensor], columns)
        # Panels of constants may be packed before the call.
        packs = t.packs & ~(t.prepacks & (read in stage.prepacked))
        elements = _whole_elements(nest, read) if stage.outer else np.prod(sides, axis=0)
        panel = packs * elements * read.dtype.bytes
        yield PrivateCopy(
            panel,
            times,
            panel * is_gathered,
            is_transposed=bool(strided) and not is_gathered,
            is_fused=t.fuse_packing > 0,
        )
    for read in stage.copyable if t.copies_rows.any() else ():
        access = access_of[read.tensor]
        sides, times = plan.region(access, rows)
        block = t.copies_rows * np.prod(sides, axis=0) * read.dtype.bytes
        depth = read.own_dim(stage.roles.main.name)
        if depth is not None and stage.is_copied_transposed(read):
            has_blocks = (sides[depth] > 1) & (sides[-1] > 1)
            yield PrivateCopy(block, times, block * ~has_blocks, is_transposed=has_blocks)
        else:
            yield PrivateCopy(block, times, block * _is_gathered(read, access, sides))


def _whole_elements(nest: TileNest, read: StageRead) -> Number:
    """Return the number of elements of the copy of a whole operand. Its columns are full tiles."""
    columns, dim = nest.t.columns, nest.stage.column_dim(read)
    beyond = columns.blocks * columns.per_block * columns.size - columns.extent
    sides = enumerate(nest.stage.whole_box(read))
    return prod((side + beyond * (n == dim) for n, side in sides), start=1)


def _is_gathered(read: StageRead, access: Access, sides: Sequence[FloatArray]) -> BoolArray:
    """Return whether adjacent elements of the copy are not adjacent in the tensor, shape (P,)."""
    found, only = np.zeros(sides[0].shape, np.bool_), np.ones(sides[0].shape, np.bool_)
    for dim in reversed(range(len(sides))):
        is_apart = prod(read.shape[dim + 1 :]) > 1 or gcd(*access.strides[dim]) > 1
        found |= only & (sides[dim] > 1) & is_apart
        only &= sides[dim] == 1
    return found | only


def _columns(nest: TileNest, steps: FloatArray) -> Iterator[DistantRuns]:
    """Yield the accesses to nonresident column operands, read in place or for packing.

    The first of several consecutive tiles is not prefetched. A prefetch is useless if half of the
    cache cannot hold the line until its use. Rows at a stride below a page count as one run of a
    page.
    """
    t, stage = nest.t, nest.stage
    roles, line_bytes = stage.roles, stage.target.line_bytes
    points = prod(loop.extent for loop in (roles.main, roles.columns, *roles.taps))
    batches = prod(loop.extent for loop in roles.batch)
    depth = t.kc * prod(loop.extent for loop in roles.taps)
    packs, prefetches = t.packs, t.prefetches
    first = np.where(
        t.columns.per_block > 1, 1.0 / t.columns.per_block, (t.k_count > 1) / t.k_count
    )
    for read in stage.nonresident:
        width = t.nr * read.dtype.bytes
        block = _block_columns(t) * read.dtype.bytes
        two_tiles = 2 * depth * width
        is_evicted = 2 * two_tiles > stage.target.own_cache_bytes
        is_near = is_hw_prefetchable(read, roles.main) & ~packs
        is_prepacked = t.prepacks & (read in stage.prepacked)
        lines_per_step = -(-width // line_bytes) / np.maximum(t.rows.per_block, t.rows2.per_block)
        yield DistantRuns(
            points * read.dtype.bytes * t.rows.blocks * t.rows2.blocks * batches,
            np.where(is_near, PAGE_BYTES, np.where(packs, block, width)),
            np.where(is_prepacked, 0.0, np.where(prefetches & ~is_evicted, first, 1.0)),
            prefetches * np.ceil(lines_per_step) * steps,
            is_reread=~packs & (t.rows.tiles * t.rows2.tiles > 1),
        )


def _block_columns(t: TileSettings[IntArray]) -> IntArray:
    """Return the number of columns in a block, shape (P,)."""
    found: IntArray = np.minimum(t.nr * t.columns.per_block, t.columns.extent)
    return found


def _rows(nest: TileNest, steps: FloatArray) -> Iterator[DistantRuns]:
    """Yield the accesses to row operands at a page stride. Few rows stay in a cache until they are
    reused for the next tile of columns."""
    t, stage = nest.t, nest.stage
    roles, prefetches = stage.roles, t.prefetches
    batches = prod(loop.extent for loop in roles.batch)
    for read in stage.page_strided_operands:
        size = read.dtype.bytes
        block = t.tile_rows * t.rows.per_block * t.kc * size
        again = (t.row_tiles_innermost == 1) & (2 * block > stage.target.own_cache_bytes)
        walks = np.where(again, t.columns.tiles, t.columns.blocks) * batches
        yield DistantRuns(
            roles.rows[0].extent * roles.main.extent * size * walks,
            t.kc * size,
            np.where(prefetches, 0.0, 1.0),
            prefetches * t.tile_rows * steps,
        )


def _panels(nest: TileNest, steps: FloatArray) -> Iterator[DistantRuns]:
    """Yield the accesses to the operands of the next batch's panels."""
    t, stage = nest.t, nest.stage
    prefetches = prefetches_panels(t)
    for read in stage.next_batch_panels:
        yield DistantRuns(
            _whole_lines(nest, read),
            stage.roles.main.extent * read.dtype.bytes,
            np.where(prefetches, 0.0, 1.0),
            prefetches * panel_lines_per_step(t) * steps,
        )


def _short_runs(nest: TileNest, tiles: FloatArray) -> Iterator[DistantRuns]:
    """Yield the accesses in short runs. With prefetches, only the first row of each block waits for
    memory. With a copy no row waits, because a copy loads many runs concurrently."""
    t, stage = nest.t, nest.stage
    if stage.short_runs:
        prefetches = t.prefetches
        taps = prod(loop.extent for loop in stage.roles.taps) / t.taps_inside
        yield DistantRuns(
            sum(_whole_lines(nest, read) for read in stage.short_runs),
            stage.target.line_bytes,
            np.where(prefetches, 1.0 / t.rows2.per_block, 1.0) * ~t.copies_rows,
            prefetches * taps * runs_per_iteration(t) * tiles,
        )


def _windows(nest: TileNest, tiles: FloatArray) -> Iterator[DistantRuns]:
    """Yield the accesses to distant windows. With prefetches, only the first tile of rows of each
    batch waits for memory.

    Hardware prefetches follow few rows of a page, or rows in different pages, because there is one
    stream per page. Published: Intel, "Optimization Reference Manual" (the streamer of L2). More
    rows end the stream of their page, and so do blocks of columns, and software prefetches hardly
    replace it. Source: measured, the windows of `MOST_ROWS_FOLLOWED` take 1.5 to 2.5 times as long
    with two blocks of columns as with one.
    """
    t, stage = nest.t, nest.stage
    if not stage.distant_windows:
        return
    line_bytes, prefetches = stage.target.line_bytes, t.prefetches
    taps = prod(loop.extent for loop in stage.roles.taps) / t.taps_inside
    again = t.kc / t.window_steps * taps
    block, first = _block_columns(t), 1.0 / t.rows.tiles
    for read in stage.distant_windows:
        size = read.dtype.bytes
        pitch = abs(read.element_stride(stage.roles.rows[0].name) or 0) * size
        is_followed = (t.mr <= MOST_ROWS_FOLLOWED) | (pitch >= PAGE_BYTES)
        run = np.where(is_followed, block, t.nr) * size
        is_stream = is_followed & ((t.columns.blocks == 1) | (pitch >= PAGE_BYTES))
        late = np.where(is_stream, 0.0, LATE_WINDOWS)
        yield DistantRuns(
            _whole_lines(nest, read),
            np.maximum(run, line_bytes),
            np.where(t.copies_rows, 0.0, np.where(prefetches, np.maximum(first, late), 1.0)),
            prefetches * windows_per_iteration(t) * again * tiles,
            are_near=True,
        )


def _stored(nest: TileNest, tiles: FloatArray) -> Iterator[DistantRuns]:
    """Yield the stores to an output outside a core's private caches. A store waits for its line,
    and less if the tile prefetches the line or it is written without being loaded."""
    t, stage = nest.t, nest.stage
    if stage.stores_far:
        along, inner = (t.rows, 1) if stage.is_scattered else (t.columns, 0)
        _, run = t.stored_runs
        follow = np.where(t.row_tiles_innermost == inner, along.per_block, 1)
        yield DistantRuns(
            stage.stored.bytes,
            np.minimum(run * follow, along.extent) * stage.stored.dtype.bytes,
            np.where(t.prefetches_stores | (t.nontemporal_stores > 0), LATE_STORES, 1.0),
            t.prefetches_stores * t.stored_lines * tiles,
            are_near=True,
            pitch_bytes=_stored_pitch(stage),
        )


def _stored_pitch(stage: TileStage) -> int:
    """Return the distance in bytes between the runs that a tile stores, or 0 for one run."""
    across = [stage.roles.columns] if stage.is_scattered else stage.roles.rows[:1]
    apart = [prod(stage.stored.shape[loop.dim + 1 :]) for loop in across]
    return sum(apart) * stage.stored.dtype.bytes


def _whole_lines(nest: TileNest, read: StageRead) -> int:
    line_bytes = nest.stage.target.line_bytes
    return read.bytes // line_bytes * line_bytes


def _strided(nest: TileNest, tiles: FloatArray, steps: FloatArray) -> Iterator[StridedRows]:
    """Yield the rows of operands that the next tile or step uses again in place."""
    t, stage = nest.t, nest.stage
    roles, line_bytes = stage.roles, stage.target.line_bytes
    depth = steps * t.unrolled_copies
    full = prod(nest.shares(end.computed_extent for end in nest.remainders.values()).values())
    taps = depth / tiles / roles.main.extent
    for read in once(roles.column_reads):
        step = read.element_stride(roles.main.name)
        if not step or roles.moves_with_rows(read):
            continue
        width = t.nr * read.dtype.bytes
        used = ~t.packs | (read not in stage.packable)
        if not roles.is_reused:  # a completely used line need not stay cached
            used &= width < line_bytes
        lines = np.ceil(width / line_bytes)
        wider, apart, again = _tap_lines(nest, read, step * read.dtype.bytes)
        row_lines = np.ceil((width + wider) / line_bytes) * apart
        rows = np.minimum(t.kc, roles.main.extent) * np.maximum(taps / (apart * again.all), 1.0)
        evicted = used * depth * full * lines / again.at_once
        yield StridedRows(step * read.dtype.bytes, row_lines, rows, evicted)
    for read in once(roles.row_reads):
        if read in stage.copyable and stage.is_copied_transposed(read):
            yield from _transposed_rows(nest, read, t.copies_rows * depth * full)
        in_place = ~t.copies_rows | (read not in stage.copyable)
        for loop in roles.rows[:1]:
            step, tile = read.element_stride(loop.name), t.mr
            if step:
                lines = in_place * depth * full * tile * read.dtype.bytes / line_bytes
                yield StridedRows(step * read.dtype.bytes, 1, tile, lines)
        yield from _planes(nest, read, taps, in_place * depth * full)


def _transposed_rows(nest: TileNest, read: StageRead, steps: FloatArray) -> Iterator[StridedRows]:
    """Yield the rows of a transposed copy that a tile reads: one for each of its positions along
    the operand's last dimension. `steps` is the number of steps that read the copy. If the
    reduction is in blocks, rows are closer, and conflicts are not counted."""
    t, size = nest.t, read.dtype.bytes
    for loop, tile in zip(nest.stage.roles.rows, (t.tile_rows, t.tile_rows2), strict=False):
        step = abs(read.index[-1].coefficient(loop.name))
        if step:
            lines = (t.k_count == 1) * steps * tile * size / nest.stage.target.line_bytes
            yield StridedRows(step * nest.stage.roles.main.extent * size, 1, tile, lines)


def _planes(
    nest: TileNest, read: StageRead, taps: FloatArray, steps: FloatArray
) -> Iterator[StridedRows]:
    """Yield the planes that steps of the reduction read a tile's rows from, if they are in other
    lines. `steps` is the number of steps that read in place."""
    t, main, line_bytes = nest.t, nest.stage.roles.main, nest.stage.target.line_bytes
    stride = abs(read.element_stride(main.name) or 0) * read.dtype.bytes
    if stride >= line_bytes:
        width, several = _row_lines(nest, read)
        wider, apart, again = _tap_lines(nest, read, stride)
        yield StridedRows(
            stride,
            np.ceil((width + wider) / line_bytes) * several * apart,
            np.minimum(t.kc, main.extent) * np.maximum(taps / (apart * again.all), 1.0),
            steps * np.ceil(width / line_bytes) * several / again.at_once,
        )


def _row_lines(nest: TileNest, read: StageRead) -> tuple[Number, Number]:
    """Return the bytes of a run that the rows of a tile read in one step, and the number of
    runs."""
    t, line_bytes = nest.t, nest.stage.target.line_bytes
    width: Number = read.dtype.bytes
    several: Number = 1
    for loop, tile in zip(nest.stage.roles.rows, (t.tile_rows, t.tile_rows2), strict=False):
        step = abs(read.element_stride(loop.name) or 0) * read.dtype.bytes
        if step < line_bytes:
            width = width + (tile - 1) * step
        else:
            several = several * tile
    return width, several


@dataclass(frozen=True, slots=True)
class _Again:
    """How often taps read the same lines: `all` taps, and those of one unrolled step."""

    all: int
    at_once: Number


def _tap_lines(nest: TileNest, read: StageRead, stride_bytes: int) -> tuple[int, int, _Again]:
    """Return what the taps add to the rows at the distance `stride_bytes` that `read` reads.

    Taps within a line make a row wider, by the first number of bytes, and read its lines again.
    Taps at a distance from each other that does not lead to the same cache sets add lines to each
    row: it has the second number of times as many.
    """
    t, line_bytes = nest.t, nest.stage.target.line_bytes
    short = {loop.name: number for number, loop in enumerate(nest.stage.short_taps())}
    wider, apart, every = 0, 1, 1
    at_once: Number = 1
    for loop in nest.stage.roles.taps:
        step = abs(read.element_stride(loop.name) or 0) * read.dtype.bytes
        if 0 < step < line_bytes:
            wider += (loop.extent - 1) * step
            every *= loop.extent
            if loop.name in short:
                at_once = at_once * np.where(t.unrolls_tap(short[loop.name]), loop.extent, 1)
        elif step % stride_bytes:
            apart *= loop.extent
    return wider, apart, _Again(every, at_once)
