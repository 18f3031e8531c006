"""When threads share the reduction of a tile: fewer tiles than would keep them all busy.

Each thread adds up a part of the reduction in a buffer of its own (RFactor); the parts are added
in their order at the end, by one thread. Every element is still the sum of the same products, in an
order that depends on nothing but the trace: what error that may have is bounded for any order.
"""

from __future__ import annotations

from math import prod

from .stage import TileStage

USUAL_ROWS, USUAL_VECTORS = 8, 2
"""A tile that keeps the pipes busy, and small enough to have many."""

TILES_A_THREAD = 4
"""Tiles that even out among threads."""

SHORTEST_PART = 512
"""A part of fewer steps is not worth results of its own."""


def reduction_parts(stage: TileStage) -> tuple[int, ...]:
    """The values of the knob `parts`: 1, and numbers of equal parts for the threads where output
    tiles are too few for them, the reduction is long and nothing is computed from it in place."""
    roles, view, threads = stage.roles, stage.view, stage.target.threads
    rewritten = stage.epilogue or stage.is_scattered or view.presplit or view.presolve
    if threads == 1 or rewritten:
        return (1,)
    shape = [(roles.columns.extent, USUAL_VECTORS * stage.lanes)]
    shape += [(loop.extent, USUAL_ROWS) for loop in roles.rows[:1]]
    tiles = prod(-(-extent // tile) for extent, tile in shape)
    tiles *= prod(loop.extent for loop in (*roles.rows[1:], *roles.outer_rows, *roles.batch))
    if tiles >= TILES_A_THREAD * threads:
        return (1,)
    depth = roles.main.extent
    counts = (threads, 2 * threads)
    return (1, *(n for n in counts if depth % n == 0 and depth // n >= SHORTEST_PART))
