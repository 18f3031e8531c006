"""Remainder tiles, and tiles that touch padding: which of them are peeled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ..analysis.stages import StageLoop
from .stage import TileStage


class RemainderTiles(NamedTuple):
    """The tiles along one axis, the last of which may be incomplete: arrays (P,), in elements."""

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
    stage: TileStage,
    v: Mapping[str, IntArray],
    axes: Sequence[tuple[StageLoop, IntArray, IntArray]],
    blocks: Mapping[str, tuple[BoolArray, BoolArray]],
) -> dict[str, RemainderTiles]:
    """Those along `axes`, each with the elements of a tile and the tiles of a block. `blocks` says,
    for each axis, whether threads divide its blocks, and whether a block has more in it than
    tiles."""
    found, border = {}, stage.border
    skips = (v["skip_padding"] == 1) & (v["copy_rows"] == 0)
    for loop, size, per in axes:
        asked = v["peel_remainders"] >= (2 if loop is stage.roles.columns else 1)
        tail = _remainder(loop.extent, size, per, asked, *blocks[loop.name])
        if border and loop.name in border.conds:
            edges = border.edges(loop.name, size)
            codes = edges + (edges < -(-loop.extent // size))
            tail = tail._replace(tile_versions=np.where(skips, codes, tail.tile_versions))
        found[loop.name] = tail
    return found


def _remainder(
    extent: int, size: IntArray, per: IntArray, asked: BoolArray, divided: BoolArray,
    filled: BoolArray,
) -> RemainderTiles:  # fmt: skip
    """The remainder tile is peeled in the last block if threads do not divide the blocks; else in
    all blocks, if the last one has enough tiles. An axis of one tile needs no peeling."""
    tiles, ragged = -(-extent // size), extent % size > 0
    blocks, whole = -(-tiles // per), tiles * size
    others = (blocks - 1) * per
    in_last = extent // size - others  # whole tiles of the last block
    apart, alike = (blocks > 1) & ~divided, (blocks == 1) | divided & (2 * in_last >= per)
    cut = asked & (apart | (blocks == 1)) | (tiles == 1)
    has_code = asked & ragged & (apart | alike)
    several = has_code & (in_last > 0)
    alone = (size == 1) | cut & (extent % size == 1)
    no_loop = filled & (per - in_last * (has_code & ~apart) == 1)  # over the last tiles of a block
    return RemainderTiles(
        extent=extent,
        full_block_tiles=others,
        in_last_block_only=apart,
        is_peeled=has_code,
        padded_extent=whole,
        computed_extent=np.where(cut, extent, whole),
        stored_extent=np.where((blocks > 1) & (per == 1), whole, extent),
        is_exact=cut,
        guarded_fraction=np.where(ragged & ~cut, np.where(has_code, blocks / tiles, 1.0), 0.0),
        undecided_fraction=(tiles > 1 + (cut & ragged))
        * np.where(cut, extent // size * size / extent, 1.0),
        guard_step=np.where(alone, 1, np.where(no_loop, extent, size)),
        block_versions=1 + (has_code & apart),
        tile_versions=np.asarray(1.0 + several * np.where(apart, 1.0 / blocks, in_last < per)),
    )
