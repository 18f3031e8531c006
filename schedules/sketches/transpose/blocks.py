"""Register blocks that are transposed: they are loaded along one axis and used along another.

A block is a square with as many elements along each side as a vector has lanes. Vectors are loaded
along the axis `across`, which is contiguous in the operand, and transposed in registers. The
resulting vectors are along the axis `along`, which is contiguous in the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...algebra.affine import Affine, affine
from ...plan import Outline
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import StageLoop, StageRead, StageView
from ..knobs import Arrays, Ints, Knobbed
from ..statements import stage_outline


@dataclass(frozen=True, slots=True)
class Transposition:
    """The reads of a stage that are transposed, and the axes of their blocks."""

    across: StageLoop
    """The axis along which vectors are loaded."""
    along: StageLoop
    """The axis along which the transposed vectors are used."""
    reads: tuple[StageRead, ...]


@dataclass(frozen=True)
class TransposedStage(Knobbed[Arrays, Ints]):
    """A sketch of the stage `view`, some reads of which are transposed."""

    workload: Workload
    view: StageView
    transposed: Transposition
    target: Target

    @property
    def lanes(self) -> int:
        """Elements along each side of a block."""
        lanes = [self.target.lanes(read.dtype) for read in self.transposed.reads]
        return min(max(lanes), self.target.lanes(self.view.dtype), self.target.most_transposed)

    @property
    def loops(self) -> tuple[StageLoop, ...]:
        return (*self.view.spatial, *self.view.reduce)

    @property
    def pair(self) -> tuple[int, int]:
        """The numbers of the loops `across` and `along`."""
        return self.loops.index(self.transposed.across), self.loops.index(self.transposed.along)

    @property
    def others(self) -> list[int]:
        """The numbers of the result's other axes, which are fused into one loop."""
        return [n for n in range(len(self.view.spatial)) if n not in self.pair]

    @property
    def repeats(self) -> int:
        """Trip count of the fused loop over the other axes."""
        return prod(self.loops[n].extent for n in self.others)

    @property
    def has_many_others(self) -> bool:
        """Whether the loop over the other axes has enough iterations for all threads, so that they
        divide no other loop."""
        return self.repeats >= 2 * self.target.threads

    @property
    def without_box(self) -> set[str]:
        """Tensors that have several reads, one of them transposed. A block is loaded for the
        transposed read only, not as a box of the tensor."""
        tensors = [read.tensor for read in self.view.reads]
        return {r.tensor for r in self.transposed.reads if tensors.count(r.tensor) > 1}

    @cached_property
    def outline(self) -> Outline:
        return stage_outline(self.view, self.loops, self.view.reads)


def pitch(read: StageRead, loop: StageLoop) -> int:
    """Return the distance in elements between neighbours along `loop`, or 0 if it varies."""
    return read.element_stride(loop.name) or 0


def _last_index(read: StageRead) -> Affine:
    moving = [i for i, extent in zip(read.index, read.shape, strict=True) if extent > 1]
    return moving[-1] if moving else affine(0)


def can_be_transposed(
    view: StageView, read: StageRead, across: StageLoop, along: StageLoop
) -> bool:
    """Return whether a block of `read` can be transposed.

    The read must (1) be unconditional, (2) be contiguous along `across`, (3) be the only read of
    its tensor with `across` in the last index, and (4) have rows that do not overlap along `along`.
    """
    same = [r for r in view.reads if r.tensor == read.tensor]
    alone = sum(across.name in _last_index(r).vars() for r in same) == 1
    contiguous = read.element_stride(across.name) == 1 and read.own_dim(across.name) is not None
    return alone and contiguous and not read.conditional and pitch(read, along) >= across.extent
