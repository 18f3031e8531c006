"""A primitive that reads blocks of a tensor into registers: BlockRead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..algebra.scalar import Load, loads
from ..algebra.scalar import rewrite as rewrite_scalar
from ..errors import ScheduleError
from ..nest.finding import buffers_in, chain_to, names_in, ranges_of
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    Nest,
    Scope,
    Stmt,
    Store,
    Update,
    leaves,
    transform,
)
from .cache_read import Chosen, Index, copying, readable
from .places import find_loop, replace_loop, require_body, still_ahead
from .primitive import LoopMaker, Made
from .region import loops_of, position_names, position_vars


@dataclass(frozen=True, slots=True)
class BlockRead(LoopMaker):
    """Read what one read of a tensor needs in a loop's body into registers first: an element for
    each iteration of the loops inside that move it, those with loop `along` last. The read is the
    one that has `along` in the tensor's last dimension of more than one element.

        for i: for j: Y[i, j] = X[i, j] + X[j, i]    ->    ... Y[i, j] = X[i, j] + B[j, i]

    with `along` i. Unlike CacheRead it asks for no box in the tensor: other reads of it stay, and
    an index may divide what is inside and outside together. Elements outside the tensor are zero
    in the copy. Legal where the body does not write the tensor.
    """

    tensor: str
    loop: str
    name: str
    along: str

    def made(self, nest: Nest) -> Made:
        """The nest with the copy, and the loops that fill it. ScheduleError: no such read
        or more than one, written inside."""
        place = find_loop(nest, self.loop, self)
        require_body(place.loop, self)
        if place.loop not in find_loop(nest, self.along, self).outer:
            raise ScheduleError(self, f"{self.along!r} is not inside {self.loop!r}")
        chosen = Chosen(self._takes(nest), f" with {self.along!r} in its last dimension")
        source, reads = readable(nest, self, self.tensor, place, self.name, chosen)
        index = reads[0].index
        if any(read.index != index for read in reads):
            raise ScheduleError(self, f"several reads of {self.tensor!r} are such")
        body = place.loop.body
        around = self._moving(body, index)
        taken = names_in(nest)
        extent = tuple(loop.extent for loop in around)
        names = position_names(self.name, extent, taken)
        x = position_vars(names, extent)
        element = tuple(
            i.substitute({loop.var: at for loop, at in zip(around, x, strict=True)}) for i in index
        )
        copy = Buffer(self.name, extent, source.dtype, Scope.REGISTER)
        filled = copying(source, copy, names, element, ranges_of((*place.outer, place.loop)))
        local = position_vars(tuple(loop.var for loop in around), extent)
        read = Load(self.name, local, source.dtype)
        new_body = _reading(body, Load(self.tensor, index, source.dtype), read)
        loop = replace(place.loop, body=(Allocate(copy, (*filled, *new_body)),))
        copied = still_ahead(replace_loop(nest, self.loop, (loop,)), self)
        return Made(copied, dict.fromkeys(loops_of(names, extent), self.name))

    def _takes(self, nest: Nest) -> Callable[[Index], bool]:
        buffer = buffers_in(nest).get(self.tensor)
        shape = buffer.shape if buffer is not None else ()
        last = max((d for d, extent in enumerate(shape) if extent > 1), default=-1)
        return lambda index: last >= 0 and self.along in index[last].vars()

    def _moving(self, body: tuple[Stmt, ...], index: Index) -> tuple[For, ...]:
        """The loops of `body` around the read at `index` that move it, `along` last."""
        leaf = next(
            leaf
            for leaf in leaves(body)
            if isinstance(leaf, Store | Update)
            and any(ld.tensor == self.tensor and ld.index == index for ld in loads(leaf.value))
        )
        chain = chain_to(body, leaf)
        assert chain is not None
        moving = [loop for loop in chain if any(loop.var in i.vars() for i in index)]
        return tuple(sorted(moving, key=lambda loop: loop.var == self.along))


def _reading(body: tuple[Stmt, ...], old: Load, new: Load) -> tuple[Stmt, ...]:
    """`body` with one read in the place of another."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Store | Update):
            return None
        return (
            replace(stmt, value=rewrite_scalar(stmt.value, lambda n: new if n == old else None)),
        )

    return transform(body, change)
