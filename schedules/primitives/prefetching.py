"""The primitives Prefetch and PrefetchStores: software prefetching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ..algebra.affine import ZERO, Affine, Index, Interval, affine, interval, var
from ..errors import require
from ..limits import MAX_EXTENT
from ..nest.editing import map_allocation
from ..nest.finding import all_ranges, buffers_in, private_buffers, reads_of
from ..nest.loop_ir import Nest, leaves, with_body
from ..nest.loop_ir import PrefetchHint as PrefetchLeaf
from .marks import MAX_UNROLLED
from .places import open_loop, still_prepacked
from .primitive import Primitive, SerialisedForm

MOST_PREFETCHES = 32
"""Most prefetches in one iteration. A prefetch occupies a load port like a load, and an iteration
of a register tile loads each register at most once. Published: 32 vector registers (Intel, Software
Developer's Manual, volume 1; Arm, Architecture Reference Manual). This is a safety limit: one of
97,000 feasible settings would exceed it."""


@dataclass(frozen=True, slots=True)
class Prefetch(Primitive):
    """Prefetch data some iterations before it is used (`prefetch`). Results do not change.

    If `within` is "", each iteration of `loop` begins with a prefetch of the first element of
    `tensor` that the body reads `ahead` iterations later. Legal for every tensor that the loop's
    body reads.

    If `within` names an inner loop, each iteration of `within` prefetches all elements that the
    same iteration reads `ahead` iterations of `loop` later.

        for t:                             for t:
          for r:                    ->       for r:
            for k: ... B[k, 4*t + x]           for k: prefetch B[k, 4*(t + 1) + r % 4]; ...

    There is one prefetch per `step` elements along the last dimension, at each distinct position
    (index) in the other dimensions. An index beyond the end of a dimension wraps to its beginning.
    `deal` may name a loop between `loop` and `within` whose iterations all read the same elements.
    The prefetches are then distributed over its iterations. Each iteration issues part of the
    prefetches of every position. If there are too many prefetches, it issues all prefetches of part
    of the positions. Legal if an iteration issues at most `MOST_PREFETCHES` prefetches.
    """

    tensor: str
    loop: str
    ahead: int
    within: str = ""
    deal: str = ""
    step: int = 0

    SPELLINGS = (
        SerialisedForm("Prefetch", ("tensor", "loop", "ahead")),
        SerialisedForm("FetchAhead", ("tensor", "loop", "ahead", "within", "deal", "step")),
    )

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the prefetches."""
        return self._every_line(nest) if self.within else self._first_element(nest)

    def _first_element(self, nest: Nest) -> Nest:
        place = open_loop(nest, self.loop, self)
        body = place.loop.body
        reads = reads_of(body, self.tensor)
        legal = bool(reads) and 1 <= self.ahead <= MAX_EXTENT
        require(legal, self, f"{self.loop!r} must read {self.tensor!r}, ahead be 1..{MAX_EXTENT}")
        require(
            not (self.deal or self.step), self, "deal and step are for prefetches within a loop"
        )
        self._require_known(reads[0].index)
        first = dict.fromkeys(all_ranges(body), ZERO) | {self.loop: var(self.loop) + self.ahead}
        prefetch = PrefetchLeaf(self.tensor, tuple(i.substitute(first) for i in reads[0].index))
        # A buffer that is allocated in the body has no address before its allocation.
        inside = map_allocation(body, self.tensor, lambda s: (with_body(s, (prefetch, *s.body)),))
        return place.with_body(*((prefetch, *body) if inside is body else inside))

    def _every_line(self, nest: Nest) -> Nest:
        place = open_loop(nest, self.within, self)
        body = place.loop.body
        names = list(place.ranges)
        known = self.loop in names and (not self.deal or self.deal in names)
        require(known, self, f"{self.within!r} must be in {self.loop!r}, {self.deal!r}")
        if self.deal:
            between = names.index(self.loop) < names.index(self.deal) < len(names) - 1
            require(between, self, f"{self.deal!r} must be between the other two")
        reads = reads_of(body, self.tensor)
        own = self.tensor in private_buffers(body)
        require(not own, self, f"{self.tensor!r} is allocated inside {self.within!r}")
        legal = bool(reads) and 1 <= self.ahead <= MAX_EXTENT and 1 <= self.step <= MAX_EXTENT
        problem = f"{self.within!r} must read {self.tensor!r}, ahead and step be 1..{MAX_EXTENT}"
        require(legal, self, problem)
        index = reads[0].index
        self._require_known(index)
        moved = bool(self.deal) and any(self.deal in i.vars() for i in index)
        require(not moved, self, f"the index of {self.tensor!r} depends on {self.deal!r}")
        shape, inner = buffers_in(nest)[self.tensor].shape, all_ranges(body)
        ranges = {**place.ranges, **inner}
        shared = ranges[self.deal].hi + 1 if self.deal else 1
        dealt = [
            PrefetchLeaf(self.tensor, _wrapped(where, shape, ranges, self.within), far=True)
            for where in self._dealt(index, {n: r.hi + 1 for n, r in inner.items()}, shared)
        ]
        return still_prepacked(place.with_body(*dealt, *body), self)

    def _require_known(self, index: Index) -> None:
        """Raise ScheduleError if `index` contains data: it would be read ahead, out of bounds."""
        by_data = any(i.has_data for i in index)
        require(not by_data, self, f"{self.tensor!r} is read at an index that is data")

    def _dealt(self, index: Index, extents: dict[str, int], shared: int) -> list[Index]:
        """Return the indices that one iteration prefetches if `shared` iterations divide the
        prefetches."""
        run = PrefetchRun.of(index, extents, self.step)
        require(run.is_forward, self, f"{self.tensor!r} is not read along its last dimension")
        too_many = f"more than {MOST_PREFETCHES} prefetches in an iteration"
        require(run.prefetches(shared) <= MOST_PREFETCHES, self, too_many)
        later = {self.loop: var(self.loop) + self.ahead} | dict.fromkeys(extents, ZERO)
        places = [tuple(i.substitute(later) for i in place) for place in run.places]
        turns = self._turns(run.count, shared)
        if run.deals_places:
            dealt = (run.place(turn) for turn in self._turns(run.settings, shared))
            places = [tuple(i.substitute(later) for i in place) for place in dealt]
            turns = self._turns(run.count, 1)
        return [(*other, x + turn * self.step) for *other, x in places for turn in turns]

    def _turns(self, count: int, shared: int) -> list[Affine]:
        """Return the numbers in 0..count-1 that one iteration of `deal` handles if `shared`
        iterations divide them."""
        each = -(-count // shared)
        if each == count:
            return [affine(n) for n in range(count)]
        return [(var(self.deal) * each + n) % count for n in range(each)]


MOST_STORE_PREFETCHES = 64
"""Most prefetches of lines to be stored, in one iteration. A register tile of 30 vectors has at
most 60 lines, if each vector crosses the border of two lines. This is a safety limit."""


@dataclass(frozen=True, slots=True)
class PrefetchStores(Primitive):
    """Prefetch the lines that an iteration stores (`prefetch`). Results do not change.

        for t:                              for t:
          acc = 0                             prefetch C[4*t], ...
          for k: acc += ...          ->       acc = 0
          C[4*t .. 4*t + 3] = acc             for k: acc += ...
                                              C[4*t .. 4*t + 3] = acc

    Each iteration of `loop` begins with one prefetch per `step` elements of `tensor` that its body
    stores, along the last dimension, at each distinct position in the other dimensions. A store
    waits for its line, and only few lines are loaded concurrently. While the iteration computes,
    the line arrives in the second cache. Legal for an array that the body stores and that is not
    allocated in it, with at most `MOST_STORE_PREFETCHES` prefetches.
    """

    tensor: str
    loop: str
    step: int

    SPELLINGS = (SerialisedForm("PrefetchStores", ("tensor", "loop", "step")),)

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the prefetches."""
        place = open_loop(nest, self.loop, self)
        body = place.loop.body
        written = [leaf for leaf in leaves(body) if not isinstance(leaf, PrefetchLeaf)]
        index = next((x.index for x in reversed(written) if x.buffer == self.tensor), None)
        legal = index is not None and self.tensor not in private_buffers(body)
        legal = legal and 1 <= self.step <= MAX_EXTENT
        problem = f"{self.loop!r} must store {self.tensor!r}, allocated outside, step be positive"
        require(legal, self, problem)
        assert index is not None
        extents = {n: r.hi + 1 for n, r in all_ranges(body).items()}
        run = PrefetchRun.of(index, extents, self.step)
        require(run.is_forward, self, f"{self.tensor!r} is not stored along its last dimension")
        first = self._first_elements(run, buffers_in(nest)[self.tensor].shape[-1])
        too_many = f"more than {MOST_STORE_PREFETCHES} prefetches in an iteration"
        require(run.settings * len(first) <= MOST_STORE_PREFETCHES, self, too_many)
        hints = [
            PrefetchLeaf(self.tensor, (*other, last + n), far=True)
            for *other, last in run.places
            for n in first
        ]
        return still_prepacked(place.with_body(*hints, *body), self)

    def _first_elements(self, run: PrefetchRun, row: int) -> list[int]:
        """Return the prefetched elements of a position. If rows of `row` elements begin anywhere in
        a line, the last element may be in a line of its own."""
        found = [n * self.step for n in range(run.count)]
        return found if row % self.step == 0 else [*found, run.span - 1]


@dataclass(frozen=True)
class PrefetchRun:
    """The elements that loops read at `index`, for prefetching. A position is an index in the
    dimensions other than the last."""

    index: Index
    extents: dict[str, int]
    """Number of iterations of each loop."""
    moving: tuple[str, ...]
    """The loops on which the position depends."""
    step: int
    """Distance in elements between the `count` prefetches of a position, along the last
    dimension."""

    @classmethod
    def of(cls, index: Index, extents: dict[str, int], step: int) -> PrefetchRun:
        moving = sorted(n for n in extents if any(n in i.vars() for i in index[:-1]))
        return cls(index, extents, tuple(moving), step)

    @cached_property
    def _along(self) -> list[str]:
        last = self.index[-1].vars()
        return [name for name in self.extents if name in last and name not in self.moving]

    @cached_property
    def is_forward(self) -> bool:
        last = self.index[-1]
        return all(last.is_linear_in(n) and last.coefficient(n) >= 0 for n in self._along)

    @cached_property
    def span(self) -> int:
        """Number of elements of a position along the last dimension, from the first to the last."""
        last = self.index[-1]
        return 1 + sum(last.coefficient(n) * (self.extents[n] - 1) for n in self._along)

    @cached_property
    def count(self) -> int:
        return -(-self.span // self.step)

    @cached_property
    def settings(self) -> int:
        """Number of iterations of the loops `moving`. Several iterations may have the same
        position."""
        return prod(self.extents[n] for n in self.moving)

    def place(self, setting: Affine) -> Index:
        """Return the index in iteration number `setting` of the loops `moving`. The other loops are
        at zero."""
        at = dict.fromkeys(self._along, ZERO) | _setting(setting, self.moving, self.extents)
        return tuple(i.substitute(at) for i in self.index)

    @cached_property
    def places(self) -> list[Index]:
        """The distinct positions, as indices of their first elements. Overlapping windows reach
        some positions more than once."""
        return list(dict.fromkeys(self.place(affine(n)) for n in range(self.settings)))

    @cached_property
    def deals_places(self) -> bool:
        """Whether the iterations of `deal` divide the positions, and not the prefetches of each
        position."""
        return self.count * len(self.places) > MOST_PREFETCHES

    def prefetches(self, shared: int) -> int:
        """Return the number of prefetches in one iteration if `shared` iterations divide them. If
        counting takes too long, return a number above the limit."""
        if self.count > MOST_PREFETCHES or self.settings > MAX_UNROLLED:
            return MOST_PREFETCHES + 1
        if self.deals_places:
            return -(-self.settings // shared) * self.count
        return len(self.places) * -(-self.count // shared)


def _wrapped(
    index: Index, shape: tuple[int, ...], ranges: dict[str, Interval], within: str
) -> Index:
    """Return `index` with out-of-bounds components wrapped to the beginning of the buffer, because
    a prefetch of unmapped memory costs a page table walk. Terms of the loop `within` are not
    wrapped, so that an iteration needs only an addition."""
    found = []
    for i, extent in zip(index, shape, strict=True):
        inside = i - i.substitute({within: ZERO})
        around = i - inside
        found.append(i if interval(around, ranges).hi < extent else around % extent + inside)
    return tuple(found)


def _setting(number: Affine, names: Sequence[str], extents: dict[str, int]) -> dict[str, Affine]:
    """Return the values of the loops `names` in iteration `number`; the last varies fastest."""
    values = dict[str, Affine]()
    for name in reversed(names):
        values[name] = number % extents[name]
        number = number // extents[name]
    return values
