"""Operands of a tile: which can be packed into panels, prepacked or copied, and which need software
prefetches.

A hardware prefetcher follows a run of lines after it has seen a few misses in it. If an operand
comes from beyond a core's own caches in short or scattered runs, every run begins with such misses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...algebra.affine import Var
from ...hardware import LINES_TO_FOLLOW, PAGE_BYTES
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import StageLoop, StageRead, StageView, once
from ..analysis.tile_roles import TileRoles

MOST_USES = 256
"""Elements that are used more often than this are worth a copy."""


@dataclass(frozen=True)
class TileOperands:
    """The operands of a stage of `workload` tiled with `roles`. `epilogue` is the elementwise stage
    that is computed from each tile, if there is one."""

    workload: Workload
    view: StageView
    roles: TileRoles
    target: Target
    epilogue: StageView | None = None

    @property
    def operands(self) -> tuple[StageRead, ...]:
        """Every operand, once, in the order of accesses (`tile_outline`)."""
        return once((*self.roles.column_reads, *self.roles.row_reads))

    @property
    def packable(self) -> tuple[StageRead, ...]:
        """Column operands that can be packed and are reused; the columns are one of their
        dimensions."""
        return self.panels if self.roles.is_reused else ()

    @cached_property
    def panels(self) -> tuple[StageRead, ...]:
        """Column operands that can be kept as panels of the tile's columns."""
        return tuple(
            read
            for read in once(self.roles.column_reads)
            if self.column_dim(read) is not None
            and not self.roles.moves_with_rows(read)
            and self._has_box(read)
            and (self.moves_as_one(read) or self._has_unrelated_reads(read))
        )

    def column_dim(self, read: StageRead) -> int | None:
        """The dimension of a tensor that only the columns walk along, within one batch."""
        batch = frozenset(loop.name for loop in self.roles.batch)
        return read.own_dim(self.roles.columns.name, batch)

    def is_transposed(self, read: StageRead) -> bool:
        """Whether panels are packed from a tensor whose contiguous dimension is not that of the
        columns, by transposing blocks in registers."""
        last, lanes = len(read.shape) - 1, self.target.lanes(self.view.dtype)
        return (
            not read.padded
            and self.column_dim(read) not in (None, last)
            and read.shape[last] >= lanes // 2
            and 1 < lanes <= self.target.most_transposed
            and self.target.lanes(read.dtype) == lanes
        )

    def _has_box(self, read: StageRead) -> bool:
        """Whether a block of the tensor is a box: the index divides no loop inside of a block.
        Batch loops are outside of all blocks, and may be divided."""
        batch = {loop.name for loop in self.roles.batch}
        return all(
            isinstance(atom, Var) or atom.numerator.vars() <= batch
            for index in read.index
            for atom, _ in index.terms
        )

    @cached_property
    def prepacked(self) -> tuple[StageRead, ...]:
        """Column operands that can be packed ahead of all calls: constant inputs that no other
        stage reads, since this stage's panels replace the tensor. Excluded are dimensions that
        batches divide into parts, which need not begin where a panel does."""
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
        """Whether this stage alone reads `tensor`, itself or through a stage inlined in it."""
        names = {stage.name for stage in self.workload.consumers(tensor)}
        while len(names) == 1 and self.view.name not in names:
            names = {stage.name for stage in self.workload.consumers(*names)}
        return names == {self.view.name}

    def packed_inside(self, ahead: bool) -> tuple[StageRead, ...]:
        """Column operands that are packed in every call, if those in `ahead` are not."""
        gone = self.prepacked if ahead else ()
        return tuple(read for read in self.packable if read not in gone)

    def moves_as_one(self, read: StageRead) -> bool:
        """Whether all reads of the tensor stay at a constant distance: a copy of a block holds them
        all."""
        return all(
            (a - b).is_const
            for other in self.view.reads
            if other.tensor == read.tensor
            for a, b in zip(read.index, other.index, strict=True)
        )

    def _has_unrelated_reads(self, read: StageRead) -> bool:
        """Whether an input is also read as a row operand, elsewhere: then what moves with the
        columns can be copied alone."""
        if read.tensor not in {tensor.name for tensor in self.workload.inputs}:
            return False
        along = [r for r in self.view.reads if r.tensor == read.tensor and not r.padded]
        along = [r for r in along if r.uses(self.roles.columns.name)]
        return not read.padded and all(
            (a - b).is_const for r in along for a, b in zip(read.index, r.index, strict=True)
        )

    @cached_property
    def copyable(self) -> tuple[StageRead, ...]:
        """Operands that move with the rows and of which a block can be copied, padding included."""
        mixed = (r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        return tuple(
            r
            for r in once((*self.roles.row_reads, *mixed))
            if self._has_box(r) and self.moves_as_one(r)
        )

    @cached_property
    def nonresident(self) -> tuple[StageRead, ...]:
        """Column operands that do not stay in a core's own caches and are read in place: few rows
        reuse them, they exceed half of these caches, and their rows are long (short rows are
        contiguous, and need no software prefetch). A packed copy would be used too few times:
        48x4096x1024 on Zen 5 reaches 0.86 of a core's peak in place, 0.60 packed."""
        roles = self.roles
        rows = prod(loop.extent for loop in (*roles.rows, *roles.outer_rows))
        return tuple(
            read
            for read in once(roles.column_reads)
            if not roles.moves_with_rows(read)
            and 1 < rows <= MOST_USES
            and roles.columns.extent * read.dtype.bytes > LINES_TO_FOLLOW * self.target.line_bytes
            and read.element_stride(roles.columns.name) == 1
            and 2 * read.bytes > self.target.own_cache_bytes
        )

    @cached_property
    def page_strided_operands(self) -> tuple[StageRead, ...]:
        """Row operands whose rows are a page or more apart, where all column operands stay in
        cache: they exceed half of a core's own caches and are contiguous along the reduction, which
        is one loop. Each tile begins new runs."""
        roles = self.roles
        if self.nonresident or len(roles.rows) != 1 or roles.taps:
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
        """Column operands of batches that exceed a core's own caches together; each batch has its
        own part, contiguous along the reduction. The panels of the next batch are prefetched
        together with rows."""
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
        """Row operands larger than a core's own caches that the loops inside of a batch read in
        short runs of the last dimension, with the elements of other batches in between; there are
        two axes of rows, and no nonresident column operand."""
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

    @property
    def prefetched_runs(self) -> tuple[StageRead, ...]:
        """Those of `short_runs` that can be prefetched: the column tiles of an epilogue may span
        two groups, and read runs of both."""
        columns = self.roles.columns
        across = self.epilogue and any(loop.dim == columns.dim for loop in self.roles.batch)
        return () if across else self.short_runs

    @property
    def prefetchable(self) -> tuple[StageRead, ...]:
        """Operands whose next piece can be prefetched."""
        return (*self.nonresident, *self.page_strided_operands, *self.prefetched_runs)

    def _run(self, read: StageRead) -> int:
        """Consecutive elements of the last dimension that a batch reads."""
        batch = {loop.name for loop in (*self.roles.batch, *self.roles.outer_rows)}
        loops = {loop.name: loop.extent for loop in (*self.view.spatial, *self.view.reduce)}
        last, run = read.index[-1], 1
        for name in last.vars() - batch:
            run += abs(last.coefficient(name)) * (loops[name] - 1)
        return run


def is_hw_prefetchable(read: StageRead, main: StageLoop) -> bool:
    """Whether rows of an operand are so near that hardware prefetchers continue from one to the
    next."""
    step = read.element_stride(main.name)
    return step is not None and abs(step) * read.dtype.bytes < PAGE_BYTES
