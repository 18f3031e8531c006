"""Blocks of registers that are read along one axis and used along another: a transposition.

A block has as many elements along each side as a vector has lanes. Its vectors are read along the
axis `across`, which is contiguous in the tensor, and transposed in registers, so that lanes lie
along the axis `along`, which is contiguous in what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...algebra.affine import Affine, affine
from ...plan import LoopLevel, Outline
from ...primitives import Parallel
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView
from ..knobs import Knobbed
from ..outlines import stage_outline
from ..writer import BATCHES, BLOCKS, STEPS, TILES, TraceWriter

ROLES = (BATCHES, TILES, STEPS, BLOCKS)
"""What loops around a block of registers are for: the result's other axes, pieces along both, the
reduction's other axes, blocks."""


@dataclass(frozen=True, slots=True)
class Transposition:
    """What is transposed: `across` is contiguous in `reads`, `along` in what is computed."""

    across: Loop
    along: Loop
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class TransposedStage(Knobbed):
    """The stage `view` on `target`, with blocks of `blocks.reads` transposed."""

    workload: Workload
    view: StageView
    blocks: Transposition
    target: Target

    @property
    def lanes(self) -> int:
        """Elements along each side of a block."""
        lanes = [self.target.lanes(read.dtype) for read in self.blocks.reads]
        return min(max(lanes), self.target.lanes(self.view.dtype), self.target.most_transposed)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (*self.view.spatial, *self.view.reduce)

    @property
    def names(self) -> tuple[str, str]:
        """The loops `across` and `along`."""
        return self.blocks.across.name, self.blocks.along.name

    @property
    def pair(self) -> tuple[int, int]:
        """Their numbers."""
        loops = [loop.name for loop in self.loops]
        return loops.index(self.names[0]), loops.index(self.names[1])

    @property
    def outside(self) -> list[int]:
        """The numbers of the loops along which nothing is transposed."""
        return [n for n, loop in enumerate(self.loops) if loop.name not in self.names]

    @property
    def others(self) -> list[int]:
        """The numbers of those of them that are axes of the result: in a nest they are one loop."""
        return [n for n in self.outside if not self.loops[n].reduce]

    @property
    def repeats(self) -> int:
        """The iterations of that loop."""
        return prod(self.loops[n].extent for n in self.others)

    @property
    def has_many_others(self) -> bool:
        """Whether these are enough for the threads, which share nothing else then."""
        return self.repeats >= 2 * self.target.threads

    @property
    def without_box(self) -> set[str]:
        """Tensors of which a block is no box: what else is read of them is not transposed."""
        tensors = [read.tensor for read in self.view.reads]
        return {r.tensor for r in self.blocks.reads if tensors.count(r.tensor) > 1}

    @cached_property
    def outline(self) -> Outline:
        return stage_outline(self.view, self.loops, self.view.reads)


def pitch(read: Read, loop: Loop) -> int:
    """Elements between neighbours along `loop`; 0 where there is no such distance."""
    return read.element_stride(loop.name) or 0


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


@dataclass(frozen=True, slots=True)
class Part:
    """Loops `made` of levels, outermost first, and what each plain loop is called `inside` of them,
    in the order of the nest."""

    inside: Mapping[str, str]
    made: tuple[tuple[LoopLevel, str], ...] = ()

    @property
    def place(self) -> str:
        """The innermost loop that was made."""
        return self.made[-1][1]


class BlockWriter:
    """Writes the steps of a stage for knob values `v`, whose plan has `levels`."""

    def __init__(
        self,
        writer: TraceWriter,
        sketch: TransposedStage,
        v: dict[str, int],
        levels: Sequence[LoopLevel],
    ) -> None:
        self.w, self.sketch, self.v, self.lanes = writer, sketch, v, sketch.lanes
        self.name, self.across, self.along = sketch.view.name, *sketch.names
        self.levels = {role: [x for x in levels if x.role == role] for role in ROLES}
        self.made = 0

    def fused_outside(self, *inside: str) -> str:
        """Axes of the result along which nothing is transposed, as one loop outside of `inside`;
        "" if there are none."""
        loops = (self.sketch.loops[n].name for n in self.sketch.others)
        names = [name for name in loops if self.w.has(name)]
        self.w.reorder(*names, *inside)
        return self.w.fuse_all(names)

    def share(self, fused: str, parts: Iterable[Sequence[str]]) -> None:
        """Let threads share the loop `fused` where its levels say so; or else those of the `parts`,
        where theirs do: the outermost in each that has several iterations."""
        shared = [fused] if any(level.is_shared for level in self.levels[BATCHES]) else []
        if any(level.is_shared for level in self.levels[TILES]):
            several = ([x for x in loops if self.w.loop(x).extent > 1] for loops in parts)
            shared = list(dict.fromkeys(x for loops in several for x in loops[:1]))
        self.w.do(*map(Parallel, shared))

    def read_blocks(self, place: str, along: str) -> None:
        """Read what loop `place` needs of the tensors, along their own axis `along`; what else is
        read of them stays where it is."""
        for tensor in (read.tensor for read in self.sketch.blocks.reads):
            is_box = tensor not in self.sketch.without_box
            if not is_box and self.w.loop(along).extent == 1:
                continue  # a single element of each row: there is nothing to transpose
            self.made += 1
            buffer = f"{self.name}.{tensor}.block{self.made}"
            self.w.read_block(tensor, place, buffer, "" if is_box else along)

    def divided(self, part: Part, levels: Sequence[LoopLevel]) -> list[Part]:
        """Loops of `levels`, outermost first, inside of `part`. What whole steps leave at the end
        of an axis is a part of its own, so that nothing is tested in a whole one."""
        if not levels:
            return [part]
        level, *inner = levels
        others = {loop: name for loop, name in part.inside.items() if loop != level.loop}
        loops = (part.inside[level.loop], *others.values())
        if loops != tuple(part.inside.values()):
            self.w.reorder(*loops)
        found: list[Part] = []
        for (walked, *rest), size in self.cut(loops, level.step):
            outer, within = self.w.split(walked, size)
            self.w.reorder(outer, *rest, within)
            inside = dict(zip(others, rest, strict=True)) | {level.loop: within}
            found += self.divided(Part(inside, (*part.made, (level, outer))), inner)
        return found

    def cut(self, loops: tuple[str, ...], *sizes: int) -> list[tuple[tuple[str, ...], int]]:
        """The first of `loops` in parts of whole pieces, of each of the sizes in turn, and what is
        left: what the loops are called in each part, and the size of its pieces."""
        found: list[tuple[tuple[str, ...], int]] = []
        for size in dict.fromkeys(sizes):
            extent = self.w.loop(loops[0]).extent
            whole = extent // size * size
            if whole == extent:
                return [*found, (loops, size)]
            if whole:
                rest = self.w.partition(loops[0], whole)
                found.append((loops, size))
                loops = tuple(rest[loop] for loop in loops)
        return [*found, (loops, self.w.loop(loops[0]).extent)]
