"""Prefetch: ask for data before it is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ..algebra.affine import Affine, Interval, affine, interval, var
from ..errors import ScheduleError
from ..nest.finding import all_ranges, buffers_in, private_buffers, ranges_of, reads_of
from ..nest.loop_ir import Allocate, Nest, Stmt, transform
from ..nest.loop_ir import Prefetch as PrefetchLeaf
from .places import find_loop, replace_loop, require_body, still_ahead
from .primitive import Primitive, Spelling

MOST_HINTS = 32
"""Hints in one iteration: more would be in the way of the loads they are meant to help."""


MOST_PLACES = 512
"""Iterations of the loops inside that are looked at for different places."""


@dataclass(frozen=True, slots=True)
class Prefetch(Primitive):
    """Ask for data some iterations before it is used (`prefetch`); what is computed stays.

    At the start of each iteration of `loop`, a hint for the first element of `tensor` that the
    iteration `ahead` later reads; legal for every tensor that the loop's body reads.

    With `within`, a loop inside: in each iteration of that one, hints for all that the same
    iteration reads when `loop` is `ahead` iterations on.

        for t:                             for t:
          for r:                    ->       for r:
            for k: ... B[k, 4*t + x]           for k: prefetch B[k, 4*(t + 1) + r % 4]; ...

    One hint for every `step` elements of the last dimension that the iteration reads, at each place
    once; behind the end of a dimension its beginning is next. With `deal` they are shared out over
    the iterations of that loop, between `loop` and `within`, which all read the same: those along
    the last dimension, or places where these are too many; with "" each iteration gives them all.
    Legal where `within` reads the tensor at places that only differ by what its own loops add,
    and the hints are not too many.
    """

    tensor: str
    loop: str
    ahead: int
    within: str = ""
    deal: str = ""
    step: int = 0

    SPELLINGS = (
        Spelling("Prefetch", ("tensor", "loop", "ahead")),
        Spelling("FetchAhead", ("tensor", "loop", "ahead", "within", "deal", "step")),
    )

    def apply(self, nest: Nest) -> Nest:
        """The nest with the hints. ScheduleError: loops not inside each other, nothing read,
        `deal` moves the tensor, not a positive number, too many hints."""
        return self._every_line(nest) if self.within else self._first_element(nest)

    def _first_element(self, nest: Nest) -> Nest:
        place = find_loop(nest, self.loop, self)
        require_body(place.loop, self)
        reads = reads_of(place.loop.body, self.tensor)
        if not reads or self.ahead < 1:
            raise ScheduleError(self, f"{self.loop!r} must read {self.tensor!r} and ahead be >= 1")
        if self.deal or self.step:
            raise ScheduleError(self, "deal and step are for hints within a loop")
        inner = all_ranges(place.loop.body)
        mapping: dict[str, Affine] = {name: affine(0) for name in inner}
        mapping[self.loop] = var(self.loop) + self.ahead
        index = tuple(i.substitute(mapping) for i in reads[0].index)
        hint = PrefetchLeaf(self.tensor, index)
        body = _within_allocation(place.loop.body, self.tensor, hint)
        return replace_loop(nest, self.loop, (replace(place.loop, body=body),))

    def _every_line(self, nest: Nest) -> Nest:
        inner = find_loop(nest, self.within, self)
        require_body(inner.loop, self)
        around = (*inner.outer, inner.loop)
        names = [loop.var for loop in around]
        if self.loop not in names or (self.deal and self.deal not in names):
            raise ScheduleError(self, f"{self.within!r} must be in {self.loop!r}, {self.deal!r}")
        if self.deal and not names.index(self.loop) < names.index(self.deal) < len(names) - 1:
            raise ScheduleError(self, f"{self.deal!r} must be between the other two")
        reads = reads_of(inner.loop.body, self.tensor)
        if self.tensor in private_buffers(inner.loop.body):
            raise ScheduleError(self, f"{self.tensor!r} is made inside {self.within!r}")
        if not reads or self.ahead < 1 or self.step < 1:
            raise ScheduleError(
                self, f"{self.within!r} must read {self.tensor!r}, ahead and step be >= 1"
            )
        index = reads[0].index
        if self.deal and any(self.deal in i.vars() for i in index):
            raise ScheduleError(self, f"{self.deal!r} moves {self.tensor!r}")
        shared = ranges_of(around)[self.deal].hi + 1 if self.deal else 1
        extents = {n: r.hi + 1 for n, r in all_ranges(inner.loop.body).items()}
        shape = buffers_in(nest)[self.tensor].shape
        ranges = {**ranges_of(around), **all_ranges(inner.loop.body)}
        dealt = [
            replace(hint, index=_wrapped(hint.index, shape, ranges, self.within))
            for hint in self._dealt(*self._hints(index, extents, shared))
        ]

        loop = replace(inner.loop, body=(*dealt, *inner.loop.body))
        return still_ahead(replace_loop(nest, self.within, (loop,)), self)

    def _hints(
        self, index: tuple[Affine, ...], extents: dict[str, int], shared: int
    ) -> tuple[list[tuple[tuple[Affine, ...], int]], int]:
        """Where hints start, for each setting of the loops inside that move other dimensions than
        the last, and how many follow each other along the last; and over how many iterations of
        `deal` these are shared out. Places are, where they are too many for each of them."""
        *others, last = index
        moving = sorted(n for n in extents if any(n in i.vars() for i in others))
        along = [n for n in extents if n in last.vars() and n not in moving]
        steps = [last.coefficient(n) for n in along]
        if not all(last.is_linear_in(n) for n in along) or min(steps, default=0) < 0:
            raise ScheduleError(self, f"{self.tensor!r} is not read along its last dimension")
        span = 1 + sum(c * (extents[n] - 1) for c, n in zip(steps, along, strict=True))
        count = -(-span // self.step)
        settings = prod(extents[n] for n in moving)
        if count > MOST_HINTS or settings > MOST_PLACES:
            raise ScheduleError(self, f"more than {MOST_HINTS} hints in an iteration")
        later = {self.loop: var(self.loop) + self.ahead} | {n: affine(0) for n in extents}
        places = dict[tuple[Affine, ...], None]()  # windows that overlap read some more than once
        for values in product(*(range(extents[n]) for n in moving)):
            place = later | {n: affine(x) for n, x in zip(moving, values, strict=True)}
            places[tuple(i.substitute(place) for i in index)] = None
        if count * len(places) <= MOST_HINTS:
            return [(place, count) for place in places], shared
        each = -(-settings // shared)
        if count * each > MOST_HINTS:
            raise ScheduleError(self, f"more than {MOST_HINTS} hints in an iteration")
        turns = [(var(self.deal) * each + n) % settings for n in range(each)]
        found = [later | _setting(turn, moving, extents) for turn in turns]
        return [(tuple(i.substitute(place) for i in index), count) for place in found], 1

    def _dealt(
        self, hints: list[tuple[tuple[Affine, ...], int]], shared: int
    ) -> list[PrefetchLeaf]:
        """The hints of one iteration."""
        dealt = []
        for (*others, last), count in hints:
            each = -(-count // shared)
            for n in range(each):
                turn = affine(n)
                if self.deal and count > each:
                    turn = (var(self.deal) * each + n) % count
                place = (*others, last + turn * self.step)
                dealt.append(PrefetchLeaf(self.tensor, place, far=True))
        return dealt


def _within_allocation(
    stmts: tuple[Stmt, ...], buffer: str, hint: PrefetchLeaf
) -> tuple[Stmt, ...]:
    """`hint` before `stmts`, or at the start of the allocation of the buffer it is for."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Allocate) and stmt.buffer.name == buffer:
            return (replace(stmt, body=(hint, *stmt.body)),)
        return None

    inside = transform(stmts, change)
    return (hint, *stmts) if inside is stmts else inside


def _wrapped(
    index: tuple[Affine, ...], shape: tuple[int, ...], ranges: dict[str, Interval], within: str
) -> tuple[Affine, ...]:
    """`index`, begun again where it would leave the buffer: behind the last tile the first one is
    next. A hint for memory that is not there costs a walk through the page table every time. What
    moves in each iteration of `within` stays as it is: it costs no more than an addition."""
    found = []
    for i, extent in zip(index, shape, strict=True):
        inside = i - i.substitute({within: affine(0)})
        around = i - inside
        found.append(i if interval(around, ranges).hi < extent else around % extent + inside)
    return tuple(found)


def _setting(number: Affine, names: list[str], extents: dict[str, int]) -> dict[str, Affine]:
    """The values of loops at a point of their box, counted with the last loop fastest."""
    values = dict[str, Affine]()
    for name in reversed(names):
        values[name] = number % extents[name]
        number = number // extents[name]
    return values
