"""Primitives of scatters: Initialise and TakeSelected.

Initialise lets a reduction begin with stored identities. TakeSelected then executes only the
iteration of an output loop that a comparison with data selects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.neutral import identity_of
from ..errors import ScheduleError, require
from ..nest.editing import nest_loops, renamed_copy, replaced
from ..nest.finding import chain_to, names_in, reads_of, writes_of
from ..nest.loop_ir import LoopKind, Nest, StoreElement, Update, buffers_allocated, loops
from ..nest.selected import selected_iteration
from ..nest.verify_bounds import first_unproven
from .places import buffer_called, open_place, serial_loop, still_prepacked
from .primitive import LoopMaker, Made, Primitive, Walk


@dataclass(frozen=True, slots=True)
class Initialise(LoopMaker):
    """Store the identity to all elements of a reduction before its first update
    (`decompose_reduction` in TVM, the pure definition before an update in Halide).

        for i: for k: C[i] += v     ->    for i.init: C[i.init] = identity
                                          for i: for k: C[i] += v

    The new loops are at the beginning of the body of `loop`, or of the nest if it is "". They are
    copies of the spatial loops inside it, with `.init` appended to their names. Legal if `loop` is
    not in a reduction loop of `buffer` and contains the only statement that writes `buffer`, a
    reduction that was not initialised yet; if it contains no other access before the updates; and
    if no guard depends on both spatial and reduction loops.
    """

    buffer: str
    loop: str

    WALK = Walk.ENDS

    def made(self, nest: Nest) -> Made:
        """Return the nest with the initialisation, and its loops."""
        place = open_place(nest, self.loop, self)
        buffer_called(nest, self.buffer, self)
        writes = writes_of(nest.body, self.buffer)
        body = place.loop.body
        problem = f"{self.loop or 'the nest'!r} must contain the only statement that writes it"
        once = len(writes) == 1 and writes == writes_of(body, self.buffer)
        require(once, self, problem)
        (leaf,) = writes
        if not isinstance(leaf, Update) or leaf.first is None:
            raise ScheduleError(self, f"no statement reduces {self.buffer!r} from the beginning")
        chain = chain_to(body, leaf)
        part = chain[0] if chain else leaf
        used = bool(reads_of((part,), self.buffer))
        allocated = any(each.name == self.buffer for each in buffers_allocated((part,)))
        problem = f"the statement that writes {self.buffer!r} also reads or allocates it"
        require(not used and not allocated, self, problem)
        spatial = tuple(loop for loop in chain if not loop.reduce)
        own = {loop.var for loop in chain}
        begins = {name for cond in leaf.first for name in cond.index.vars()}
        problem = f"{self.buffer!r} is also combined over loops around {self.loop!r}"
        require(begins <= own, self, problem)
        require(not any(loop.reduce for loop in place.outer), self, problem)
        require(not place.loop.reduce, self, problem)
        reduced = own - {loop.var for loop in spatial}
        moving = frozenset[str]().union(*(i.vars() for i in leaf.index))
        problem = f"a reduction loop indexes the elements of {self.buffer!r}"
        require(not moving & reduced, self, problem)
        plain = all(loop.kind is not LoopKind.PARALLEL and not loop.bounds for loop in chain)
        require(plain, self, "a loop inside is parallel or has bounds; initialise before that")
        guards = tuple(g for g in leaf.guards if not g.index.vars() & reduced)
        others = (g for g in leaf.guards if g not in guards)
        problem = f"a guard of {self.buffer!r} depends on spatial and on reduction loops"
        require(not any(g.index.vars() - reduced for g in others), self, problem)
        identity = identity_of(leaf.reducer, leaf.value)
        begin = nest_loops(spatial, (StoreElement(self.buffer, leaf.index, identity, guards),))
        parts, made = renamed_copy(begin, ".init", names_in(nest))
        updates = replaced((part,), leaf, (replace(leaf, first=None),))
        started = place.with_body(*replaced(body, part, (*parts, *updates)))
        return Made(still_prepacked(started, self), made)


@dataclass(frozen=True, slots=True)
class TakeSelected(Primitive):
    """Execute only the iteration of an output loop that data select (a scatter; the inspector of
    an inspector-executor schedule is the comparison itself).

        for n: for v: H[v] += X[n] if I[n] == v else 0
            ->    for n: for v at I[n]: H[v] += X[n]

    Legal for a serial loop that contains only updates of elements that were written before, as
    after `Initialise`. The value of each update must be the reducer's identity unless the loop's
    variable is equal to an integer that does not depend on the loop. If the integer is outside of
    the loop's range, no iteration is executed. A product of floats with zero is no identity,
    because the other factor may be infinite or NaN (the rewrite `SelectOutputs` replaces it).
    """

    loop: str

    def apply(self, nest: Nest) -> Nest:
        """Return the nest with the kind of the loop set."""
        place = serial_loop(nest, self.loop, self)
        selected = selected_iteration(place.loop)
        require(selected is not None, self, f"data select no iteration of {self.loop!r}")
        marked = place.marked(LoopKind.SELECTED)
        access = first_unproven(marked)
        require(access is None, self, f"the integer may be read out of bounds: {access}")
        return marked


def check_selected(nest: Nest, source: object) -> None:
    """Raise ScheduleError if data no longer select an iteration of a selected loop. This repeats
    the proof of TakeSelected, because later steps may have changed the loop."""
    for loop in loops(nest.body):
        if loop.kind is LoopKind.SELECTED and selected_iteration(loop) is None:
            raise ScheduleError(source, f"data no longer select an iteration of {loop.var!r}")
