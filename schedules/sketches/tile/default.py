"""The setting of the tile sketch that is sensible with no measurement and no model."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .passing import passing_default
from .short_runs import asks_ahead

if TYPE_CHECKING:
    from .sketch import TileSketch

DRAWN = 20_000
"""Random settings to find a feasible one among, where none is near the usual ones."""


def tile_default(sketch: TileSketch) -> tuple[int, ...]:
    """A feasible setting: a square-ish tile, packed columns, every thread; in place and with hints
    where an operand passes by."""
    if sketch.passing and (streaming := passing_default(sketch)):
        return streaming
    for base in _usual(sketch):
        if squarest := _squarest(sketch, base):
            return _with_tasks(sketch, squarest)
    return _with_tasks(sketch, _any_feasible(sketch))


def _squarest(sketch: TileSketch, base: dict[str, int]) -> tuple[int, ...] | None:
    """The setting like `base` whose tile reads least for what it computes, with registers to
    spare; None if none is feasible."""
    best, best_score = None, -1.0
    asks = asks_ahead(sketch)
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


def _usual(sketch: TileSketch) -> list[dict[str, int]]:
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
    if asks_ahead(sketch):  # rows read in place, with hints
        places |= {"copy_rows": 0, "fetch": 1, "skip_padding": int(sketch.border is not None)}
        places["tap_unroll"] = min(1, len(sketch.short_taps()))
    most = 2 * sketch.target.threads
    places["column_blocks"] = len([c for c in knobs["column_blocks"] if c <= most]) - 1
    if not sketch.is_sliding:
        return [places]
    return [{**places, "tap_unroll": n} for n in range(places["tap_unroll"], -1, -1)]


def _any_feasible(sketch: TileSketch) -> tuple[int, ...]:
    """The first feasible one of many random settings, the same every time."""
    sizes = [len(knob.values) for knob in sketch.knobs]
    settings = np.random.default_rng(0).integers(0, sizes, (DRAWN, len(sizes)))
    good = settings[sketch.feasible(settings)]
    assert len(good), f"no setting fits {sketch.view.name}"
    return tuple(int(x) for x in good[0])


def _with_tasks(sketch: TileSketch, setting: tuple[int, ...]) -> tuple[int, ...]:
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
