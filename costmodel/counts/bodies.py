"""Vectors that several leaves of one loop body use. Each is loaded once and stays in a register.

The vectors along the vector axis of a leaf are numbered. A set of vectors is a bit mask whose
lowest bit is vector 0. So the sets of all settings form one array. An operand that does not vary
along the vector axis is one vector, number 0.
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
"""The number of bits of a mask, and so of vectors that are distinguished. No body has more."""


@dataclass(frozen=True, eq=False)
class Use:
    """The vectors of one tensor access that leaf `number` reads or writes, for P settings."""

    number: int
    is_read: bool
    body: IntArray
    """The number of the loop body that contains the leaf, shape (P,)."""
    present: BoolArray
    """Whether the setting contains the leaf, shape (P,)."""
    lanes: Number
    """The lanes per vector."""
    others: Number
    """The number of copies of each vector along the other axes."""
    many: Number
    """The number of vectors along the vector axis."""
    start: Number
    """The number of the first of these vectors."""

    @cached_property
    def bits(self) -> Bits:
        """The mask of the vectors, shape (P,). It is 0 if the setting does not contain the leaf."""
        count = np.ceil(np.asarray(self.many)).clip(1, BITS)
        return np.where(self.present, _ones(count, self.start), np.uint64(0))

    def known_to(self, other: Use) -> Bits:
        """Return the mask, shape (P,), of the vectors that may equal vectors of `other`.

        These are all vectors if both uses have the same body, lanes and number of copies along the
        other axes. Otherwise the mask is 0.
        """
        there = (self.body == other.body) & np.equal(self.lanes, other.lanes)
        return np.where(there & np.equal(self.others, other.others), self.bits, np.uint64(0))

    def begins_with(self, other: Use) -> Bits:
        """Return the mask, shape (P,), of the vectors that may start at the same element as a
        vector of `other`.

        These are all vectors if both uses have the same number of lanes, otherwise the first one.
        The mask is 0 if the numbers of copies along the other axes differ.
        """
        lowest = self.bits & (~self.bits + np.uint64(1))
        bits = np.where(np.equal(self.lanes, other.lanes), self.bits, lowest)
        return bits * np.equal(self.others, other.others)


class Uses:
    """The uses of all tensor accesses. They are collected while the leaves are traversed in program
    order."""

    def __init__(self) -> None:
        self.of: dict[object, list[Use]] = {}

    def add(
        self, number: int, leaf: Leaf, place: AccessPattern, start: Number, body: IntArray,
        present: BoolArray, *, is_read: bool,
    ) -> FloatArray:  # fmt: skip
        """Add a use whose first vector has number `start`.

        Return the fraction of its vectors that no earlier leaf of its body has loaded or stored,
        shape (P,).
        """
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
        """Return the uses that read in the loop body `body`, shape (P,), grouped by tensor
        access."""
        found = []
        for uses in self.of.values():
            there = [(use, use.present & (use.body == body)) for use in uses if use.is_read]
            read = [replace(use, present=holds) for use, holds in there if holds.any()]
            if read:
                found.append(read)
        return found


def alive(read: Sequence[Sequence[Use]], number: int, turn: Sequence[int]) -> FloatArray:
    """Return the number of live registers while leaf `number` runs, shape (P,).

    `read` has the uses of the loop body. `turn` has the numbers of the leaves whose copies are
    interleaved with the copies of this leaf. During these copies, vectors that are read for the
    last time are released one by one, and vectors that are read again later become live one by one.
    So the maximum occurs at the first or at the last copy.
    """
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
    """Return a mask of `count` consecutive ones from bit `start` on, modulo `BITS`."""
    ones = np.where(count >= BITS, ~np.uint64(0), (np.uint64(1) << count.astype(np.uint64)) - 1)
    turned = np.asarray(start).astype(np.uint64) % np.uint64(BITS)
    back = (np.uint64(BITS) - turned) % np.uint64(BITS)
    return np.where(turned > 0, ones << turned | ones >> back, ones)
