"""Emit a trace step by step. Each step is applied when it is appended, so that loop names can be
looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial, reduce
from typing import TypeVar

from ..algebra.scalar import loads
from ..lowering.lower import plain_nest
from ..nest.finding import buffers_in, chain_to, leaf_sites, writes_of
from ..nest.loop_ir import (
    For,
    LoopKind,
    Nest,
    StoreElement,
    Update,
    loop_called,
    loops,
    loops_named,
)
from ..plan import LoopLevel
from ..primitives import (
    BlockRead,
    CacheRead,
    Fuse,
    Partition,
    Primitive,
    Reorder,
    Split,
    TransformLayout,
    Unroll,
    Vectorize,
)
from ..trace import Trace
from ..workload.workload import Workload
from .analysis.neighbours import element_step
from .vectors import parts_of, vector_loop

Leaf = TypeVar("Leaf", StoreElement | Update, Update)

SERIAL, UNROLLED, VECTORIZED = LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED

PARTS, BATCHES, BLOCKS = "parts of the reduction", "batches", "blocks"
DEPTH, TILES = "blocks of the reduction", "tiles"
STEPS, BODY = "steps of the reduction", "unrolled body"
"""Roles of the loops of a nest."""

VECTORS_AT_ONCE = 4
"""Largest number of vectors per iteration of a copy."""

MARKS = {VECTORIZED: Vectorize, UNROLLED: Unroll}
"""Steps that mark loops, in the order in which they are emitted."""


class TraceWriter:
    """Builds a trace for a workload in normal form.

    If a step is illegal (ScheduleError), the rule that emitted it has a bug. `check` is called
    before each step and may raise an exception to stop.
    """

    def __init__(self, workload: Workload, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._steps: list[Primitive] = []
        self.nest: Nest = plain_nest(workload)
        self._buffer_of = {
            loop.var: leaf.buffer for leaf, chain in leaf_sites(self.nest.body) for loop in chain
        }
        self._cut_from: dict[str, str] = {}

    @property
    def trace(self) -> Trace:
        return Trace(tuple(self._steps))

    def copy(self) -> TraceWriter:
        """Return a writer that continues from here, while this one stays as it is."""
        found = copy(self)
        found._steps = [*self._steps]
        found._buffer_of, found._cut_from = {**self._buffer_of}, {**self._cut_from}
        return found

    def do(self, *steps: Primitive) -> tuple[str, ...]:
        """Apply `steps`. Return the names of the loops that they create, in the order of the steps
        and, for each step, in program order."""
        return tuple(new for step in steps for new in self._apply(step))

    def remake(self, step: Primitive) -> dict[str, list[str]]:
        """Apply a step that copies or moves loops. Return the new names of each loop, in program
        order, by its old name."""
        found: dict[str, list[str]] = {}
        for new, old in self._apply(step).items():
            found.setdefault(old, []).append(new)
        return found

    def _apply(self, step: Primitive) -> Mapping[str, str]:
        """Apply a step. Return the loops that it creates, each mapped to the loop that it comes
        from."""
        self._check()
        made = step.made(self.nest)
        self.nest = made.nest
        self._steps.append(step)
        self._buffer_of |= {new: self._buffer_of.get(old, old) for new, old in made.loops.items()}
        if isinstance(step, Partition):
            self._cut_from |= made.loops
        return made.loops

    def split(self, loop: str, factor: int) -> tuple[str, str]:
        outer, inner = self.do(Split(loop, factor))
        return outer, inner

    def fuse(self, outer: str, inner: str) -> str:
        (fused,) = self.do(Fuse(outer, inner))
        return fused

    def fuse_all(self, loops: Sequence[str]) -> str:
        """Fuse loops, outermost first, into one. Return its name, or "" if there are no loops."""
        return reduce(self.fuse, loops) if loops else ""

    def reorder(self, *order: str) -> None:
        if len(order) > 1:
            self.do(Reorder(order))

    def arrange(
        self, levels: Iterable[LoopLevel], first: Iterable[str] = ()
    ) -> list[tuple[LoopLevel, str]]:
        """Arrange the nest as `levels`, outermost first, and return each level with the name of its
        loop.

        A loop with several levels is split, the longest steps first. Then all loops are reordered
        and marked. Levels whose loop does not exist are skipped: a moved stage has no loops of one
        iteration. The loops in `first` are split first, which determines the order of the guards of
        their remainders.
        """
        there = loops_named(self.nest.body)
        levels = [level for level in levels if level.loop in there]
        names = [level.loop for level in levels]
        for loop in dict.fromkeys((*first, *names)):
            own = [n for n, level in enumerate(levels) if level.loop == loop]
            *outer, last = sorted(own, key=lambda n: -levels[n].step) or [0]
            for n in outer:
                names[n], names[last] = self.split(names[last], levels[n].step)
        self.reorder(*names)
        made = list(zip(levels, names, strict=True))
        for kind, mark in MARKS.items():
            self.do(*(mark(name) for level, name in made if level.kind == kind))
        return made

    def has(self, loop: str) -> bool:
        return loop in loops_named(self.nest.body)

    def loop(self, name: str) -> For:
        found = loop_called(self.nest.body, name)
        assert found is not None, f"no loop {name}"
        return found

    def partition(self, loop: str, at: int) -> dict[str, str]:
        """Partition a loop at iteration `at`. Return the name of each loop of the second part, by
        the name of the same loop of the first part."""
        return {self._cut_from[made]: made for made in self.do(Partition(loop, at))}

    def is_inside(self, loop: str, outer: str) -> bool:
        return any(found.var == loop for found in loops(self.loop(outer).body))

    def copies(self, loop: str) -> list[str]:
        """Return the loop and all loops that Partition created from it, in program order."""
        return [found.var for found in loops(self.nest.body) if self._is_copy(found.var, loop)]

    def _is_copy(self, name: str, loop: str) -> bool:
        while name != loop and name in self._cut_from:
            name = self._cut_from[name]
        return name == loop

    def writer_of(
        self, buffer: str, inside: str = ""
    ) -> tuple[StoreElement | Update, tuple[For, ...]]:
        """Return the first leaf that writes `buffer` (inside loop `inside` if given) and the loops
        around it."""
        body = self.loop(inside).body if inside else self.nest.body
        return self._with_loops(writes_of(body, buffer)[0])

    def spatial_loops(self, buffer: str) -> list[str]:
        """Return the loops around the first leaf that writes `buffer`, except reduction loops."""
        return [loop.var for loop in self.writer_of(buffer)[1] if not loop.reduce]

    def loops_by_dim(self, buffer: str) -> dict[int, str]:
        """Return the loops that fill a buffer, by the dimension of the buffer that they index."""
        leaf, _ = self.writer_of(buffer)
        return {dim: name for dim, index in enumerate(leaf.index) for name in index.vars()}

    def update_of(self, buffer: str) -> tuple[Update, tuple[For, ...]]:
        """Return the first update of `buffer`, and the loops around it."""
        found = (w for w in writes_of(self.nest.body, buffer) if isinstance(w, Update))
        return self._with_loops(next(found))

    def _with_loops(self, leaf: Leaf) -> tuple[Leaf, tuple[For, ...]]:
        return leaf, chain_to(self.nest.body, leaf)

    def keep_last(self, buffer: str, dim: int) -> None:
        """Lay out a private buffer with its dimension `dim` contiguous."""
        others = (d for d in range(len(buffers_in(self.nest)[buffer].shape)) if d != dim)
        self.do(TransformLayout(buffer, (), tuple((d, 0) for d in (*others, dim))))

    def own_loops(self, buffer: str, inside: str = "") -> list[For]:
        """Return the loops around the writer of `buffer` that are inside loop `inside`. If the
        writer is not inside `inside`, return all loops that were created to compute or fill the
        buffer."""
        _, chain = self.writer_of(buffer)
        names = [loop.var for loop in chain]
        if inside in names:
            return list(chain[names.index(inside) + 1 :])
        return [loop for loop in chain if self._buffer_of[loop.var] == buffer]

    def vectorise_writer(
        self,
        buffer: str,
        lanes: int,
        most_unrolled: int = VECTORS_AT_ONCE,
        inside: str = "",
        cut: bool = False,
    ) -> None:
        """Vectorise the serial loops around the single leaf that writes `buffer`, along the axis
        that is contiguous in most accesses. If `cut`, this axis is partitioned after its last full
        iteration."""
        leaf, _ = self.writer_of(buffer)
        own = [loop for loop in self.own_loops(buffer, inside) if loop.kind is LoopKind.SERIAL]
        best = self.best_vector_loop(leaf, [loop.var for loop in own if not loop.reduce])
        if best is not None:
            self.reorder(*(loop.var for loop in own if loop.var != best), best)
            self.vectorise_loop(best, lanes, most_unrolled, cut)

    def read_block(self, tensor: str, place: str, buffer: str, along: str = "") -> None:
        """Load the elements of `tensor` that loop `place` needs into registers, with vectors along
        the tensor's contiguous axis.

        The elements are a box of the tensor. If `along` is given, they are the elements of the
        single read with loop `along` in its last dimension.
        """
        block = BlockRead(tensor, place, buffer, along)
        box = CacheRead(tensor, place, buffer, register=True)
        filling = self.do(block if along else box)
        (read,) = loads(self.writer_of(buffer)[0].value)
        shape = buffers_in(self.nest)[read.tensor].shape
        for loop in filling:
            is_lane = element_step(shape, read.index, loop) == 1
            self.do(Vectorize(loop) if is_lane else Unroll(loop))

    def best_vector_loop(self, leaf: StoreElement | Update, candidates: list[str]) -> str | None:
        shapes = {name: buffer.shape for name, buffer in buffers_in(self.nest).items()}
        reads = [(shapes[read.tensor], read.index) for read in loads(leaf.value)]
        own = partial(element_step, shapes[leaf.buffer], leaf.index)
        return vector_loop({name: self.loop(name).extent for name in candidates}, own, reads)

    def vectorise_loop(
        self, loop: str, lanes: int, most_unrolled: int = VECTORS_AT_ONCE, cut: bool = False
    ) -> None:
        """Vectorise an innermost loop, with several vectors per iteration if it is long enough. If
        `cut`, the loop is partitioned after its last full iteration, so that only the remainder is
        masked."""
        parts = parts_of(self.loop(loop).extent, lanes, most_unrolled, cut)
        names = [loop, *(self.partition(loop, whole)[loop] for whole, _, _ in parts[:-1])]
        for name, (_, width, copies) in zip(names, parts, strict=True):
            if width > 1:
                outer, inner = self.split(name, width)
                middle = self.split(outer, copies)[1:] if copies > 1 else ()
                self.do(Vectorize(inner), *(Unroll(name) for name in middle))


def called(made: Iterable[tuple[LoopLevel, str]], role: str) -> list[str]:
    """Return the names of the loops whose level has `role`."""
    return [name for level, name in made if level.role == role]
