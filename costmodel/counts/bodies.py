"""What leaves of one body have in common: vectors that are loaded once, and stay in registers.

Vectors along a leaf's axis are bits of a number, the first one the lowest, so that what leaves
share is said for all settings at once. What no lane moves with is one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedules.arrays import BoolArray, FloatArray, IntArray
from schedules.leaves import Leaf, Number, Place

Bits = npt.NDArray[np.uint64]

BITS = 64
"""Vectors that a number tells apart: more are in no body."""


@dataclass(frozen=True, eq=False)
class Use:
    """The vectors of one place that a leaf reads or writes, `others` times as many along axes that
    are not the one of its lanes: of P settings, (P,) each. They are in registers with one of its
    `number` where it is `read`."""

    number: int
    is_read: bool
    body: IntArray
    present: BoolArray
    lanes: Number
    others: Number
    bits: Bits

    def known_to(self, other: Use) -> Bits:
        """Its vectors, where they may be those of another use in the same body."""
        is_same = (self.body == other.body) & np.equal(self.lanes, other.lanes)
        return self._where(is_same & np.equal(self.others, other.others), self.bits)

    def alive(self, one: Use, body: IntArray) -> Bits:
        """Its vectors in `body` (P,) that begin where those of `one` may: of other lanes the first
        alone."""
        lowest = self.bits & (~self.bits + np.uint64(1))
        bits = np.where(np.equal(self.lanes, one.lanes), self.bits, lowest)
        return self._where((self.body == body) & np.equal(self.others, one.others), bits)

    def _where(self, holds: BoolArray, bits: Bits) -> Bits:
        return np.where(self.present & holds, bits, np.uint64(0))


class Uses:
    """All uses of all places, as leaves are gone through in the order of the program."""

    def __init__(self) -> None:
        self.of: dict[object, list[Use]] = {}

    def add(
        self, number: int, leaf: Leaf, place: Place, start: Number, body: IntArray,
        present: BoolArray, *, is_read: bool,
    ) -> FloatArray:  # fmt: skip
        """Add one, whose vectors begin at number `start`: (P,) the share of them that no leaf of
        its body has loaded or stored before."""
        moves = leaf.along in place.steps
        copies = leaf.copies.get(leaf.along, 1) if moves else 1
        own = np.ceil(np.asarray(copies * leaf.filled if moves else 1)).clip(1, BITS)
        bits = np.broadcast_to(_ones(own, start if moves else 0), body.shape)
        lanes = leaf.lanes if moves else 1
        use = Use(number, is_read, body, present, lanes, leaf.reach(place.steps) / copies, bits)
        known = self.of.setdefault((place.key, leaf.piece[1]), [])
        seen = np.zeros_like(bits)
        for other in known:
            seen |= other.known_to(use)
        known.append(use)
        return np.asarray(np.bitwise_count(bits & ~seen) / np.bitwise_count(bits))

    def alive(self, number: int, turn: Sequence[int], heaviest: IntArray) -> FloatArray:
        """(P,) registers of what is read, in body `heaviest` (P,) of each setting, while leaf
        `number` runs, whose copies take turns with those of others. What is read for the last time
        then goes one by one, what is read again later comes so."""
        first, last = (np.zeros(len(heaviest)) for _ in range(2))
        for uses in self.of.values():
            read = [use for use in uses if use.is_read]
            own = [use for use in read if use.number in turn]
            if not read:
                continue
            one = (own or read)[0]
            is_met = bool(own) and own[0].number <= number <= own[-1].number
            here, before, after = (np.zeros_like(one.bits) for _ in range(3))
            for use in read:
                bits = use.alive(one, heaviest)
                if use in own:
                    here |= bits
                elif use.number < turn[0]:
                    before |= bits
                else:
                    after |= bits
            kept, ends, begins = before & after, before & ~after & here, after & ~before & here
            first += np.bitwise_count(kept | ends) * one.others
            first += is_met * ((here & ~kept & ~ends) > 0)
            last += np.bitwise_count(kept | begins) * one.others
            last += is_met * ((here & ~kept & ~begins) > 0)
        return np.maximum(first, last)


def _ones(count: FloatArray, start: Number) -> Bits:
    """So many ones, from number `start` on; the last place is followed by the first."""
    ones = np.where(count >= BITS, ~np.uint64(0), (np.uint64(1) << count.astype(np.uint64)) - 1)
    turned = np.asarray(start).astype(np.uint64) % np.uint64(BITS)
    back = (np.uint64(BITS) - turned) % np.uint64(BITS)
    return np.where(turned > 0, ones << turned | ones >> back, ones)
