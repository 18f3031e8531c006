"""A primitive that reads blocks of a tensor into registers: BlockRead."""

from __future__ import annotations

from dataclasses import dataclass

from ..loop_ir import Nest
from .caching import Chosen, Index, require_inside, with_copy
from .nest_edit import buffers_in


@dataclass(frozen=True, slots=True)
class BlockRead:
    """CacheRead into registers for some of several reads of a tensor: those that have loop `along`,
    which is inside, in the tensor's last dimension of more than one element. A matrix and its own
    transpose are two reads, of which one is turned:

        for i: for j: Y[i, j] = X[i, j] + X[j, i]    ->    ... Y[i, j] = X[i, j] + B[j, i]

    with `along` i. Legal where CacheRead would be for those reads alone; the others stay.
    """

    tensor: str
    loop: str
    name: str
    along: str

    def apply(self, nest: Nest) -> Nest:
        """The nest with the copy. ScheduleError: as CacheRead, or no read has `along` there."""
        require_inside(nest, self.along, self.loop, self)
        buffer = buffers_in(nest).get(self.tensor)
        shape = buffer.shape if buffer is not None else ()
        last = max((d for d, extent in enumerate(shape) if extent > 1), default=-1)

        def takes(index: Index) -> bool:
            return last >= 0 and self.along in index[last].vars()

        chosen = Chosen(takes, f" with {self.along!r} in its last dimension")
        return with_copy(nest, self, self.tensor, self.loop, self.name, True, chosen)
