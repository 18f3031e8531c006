"""Properties of a tiled reduction that do not depend on the knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np

from ...algebra.affine import Interval, var
from ...algebra.comparisons import Cond, Ge0, prove, substitute_cond
from ...algebra.counting import estimated_share, points_where
from ...algebra.neutral import neutral_conditions
from ...algebra.scalar import conditional_loads
from ...arrays import BoolArray, IntArray
from ...leaves import MAX_LANE_STRIDE, Statement
from ...primitives.prefetching import MOST_PREFETCHES, PrefetchRun
from ...workload.flops import useful_points
from ...workload.tensors import Tensor
from ..analysis.stages import StageLoop, StageRead, offsets
from ..analysis.tile_roles import lane_step, slides, tap_distance
from ..statements import own_names, statement_of
from .border import Border, border_of
from .operands import MOST_KEPT, TileOperands

MAX_TAPS = 7
"""Longest reduction loop that is fully unrolled."""

MOST_LEFT = 0.875
"""Largest fraction of a reduction for which skipping the rest is profitable: tests of blocks, and
blocks that are skipped in part only, cost a few percent."""

MAX_BODY = 96
"""Largest number of multiply-adds in an unrolled body whose steps share loads, as taps and windows
of neighbouring rows do.

The limit is half of this if steps share nothing, and twice this if no loop remains. It was measured
on a Zen 5. With seven taps, tiles of six, eight and twelve rows reach 0.70, 0.78 and 0.92 of the
bound. LLVM moves the loads of longer bodies to their front.
"""


@dataclass(frozen=True)
class TileStage(TileOperands):
    """A reduction with its roles in the tile sketch. If there is an `epilogue`, the reduction is
    computed inside the loops of the epilogue."""

    @property
    def output(self) -> str:
        """The tensor that tiles are written to."""
        return self.epilogue.name if self.epilogue else self.view.name

    @property
    def stored(self) -> Tensor:
        return self.workload.tensors[self.output]

    @property
    def stores_far(self) -> bool:
        """Whether tiles are stored to a tensor that exceeds a core's private caches."""
        return not self.outer and self.stored.bytes > self.target.own_cache_bytes

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def update(self) -> Statement:
        """The update of a sum. Strided columns are packed, so they are contiguous here."""
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
        """The statement of the epilogue, or None if there is none."""
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
        """Whether the lanes of a vector are written to non-contiguous elements."""
        return self.roles.columns is not self.view.spatial[-1]

    @cached_property
    def border(self) -> Border | None:
        """The padding that tiles can skip. It is None if there is no such padding or its taps
        cannot be unrolled."""
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
        """All padding conditions. A loop outside a tile can test the conditions that it decides."""
        reducer = self.view.reducer
        conds = () if reducer is None else neutral_conditions(self.view.value, reducer)
        return tuple(dict.fromkeys(conds))

    @cached_property
    def rows_tested(self) -> IntArray:
        """Number of rows along the second row axis for which padding is tested along taps that are
        not unrolled. It is an array, indexed by the number of unrolled tap loops.

        All rows count if the unrolled taps have padding too, because the copies of a row then
        differ.
        """
        rows, taps = self.roles.rows[1], [loop.name for loop in self.short_taps()]
        ranges = {name: Interval(0, extent - 1) for name, extent in self._extents.items()}
        conds = [cond for cond in self.padding if rows.name in cond.index.vars()]
        found = []
        for n in range(len(taps) + 1):
            unrolled = set(taps[:n])
            tested = [c for c in conds if not c.index.vars() - {rows.name} <= unrolled]
            differ = tested and any(c.index.vars() & unrolled for c in self.padding)
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
        """The method `_shares_left` with a cache of its results."""
        return lru_cache(MOST_KEPT)(self._shares_left)

    def _shares_left(
        self, several: int, several2: int, taps: int, skips: int, *units: int
    ) -> tuple[float, ...]:
        """Return the fractions of iterations that conditions leave.

        There is one value for each phase: the fraction of rows that the phase has. The last value
        is the fraction of the reduction that remains after phases and, if `skips`, after padding
        tests outside the tiles. `several` and `several2` state whether tiles have more than one row
        along the first and the second row axis. `taps` is the number of unrolled tap loops. `units`
        are the numbers of elements that one condition covers along each of `phase_rows`.
        """
        by = dict(zip(self.phase_rows, units, strict=True))
        of_phases = {phase: self._share_of([guard], by) for phase, _, guard in self.phases}
        decided = self.decided_around(1 + several, 1 + several2, taps) if skips else ()
        guards = (guard for _, _, guard in self.phases)
        every = self._share_of([*guards, *self.tap_guards, *decided], by)
        return (*of_phases.values(), every / prod(of_phases.values()))

    def _share_of(self, conds: Iterable[Cond], units: Mapping[str, int]) -> float:
        """Return the fraction of the reduction for which `conds` hold. Loops are divided into units
        of `units` iterations. A unit counts if the conditions hold for its first iteration."""
        extents = {name: -(-n // units.get(name, 1)) for name, n in self._extents.items()}
        first = {name: var(name) * unit for name, unit in units.items()}
        found = points_where(extents, tuple(substitute_cond(cond, first) for cond in conds))
        return found / max(prod(extents.values()), 1)

    @cached_property
    def column_runs(self) -> Callable[[int, int], tuple[PrefetchRun, ...]]:
        """The method `_column_runs` with a cache of its results."""
        return lru_cache(MOST_KEPT)(self._column_runs)

    def _column_runs(self, columns: int, taps: int) -> tuple[PrefetchRun, ...]:
        """Return what a tile of `columns` with `taps` unrolled tap loops reads of each nonresident
        operand."""
        inside = {self.roles.columns.name: columns}
        inside |= {loop.name: loop.extent for loop in self.short_taps()[:taps]}
        return tuple(
            PrefetchRun.of(read.index, inside, self.target.line_bytes // read.dtype.bytes)
            for read in self.nonresident
        )

    @property
    def steps_move_windows(self) -> bool:
        """Whether each step of the main loop reads other lines of the `distant_windows`. If so,
        each step prefetches its own lines, otherwise the loop around the main loop does."""
        main, line_bytes = self.roles.main.name, self.target.line_bytes
        strides = ((read.element_stride(main), read.dtype.bytes) for read in self.distant_windows)
        return all(stride is None or abs(stride) * size >= line_bytes for stride, size in strides)

    @cached_property
    def window_prefetches(self) -> Callable[[int, int, int, int, int], tuple[float]]:
        """The method `_window_prefetches` with a cache of its results."""
        return lru_cache(MOST_KEPT)(self._window_prefetches)

    def _window_prefetches(
        self, rows: int, rows2: int, columns: int, steps: int, taps: int
    ) -> tuple[float]:
        """Return the largest number of prefetches of one of the `distant_windows` in `steps` steps
        of the main loop.

        A tile has `rows` and `rows2` rows along the two row axes, `columns` elements, and `taps`
        unrolled tap loops. If a window is not read forwards, the result exceeds `MOST_PREFETCHES`.
        """
        roles = self.roles
        inside = dict(zip((loop.name for loop in roles.rows), (rows, rows2), strict=False))
        inside |= {roles.columns.name: columns, roles.main.name: steps}
        inside |= {loop.name: loop.extent for loop in self.short_taps()[:taps]}
        found = []
        for read in self.distant_windows:
            run = PrefetchRun.of(read.index, inside, self.target.line_bytes // read.dtype.bytes)
            positions = prod(len(offsets(index, inside)) for index in read.index[:-1])
            found.append(positions * run.count if run.is_forward else MOST_PREFETCHES + 1)
        return (max(found),)

    @cached_property
    def short_run_count(self) -> Callable[[int, int, int], tuple[float]]:
        """The method `_short_run_count` with a cache of its results."""
        return lru_cache(MOST_KEPT)(self._short_run_count)

    def _short_run_count(self, rows: int, rows2: int, taps: int) -> tuple[float]:
        """Return the number of distinct short runs that a tile of `rows` and `rows2` rows with
        `taps` unrolled tap loops reads while the main loop runs."""
        inside = {self.roles.main.name: self.roles.main.extent}
        inside |= dict(zip((x.name for x in self.roles.rows[:2]), (rows, rows2), strict=True))
        inside |= {loop.name: loop.extent for loop in self.short_taps()[:taps]}
        places = (prod(len(offsets(i, inside)) for i in r.index[:-1]) for r in self.short_runs)
        return (sum(places),)

    def decided_around(self, rows: int, rows2: int, tap_unroll: int) -> list[Cond]:
        """Return the padding conditions that loops outside the innermost loop of a tile can test. A
        tile has `rows` and `rows2` rows along the two row axes, and `tap_unroll` unrolled tap
        loops."""
        roles = self.roles
        within = [loop for loop, n in zip(roles.rows, (rows, rows2), strict=False) if n > 1]
        within += [*self.short_taps()[:tap_unroll], roles.main, roles.columns]
        inside = {loop.name for loop in within}
        return [cond for cond in self.padding if not cond.index.vars() & inside]

    def decides_around(self, rows: IntArray, rows2: IntArray, taps: IntArray) -> BoolArray:
        """Return whether loops outside a tile can test some padding condition, shape (P,). Tiles
        have `rows` and `rows2` rows along the two row axes, and `taps` unrolled tap loops."""
        several = (rows > 1).astype(np.int64), (rows2 > 1).astype(np.int64)
        return self._decided[(*several, taps)]

    @cached_property
    def _decided(self) -> BoolArray:
        """Results of `decides_around`, indexed by whether tiles have several rows, whether they
        have several second rows, and the number of unrolled tap loops."""
        counts = product((1, 2), (1, 2), range(len(self.short_taps()) + 1))
        return np.reshape([bool(self.decided_around(*each)) for each in counts], (2, 2, -1))

    @cached_property
    def phases(self) -> tuple[tuple[str, frozenset[str], Cond], ...]:
        """The batch axes that are phases (see `analysis/phases.py`), each with the other axes in a
        guard, and the guard."""
        batch = {loop.name for loop in self.roles.batch}
        spatial = [guard for guard in self.view.guards if guard not in self.tap_guards]
        found = ((sorted(guard.index.vars() & batch)[:1], guard) for guard in spatial)
        return tuple(
            (x, guard.index.vars() - {x}, guard) for phases, guard in found for x in phases
        )

    @cached_property
    def phase_rows(self) -> tuple[str, ...]:
        """Axes of a tile along which some phases have fewer rows than others."""
        axes = {loop.name for loop in (*self.roles.rows, self.roles.columns)}
        return tuple(sorted(axes.intersection(x for _, names, _ in self.phases for x in names)))

    @cached_property
    def tap_guards(self) -> tuple[Cond, ...]:
        """Guards on the reduction: some phases have fewer taps than others."""
        taps = {loop.name for loop in self.view.reduce}
        return tuple(guard for guard in self.view.guards if guard.index.vars() & taps)

    @cached_property
    def useful_share(self) -> float:
        """Fraction of the reduction that is not padding."""
        stages = {stage.name: stage for stage in self.workload.stages}
        return useful_points(stages[self.view.name], stages) / max(self.view.points, 1)

    @cached_property
    def is_sliding(self) -> bool:
        """Whether rows share vectors of columns between taps, because windows overlap."""
        moved = tuple(r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        rows = self.roles.rows[:1]
        return bool(moved and rows) and slides(self.view, moved, rows[0])

    @property
    def most_taps(self) -> int:
        """Longest reduction loop that is unrolled. Overlapping windows allow longer loops because
        they share loads."""
        return MAX_BODY if self.is_sliding else MAX_TAPS

    @cached_property
    def lane_step(self) -> int:
        """Stride in elements of windows along the lanes, or 1."""
        return lane_step(self.roles)

    @property
    def is_read_in_place(self) -> bool:
        """Whether copies of rows are useless, because vectors are shared without them and padding
        is skipped."""
        return self.is_sliding and (
            self.border is not None or not any(r.padded for r in self.operands)
        )

    @property
    def is_uneven(self) -> bool:
        """Whether batches differ in the length of the reduction, as phases with fewer taps do."""
        batch = {loop.name for loop in self.roles.batch}
        return any(guard.index.vars() & batch for guard in self.tap_guards)

    @property
    def most_shared(self) -> int:
        """Largest number of loops over blocks that threads divide."""
        return 1 if self.outer else 1 + self.roles.is_reused

    @property
    def column_vectors(self) -> int:
        return -(-self.roles.columns.extent // self.lanes)

    @property
    def rows(self) -> tuple[int, int]:
        """Extents of both row axes; 1 for a missing axis."""
        first, second = (*(loop.extent for loop in self.roles.rows), 1, 1)[:2]
        return first, second

    @property
    def can_copy_rows(self) -> bool:
        """Whether copies of row operands may pay. Without column operands, most elements are used
        by one tile only."""
        is_reused = bool(self.roles.column_reads)
        return bool(self.copyable) and not self.is_read_in_place and is_reused

    @property
    def can_skip_padding(self) -> bool:
        return self._skips_edges or bool(self.block_conds)

    @property
    def _skips_edges(self) -> bool:
        """Whether tiles at edges, or loops outside the tiles, can skip padding."""
        return bool(self.border or (self.can_copy_rows and self.decided_around(1, 1, 0)))

    @cached_property
    def block_conds(self) -> tuple[Cond, ...]:
        """Conditions that limit the range of the main loop for each tile, for example to a
        triangle. If one fails for a whole tile, a step of the reduction adds only zeros.

        There are none if little of the reduction would be skipped, or if its padding is skipped in
        another way.
        """
        if self._skips_edges or self.step_distance > 1 or self.view.guards:
            return ()
        main = self.roles.main.name
        spatial = {loop.name for loop in self.view.spatial}
        conds = tuple(
            cond
            for cond in self.padding
            if isinstance(cond, Ge0)
            and {main} < cond.index.vars() <= {main} | spatial
            and all(cond.index.is_linear_in(name) for name in cond.index.vars())
        )
        return conds if estimated_share(self._extents, conds) <= MOST_LEFT else ()

    @cached_property
    def starts_late(self) -> bool:
        """Whether a condition excludes the first steps of the reduction for some tiles. A loop
        cannot start later, so every excluded step is tested."""
        main = self.roles.main.name
        return any(cond.index.coefficient(main) > 0 for cond in self.block_conds)

    @cached_property
    def block_share(self) -> float:
        """Estimated fraction of the reduction that remains if blocks of zeros are skipped."""
        return estimated_share(self._extents, self.block_conds)

    @cached_property
    def used_share(self) -> float:
        """Estimated fraction of the results that the epilogue uses. Tiles of which it uses none are
        skipped (`lowering/unread.py`) if they are finished one after the other."""
        if self.epilogue is None:
            return 1.0
        reads = [
            set(conds)
            for load, conds in conditional_loads(self.epilogue.value)
            if load.tensor == self.view.name
        ]
        extents = {loop.name: loop.extent for loop in self.epilogue.spatial}
        return estimated_share(extents, set.intersection(*reads)) if reads else 1.0

    @cached_property
    def fusable_panels(self) -> tuple[StageRead, ...]:
        """The column operands that the first tile of rows can pack: all that are packed in a call,
        or none.

        Each must be contiguous along the columns, and each step of the reduction must read a
        separate part of it.
        """
        view, packed = self.view, self.packed_inside(ahead=False)
        loops = {loop.name for loop in view.reduce if loop.extent > 1}
        fits = (
            not read.padded
            and self.moves_as_one(read)
            and read not in self.windows
            and read.element_stride(self.roles.columns.name) == 1
            and all(read.own_dim(name) is not None for name in loops)
            for read in packed
        )
        plain = not view.phase_steps and not view.axis_splits and not view.guards
        plain = plain and not self.outer and self.step_distance == 1 and not self.is_sliding
        return packed if plain and all(fits) else ()

    @cached_property
    def step_distance(self) -> int:
        """Distance in reduction steps between steps that are unrolled together. It is 1 if operands
        are reused, else the number of steps that moves the operands by one vector."""
        return 1 if self.roles.is_reused else tap_distance(self.roles, self.lanes)

    @cached_property
    def tap_copies(self) -> IntArray:
        """Number of copies that unrolled tap loops make, as an array indexed by the number of
        unrolled loops."""
        return np.cumprod([1, *(loop.extent for loop in self.short_taps())], dtype=np.int64)

    def short_taps(self) -> tuple[StageLoop, ...]:
        """Return the innermost tap loops that are short enough to be unrolled, innermost first."""
        short: list[StageLoop] = []
        for loop in reversed(self.roles.taps):
            if loop.extent > MAX_TAPS or self.view.ends(loop.name):
                break
            if loop.extent > 1:
                short.append(loop)
        return tuple(short)
