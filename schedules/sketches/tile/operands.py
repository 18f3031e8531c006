"""Operands of a tile, and the conditions under which they are packed, prepacked, copied or
prefetched.

A run is a range of contiguous elements that is read sequentially. A hardware prefetcher follows a
run after a few misses. If an operand outside a core's private caches is read in short or scattered
runs, every run starts with such misses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from types import MappingProxyType

from ...algebra.affine import Affine, Interval, Var, interval, vars_inside
from ...hardware import LINES_TO_FOLLOW, PAGE_BYTES
from ...leaves import MAX_LANE_STRIDE
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import StageLoop, StageRead, StageView, once
from ..analysis.tile_roles import TileRoles

MOST_USES = 256
"""Number of uses of an element above which copying its operand is profitable."""

MOST_KEPT = 1024
"""Size of the caches of symbolic results: a search has few different arguments, each many
times."""

MOST_OF_SEPARATE = 0.75
"""Largest fraction of the elements of separate copies for which one copy for several batches is
made. It has to be far below 1, because batches that share a copy are not divided by threads."""


@dataclass(frozen=True)
class TileOperands:
    """The operands of a stage in the tile sketch."""

    workload: Workload
    view: StageView
    roles: TileRoles
    target: Target
    epilogue: StageView | None = None
    """The elementwise stage that is computed from each tile, or None."""
    outer: int = 0
    """The number of leading axes that are loops of a later stage. If there are any, the stage is
    computed inside these loops into a private buffer, and its columns are packed once per call."""

    @property
    def operands(self) -> tuple[StageRead, ...]:
        """Every operand once, in the order of the accesses in `tile_outline`."""
        return once((*self.roles.column_reads, *self.roles.row_reads))

    @property
    def packable(self) -> tuple[StageRead, ...]:
        """Column operands that can be packed and are reused."""
        windows = () if self.outer else self.windows
        return (*self.panels, *windows) if self.roles.is_reused else ()

    @cached_property
    def windows(self) -> tuple[StageRead, ...]:
        """Column operands whose windows slide along the columns, contiguously. Neighbouring columns
        share elements, so a block of columns is copied as one box and not as panels.

        The rows of the copy are adjacent. In the operand, planes of an image are often at a
        distance that maps them to few sets of a cache.
        """
        return tuple(
            read
            for read in once(self.roles.column_reads)
            if self.column_dim(read) is None
            and 0 < (read.element_stride(self.roles.columns.name) or 0) <= MAX_LANE_STRIDE
            and not self.roles.moves_with_rows(read)
            and self._has_box(read)
            and self.moves_as_one(read)
        )

    @cached_property
    def panels(self) -> tuple[StageRead, ...]:
        """Column operands that can be stored as panels of the tile's columns."""
        return tuple(
            read
            for read in once(self.roles.column_reads)
            if self.column_dim(read) is not None
            and not self.roles.moves_with_rows(read)
            and self._has_box(read)
            and (self.moves_as_one(read) or self._has_unrelated_reads(read))
        )

    def column_dim(self, read: StageRead) -> int | None:
        """Return the dimension that only the column loop indexes within a batch, or None."""
        batch = frozenset(loop.name for loop in self.roles.batch)
        return read.own_dim(self.roles.columns.name, batch)

    def is_transposed(self, read: StageRead) -> bool:
        """Return whether panels are filled by transposing register blocks. This is done if the
        tensor is contiguous along another dimension than the columns, and packed block by
        block."""
        return (
            not self.outer
            and not read.padded
            and self.column_dim(read) not in (None, len(read.shape) - 1)
            and self._can_transpose(read)
        )

    def is_copied_transposed(self, read: StageRead) -> bool:
        """Return whether the copy of a row operand has the reduction last, unlike the operand.
        Register blocks are then transposed.

        Otherwise, consecutive steps of the reduction would read planes of an image, which are often
        several pages apart. No hardware prefetcher follows that many streams.
        """
        main = self.roles.main
        return (
            read.own_dim(main.name) not in (None, len(read.shape) - 1)
            and not read.uses(self.roles.columns.name)
            and main.extent >= self.target.lanes(read.dtype)
            and self._can_transpose(read)
        )

    def _can_transpose(self, read: StageRead) -> bool:
        lanes = self.target.lanes(self.view.dtype)
        return (
            read.shape[-1] >= lanes // 2
            and 1 < lanes <= self.target.most_transposed
            and self.target.lanes(read.dtype) == lanes
        )

    def _has_box(self, read: StageRead) -> bool:
        """Return whether a block of the tensor is a box, that is, whether no index divides a loop
        inside a block. Batch loops are outside all blocks, so an index may divide them."""
        batch = {loop.name for loop in self.roles.batch}
        return all(
            isinstance(atom, Var)
            or (vars_inside(atom) <= batch and not Affine(((atom, 1),), 0).has_data)
            for index in read.index
            for atom, _ in index.terms
        )

    def whole_box(self, read: StageRead) -> tuple[int, ...]:
        """Return the sides of the smallest box that contains all elements read."""
        loops = (*self.view.spatial, *self.view.reduce)
        ranges = {loop.name: Interval(0, loop.extent - 1) for loop in loops}
        found = (interval(index, ranges) for index in read.index)
        return tuple(side.hi - side.lo + 1 for side in found)

    def longest_dim(self, read: StageRead) -> int | None:
        """Return the dimension, other than that of the columns, along which threads divide the
        packing of a whole operand, or None."""
        sides, columns = self.whole_box(read), self.column_dim(read)
        others = [dim for dim in range(len(sides)) if dim != columns and sides[dim] > 1]
        return max(others, key=lambda dim: sides[dim], default=None)

    @cached_property
    def prepacked(self) -> tuple[StageRead, ...]:
        """Column operands that can be packed before the first call: constant inputs that only this
        stage reads.

        Any other reader would have to read this stage's panels. An operand is excluded if each
        batch reads only a range of its column dimension, because the range may start inside a
        panel.
        """
        constants = {tensor.name for tensor in self.workload.constants}
        return tuple(
            read
            for read in self.panels
            if read.tensor in constants
            and self.moves_as_one(read)
            and self._is_only_reader(read.tensor)
            and read.own_dim(self.roles.columns.name) is not None
        )

    def _is_only_reader(self, tensor: str) -> bool:
        """Return whether only this stage reads `tensor`, directly or through an inlined stage."""
        names = {stage.name for stage in self.workload.consumers(tensor)}
        while len(names) == 1 and self.view.name not in names:
            names = {stage.name for stage in self.workload.consumers(*names)}
        return names == {self.view.name}

    def packed_inside(self, ahead: bool) -> tuple[StageRead, ...]:
        """Return the column operands that are packed in every call. If `ahead`, operands that can
        be prepacked are excluded."""
        gone = self.prepacked if ahead else ()
        return tuple(read for read in self.packable if read not in gone)

    def moves_as_one(self, read: StageRead) -> bool:
        """Return whether all reads of the tensor are at constant offsets from each other. One copy
        of a block then contains all of them."""
        return all(
            (a - b).is_const
            for other in self.view.reads
            if other.tensor == read.tensor
            for a, b in zip(read.index, other.index, strict=True)
        )

    def _has_unrelated_reads(self, read: StageRead) -> bool:
        """Return whether the tensor is an input whose reads along columns can be copied separately
        from its other reads."""
        if read.tensor not in {tensor.name for tensor in self.workload.inputs}:
            return False
        along = [r for r in self.view.reads if r.tensor == read.tensor and not r.padded]
        along = [r for r in along if r.uses(self.roles.columns.name)]
        return not read.padded and all(
            (a - b).is_const for r in along for a, b in zip(read.index, r.index, strict=True)
        )

    @cached_property
    def copyable(self) -> tuple[StageRead, ...]:
        """Operands that depend on the rows and can be copied in blocks, padding included."""
        mixed = (r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        return tuple(
            r
            for r in once((*self.roles.row_reads, *mixed))
            if self._has_box(r) and self.moves_as_one(r)
        )

    @cached_property
    def sharing_batches(self) -> tuple[StageLoop, ...]:
        """Batch loops whose iterations read almost the same elements of the operands with copied
        rows: one copy of all rows for all iterations has at most `MOST_OF_SEPARATE` of the elements
        of separate copies. The phases of a transposed convolution are an example, which read
        windows of the same image.

        There are none inside the loops of a later stage.
        """
        if self.outer:
            return ()
        reads = (*self.copyable, *self.panels)
        alone = self._elements_copied(())
        return tuple(
            loop
            for loop in self.roles.batch
            if loop.extent > 1
            and all(_is_divided_alone(loop, read) for read in reads)
            and self._elements_copied((loop,)) <= MOST_OF_SEPARATE * loop.extent * alone
        )

    @cached_property
    def shared_share(self) -> Callable[..., tuple[float]]:
        """The method `_shared_share` with a cache of its results."""
        return lru_cache(MOST_KEPT)(self._shared_share)

    def _shared_share(self, *block: int) -> tuple[float]:
        """Return the elements of one copy of a block for all `sharing_batches`, relative to those
        of separate copies. `block` has the extents of the block along `roles.rows` and
        `roles.columns`."""
        tiled = (*self.roles.rows, self.roles.columns)
        sides = {loop.name: side for loop, side in zip(tiled, block, strict=True)}
        batches = prod(loop.extent for loop in self.sharing_batches)
        once_copied = self._elements_copied(self.sharing_batches, sides)
        return (once_copied / (batches * self._elements_copied((), sides)),)

    def _elements_copied(
        self, batches: tuple[StageLoop, ...], sides: Mapping[str, int] = MappingProxyType({})
    ) -> int:
        """Return the number of elements of the copied operands that all iterations of `batches` and
        the first iterations of the other batch loops read. `sides` are the extents of loops that
        are not complete."""
        first = {loop.name: 1 for loop in self.roles.batch if loop not in batches}
        extents = {x.name: x.extent for x in (*self.view.spatial, *self.view.reduce)}
        ranges = {x: Interval(0, n - 1) for x, n in (extents | first | {**sides}).items()}
        boxes = ([interval(index, ranges) for index in read.index] for read in self.copyable)
        return sum(prod(side.hi - side.lo + 1 for side in box) for box in boxes)

    @cached_property
    def nonresident(self) -> tuple[StageRead, ...]:
        """Column operands that are read in place because they exceed half of a core's private
        caches and few rows share them. Their rows are long; short rows are contiguous and need no
        prefetch. A packed copy would have too few uses: on Zen 5, 48x4096x1024 reaches 0.86 of the
        peak of a core in place, and 0.60 packed."""
        roles = self.roles
        rows = prod(loop.extent for loop in (*roles.rows, *roles.outer_rows))
        return tuple(
            read
            for read in once(roles.column_reads)
            if not self.outer
            and not roles.moves_with_rows(read)
            and 1 < rows <= MOST_USES
            and roles.columns.extent * read.dtype.bytes > LINES_TO_FOLLOW * self.target.line_bytes
            and read.element_stride(roles.columns.name) == 1
            and 2 * read.bytes > self.target.own_cache_bytes
        )

    @cached_property
    def page_strided_operands(self) -> tuple[StageRead, ...]:
        """Row operands whose next tile starts in other pages, while all column operands stay
        cached. They exceed half of a core's private caches, are contiguous along the single loop of
        the reduction, and have rows at a stride of at least a page."""
        roles = self.roles
        if self.outer or self.nonresident or len(roles.rows) != 1 or roles.taps:
            return ()
        row, main = roles.rows[0].name, roles.main.name
        return tuple(
            read
            for read in once(roles.row_reads)
            if not read.padded
            and read.element_stride(main) == 1
            and abs(read.element_stride(row) or 0) * read.dtype.bytes >= PAGE_BYTES
            and 2 * read.bytes > self.target.own_cache_bytes
        )

    @cached_property
    def next_batch_panels(self) -> tuple[StageRead, ...]:
        """Column operands whose panels of the next batch are not cached. They are prefetched
        together with rows.

        Each batch reads a separate part, contiguous along the reduction. One part fits half of the
        private caches, but all parts together do not.
        """
        roles, own = self.roles, self.target.own_cache_bytes
        batches = [loop for loop in roles.batch if loop.extent > 1]
        if not batches or not self.page_strided_operands or self.epilogue:
            return ()
        return tuple(
            read
            for read in self.packable
            if read not in self.prepacked
            and not read.padded
            and all(read.uses(loop.name) for loop in batches)
            and read.element_stride(roles.main.name) == 1
            and 2 * roles.columns.extent * roles.main.extent * read.dtype.bytes <= own
            and 2 * read.bytes > own
        )

    @cached_property
    def short_runs(self) -> tuple[StageRead, ...]:
        """Row operands larger than a core's private caches that a batch reads in short runs of the
        last dimension. Elements of other batches are between the runs. There must be two row axes
        and no nonresident column operand."""
        line_bytes, rows = self.target.line_bytes, self.roles.rows
        if self.nonresident or len(rows) < 2:
            return ()
        return tuple(
            read
            for read in once(self.roles.row_reads)
            if all(read.uses(loop.name) for loop in rows)
            and read.bytes > self.target.own_cache_bytes
            and self._run(read) * read.dtype.bytes <= LINES_TO_FOLLOW * line_bytes
            and (read.shape[-1] - self._run(read)) * read.dtype.bytes >= line_bytes
            and not any(read.index[-1].vars() & {loop.name} for loop in rows)
        )

    @cached_property
    def distant_windows(self) -> tuple[StageRead, ...]:
        """Column operands larger than a core's private caches of which each row of a tile reads
        another line.

        A tile of several rows reads a short run of each row. Hardware prefetchers follow few such
        streams. On Zen 5, depthwise 3x7 windows of 256 images of 128x256 take 5.1 ms, and 2.0 ms
        with prefetches.
        """
        if self.outer or self.nonresident:
            return ()
        rows, line_bytes = self.roles.rows[:1], self.target.line_bytes
        return tuple(
            read
            for read in once(self.roles.column_reads)
            if any(
                abs(read.element_stride(loop.name) or 0) * read.dtype.bytes >= line_bytes
                for loop in rows
            )
            and 0 < (read.element_stride(self.roles.columns.name) or 0) <= MAX_LANE_STRIDE
            and read.bytes > self.target.own_cache_bytes
        )

    @property
    def prefetched_runs(self) -> tuple[StageRead, ...]:
        """The `short_runs` that can be prefetched. There are none inside the loops of a later
        stage, or if a tile of columns of an epilogue may contain two groups and read runs of
        both."""
        columns = self.roles.columns
        across = self.epilogue and any(loop.dim == columns.dim for loop in self.roles.batch)
        return () if across or self.outer else self.short_runs

    @property
    def prefetchable(self) -> tuple[StageRead, ...]:
        """Operands whose next elements can be prefetched; see `prefetch.py`."""
        strided, runs = self.page_strided_operands, self.prefetched_runs
        return (*self.nonresident, *strided, *runs, *self.distant_windows)

    def _run(self, read: StageRead) -> int:
        """Return the number of contiguous elements of the last dimension that a batch reads."""
        batch = {loop.name for loop in (*self.roles.batch, *self.roles.outer_rows)}
        loops = {loop.name: loop.extent for loop in (*self.view.spatial, *self.view.reduce)}
        last, run = read.index[-1], 1
        for name in last.vars() - batch:
            run += abs(last.coefficient(name)) * (loops[name] - 1)
        return run


def _is_divided_alone(batch: StageLoop, read: StageRead) -> bool:
    """Return whether every division in an index that contains `batch` contains no other loop. A
    copy inside `batch` only would otherwise not be a box."""
    atoms = (atom for index in read.index for atom, _ in index.terms)
    divided = (vars_inside(atom) for atom in atoms if not isinstance(atom, Var))
    return all(names == {batch.name} for names in divided if batch.name in names)


def is_hw_prefetchable(read: StageRead, main: StageLoop) -> bool:
    """Return whether rows are so close that hardware prefetchers continue from one row to the
    next."""
    step = read.element_stride(main.name)
    return step is not None and abs(step) * read.dtype.bytes < PAGE_BYTES
