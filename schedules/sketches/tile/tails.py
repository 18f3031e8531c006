"""Incomplete tiles, and those that touch padding: which have code of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ..analysis import StageLoop
from .stage import TileStage


class RemainderTiles(NamedTuple):
    """Tiles along one axis in elements of it, (P,): of `padded_extent` tiles, those that are `computed_extent`,
    which is all unless an incomplete tile is `is_exact`; and those `stored_extent` in a block. An incomplete tile
    `is_peeled` of its own: in the last of several blocks, which stands `in_last_block_only` then, or in all of
    them, which are alike; `full_block_tiles` are the tiles of all blocks but the last. The share of tiles
    that are `guarded_fraction`, in code that incomplete ones and others have in common, and of elements in
    code of several tiles, for which it is `undecided_fraction` where they are. Conditions leave the last
    ones out in the `guard_step` of a tile, or one by one where the last is by itself. In how many codes
    the loop over blocks is, and, on average, those over tiles."""

    extent: int
    full_block_tiles: IntArray
    in_last_block_only: BoolArray
    is_peeled: BoolArray
    padded_extent: IntArray
    computed_extent: IntArray
    stored_extent: IntArray
    is_exact: BoolArray
    guarded_fraction: FloatArray
    undecided_fraction: FloatArray
    guard_step: IntArray
    block_versions: IntArray
    tile_versions: FloatArray


def remainder_tiles(
    stage: TileStage,
    v: Mapping[str, IntArray],
    axes: Sequence[tuple[StageLoop, IntArray, IntArray]],
    blocks: Mapping[str, tuple[BoolArray, BoolArray]],
) -> dict[str, RemainderTiles]:
    """Those along `axes`, each with the size of its tiles and the tiles of a block; of `blocks`
    along an axis, whether threads divide them, and whether there is more in one than tiles."""
    found, border = {}, stage.border
    skips = (v["skip_padding"] == 1) & (v["copy_rows"] == 0)
    for loop, size, per in axes:
        asked = v["tails"] >= (2 if loop is stage.roles.columns else 1)
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
    """An incomplete tile gets code of its own in the last block, where threads have not `divided`
    these, or in all of them, if the last one has enough tiles. Where all is one tile, that is what
    there is."""
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
