"""Roles of a stage's loops in the tile sketch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import gcd, prod

from ...hardware import FEWEST_ROWS
from ...leaves import MAX_LANE_STRIDE
from ...target import Target
from .stages import StageLoop, StageRead, StageView

LEAST_DEPTH = 32
"""Shortest block of a reduction. At this length, storing the sums takes little of the time, even if
they are stored element by element."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class TileRoles:
    """Roles of a stage's loops in the tile sketch, and its reads."""

    columns: StageLoop
    """The loop that is vectorised."""
    rows: tuple[StageLoop, ...]
    """Up to two spatial loops along which column operands are reused, innermost first."""
    outer_rows: tuple[StageLoop, ...]
    """Further such loops, outside `rows`."""
    batch: tuple[StageLoop, ...]
    """All other spatial loops."""
    taps: tuple[StageLoop, ...]
    """All reduction loops except `main`."""
    main: StageLoop
    """The longest reduction loop, which is divided into blocks."""
    column_reads: tuple[StageRead, ...]
    """The column operands: reads that depend on `columns`. There may be none if the value depends
    on its number, as the votes of a histogram do."""
    row_reads: tuple[StageRead, ...]
    """The row operands: reads that do not depend on `columns`."""

    @property
    def is_reused(self) -> bool:
        """Whether column operands are used for more than one row."""
        return bool(self.rows or self.outer_rows)

    def moves_with_rows(self, read: StageRead) -> bool:
        """Return whether different rows use different elements of `read`."""
        return any(read.uses(loop.name) for loop in (*self.rows, *self.outer_rows))


def assign_roles(view: StageView) -> TileRoles | None:
    """Return the roles of a stage in the tile sketch. Return None if the stage is not a reduction,
    or if no spatial axis is suitable for vectors."""
    if not view.is_reduction or not view.spatial or not view.reduce:
        return None
    last = view.spatial[-1]
    return roles_along(view, last) or next(scattered_roles(view), None) or stepped_roles(view, last)


def is_product(view: StageView) -> bool:
    """Return whether a stage can be tiled and reuses its operands."""
    return view.reuse > 1 and assign_roles(view) is not None


def stepped_roles(view: StageView, columns: StageLoop) -> TileRoles | None:
    """Return roles with vectors along overlapping windows at a stride of 2 to `MAX_LANE_STRIDE`
    elements, or None if there are no such windows. Lanes are selected from whole vectors, which
    neighbouring rows and taps share."""
    roles = roles_along(view, columns, MAX_LANE_STRIDE)
    return roles if roles and slides(view, roles.column_reads, columns) else None


def scattered_roles(view: StageView) -> Iterator[TileRoles]:
    """Yield roles with vectors along an axis that is not contiguous in the result. An example are
    the channels of an image stored plane by plane.

    Column operands must be loadable or packable without gaps. The innermost row axis must be
    contiguous in the result.
    """
    if prod(loop.extent for loop in view.reduce) < LEAST_DEPTH:
        return
    for columns in reversed(view.spatial[:-1]):
        roles = roles_along(view, columns) if columns.extent > 1 else None
        if roles and roles.rows and roles.rows[0] is view.spatial[-1] and roles.row_reads:
            yield roles


def tile_roles(view: StageView, roles: TileRoles, target: Target) -> tuple[TileRoles, ...]:
    """Return `roles` and, if the last vector of the contiguous axis has empty lanes, roles along an
    axis that fills all vectors."""
    lanes = target.lanes(view.dtype)
    if roles.columns is not view.spatial[-1] or roles.columns.extent % lanes == 0:
        return (roles,)
    fuller = (r for r in scattered_roles(view) if r.columns.extent % lanes == 0)
    return (roles, *islice(fuller, 1))


def lane_step(roles: TileRoles) -> int:
    """Return the largest stride in elements between neighbouring lanes of the column operands, up
    to `MAX_LANE_STRIDE`. If it is more than 1, lanes are selected from whole vectors."""
    steps = (r.element_stride(roles.columns.name) or 0 for r in roles.column_reads)
    return max((step for step in steps if step <= MAX_LANE_STRIDE), default=1)


def tap_distance(roles: TileRoles, lanes: int) -> int:
    """Return the number of reduction steps that move all column operands by one vector of `lanes`.

    Windows must slide along the vector axis with stride one. Taps at this distance then read the
    same elements for neighbouring vectors. Return 1 if the windows do not slide this way, or if
    there are too few taps.
    """
    found = set()
    for read in roles.column_reads:
        moved = [i for i in read.index if i.vars() & {roles.columns.name, roles.main.name}]
        if len(moved) != 1:
            return 1
        far, near = (moved[0].coefficient(loop.name) for loop in (roles.columns, roles.main))
        if far != 1 or near <= 0 or lanes % near:
            return 1
        found.add(lanes // near)
    distance = found.pop() if len(found) == 1 else 1
    return distance if roles.main.extent > distance else 1


def roles_along(
    view: StageView, columns: StageLoop, most_step: int = 1, outer: int = 0
) -> TileRoles | None:
    """Return the roles with vectors along `columns`. Return None if an operand cannot be loaded as
    vectors, and its lanes cannot be selected from whole vectors at a stride of up to `most_step`
    elements, or if the value does not depend on `columns`. The first `outer` spatial loops are
    batch loops."""
    column_reads = tuple(r for r in view.reads if r.uses(columns.name))
    if not column_reads and not view.depends_on(columns.name):
        return None
    others = tuple(loop for loop in view.spatial if loop is not columns)
    tiled = others[outer:]
    free = [loop for loop in reversed(tiled) if any(not r.uses(loop.name) for r in column_reads)]
    reused = any(loop.extent > 1 for loop in free)
    if not all(_vector_friendly(r, columns.name, reused, most_step) for r in column_reads):
        return None
    free = [loop for loop in free if loop.extent > 1]  # a loop of one iteration reuses nothing
    if prod(loop.extent for loop in free) < FEWEST_ROWS:
        free = [
            loop for loop in reversed(tiled) if loop in free or slides(view, column_reads, loop)
        ]
    rows = free[:2]
    main = max(view.reduce, key=lambda loop: (loop.extent, view.reduce.index(loop)))
    # An axis that encloses an axis of all operands remains outside, because one of its steps reads
    # contiguous data. Axes of one iteration are outermost, where they have no effect.
    shared = [n for n, x in enumerate(others) if x not in free and x.extent > 1]
    inside = others[max(shared, default=-1) + 1 :]
    outer_rows = tuple(x for x in inside if x in free and x not in rows and x.extent > 1)
    return TileRoles(
        columns=columns,
        rows=tuple(rows),
        outer_rows=outer_rows,
        batch=tuple(x for x in others if x not in rows and x not in outer_rows),
        taps=tuple(loop for loop in view.reduce if loop is not main),
        main=main,
        column_reads=column_reads,
        row_reads=tuple(r for r in view.reads if not r.uses(columns.name)),
    )


def slides(view: StageView, reads: tuple[StageRead, ...], loop: StageLoop) -> bool:
    """Return whether all `reads` that depend on `loop` have windows that overlap along `loop`. Rows
    along such an axis share vectors between taps."""
    if loop.extent == 1:
        return False
    return all(_overlaps(view, r, loop.name) for r in reads if r.uses(loop.name))


def _overlaps(view: StageView, read: StageRead, loop: str) -> bool:
    """Return whether one dimension of `read` is indexed by `loop` and by a reduction loop, so that
    different iterations of `loop` read the same element."""
    using = [index for index in read.index if loop in index.vars()]
    if len(using) != 1 or not using[0].is_linear_in(loop):
        return False
    step = abs(using[0].coefficient(loop))
    for tap in view.reduce:
        along = abs(using[0].coefficient(tap.name))
        # The first common element of two windows is lcm(step, along) from their starts.
        if along and step // gcd(step, along) < tap.extent:
            return True
    return False


def _vector_friendly(read: StageRead, loop: str, reused: bool, most_step: int) -> bool:
    """Return whether vectors along `loop` can be loaded from the tensor or from a packed copy that
    is used more than once."""
    step = read.element_stride(loop)
    near = step is not None and 1 <= step <= most_step
    return near or (reused and read.own_dim(loop) is not None)
