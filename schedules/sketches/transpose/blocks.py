"""Blocks of registers that are read along one axis and used along another: a transposition.

A block has as many elements along each side as a vector has lanes. Its vectors are read along the
axis `across`, which is contiguous in the tensor, and transposed in registers, so that lanes lie
along the axis `along`, which is contiguous in what is computed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...algebra.affine import Affine, affine
from ...arrays import BoolArray, IntArray
from ...plan import Outline
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView
from ..hardware import PAGE_BYTES
from ..outlines import stage_outline
from ..writer import TraceWriter

MOST_LANES = 16
"""Sides of a block of registers: one of 32 by 32 does not fit any register file."""


@dataclass(frozen=True, slots=True)
class Transposition:
    """What is transposed: `across` is contiguous in `reads`, `along` in what is computed."""

    across: Loop
    along: Loop
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class TransposedStage:
    """The stage `view` on `target`, with blocks of `blocks.reads` transposed."""

    workload: Workload
    view: StageView
    blocks: Transposition
    target: Target

    @property
    def lanes(self) -> int:
        """Elements along each side of a block."""
        lanes = [self.target.lanes(read.dtype) for read in self.blocks.reads]
        return min(max(lanes), self.target.lanes(self.view.dtype), MOST_LANES)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (*self.view.spatial, *self.view.reduce)

    @property
    def outside(self) -> list[int]:
        """The numbers of the loops along which nothing is transposed."""
        pair = {self.blocks.across.name, self.blocks.along.name}
        return [n for n, loop in enumerate(self.loops) if loop.name not in pair]

    @property
    def pair(self) -> tuple[int, int]:
        """The numbers of the loops `across` and `along`."""
        names = [loop.name for loop in self.loops]
        return names.index(self.blocks.across.name), names.index(self.blocks.along.name)

    @cached_property
    def outline(self) -> Outline:
        return stage_outline(self.view, self.loops, self.view.reads)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) every setting is legal."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)


def pitch(read: Read, loop: Loop) -> int:
    """Elements between neighbours along `loop`; 0 where there is no such distance."""
    return read.element_stride(loop.name) or 0


def crowding(pitch_bytes: int) -> float:
    """How much rows this far apart compete: fully a multiple of a page apart, half as much a
    multiple of half a page."""
    whole, half = pitch_bytes % PAGE_BYTES == 0, pitch_bytes % (PAGE_BYTES // 2) == 0
    return 1.0 if whole else 0.5 if half else 0.0


def _last_index(read: Read) -> Affine:
    """The index of the last dimension of more than one element."""
    moving = [i for i, extent in zip(read.index, read.shape, strict=True) if extent > 1]
    return moving[-1] if moving else affine(0)


def can_be_transposed(view: StageView, read: Read, across: Loop, along: Loop) -> bool:
    """Whether a block of `read` can be transposed, and no other read of its tensor is one with
    it."""
    same = [r for r in view.reads if r.tensor == read.tensor]
    alone = sum(across.name in _last_index(r).vars() for r in same) == 1
    contiguous = read.element_stride(across.name) == 1 and read.own_dim(across.name) is not None
    return alone and contiguous and not read.conditional and pitch(read, along) >= across.extent


class BlockWriter:
    """Reads blocks of `view` into registers; `without_box` are tensors of which a block is no box,
    because another read of them is not transposed."""

    def __init__(self, writer: TraceWriter, view: StageView, without_box: Collection[str]) -> None:
        self.w = writer
        self.view = view
        self.without_box = without_box
        self.made = 0

    def read_block(self, tensor: str, place: str, along: str) -> None:
        """Read what loop `place` needs of `tensor`, along the tensor's own axis `along`; what else
        is read of it stays where it is."""
        if tensor in self.without_box and self.w.loop(along).extent == 1:
            return  # a single element of each row: there is nothing to transpose
        self.made += 1
        buffer = f"{self.view.name}.{tensor}.block{self.made}"
        self.w.read_block(tensor, place, buffer, along if tensor in self.without_box else "")

    def whole_part(self, loop: str, size: int) -> dict[str, str] | None:
        """Cut `loop` where its last `size` whole iterations end: what its loops are called in the
        rest; None where there is no rest, or nothing else."""
        extent = self.w.loop(loop).extent
        whole = extent // size * size
        return None if whole in (0, extent) else self.w.partition(loop, whole)


def read_twice(view: StageView, blocks: Transposition) -> set[str]:
    """Tensors of which something is transposed and something else is not."""
    tensors = [read.tensor for read in view.reads]
    return {read.tensor for read in blocks.reads if tensors.count(read.tensor) > 1}
