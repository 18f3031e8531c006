"""The setting of the tile sketch that is sensible with no measurement and no model."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ..hardware import BUSY_CHAINS, FEWEST_ROWS
from .far_reads import is_followed
from .knobs import TileKnobs

DRAWN = 20_000
"""Random settings to find a feasible one among, where none is near the usual ones."""


def tile_default(sketch: TileKnobs) -> tuple[int, ...]:
    """A feasible setting: a square-ish tile, packed columns, every thread; in place and with hints
    where an operand passes by."""
    if sketch.passing and (streaming := _streaming(sketch)):
        return streaming
    for base in _usual(sketch):
        if squarest := _squarest(sketch, base):
            return _with_tasks(sketch, squarest)
    return _with_tasks(sketch, _any_feasible(sketch))


def _squarest(sketch: TileKnobs, base: dict[str, int]) -> tuple[int, ...] | None:
    """The setting like `base` whose tile reads least for what it computes, with registers to
    spare; None if none is feasible."""
    best, best_score = None, -1.0
    asks = bool(sketch.prefetched_runs)
    roles, names = sketch.roles, [knob.name for knob in sketch.knobs]
    for i, vectors in enumerate(sketch.knobs[0].values):
        for j, rows in enumerate(sketch.knobs[1].values):
            if sketch.target.vector_registers - 2 < rows * vectors + vectors + 1:
                continue
            for blocks in range(base["column_blocks"], -1, -1):
                setting = {**base, "vectors": i, "rows": j, "column_blocks": blocks}
                if asks:
                    setting["tails"] = int(roles.rows[0].extent % rows > 0)
                if sketch.is_sliding:
                    setting["column_blocks"] = 0
                    ragged = roles.columns.extent % (vectors * sketch.lanes)
                    setting["tails"] = 2 if ragged or roles.rows[0].extent % rows else 0
                row = np.asarray([[setting[name] for name in names]])
                if sketch.feasible(row)[0]:
                    score = rows * vectors / (rows + vectors)
                    if score > best_score:
                        best, best_score = tuple(int(x) for x in row[0]), score
                    break
    return best


def _usual(sketch: TileKnobs) -> list[dict[str, int]]:
    """The places of knobs but for the tile: columns and rows are packed, threads have columns.
    Where windows slide, less and less of them is written out."""
    knobs = {knob.name: knob.values for knob in sketch.knobs}
    places = dict.fromkeys(knobs, 0)
    places["pack_columns"] = len(knobs["pack_columns"]) - 1
    places["copy_rows"] = len(knobs["copy_rows"]) - 1
    places["parallel"] = min(1, len(knobs["parallel"]) - 1)
    if sketch.is_sliding:  # whole rows of an image, taps written out, padding left out
        for name in ("tap_unroll", "skip_padding", "rows_outside"):
            places[name] = len(knobs[name]) - 1
        main = sketch.roles.main.extent
        if main in knobs["unroll"]:
            places["unroll"] = knobs["unroll"].index(main)
    if bool(sketch.prefetched_runs):  # rows read in place, with hints
        places |= {"copy_rows": 0, "prefetch": 1, "skip_padding": int(sketch.border is not None)}
        places["tap_unroll"] = min(1, len(sketch.short_taps()))
    most = 2 * sketch.target.threads
    places["column_blocks"] = len([c for c in knobs["column_blocks"] if c <= most]) - 1
    if not sketch.is_sliding:
        return [places]
    return [{**places, "tap_unroll": n} for n in range(places["tap_unroll"], -1, -1)]


def _any_feasible(sketch: TileKnobs) -> tuple[int, ...]:
    """The first feasible one of many random settings, the same every time."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    settings = np.random.default_rng(0).integers(0, sizes, (DRAWN, len(sizes)))
    good = settings[sketch.feasible(settings)]
    assert len(good), f"no setting fits {sketch.view.name}"
    return tuple(int(x) for x in good[0])


def _with_tasks(sketch: TileKnobs, setting: tuple[int, ...]) -> tuple[int, ...]:
    """`setting` with rows divided among threads as well where columns are a single block, and
    batches too few or not alike."""
    roles, threads = sketch.roles, sketch.target.threads
    names = [knob.name for knob in sketch.knobs]
    outermost = "row2_blocks" if len(roles.rows) > 1 else "row_blocks"
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


def _streaming(sketch: TileKnobs) -> tuple[int, ...] | None:
    """A setting in place that is sensible with no model, with hints where rows lie far apart: each
    thread has one run of columns, in tiles as deep as wait in a quarter of its cache, and of the
    rows that waste the least. None where no such setting is feasible."""
    knobs = {knob.name: knob.values for knob in sketch.knobs}
    base = {name: values[0] for name, values in knobs.items()}
    hints = int(not all(is_followed(read, sketch.roles.main) for read in sketch.passing))
    base |= {"row_tiles_inside": 1, "prefetch": hints, "parallel": min(1, knobs["parallel"][-1])}
    base["column_blocks"] = max(c for c in knobs["column_blocks"] if c <= sketch.target.threads)
    open_knobs = ("skip_padding", "tap_unroll", "tails", "vectors", "rows", "k_blocks")
    settings, scores = [], []
    for values in product(*(knobs[name] for name in open_knobs)):
        chosen = base | dict(zip(open_knobs, values, strict=True))
        wasteful = chosen["tap_unroll"] > 0 and not chosen["skip_padding"]
        if wasteful or _waiting_share(sketch, chosen) > 1.0:
            continue
        settings.append([knobs[name].index(value) for name, value in chosen.items()])
        scores.append(_worth(sketch, chosen))
    if not settings:
        return None
    array = np.asarray(settings)
    feasible = np.flatnonzero(sketch.feasible(array))
    if not len(feasible):
        return None
    best = feasible[np.argmax(np.asarray(scores)[feasible])]
    return tuple(int(i) for i in array[best])


def _waiting_share(sketch: TileKnobs, chosen: dict[str, int]) -> float:
    """How much a tile and the next one take of the quarter of a cache that they wait in."""
    taps = prod(loop.extent for loop in sketch.roles.taps)
    rows = taps * -(-sketch.roles.main.extent // chosen["k_blocks"])
    tile = rows * chosen["vectors"] * sketch.lanes * sketch.view.dtype.bytes
    return 8.0 * tile / sketch.target.own_cache_bytes


def _worth(sketch: TileKnobs, chosen: dict[str, int]) -> float:
    """Which share of its time a tile computes what is wanted, roughly."""
    rows, columns = chosen["rows"], chosen["vectors"]
    chains, width = rows * columns, columns * sketch.lanes
    extent = sketch.roles.rows[0].extent if sketch.roles.rows else 1
    rest = extent % rows
    if rest:
        least = max(FEWEST_ROWS, int(BUSY_CHAINS) // columns)
        rest = max(rest, min(rows, least)) if chosen["tails"] else rows
    useful = extent / (extent // rows * rows + rest)
    useful *= sketch.roles.columns.extent / (-(-sketch.roles.columns.extent // width) * width)
    useful /= sketch.useful_share if chosen["skip_padding"] else 1.0
    crowded = chains + columns + 1 > sketch.target.vector_registers - 2
    busy = min(1.0, chains / BUSY_CHAINS) * (0.95 if crowded else 1.0) * (1.0 - 0.05 * bool(rest))
    # Deeper blocks read and write the result less often; tails cost code.
    return useful * busy * chains / (chains + columns + rows) - 1e-4 * chosen["k_blocks"]
