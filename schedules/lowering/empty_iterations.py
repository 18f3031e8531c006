"""End loops before iterations in which no statement writes an element.

    for i in range(2):                            for i in range(2) while 16*i + 32*o <= 36:
        for l in range(16):              ->           for l in range(16):
            if 16*i + l + 32*o <= 36: ...                 if 16*i + l + 32*o <= 36: ...

If blocks of tiles do not divide an axis, some tiles are empty: guards prevent all their writes to
the output. Private buffers are computed without guards (`relax.py`). Without the bound of the loop,
an empty tile would therefore take as long as any other tile.
"""

from __future__ import annotations

from ..algebra.affine import Ranges
from ..algebra.comparisons import Cond, Ge0, prove
from ..algebra.conditions import easiest
from ..nest.finding import ranges_of
from ..nest.loop_ir import (
    Allocate,
    For,
    LoopKind,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    with_body,
)


def end_early(stmts: tuple[Stmt, ...], ranges: Ranges) -> tuple[Stmt, ...]:
    """Return `stmts` with bounds on serial loops whose last iterations may be empty."""
    result: list[Stmt] = []
    for stmt in stmts:
        match stmt:
            case For():
                result.append(_ended(stmt, ranges))
            case Allocate():
                result.append(with_body(stmt, end_early(stmt.body, ranges)))
            case StoreElement() | Update() | PrefetchHint():
                result.append(stmt)
    return tuple(result)


def _ended(loop: For, ranges: Ranges) -> For:
    inner = {**ranges, **ranges_of((loop,))}
    found: set[Cond] = set()
    if loop.kind is LoopKind.SERIAL:
        needed = (cond for cond in _needed(loop.body, {}) if ends(cond, loop.var, inner))
        found = {cond for cond in needed if prove(cond, inner) is not True}
    bounds = (*loop.bounds, *sorted(found - set(loop.bounds), key=str))
    body = end_early(loop.body, inner)
    return For(loop.var, loop.extent, body, loop.kind, loop.reduce, bounds)


def _needed(stmts: tuple[Stmt, ...], inside: Ranges) -> set[Cond]:
    """Return conditions. If one of them is false, no statement of `stmts` writes in any iteration
    of the loops `inside`."""
    common: set[Cond] | None = None
    for stmt in stmts:
        match stmt:
            case For():
                here = _needed(stmt.body, {**inside, **ranges_of((stmt,))})
            case Allocate():
                here = _needed(stmt.body, inside)
            case StoreElement() | Update():
                here = {easiest(guard, inside) for guard in stmt.guards}
            case PrefetchHint():
                continue  # an iteration that only prefetches is empty
        common = here if common is None else common & here
    return common or set()


def ends(cond: Cond, name: str, known: Ranges) -> bool:
    """Return whether `cond` can be a bound of loop `name`: if it is false in one iteration, it is
    false in all later ones. `known` has the ranges of the loop and of the enclosing loops."""
    index = cond.index
    return (
        isinstance(cond, Ge0)
        and index.vars() <= known.keys()
        and index.coefficient(name) < 0
        and index.is_linear_in(name)
    )
