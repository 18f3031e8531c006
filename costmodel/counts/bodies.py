"""Loop bodies: vectors that several leaves of one body load once and keep in registers.

Vectors along a leaf's axis are bits of a number, the first one the lowest, so that what leaves
share is computed for all settings at once. A read that does not depend on the lanes is one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray, Number
from tilewright.schedules.leaves import AccessPattern, Leaf

Bits = npt.NDArray[np.uint64]

BITS = 64
"""Vectors that such a number distinguishes: no body has more."""


@dataclass(frozen=True, eq=False)
class Use:
    """The vectors of one place that leaf `number` reads or writes, of P settings, if it is
    `present` (P,) in a `body` (P,): `many` from number `start` on, and `others` times as many along
    axes other than that of its lanes."""

    number: int
    is_read: bool
    body: IntArray
    present: BoolArray
    lanes: Number
    others: Number
    many: Number
    start: Number

    @cached_property
    def bits(self) -> Bits:
        """(P,) its vectors, none where it is not present."""
        count = np.ceil(np.asarray(self.many)).clip(1, BITS)
        return np.where(self.present, _ones(count, self.start), np.uint64(0))

    def known_to(self, other: Use) -> Bits:
        """Its vectors, where they may be those of another use in the same body."""
        there = (self.body == other.body) & np.equal(self.lanes, other.lanes)
        return np.where(there & np.equal(self.others, other.others), self.bits, np.uint64(0))

    def begins_with(self, other: Use) -> Bits:
        """Its vectors that begin where those of another use may: of other lanes the first alone."""
        lowest = self.bits & (~self.bits + np.uint64(1))
        bits = np.where(np.equal(self.lanes, other.lanes), self.bits, lowest)
        return bits * np.equal(self.others, other.others)


class Uses:
    """All uses of all places, collected leaf by leaf in program order."""

    def __init__(self) -> None:
        self.of: dict[object, list[Use]] = {}

    def add(
        self, number: int, leaf: Leaf, place: AccessPattern, start: Number, body: IntArray,
        present: BoolArray, *, is_read: bool,
    ) -> FloatArray:  # fmt: skip
        """Add one whose vectors begin at number `start`: (P,) the fraction of them that no leaf of
        its body has loaded or stored before."""
        moves = leaf.vector_axis in place.steps
        copies = leaf.copies.get(leaf.vector_axis, 1) if moves else 1
        many, first = (copies * leaf.active_fraction, start) if moves else (1, 0)
        lanes, others = leaf.lanes if moves else 1, leaf.copies_along(place.steps) / copies
        use = Use(number, is_read, body, present, lanes, others, many, first)
        known = self.of.setdefault((place.key, leaf.pipeline_stage), [])
        known.append(use)
        if len(known) == 1:
            return np.ones(len(body))
        seen = reduce(np.bitwise_or, (other.known_to(use) for other in known[:-1]))
        new, every = np.bitwise_count(use.bits & ~seen), np.bitwise_count(use.bits)
        return np.asarray(new / np.maximum(every, 1))

    def read_in(self, body: IntArray) -> list[list[Use]]:
        """What is read in `body` (P,) of each setting, place by place."""
        found = []
        for uses in self.of.values():
            there = [(use, use.present & (use.body == body)) for use in uses if use.is_read]
            read = [replace(use, present=holds) for use, holds in there if holds.any()]
            if read:
                found.append(read)
        return found


def alive(read: Sequence[Sequence[Use]], number: int, turn: Sequence[int]) -> FloatArray:
    """(P,) live registers of what is `read` in a body while leaf `number` runs, whose copies
    alternate with those of other leaves. Values at their last use die one by one, and values that
    are read again later become live so."""
    first, last = 0.0, 0.0
    for uses in read:
        own = [use for use in uses if use.number in turn]
        one = (own or uses)[0]
        if not own and (uses[0].number > turn[0] or uses[-1].number < turn[0]):
            continue
        is_met = bool(own) and own[0].number <= number <= own[-1].number
        here, before, after = (np.zeros_like(one.bits) for _ in range(3))
        for use in uses:
            bits = use.begins_with(one)
            if use in own:
                here |= bits
            elif use.number < turn[0]:
                before |= bits
            else:
                after |= bits
        kept, ends, begins = before & after, before & ~after & here, after & ~before & here
        coming, going = ((here & ~kept & ~some) > 0 for some in (ends, begins))
        first = first + np.bitwise_count(kept | ends) * one.others + is_met * coming
        last = last + np.bitwise_count(kept | begins) * one.others + is_met * going
    return np.asarray(np.maximum(first, last))


def _ones(count: FloatArray, start: Number) -> Bits:
    """So many ones, from number `start` on; the last place is followed by the first."""
    ones = np.where(count >= BITS, ~np.uint64(0), (np.uint64(1) << count.astype(np.uint64)) - 1)
    turned = np.asarray(start).astype(np.uint64) % np.uint64(BITS)
    back = (np.uint64(BITS) - turned) % np.uint64(BITS)
    return np.where(turned > 0, ones << turned | ones >> back, ones)
