"""What is known of a reduction with lanes along it, whatever its knobs say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...target import Target
from ...workload.workload import Workload
from ..analysis import Read, StageView, once
from ..hardware import PAGE_BYTES
from .roles import InnerProductRoles

BLOCKS = (2, 4, 8)
"""Parts of a reduction that are gone through one after the other."""

LEAST_BLOCK_VECTORS = 16
"""Vectors of a part that pay for loading and storing the sums of a tile."""

MOST_BLOCK_COLUMNS = 128
"""Columns whose partial sums wait in the second cache for the next part."""

MOST_OF_FIRST_CACHE = 0.75
"""Share of it that what tiles share may take, beside what passes."""


@dataclass(frozen=True)
class InnerProductStage:
    """The stage `view` with `roles` on `target`."""

    workload: Workload
    view: StageView
    roles: InnerProductRoles
    target: Target

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def shared(self) -> tuple[Read, ...]:
        """What all tiles read again, row by row, from where it is."""
        return tuple(read for read in once(self.view.reads) if self._is_shared(read))

    def _is_shared(self, read: Read) -> bool:
        roles = self.roles
        plain = read is not roles.passing and read not in roles.turned and not read.conditional
        dim, few = (read.own_dim(loop.name) for loop in (roles.along, roles.few))
        return plain and dim == len(read.shape) - 1 and few is not None

    @property
    def shared_bytes(self) -> int:
        """Bytes that a tile of all rows walks through, beside what passes."""
        roles = self.roles
        taps = prod(loop.extent for loop in roles.taps)
        turned = tuple(read for read in roles.turned if read.uses(roles.few.name))
        an_element = sum(read.dtype.bytes for read in (*self.shared, *turned))
        return an_element * roles.few.extent * taps * roles.along.extent

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Into how many parts a reduction may be cut, of which one after the other is gone through
        for a block of tiles: where the first cache holds what tiles share of a part beside what
        passes, and not of the whole."""
        vectors = self.roles.along.extent // self.lanes
        whole = self.roles.along.extent % self.lanes == 0 and self.roles.period == 1
        first = self.target.caches[0].bytes
        if not whole or 2 * self.shared_bytes <= first:
            return ()
        return tuple(
            n
            for n in BLOCKS
            if vectors % n == 0
            and vectors // n >= LEAST_BLOCK_VECTORS
            and self.shared_bytes / n <= MOST_OF_FIRST_CACHE * first
        )

    def tiles_a_block(self, columns: int) -> int:
        """Tiles of `columns` that a block of the reduction is used for before the next."""
        tiles = self.roles.many.extent // columns
        most = max(MOST_BLOCK_COLUMNS // columns, 1)
        return next(n for n in range(min(most, tiles), 0, -1) if tiles % n == 0)

    @property
    def is_far(self) -> bool:
        """Whether the passing operand comes from behind a core's own caches, a page or more for
        each of its rows: prefetchers start anew at every page."""
        passing, along = self.roles.passing, self.roles.along
        size = prod(passing.shape) * passing.dtype.bytes
        long = along.extent * passing.dtype.bytes >= PAGE_BYTES
        return long and size > self.target.own_cache_bytes // 2
