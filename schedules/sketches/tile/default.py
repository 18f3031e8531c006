"""The setting of the tile sketch that is sensible with no measurement and no model."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from .knobs import TileKnobs
from .operands import is_hw_prefetchable

Tried = dict[str, tuple[int, ...]]
"""The values of each knob that are tried."""


def tile_default(sketch: TileKnobs) -> tuple[int, ...]:
    """A feasible setting whose tile reads little for what it computes, with registers to spare:
    packed columns and every thread; in place and prefetched where an operand is nonresident."""
    for tried in _usual(sketch):
        settings = sketch.feasible_of(tried)
        settings = settings[~_is_wasteful(sketch, settings)]
        if len(settings):
            v = sketch.values(settings)
            chains = v["tile_rows"] * v["tile_vectors"]
            crowded = chains + v["tile_vectors"] + 1 > sketch.target.vector_registers - 2
            square = chains / (chains + v["tile_rows"] + v["tile_vectors"])
            square = square * (_full(sketch, v) if sketch.nonresident else 1.0)
            fine = v["column_blocks"] - v["peel_remainders"] - v["reduction_blocks"]
            least = v["skip_padding"] + v["unroll_window"] * sketch.is_sliding
            best = np.lexsort((-np.arange(len(settings)), fine, square, ~crowded, least))[-1]
            return _with_tasks(sketch, tuple(int(i) for i in settings[best]))
    return _with_tasks(sketch, _any_feasible(sketch))


def _full(sketch: TileKnobs, v: dict[str, IntArray]) -> FloatArray | float:
    """(P,) which part of the tiles is there."""
    full: FloatArray | float = 1.0
    for loop, tile in (
        (sketch.roles.columns, v["tile_vectors"] * sketch.lanes),
        *((loop, v["tile_rows"]) for loop in sketch.roles.rows[:1]),
    ):
        full = full * loop.extent / (-(-loop.extent // tile) * tile)
    return full


def _usual(sketch: TileKnobs) -> Iterator[Tried]:
    """What is tried first: where an operand is nonresident, in place, each thread with one run
    of columns; else packed columns and rows. Where windows slide whole rows of an image are written
    out, and padding is left out."""
    knobs = {knob.name: knob.values for knob in sketch.knobs}
    free = {name: knobs[name] for name in ("tile_vectors", "tile_rows", "peel_remainders")}
    base = {name: values[:1] for name, values in knobs.items()} | free
    base["parallel"] = (min(1, knobs["parallel"][-1]),)

    def last(*names: str) -> Tried:
        return {name: knobs[name][-1:] for name in names}

    def columns(most: int) -> Tried:
        return {"column_blocks": tuple(c for c in knobs["column_blocks"] if c <= most)}

    threads, main = sketch.target.threads, sketch.roles.main
    if sketch.nonresident:
        far = int(not all(is_hw_prefetchable(read, main) for read in sketch.nonresident))
        found = {
            name: knobs[name] for name in ("skip_padding", "unroll_window", "reduction_blocks")
        }
        yield base | found | columns(threads) | {"row_tiles_innermost": (1,), "prefetch": (far,)}
    base |= columns(2 * threads) | last("pack_columns")
    if sketch.is_sliding:
        whole = (
            {"unroll_reduction": (main.extent,)} if main.extent in knobs["unroll_reduction"] else {}
        )
        base |= whole | last("skip_padding", "row_blocks_outermost", "copy_rows")
        yield base | {
            "unroll_window": knobs["unroll_window"],
            "column_blocks": knobs["column_blocks"][:1],
        }
    elif sketch.prefetched_runs:  # rows read in place, prefetched
        taps = {"unroll_window": knobs["unroll_window"][:2][-1:]}
        yield base | taps | {"prefetch": (1,), "skip_padding": (int(sketch.border is not None),)}
    yield base | last("copy_rows")


def _is_wasteful(sketch: TileKnobs, settings: IntArray) -> BoolArray:
    """(P,) whether a nonresident operand waits, a tile of it and the next one, in more than half of
    the cache, or its taps are written out with the padding."""
    v, taps = sketch.values(settings), prod(loop.extent for loop in sketch.roles.taps)
    rows = taps * -(-sketch.roles.main.extent // v["reduction_blocks"])
    tile = rows * v["tile_vectors"] * sketch.lanes * sketch.view.dtype.bytes
    waits = 2 * tile > sketch.target.own_cache_bytes // 2
    found: BoolArray = waits | (v["unroll_window"] > 0) & (v["skip_padding"] == 0)
    return found & bool(sketch.nonresident)


def _any_feasible(sketch: TileKnobs) -> tuple[int, ...]:
    """The first feasible one of settings whose blocks of columns are of one tile."""
    free = (
        "tile_vectors",
        "tile_rows",
        "copy_rows",
        "pack_columns",
        "reduction_blocks",
        "parallel",
    )
    tried = {knob.name: knob.values[:1] for knob in sketch.knobs if knob.name not in free}
    tried["column_blocks"] = next(x.values[-1:] for x in sketch.knobs if x.name == "column_blocks")
    settings = sketch.feasible_of(tried)
    assert len(settings), f"no setting fits {sketch.view.name}"
    return tuple(int(i) for i in settings[0])


def _with_tasks(sketch: TileKnobs, setting: tuple[int, ...]) -> tuple[int, ...]:
    """`setting` with rows divided among threads as well where columns are a single block, and
    batches too few or not alike."""
    roles, threads = sketch.roles, sketch.target.threads
    names = [knob.name for knob in sketch.knobs]
    outermost = "row_blocks2" if len(roles.rows) > 1 else "row_blocks"
    at = {name: names.index(name) for name in ("parallel", outermost)}
    both = sketch.knobs[at["parallel"]].values
    blocks = sketch.sizes(np.asarray([setting]))["col_blocks"][0]
    batches = 1 if sketch.is_uneven else prod(loop.extent for loop in roles.batch)
    enough = blocks > 1 or batches >= 2 * threads
    if threads == 1 or enough or 2 not in both:
        return setting
    counts = sketch.knobs[at[outermost]].values
    most = 1 if roles.outer_rows else 2 * threads
    for n in reversed([n for n, c in enumerate(counts) if c <= most]):
        changed = list(setting)
        changed[at["parallel"]], changed[at[outermost]] = both.index(2), n
        if sketch.feasible(np.asarray([changed]))[0]:
            return tuple(changed)
    return setting
