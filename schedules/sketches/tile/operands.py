"""Operands of a tile: which can be packed in panels, packed ahead of all calls, or copied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...algebra.affine import Var
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Read, StageView, once
from ..transpose.blocks import MOST_LANES
from .roles import TileRoles


@dataclass(frozen=True)
class TileOperands:
    """What a stage of `workload` reads in tiles with `roles`."""

    workload: Workload
    view: StageView
    roles: TileRoles
    target: Target

    @property
    def every(self) -> tuple[Read, ...]:
        """Every operand, once, in the order of `TileStage.accesses`."""
        return once((*self.roles.column_reads, *self.roles.row_reads))

    @property
    def packable(self) -> tuple[Read, ...]:
        """Column operands that can be packed, and are used again: the column axis has a dimension
        of its own."""
        return self.panels if self.roles.is_reused else ()

    @cached_property
    def panels(self) -> tuple[Read, ...]:
        """Column operands that can be kept as panels of the tile's columns."""
        return tuple(
            read
            for read in once(self.roles.column_reads)
            if self.column_dim(read) is not None
            and not self.roles.moves_with_rows(read)
            and self._has_box(read)
            and (self.moves_as_one(read) or self._has_reads_apart(read))
        )

    def column_dim(self, read: Read) -> int | None:
        """The dimension of a tensor that columns walk alone, within one batch."""
        batch = frozenset(loop.name for loop in self.roles.batch)
        return read.own_dim(self.roles.columns.name, batch)

    def is_turned(self, read: Read) -> bool:
        """Whether panels are filled from a tensor that is contiguous along another dimension than
        the columns', in blocks of registers that are turned."""
        last, lanes = len(read.shape) - 1, self.target.lanes(self.view.dtype)
        return (
            not read.padded
            and self.column_dim(read) not in (None, last)
            and read.shape[last] >= lanes // 2
            and 1 < lanes <= MOST_LANES
            and self.target.lanes(read.dtype) == lanes
        )

    def _has_box(self, read: Read) -> bool:
        """Whether a block of the tensor is a box: loops inside a block are not divided. Batch
        loops stand around all blocks, and may be."""
        batch = {loop.name for loop in self.roles.batch}
        return all(
            isinstance(atom, Var) or atom.numerator.vars() <= batch
            for index in read.index
            for atom, _ in index.terms
        )

    @cached_property
    def packed_ahead(self) -> tuple[Read, ...]:
        """Column operands that `pack_columns` 2 packs ahead of all calls: constant inputs which
        nothing else reads, since everybody would read them in this stage's panels. Those of a
        batch's part of a dimension need not begin where a panel does, and are left."""
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

    def packed_inside(self, ahead: bool) -> tuple[Read, ...]:
        """Column operands that are packed in every call, if those of `ahead` are not."""
        gone = self.packed_ahead if ahead else ()
        return tuple(read for read in self.packable if read not in gone)

    def moves_as_one(self, read: Read) -> bool:
        """Whether all reads of the tensor keep their distance: a copy of a block holds them all."""
        return all(
            (a - b).is_const
            for other in self.view.reads
            if other.tensor == read.tensor
            for a, b in zip(read.index, other.index, strict=True)
        )

    def _has_reads_apart(self, read: Read) -> bool:
        """Whether an input is read as rows as well, in another place: what moves with columns can
        be copied alone."""
        if read.tensor not in {tensor.name for tensor in self.workload.inputs}:
            return False
        along = [r for r in self.view.reads if r.tensor == read.tensor and not r.padded]
        along = [r for r in along if r.uses(self.roles.columns.name)]
        return not read.padded and all(
            (a - b).is_const for r in along for a, b in zip(read.index, r.index, strict=True)
        )

    @cached_property
    def copyable(self) -> tuple[Read, ...]:
        """Operands that move with the rows: a block of them can be copied, padding included."""
        mixed = (r for r in self.roles.column_reads if self.roles.moves_with_rows(r))
        return tuple(
            r
            for r in once((*self.roles.row_reads, *mixed))
            if self._has_box(r) and self.moves_as_one(r)
        )
