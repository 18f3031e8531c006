"""Which loop of a stage plays which part in an inner-product kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm, prod

from ...algebra.affine import Affine, Cond, Mod
from ...algebra.scalar import All, Select, walk
from ..analysis import Loop, Read, StageView, once

MOST_USES = 16
"""An element that is used more often than this pays for packing its operand: 32x4096 by 4096x1024
takes as long either way."""

LEAST_VECTORS = 8
"""Vectors along the reduction that pay for adding up lanes at the end."""

FULL_SHARE = 0.8
"""Share of the lanes along the reduction that must be full."""

LEAST_PASSING_BYTES = 1 << 15
"""A smaller operand is in the first cache however it is read."""

TIMES_AS_LARGE = 16
"""The operand that passes by, beside one that is small enough to be copied and turned first."""

MOST_PERIOD = 4
"""Phases along an axis whose operands are kept in registers side by side, at most."""


@dataclass(frozen=True, slots=True)
class InnerProductRoles:
    """Which loop plays which part: `passing` is read along `along` for each of `many`, and used
    again for each of `few`; `turned` operands are contiguous along another loop and are copied.
    Every `period` neighbours along `many` use other elements of these, in turn."""

    passing: Read
    along: Loop
    many: Loop
    few: Loop
    period: int
    batch: tuple[Loop, ...]
    taps: tuple[Loop, ...]
    turned: tuple[Read, ...]


def inner_product_roles(view: StageView, lanes: int) -> InnerProductRoles | None:
    """The parts of the sketch for a stage, None if it does not fit."""
    if not view.is_reduction or view.presplit or view.guards or not view.reduce:
        return None
    reads = once(view.reads)
    if len(reads) != len(view.reads):
        return None
    passing = max(reads, key=lambda read: prod(read.shape) * read.dtype.bytes)
    along = next((x for x in view.reduce if passing.element_stride(x.name) == 1), None)
    if along is None or not _is_deep(view, along, lanes):
        return None
    if any(along.name in cond.index.vars() for cond in _conditions(view)):
        return None  # what differs from lane to lane would be masked in every step
    few = [x for x in view.spatial if x.extent > 1 and not passing.uses(x.name)]
    many = [x for x in view.spatial if x.extent > 1 and _period(passing, x, reads)]
    if len(few) != 1 or few[0].extent > MOST_USES or not many:
        return None
    if prod(passing.shape) * passing.dtype.bytes < LEAST_PASSING_BYTES:
        return None
    turned = tuple(r for r in reads if r.element_stride(along.name) not in (0, 1))
    if not all(_can_turn(read, along, passing) for read in turned):
        return None
    return InnerProductRoles(
        passing=passing,
        along=along,
        many=many[-1],
        few=few[0],
        period=_period(passing, many[-1], reads),
        batch=tuple(x for x in view.spatial if x not in (many[-1], few[0])),
        taps=tuple(x for x in view.reduce if x is not along),
        turned=turned,
    )


def _conditions(view: StageView) -> Iterator[Cond]:
    """The conditions under which something is read, padding's among them."""
    for node in walk(view.value):
        if isinstance(node, Select) and isinstance(node.cond, All):
            yield from node.cond.conds


def _is_deep(view: StageView, along: Loop, lanes: int) -> bool:
    """Whether a result is made of vectors enough along `along`, most of them full."""
    vectors = -(-along.extent // lanes)
    depth = vectors * prod(loop.extent for loop in view.reduce if loop is not along)
    return depth >= LEAST_VECTORS and along.extent >= FULL_SHARE * vectors * lanes


def _period(passing: Read, loop: Loop, reads: tuple[Read, ...]) -> int:
    """After how many steps of `loop`, which moves the passing operand, all others are where they
    were: 1 where they are used again for it. 0 where that does not happen soon."""
    if not passing.uses(loop.name):
        return 0
    periods = {1}
    others = (index for read in reads if read is not passing for index in read.index)
    for atom, _ in (term for index in others for term in index.terms):
        if isinstance(atom, Mod) and atom.numerator.is_linear_in(loop.name):
            periods.add(atom.divisor if loop.name in atom.numerator.vars() else 1)
        elif loop.name in (Affine(((atom, 1),), 0)).vars():
            return 0
    period = lcm(*periods)
    return period if period <= MOST_PERIOD and loop.extent % period == 0 else 0


def _can_turn(read: Read, along: Loop, passing: Read) -> bool:
    """Whether a copy of `read` that is contiguous along the reduction costs little beside one walk
    along the operand that passes by."""
    size = prod(read.shape) * read.dtype.bytes
    small = TIMES_AS_LARGE * size <= prod(passing.shape) * passing.dtype.bytes
    return small and read.own_dim(along.name) is not None
