"""Remainder tiles, and tiles that touch padding: which of them are peeled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from .settings import TileBlocks, TileSettings


class RemainderTiles(NamedTuple):
    """The tiles along one axis, the last of which may be incomplete: arrays (P,), sizes in
    elements."""

    extent: int
    full_block_tiles: IntArray
    """Tiles in all blocks but the last."""
    in_last_block_only: BoolArray
    """Whether the remainder tile is peeled in a copy of the last block, not in all blocks."""
    is_peeled: BoolArray
    """Whether the remainder tile has code of its own."""
    padded_extent: IntArray
    """Elements of all tiles, each counted as a whole one."""
    computed_extent: IntArray
    """Elements that are computed: `extent` if a remainder tile is exact, else `padded_extent`."""
    stored_extent: IntArray
    """Elements of a block's private sums."""
    is_exact: BoolArray
    """Whether the remainder tile computes only its own elements."""
    guarded_fraction: FloatArray
    """Tiles in code that whole and remainder tiles share, which tests each row."""
    undecided_fraction: FloatArray
    """Elements in code of several tiles, where conditions on the axis are tested at run time."""
    guard_step: IntArray
    """Elements that one condition leaves out together: a tile, or 1 where the last is by itself."""
    block_versions: IntArray
    """Loops over blocks that peeling makes."""
    tile_versions: FloatArray
    """Loops over tiles that peeling makes, on average."""


def remainder_tiles(
    t: TileSettings[IntArray], blocks: Mapping[str, tuple[BoolArray, BoolArray]]
) -> dict[str, RemainderTiles]:
    """Those along all tiled axes, by loop. `blocks` says for each axis whether threads divide its
    blocks, and whether a block contains more than tiles."""
    found, border = {}, t.stage.border
    for axis in t.tiled_axes:
        peels = t.peel_remainders >= (2 if axis is t.columns else 1)
        tail = _remainder(axis, peels, *blocks[axis.name])
        if border and axis.name in border.conds:
            edges = border.edges(axis.name, axis.size)
            versions = np.where(t.skips_in_tiles, edges + (edges < axis.tiles), tail.tile_versions)
            tail = tail._replace(tile_versions=versions)
        found[axis.name] = tail
    return found


def _remainder(
    axis: TileBlocks[IntArray], peels: BoolArray, divided: BoolArray, filled: BoolArray
) -> RemainderTiles:
    """The remainder tile is peeled in the last block if the loop over blocks is not parallel;
    otherwise in all blocks, if the last one has enough tiles. An axis of one tile needs no peeling.
    """
    extent, size, per, blocks = axis.extent, axis.size, axis.per_block, axis.blocks
    ragged, whole = extent % size > 0, axis.tiles * size
    others = (blocks - 1) * per
    in_last = extent // size - others  # whole tiles of the last block
    apart, alike = (blocks > 1) & ~divided, (blocks == 1) | divided & (2 * in_last >= per)
    cut = peels & (apart | (blocks == 1)) | (axis.tiles == 1)
    has_code = peels & ragged & (apart | alike)
    several = has_code & (in_last > 0)
    alone = (size == 1) | cut & (extent % size == 1)
    no_loop = filled & (per - in_last * (has_code & ~apart) == 1)  # over the last tiles of a block
    shared = np.where(has_code, blocks / axis.tiles, 1.0)
    full = np.where(cut, extent // size * size / extent, 1.0)
    return RemainderTiles(
        extent=extent,
        full_block_tiles=others,
        in_last_block_only=apart,
        is_peeled=has_code,
        padded_extent=whole,
        computed_extent=np.where(cut, extent, whole),
        stored_extent=np.where((blocks > 1) & (per == 1), whole, extent),
        is_exact=cut,
        guarded_fraction=np.where(ragged & ~cut, shared, 0.0),
        undecided_fraction=(axis.tiles > 1 + (cut & ragged)) * full,
        guard_step=np.where(alone, 1, np.where(no_loop, extent, size)),
        block_versions=1 + (has_code & apart),
        tile_versions=np.asarray(1.0 + several * np.where(apart, 1.0 / blocks, in_last < per)),
    )
