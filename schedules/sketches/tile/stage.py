"""Facts of a stage that is computed one register tile at a time, independent of knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np

from ...algebra.affine import Cond, Interval, prove, substitute_cond, var
from ...algebra.neutral import neutral_conditions
from ...arrays import BoolArray, IntArray
from ...leaves import MAX_LANE_STRIDE, Statement
from ...workload.flops import points_where, useful_points
from ..analysis.stages import StageLoop, StageRead
from ..analysis.tile_roles import lane_step, slides, tap_distance
from ..statements import own_names, statement_of
from .border import Border, border_of
from .operands import TileOperands

MAX_TAPS = 7
"""Longest reduction loop that is unrolled completely."""

MOST_SHARES = 1024
"""Cache size for fractions: a search needs few, often."""

MAX_BODY = 96
"""Most multiply-adds in an unrolled body whose steps share loads: taps, or windows of neighbouring
rows. Half of it where steps share nothing, and twice where no loop is left. Source: measured on a
Zen 5; seven taps of a tile of six rows, eight and twelve take 0.70, 0.78 and 0.92 of the bound, and
LLVM moves the loads of longer bodies to their front."""


@dataclass(frozen=True)
class TileStage(TileOperands):
    """The stage `view` with `roles` on `target`. With an `epilogue`, its loops are the outer loops,
    and the reduction is computed inside."""

    @property
    def output(self) -> str:
        """The tensor that tiles are written to."""
        return self.epilogue.name if self.epilogue else self.view.name

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def update(self) -> Statement:
        """The update of an accumulator. Columns that are not contiguous are packed."""
        does, lane = statement_of(self.view, own_names(self.view)), self.roles.columns.name
        reads = (
            replace(place, steps={**place.steps, lane: 1})
            if abs(place.steps.get(lane, 0)) > MAX_LANE_STRIDE
            else place
            for place in does.reads
        )
        return replace(does, reads=tuple(reads), is_guarded=False)

    @cached_property
    def finish(self) -> Statement | None:
        """What an epilogue does with a result."""
        if self.epilogue is None:
            return None
        tiled = (*self.roles.rows, self.roles.columns)
        names = {
            outer.name: min(own, key=lambda loop: loop not in tiled).name
            for outer in self.epilogue.spatial
            for own in ([loop for loop in self.view.spatial if loop.dim == outer.dim],)
        }
        return statement_of(self.epilogue, names)

    @property
    def is_scattered(self) -> bool:
        """Whether neighbouring lanes are not contiguous in the result."""
        return self.roles.columns is not self.view.spatial[-1]

    @cached_property
    def border(self) -> Border | None:
        """Padding that tiles can skip, if there is any and the taps in the conditions on rows may
        be unrolled."""
        roles = self.roles
        if roles.is_reused and not roles.rows:
            return None
        loops = (*self.view.spatial, *self.view.reduce)
        found = border_of(self.padding, loops, next(iter(roles.rows), None), roles.columns)
        short = {loop.name for loop in self.short_taps()}
        if roles.main.extent <= self.most_taps:
            short.add(roles.main.name)
        return found if found and found.taps <= short else None

    @cached_property
    def padding(self) -> tuple[Cond, ...]:
        """All padding conditions: those that loops outside of a tile decide can be tested there,
        for any rows."""
        reducer = self.view.reducer
        conds = () if reducer is None else neutral_conditions(self.view.value, reducer)
        return tuple(dict.fromkeys(conds))

    @cached_property
    def rows_tested(self) -> IntArray:
        """By the number of unrolled tap loops: for how many second rows padding is tested along the
        other taps; for all if the unrolled taps have padding too, since their copies differ."""
        rows, taps = self.roles.rows[1], [loop.name for loop in self.short_taps()]
        ranges = {name: Interval(0, extent - 1) for name, extent in self._extents.items()}
        conds = [cond for cond in self.padding if rows.name in cond.index.vars()]
        found = []
        for n in range(len(taps) + 1):
            written_out = set(taps[:n])
            tested = [c for c in conds if not c.index.vars() - {rows.name} <= written_out]
            differ = tested and any(c.index.vars() & written_out for c in self.padding)
            clear = (
                all(prove(c, {**ranges, rows.name: Interval(row, row)}) for c in tested)
                for row in range(rows.extent)
            )
            found.append(rows.extent if differ else rows.extent - sum(clear))
        return np.asarray(found)

    @cached_property
    def _extents(self) -> dict[str, int]:
        return {loop.name: loop.extent for loop in (*self.view.spatial, *self.view.reduce)}

    @cached_property
    def shares_left(self) -> Callable[..., tuple[float, ...]]:
        """`_shares_left`, remembered: a search asks for few, often."""
        return lru_cache(MOST_SHARES)(self._shares_left)

    def _shares_left(
        self, several: int, several2: int, taps: int, skips: int, *units: int
    ) -> tuple[float, ...]:
        """The fractions of loops that conditions leave, for tiles with `several` rows and second
        rows, so many unrolled tap loops, and `units` of `phase_rows`: by phases, the fraction of
        rows; then the fraction of the reduction that phases and skipped padding leave."""
        by = dict(zip(self.phase_rows, units, strict=True))
        of_phases = {phase: self._share_of([guard], by) for phase, _, guard in self.phases}
        decided = self.decided_around(1 + several, 1 + several2, taps) if skips else ()
        guards = (guard for _, _, guard in self.phases)
        every = self._share_of([*guards, *self.tap_guards, *decided], by)
        return (*of_phases.values(), every / prod(of_phases.values()))

    def _share_of(self, conds: Iterable[Cond], units: Mapping[str, int]) -> float:
        """The fraction of the reduction where `conds` hold, of loops in `units` of so many
        iterations: all iterations of a unit count where the first one does."""
        extents = {name: -(-n // units.get(name, 1)) for name, n in self._extents.items()}
        first = {name: var(name) * unit for name, unit in units.items()}
        found = points_where(extents, tuple(substitute_cond(cond, first) for cond in conds))
        return found / max(prod(extents.values()), 1)

    def decided_around(self, rows: int, rows2: int, tap_unroll: int) -> list[Cond]:
        """The padding conditions that depend only on loops outside of the innermost one of a tile
        of so many rows."""
        roles = self.roles
        within = [loop for loop, n in zip(roles.rows, (rows, rows2), strict=False) if n > 1]
        within += [*self.short_taps()[:tap_unroll], roles.main, roles.columns]
        inside = {loop.name for loop in within}
        return [cond for cond in self.padding if not cond.index.vars() & inside]

    def decides_around(self, rows: IntArray, rows2: IntArray, taps: IntArray) -> BoolArray:
        """(P,) whether there are such conditions for a tile of so many rows, if so many tap loops
        are unrolled."""
        several = (rows > 1).astype(np.int64), (rows2 > 1).astype(np.int64)
        return self._decided[(*several, taps)]

    @cached_property
    def _decided(self) -> BoolArray:
        """By whether tiles have more than one row, and second row, and taps written out."""
        counts = product((1, 2), (1, 2), range(len(self.short_taps()) + 1))
        return np.reshape([bool(self.decided_around(*each)) for each in counts], (2, 2, -1))

    @cached_property
    def phases(self) -> tuple[tuple[str, frozenset[str], Cond], ...]:
        """Batch axes that are phases, the axes whose number of rows depends on them, and the
        condition for that."""
        batch = {loop.name for loop in self.roles.batch}
        spatial = [guard for guard in self.view.guards if guard not in self.tap_guards]
        found = ((sorted(guard.index.vars() & batch)[:1], guard) for guard in spatial)
        return tuple(
            (x, guard.index.vars() - {x}, guard) for phases, guard in found for x in phases
        )

    @cached_property
    def phase_rows(self) -> tuple[str, ...]:
        """Axes of a tile along which some phases have fewer rows."""
        axes = {loop.name for loop in (*self.roles.rows, self.roles.columns)}
        return tuple(sorted(axes.intersection(x for _, names, _ in self.phases for x in names)))

    @cached_property
    def tap_guards(self) -> tuple[Cond, ...]:
        """Conditions on the reduction: some phases have fewer taps."""
        taps = {loop.name for loop in self.view.reduce}
        return tuple(guard for guard in self.view.guards if guard.index.vars() & taps)

    @cached_property
    def useful_share(self) -> float:
        """The fraction of the reduction that is not padding."""
        stages = {stage.name: stage for stage in self.workload.stages}
        return useful_points(stages[self.view.name], stages) / max(self.view.points, 1)

    @cached_property
    def is_sliding(self) -> bool:
        """Whether rows share column vectors between taps: overlapping windows."""
        moved = tuple(r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        rows = self.roles.rows[:1]
        return bool(moved and rows) and slides(self.view, moved, rows[0])

    @property
    def most_taps(self) -> int:
        """Longest reduction loop that is unrolled: whole windows share loads."""
        return MAX_BODY if self.is_sliding else MAX_TAPS

    @cached_property
    def lane_step(self) -> int:
        """Distance of lanes in elements where windows move in steps along them, otherwise 1."""
        return lane_step(self.roles)

    @property
    def is_read_in_place(self) -> bool:
        """Whether copies are useless: vectors are shared without one, and padding is skipped."""
        return self.is_sliding and (
            self.border is not None or not any(r.padded for r in self.operands)
        )

    @property
    def is_uneven(self) -> bool:
        """Whether batches differ in work: phases with fewer taps."""
        batch = {loop.name for loop in self.roles.batch}
        return any(guard.index.vars() & batch for guard in self.tap_guards)

    @property
    def column_vectors(self) -> int:
        """Vectors along the columns."""
        return -(-self.roles.columns.extent // self.lanes)

    @property
    def rows(self) -> tuple[int, int]:
        """The extents of both axes of rows, 1 for one that there is not."""
        first, second = (*(loop.extent for loop in self.roles.rows), 1, 1)[:2]
        return first, second

    @property
    def can_copy_rows(self) -> bool:
        """Whether blocks of row operands can be copied, and profit."""
        return bool(self.copyable) and not self.is_read_in_place

    @property
    def can_skip_padding(self) -> bool:
        """Whether products with padding can be skipped."""
        return bool(self.border or (self.can_copy_rows and self.decided_around(1, 1, 0)))

    @cached_property
    def fusable_panels(self) -> tuple[StageRead, ...]:
        """The column operands that the first tile of rows can pack: all that are packed in a call,
        or none. Each is as contiguous as the columns are, and each step of the reduction reads a
        distinct part."""
        view, packed = self.view, self.packed_inside(ahead=False)
        loops = {loop.name for loop in view.reduce if loop.extent > 1}
        fits = (
            not read.padded
            and self.moves_as_one(read)
            and read.element_stride(self.roles.columns.name) == 1
            and all(read.own_dim(name) is not None for name in loops)
            for read in packed
        )
        plain = not view.phase_steps and not view.axis_splits and not view.guards
        plain = plain and self.step_distance == 1 and not self.is_sliding
        return packed if plain and all(fits) else ()

    @cached_property
    def step_distance(self) -> int:
        """The distance of reduction steps that are unrolled together: 1, or as many as move the
        operand by one vector, where nothing else shares it."""
        return 1 if self.roles.is_reused else tap_distance(self.roles, self.lanes)

    @cached_property
    def tap_copies(self) -> IntArray:
        """Copies made by the unrolled tap loops, by the number of unrolled loops."""
        return np.cumprod([1, *(loop.extent for loop in self.short_taps())], dtype=np.int64)

    def short_taps(self) -> tuple[StageLoop, ...]:
        """The tap loops that are short enough to be unrolled, innermost first."""
        short: list[StageLoop] = []
        for loop in reversed(self.roles.taps):
            if loop.extent > MAX_TAPS or self.view.ends(loop.name):
                break
            if loop.extent > 1:
                short.append(loop)
        return tuple(short)
