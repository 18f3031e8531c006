"""Neighbouring axes that every tensor has side by side are as good as one: rows and columns of an
image, where channels move. One long axis fills vectors that short ones do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...algebra.affine import Affine, var
from ...primitives import Fuse
from ..analysis import Loop, Read, StageView


@dataclass(frozen=True, slots=True)
class Joined:
    """A stage as it is once the loops of `steps` are fused."""

    view: StageView
    steps: tuple[Fuse, ...]


def joined(view: StageView) -> Joined:
    """`view` with all neighbouring axes fused that may be; indices and shapes of its reads follow.
    An axis that a condition or a value speaks of stays."""
    steps: list[Fuse] = []
    if view.is_reduction or view.presplit or view.guards or not view.reads_only:
        return Joined(view, ())
    n = len(view.spatial) - 2
    while n >= 0:
        outer, inner = view.spatial[n : n + 2]
        both = outer.extent > 1 and inner.extent > 1
        if both and all(_side_by_side(read, outer, inner) for read in view.reads):
            steps.append(Fuse(outer.name, inner.name))
            view = _with_one(view, n)
        n -= 1
    return Joined(view, tuple(steps))


def _side_by_side(read: Read, outer: Loop, inner: Loop) -> bool:
    """Whether `read` goes on along `outer` where it ends along `inner`, or uses neither."""
    if not read.uses(outer.name) and not read.uses(inner.name):
        return True
    at = _dim(read, outer)
    if at is None or at + 1 >= len(read.index) or read.conditional:
        return False
    alone = sum(inner.name in i.vars() for i in read.index) == 1
    return alone and _dim(read, inner) == at + 1 and read.shape[at + 1] == inner.extent


def _dim(read: Read, loop: Loop) -> int | None:
    """The one dimension whose index is just `loop`."""
    at = read.own_dim(loop.name)
    return at if at is not None and read.index[at] == var(loop.name) else None


def _with_one(view: StageView, n: int) -> StageView:
    outer, inner = view.spatial[n : n + 2]
    one = replace(outer, name=f"{outer.name}f", extent=outer.extent * inner.extent)
    reads = tuple(_read_with_one(read, outer, one) for read in view.reads)
    return replace(view, spatial=(*view.spatial[:n], one, *view.spatial[n + 2 :]), reads=reads)


def _read_with_one(read: Read, outer: Loop, one: Loop) -> Read:
    at = _dim(read, outer)
    if at is None:
        return read
    index: tuple[Affine, ...] = (*read.index[:at], var(one.name), *read.index[at + 2 :])
    extent = read.shape[at] * read.shape[at + 1]
    return replace(read, index=index, shape=(*read.shape[:at], extent, *read.shape[at + 2 :]))
