"""Trace each loop of a schedule back to the axis or buffer that it iterates over."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..nest.finding import writes_of
from ..nest.loop_ir import Nest, loops
from ..primitives import Primitive
from ..primitives.primitive import LoopMaker, Made, Walk
from ..trace import Trace


@dataclass(frozen=True, slots=True)
class Origin:
    """The axis or buffer from which a loop originates."""

    root: str
    """The loop of the plain nest, or the buffer that the loop fills."""
    dim: int | None = None
    """The dimension of the buffer that the loop fills, or None for a loop of the plain nest."""
    added: str = ""
    """The suffixes that steps appended to the name."""
    walks: frozenset[Walk] = frozenset()
    """The `WALK` of each step that created the loop or a loop from which it derives."""

    @property
    def axis(self) -> tuple[str, int | None]:
        """The axis or buffer dimension, as (root, dim). It is equal for all loops over parts of
        it."""
        return self.root, self.dim


def followed(nest: Nest, trace: Trace) -> tuple[Nest, dict[str, Origin]]:
    """Return the plain `nest` after the primitives of `trace`, and the origin of each of its loops.

    Raise the ScheduleError of the first step that is not legal.
    """
    known = {loop.var: Origin(loop.var) for loop in loops(nest.body)}
    for step in trace.steps:
        assert isinstance(step, Primitive), f"rewrites must precede all primitives: {step}"
        made = step.made(nest)
        if isinstance(step, LoopMaker):
            known |= {
                new: _origin(new, old, step.WALK, made, known) for new, old in made.loops.items()
            }
        nest = made.nest
    return nest, known


def _origin(new: str, old: str, walk: Walk, made: Made, known: dict[str, Origin]) -> Origin:
    """Return the origin of the loop `new`, which derives from loop `old` or fills buffer `old`."""
    added = new.removeprefix(old) if new.startswith(old) else ""
    if walk is Walk.FILL:
        position = writes_of(made.nest.body, old)[0].index
        dim = next(d for d, index in enumerate(position) if new in index.vars())
        return Origin(old, dim, added, frozenset({walk}))
    before = known[old]
    return replace(before, added=before.added + added, walks=before.walks | {walk})
