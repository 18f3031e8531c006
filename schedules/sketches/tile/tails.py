"""Incomplete tiles, and those that touch padding: which have code of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ..analysis import StageLoop
from .stage import TileStage


class RemainderTiles(NamedTuple):
    """Tiles along one axis in elements of it, (P,): of `whole` tiles, those that are `computed`,
    which is all unless an incomplete tile is `cut`; and those `kept` in a block. An incomplete tile
    `has_code` of its own: in the last of several blocks, which stands `apart` then, or in all of
    them, which are alike; `others` are the tiles of all blocks but the last. The share of tiles
    that are `tested`, in code that incomplete ones and others have in common, and of elements in
    code of several tiles, for which it is `undecided` where they are. Conditions leave the last
    ones out in the `unit` of a tile, or one by one where the last is by itself. In how many codes
    the loop over blocks is, and, on average, those over tiles."""

    extent: int
    others: IntArray
    apart: BoolArray
    has_code: BoolArray
    whole: IntArray
    computed: IntArray
    kept: IntArray
    cut: BoolArray
    tested: FloatArray
    undecided: FloatArray
    unit: IntArray
    of_blocks: IntArray
    of_tiles: FloatArray


def tile_tails(
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
        tail = _tail(loop.extent, size, per, asked, *blocks[loop.name])
        if border and loop.name in border.conds:
            edges = border.edges(loop.name, size)
            codes = edges + (edges < -(-loop.extent // size))
            tail = tail._replace(of_tiles=np.where(skips, codes, tail.of_tiles))
        found[loop.name] = tail
    return found


def _tail(
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
        others=others,
        apart=apart,
        has_code=has_code,
        whole=whole,
        computed=np.where(cut, extent, whole),
        kept=np.where((blocks > 1) & (per == 1), whole, extent),
        cut=cut,
        tested=np.where(ragged & ~cut, np.where(has_code, blocks / tiles, 1.0), 0.0),
        undecided=(tiles > 1 + (cut & ragged)) * np.where(cut, extent // size * size / extent, 1.0),
        unit=np.where(alone, 1, np.where(no_loop, extent, size)),
        of_blocks=1 + (has_code & apart),
        of_tiles=np.asarray(1.0 + several * np.where(apart, 1.0 / blocks, in_last < per)),
    )
