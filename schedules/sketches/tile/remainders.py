"""Remainder tiles and tiles that touch padding. It is determined here which of them have separate
code (are peeled)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from .settings import TileBlocks, TileSettings


class RemainderTiles(NamedTuple):
    """The tiles along one axis; the last one may be incomplete. Arrays are (P,), in elements."""

    extent: int
    full_block_tiles: IntArray
    """Number of tiles in all blocks but the last."""
    in_last_block_only: BoolArray
    """Whether the remainder tile is peeled in a separate version of the last block only."""
    is_peeled: BoolArray
    """Whether the remainder tile has separate code."""
    padded_extent: IntArray
    """Elements of all tiles, each counted as full."""
    computed_extent: IntArray
    """Elements that are computed: `extent` if the remainder tile is exact, otherwise
    `padded_extent`."""
    stored_extent: IntArray
    """Elements that tiles store in the private accumulation buffer of a block."""
    is_exact: BoolArray
    """Whether the remainder tile computes only elements that exist."""
    guarded_fraction: FloatArray
    """Fraction of the tiles whose code is also the code of the remainder tile and so tests each
    row."""
    undecided_fraction: FloatArray
    """Fraction of the elements with code that several tiles share, so that it tests conditions."""
    guard_step: IntArray
    """Elements that one condition covers: a tile, or 1 if the remainder is one separate element."""
    block_versions: IntArray
    """Number of loops over blocks that peeling generates."""
    tile_versions: FloatArray
    """Average number of loops over tiles that peeling generates."""


def remainder_tiles(
    t: TileSettings[IntArray], blocks: Mapping[str, tuple[BoolArray, BoolArray]]
) -> dict[str, RemainderTiles]:
    """Return the remainder tiles along all tiled axes, by loop.

    `blocks` states for each axis whether threads divide its blocks, and whether a block contains
    code other than tiles.
    """
    found, border = {}, t.stage.border
    for axis in t.tiled_axes:
        peels = t.peel_remainders >= (2 if axis is t.columns else 1)
        end = _remainder(axis, peels, *blocks[axis.name])
        if border and axis.name in border.conds:
            edges = border.edges(axis.name, axis.size)
            versions = np.where(t.skips_in_tiles, edges + (edges < axis.tiles), end.tile_versions)
            end = end._replace(tile_versions=versions)
        found[axis.name] = end
    return found


def _remainder(
    axis: TileBlocks[IntArray], peels: BoolArray, divided: BoolArray, filled: BoolArray
) -> RemainderTiles:
    """Return the remainder tiles along one axis. If threads do not divide the blocks, the remainder
    tile is peeled in the last block only. Otherwise it is peeled in all blocks if the last block
    has enough tiles. An axis of one tile needs no peeling."""
    extent, size, per, blocks = axis.extent, axis.size, axis.per_block, axis.blocks
    ragged, whole = extent % size > 0, axis.tiles * size
    others = (blocks - 1) * per
    in_last = extent // size - others  # full tiles of the last block
    apart, alike = (blocks > 1) & ~divided, (blocks == 1) | divided & (2 * in_last >= per)
    cut = peels & (apart | (blocks == 1)) | (axis.tiles == 1)
    has_code = peels & ragged & (apart | alike)
    several = has_code & (in_last > 0)
    alone = (size == 1) | cut & (extent % size == 1)
    # whether the last tiles of a block have no loop
    no_loop = filled & (per - in_last * (has_code & ~apart) == 1)
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
