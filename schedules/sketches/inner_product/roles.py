"""Loop roles, operands and knobs of a stage that matches the inner-product sketch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm, prod
from typing import Generic

from ...algebra.affine import Affine, Mod
from ...algebra.scalar import index_conds
from ...hardware import PAGE_BYTES, USABLE_SHARE
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import SHORT_AXIS, StageLoop, StageRead, StageView, once
from ..knobs import POWERS, N, knob, parallel_knob, settings, switch

MOST_USES = 16
"""Number of uses of an element above which packing its operand is profitable. For 32x4096 by
4096x1024, packing makes no difference."""

MOST_COLUMNS = MOST_USES // 2
"""Largest number of columns of a tile, half of the largest number of rows."""

MOST_BLOCK_COLUMNS = 128
"""Largest number of columns in a block of tiles. The second cache holds their partial sums until
the next part of the reduction."""


NO_LOOP = StageLoop("", 1, reduce=False)
"""A loop of one iteration that the nest does not have."""

TILE_ROWS, TILE_COLUMNS = range(1, MOST_USES + 1), range(1, MOST_COLUMNS + 1)
"""Tile sizes. Only divisors of an axis are used."""


@dataclass(frozen=True, slots=True)
class InnerProductRoles:
    """Roles of the loops and operands of a stage in the inner-product sketch."""

    large: StageRead
    """The largest operand. It is contiguous along `along`, depends on `many`, and is reused along
    `few`."""
    along: StageLoop
    """The reduction loop that is vectorised."""
    many: StageLoop
    """The spatial loop of the columns of a tile."""
    few: StageLoop
    """The spatial loop of the rows of a tile, or `NO_LOOP` if each element of `large` is used once,
    as in the product of a matrix and a vector."""
    period: int
    """Number of columns after which the other operands repeat their elements."""
    batch: tuple[StageLoop, ...]
    """The other spatial loops."""
    taps: tuple[StageLoop, ...]
    """The other reduction loops."""
    transposed: tuple[StageRead, ...]
    """Operands that are contiguous along another loop than `along`. They are copied."""


def inner_product_roles(view: StageView, target: Target) -> InnerProductRoles | None:
    """Return the roles of a stage in the inner-product sketch, or None if it does not match."""
    if not view.is_reduction or view.axis_splits or view.guards or not view.reduce:
        return None
    reads = once(view.reads)
    if not reads or len(reads) != len(view.reads):
        return None
    large = max(reads, key=lambda read: read.bytes)
    along = next((x for x in view.reduce if large.element_stride(x.name) == 1), None)
    if along is None or not _is_deep(view, along, target.lanes(view.dtype)):
        return None
    if any(along.name in cond.index.vars() for cond in index_conds(view.value)):
        return None  # conditions that differ between lanes would need masks in every step
    few = [x for x in view.spatial if x.extent > 1 and not large.uses(x.name)]
    many = [x for x in view.spatial if x.extent > 1 and _period(large, x, reads)]
    if len(few) > 1 or any(loop.extent > MOST_USES for loop in few) or not many:
        return None
    if not few and len(reads) == 1:
        return None  # nothing is shared by the rows of `large`
    if stays_near(large, target):
        return None
    transposed = tuple(r for r in reads if r.element_stride(along.name) not in (0, 1))
    if any(read.own_dim(along.name) is None for read in transposed):
        return None
    return InnerProductRoles(
        large=large,
        along=along,
        many=many[-1],
        few=few[0] if few else NO_LOOP,
        period=_period(large, many[-1], reads),
        batch=tuple(x for x in view.spatial if x not in (many[-1], *few)),
        taps=tuple(x for x in view.reduce if x is not along),
        transposed=transposed,
    )


def stays_near(read: StageRead, target: Target) -> bool:
    """Return whether the first cache holds the whole operand."""
    return read.bytes < target.caches[0].bytes


def _is_deep(view: StageView, along: StageLoop, lanes: int) -> bool:
    """Return whether each output sums at least `SHORT_AXIS` vectors of `lanes` elements, so that
    vectorising along `along` is profitable. Other reduction loops repeat these vectors and count
    as well."""
    vectors = -(-along.extent // lanes)
    depth = vectors * prod(loop.extent for loop in view.reduce if loop is not along)
    return depth >= SHORT_AXIS


def _period(large: StageRead, loop: StageLoop, reads: tuple[StageRead, ...]) -> int:
    """Return the number of steps of `loop` after which all operands but `large` repeat their
    elements. It is 1 if they do not depend on `loop`. Return 0 if `large` does not depend on
    `loop`, or if there is no short period."""
    if not large.uses(loop.name):
        return 0
    periods = {1}
    others = (index for read in reads if read is not large for index in read.index)
    for atom, _ in (term for index in others for term in index.terms):
        if isinstance(atom, Mod) and atom.numerator.is_linear_in(loop.name):
            periods.add(atom.divisor if loop.name in atom.numerator.vars() else 1)
        elif loop.name in (Affine(((atom, 1),), 0)).vars():
            return 0
    period = lcm(*periods)
    return period if period <= MOST_COLUMNS and loop.extent % period == 0 else 0


@dataclass(frozen=True)
class InnerProductStage:
    """A stage with its roles in the inner-product sketch."""

    workload: Workload
    view: StageView
    roles: InnerProductRoles
    target: Target

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def shared(self) -> tuple[StageRead, ...]:
        """Operands whose rows all tiles read in place."""
        return tuple(read for read in once(self.view.reads) if self._is_shared(read))

    def _is_shared(self, read: StageRead) -> bool:
        roles = self.roles
        plain = read is not roles.large and read not in roles.transposed and not read.conditional
        dim, few = (read.own_dim(loop.name) for loop in (roles.along, roles.few))
        return plain and dim == len(read.shape) - 1 and few is not None

    @property
    def shared_bytes(self) -> int:
        """Bytes of operands other than `large` that a tile of all rows reads repeatedly."""
        roles = self.roles
        taps = prod(loop.extent for loop in roles.taps)
        transposed = tuple(read for read in roles.transposed if read.uses(roles.few.name))
        bytes_per_element = sum(read.dtype.bytes for read in (*self.shared, *transposed))
        return bytes_per_element * roles.few.extent * taps * roles.along.extent

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Values of the knob `reduction_blocks` except 1: numbers of parts of the reduction. A
        block of tiles processes one part after the other.

        There are such values if the first cache holds the shared data of one part but not of the
        whole reduction.
        """
        vectors = self.roles.along.extent // self.lanes
        whole = self.roles.along.extent % self.lanes == 0 and self.roles.period == 1
        first = self.target.caches[0].bytes
        if not whole or 2 * self.shared_bytes <= first:
            return ()
        return tuple(
            n
            for n in POWERS[1:]
            if vectors % n == 0 and self.shared_bytes / n <= USABLE_SHARE * first
        )

    def tiles_per_block(self, columns: int) -> int:
        """Return the number of tiles of `columns` columns in a block."""
        tiles = self.roles.many.extent // columns
        most = max(MOST_BLOCK_COLUMNS // columns, 1)
        return next(n for n in range(min(most, tiles), 0, -1) if tiles % n == 0)

    @property
    def is_far(self) -> bool:
        """Whether the large operand exceeds half of a core's private caches, and its rows are at
        least a page long. Hardware prefetchers restart at every page."""
        large, along = self.roles.large, self.roles.along
        long = along.extent * large.dtype.bytes >= PAGE_BYTES
        return long and large.bytes > self.target.own_cache_bytes // 2


@settings
class InnerProductSettings(Generic[N]):
    """Knobs of inner products. All tiles are full, so they need no guards."""

    tile_rows: N = knob(lambda sketch: [n for n in TILE_ROWS if sketch.roles.few.extent % n == 0])
    tile_columns: N = knob(lambda sketch: sketch.tile_widths)
    parallel: N = parallel_knob()
    prefetch: N = knob(lambda sketch: switch(sketch.is_far))
    reduction_blocks: N = knob(lambda sketch: (1, *sketch.blocks))
    pack_rows: N = knob(lambda sketch: switch(sketch.blocks and sketch.shared))
    """Whether rows are packed so that the vectors of one step are contiguous."""
