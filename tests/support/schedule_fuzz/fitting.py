"""Steps that are hardly ever legal by chance, at a place of the nest that looks as they need it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, takewhile
from typing import TypeVar

from tilewright.schedules.algebra.affine import Index
from tilewright.schedules.algebra.congruence import congruence_of
from tilewright.schedules.algebra.neutral import neutral_conditions
from tilewright.schedules.algebra.scalar import index_conds, loads
from tilewright.schedules.nest.editing import flattened
from tilewright.schedules.nest.finding import buffers_in, write_sites
from tilewright.schedules.nest.loop_ir import (
    BufferScope,
    For,
    LoopKind,
    Nest,
    Stmt,
    Update,
    buffers_allocated,
    loops,
)
from tilewright.schedules.nest.scans import recurrence
from tilewright.schedules.nest.selected import selected_iteration
from tilewright.schedules.primitives import (
    BlockRead,
    CacheRead,
    CacheWrite,
    CarryScan,
    ComputeAt,
    Fuse,
    Initialise,
    Inline,
    Merge,
    PackAhead,
    Primitive,
    ReverseComputeAt,
    RFactor,
    ScanBlocks,
    SkipBlocks,
    SkipZeros,
    Solve,
    Split,
    Stagger,
    Stream,
    TakeSelected,
)
from tilewright.schedules.primitives import Prefetch as PrefetchStep
from tilewright.schedules.primitives import PrefetchStores as PrefetchStoresStep

T = TypeVar("T")


def fitting_step(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """A step of a random kind of those for which something in `nest` looks right, with `new` as a
    name where it needs one; None where nothing does."""
    kinds = rng.sample(_KINDS, len(_KINDS))
    return next(filter(None, (kind(rng, nest, new) for kind in kinds)), None)


def _one_of(rng: random.Random, found: Sequence[T]) -> T | None:
    return rng.choice(found) if found else None


def _blocks(nest: Nest) -> Iterator[tuple[For | None, list[Stmt]]]:
    """Each loop, and None for the nest, with the statements of its body."""
    yield None, flattened(nest.body)[1]
    for loop in loops(nest.body):
        yield loop, flattened(loop.body)[1]


def _merge(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """Two loops of a block that are as long."""
    pairs = [
        (a, b)
        for _, block in _blocks(nest)
        for a, b in combinations([stmt for stmt in block if isinstance(stmt, For)], 2)
        if a.extent == b.extent and a.kind is b.kind is not LoopKind.PARALLEL
    ]
    pair = _one_of(rng, pairs)
    return pair and Merge(pair[0].var, pair[1].var)


def _stagger(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A loop over several others, cut before one or two of these."""
    found = []
    for loop, block in _blocks(nest):
        inside = [stmt.var for stmt in block[1:] if isinstance(stmt, For)]
        if loop is not None and loop.kind is LoopKind.SERIAL and inside:
            found.append((loop, inside))
    chosen = _one_of(rng, found)
    if chosen is None:
        return None
    loop, inside = chosen
    places = sorted(rng.sample(range(len(inside)), min(len(inside), rng.randint(1, 2))))
    return Stagger(loop.var, tuple(inside[place] for place in places))


def _padded(nest: Nest) -> list[tuple[Update, tuple[For, ...]]]:
    """The updates that padding makes neutral somewhere."""
    return [
        (leaf, around)
        for leaf, around in write_sites(nest.body)
        if isinstance(leaf, Update) and neutral_conditions(leaf.value, leaf.reducer)
    ]


def _cache_padded(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """What SkipZeros needs: sums of padded reads that are begun elsewhere."""
    found = [(leaf, around) for leaf, around in _padded(nest) if leaf.first is not None]
    chosen = _one_of(rng, found)
    if chosen is None:
        return None
    leaf, around = chosen
    spatial = [loop.var for loop in around if not loop.reduce]
    return CacheWrite(leaf.buffer, rng.choice(["", *spatial]), new, False)


def _skip_zeros(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """Padding of sums that are begun elsewhere, everywhere or around a loop."""
    found = [(leaf, around) for leaf, around in _padded(nest) if leaf.first is None]
    chosen = _one_of(rng, found)
    if chosen is None:
        return None
    leaf, around = chosen
    loop = rng.choice(["", *(loop.var for loop in around)])
    return (
        SkipBlocks(leaf.buffer, loop)
        if loop and rng.random() < 0.6
        else SkipZeros(leaf.buffer, loop)
    )


def _reads(nest: Nest) -> list[tuple[str, Index, tuple[For, ...]]]:
    """Every read: the tensor, its index and the loops around it."""
    return [
        (ld.tensor, ld.index, around)
        for leaf, around in write_sites(nest.body)
        for ld in loads(leaf.value)
    ]


def _block_read(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """A read with a loop in the tensor's last dimension, before that loop or one around it."""
    shapes = {name: buffer.shape for name, buffer in buffers_in(nest).items()}
    found = []
    for tensor, index, around in _reads(nest):
        long = [i for i, extent in zip(index, shapes[tensor], strict=True) if extent > 1]
        moving = long[-1].vars() if long else frozenset()
        found += [
            (tensor, outer.var, inner.var)
            for outer, inner in combinations(around, 2)
            if inner.var in moving and outer.kind is not LoopKind.VECTORIZED
        ]
    chosen = _one_of(rng, found)
    return chosen and BlockRead(chosen[0], chosen[1], new, chosen[2])


def _cache_along(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """Reads that move with a loop, before a loop around it."""
    found = [
        (tensor, outer.var, inner.var)
        for tensor, index, around in _reads(nest)
        for outer, inner in combinations(around, 2)
        if any(inner.var in i.vars() for i in index)
    ]
    chosen = _one_of(rng, found)
    return chosen and CacheRead(chosen[0], chosen[1], new, along=chosen[2])


def _solve(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A reduction loop of an equation; or, before, a loop of it divided by its modulus."""
    found: list[Primitive] = []
    for leaf, around in write_sites(nest.body):
        for congruence in filter(None, map(congruence_of, index_conds(leaf.value))):
            inside = [loop for loop in around if loop.var in congruence.index.vars()]
            found += [Solve(loop.var) for loop in inside if loop.reduce]
            found += [
                Split(loop.var, congruence.modulus)
                for loop in inside
                if loop.extent > congruence.modulus > 1
            ]
    return _one_of(rng, found)


def _plain_stages(nest: Nest) -> list[str]:
    """The buffers inside whose elements are written one after the other, as at first."""
    inside = {buffer.name for buffer in buffers_allocated(nest.body)}
    return [
        leaf.buffer
        for leaf, around in write_sites(nest.body)
        if leaf.buffer in inside
        and all(loop.kind is LoopKind.SERIAL for loop in around)
        and {str(i) for i in leaf.index} == {loop.var for loop in around if not loop.reduce}
    ]


def _compute_at(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A stage inside that is as it was, in one of the loops that are around all its readers."""
    found = []
    for name in _plain_stages(nest):
        readers = [{x.var for x in around} for tensor, _, around in _reads(nest) if tensor == name]
        common = set.intersection(*readers) if readers else set()
        found += [(name, loop) for loop in sorted(common)]
    chosen = _one_of(rng, found)
    return chosen and ComputeAt(*chosen, rng.random() < 0.2)


def _inline(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A stage inside that is as it was."""
    name = _one_of(rng, _plain_stages(nest))
    return Inline(name) if name else None


def _prefetch(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """What a loop reads when one around it has gone on, dealt out over one between them."""
    found = [(tensor, around) for tensor, _, around in _reads(nest) if around]
    chosen = _one_of(rng, found)
    if chosen is None:
        return None
    tensor, around = chosen
    if rng.random() < 0.2:
        return PrefetchStep(tensor, rng.choice(around).var, rng.randint(1, 2))
    outer, inner = sorted(rng.choices(range(len(around)), k=2))
    deal = rng.choice(["", *(loop.var for loop in around[outer + 1 : inner])])
    ahead, step = rng.randint(1, 2), rng.choice((1, 4, 16))
    return PrefetchStep(tensor, around[outer].var, ahead, around[inner].var, deal, step)


def _prefetch_stores(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """What a loop around a store stores."""
    sites = [(leaf.buffer, around) for leaf, around in write_sites(nest.body) if around]
    chosen = _one_of(rng, sites)
    if chosen is None:
        return None
    tensor, around = chosen
    return PrefetchStoresStep(tensor, rng.choice(around).var, rng.choice((1, 4, 16)))


def _pack_ahead(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """A copy of a constant input, which is made of nothing else, or such a copy to come."""
    constants = [tensor.name for tensor in nest.inputs if tensor.constant]
    copies = [
        leaf.buffer
        for leaf, _ in write_sites(nest.body)
        if any(load.tensor in constants for load in loads(leaf.value))
        and buffers_in(nest)[leaf.buffer].scope is BufferScope.WORKSPACE
    ]
    if copies and rng.random() < 0.5:
        return PackAhead(rng.choice(copies))
    return CacheRead(rng.choice(constants), "", new) if constants else None


def _fuse(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """Two loops nested in each other, one of them of one iteration if there are such: the guard of
    a split is then on a loop that writes the output as before."""
    found = [
        (loop, inner)
        for loop, block in _blocks(nest)
        if loop is not None and loop.kind is LoopKind.SERIAL and len(block) == 1
        for inner in block
        if isinstance(inner, For) and inner.kind is loop.kind and inner.reduce == loop.reduce
    ]
    once = [pair for pair in found if 1 in (pair[0].extent, pair[1].extent)]
    chosen = _one_of(rng, once or found)
    return chosen and Fuse(chosen[0].var, chosen[1].var)


def _rfactor(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """A reduction loop around one update at the loops that do not reduce."""
    found: list[Primitive] = []
    for leaf, around in write_sites(nest.body):
        reduced = [loop.var for loop in around if loop.reduce and loop.kind is LoopKind.SERIAL]
        if isinstance(leaf, Update) and leaf.first is not None and reduced:
            spatial = [loop for loop in around if not loop.reduce]
            if [loop.var for loop in spatial] == [str(i) for i in leaf.index]:
                found += [RFactor(loop, new) for loop in reduced]
    return _one_of(rng, found)


def _initialise(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A reduction that begins in its first update, outside of its reduction loops."""
    found = []
    for leaf, around in write_sites(nest.body):
        if isinstance(leaf, Update) and leaf.first is not None:
            outside = list(takewhile(lambda loop: not loop.reduce, around))
            found.append(Initialise(leaf.buffer, rng.choice(["", *(x.var for x in outside)])))
    return _one_of(rng, found)


def _take_selected(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A loop of which data select an iteration."""
    serial = (loop for loop in loops(nest.body) if loop.kind is LoopKind.SERIAL)
    return _one_of(rng, [TakeSelected(x.var) for x in serial if selected_iteration(x)])


def _scan_blocks(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """A loop around one along a scan, both serial."""
    found = [
        ScanBlocks(outer.var, new, f"{new}.c")
        for leaf, around in write_sites(nest.body)
        if recurrence(leaf) is not None
        for outer, inner in combinations(around, 2)
        if outer.kind is inner.kind is LoopKind.SERIAL
        and any({outer.var, inner.var} <= i.vars() for i in leaf.index)
    ]
    return _one_of(rng, found)


def _carry_scan(rng: random.Random, nest: Nest, new: str) -> Primitive | None:
    """The outermost loop along a scan, or one inside it, and a width that may be that of lanes."""
    found = []
    for leaf, around in write_sites(nest.body):
        if recurrence(leaf) is not None:
            along = [x for x in around if any(x.var in i.vars() for i in leaf.index)]
            lanes = [x.extent for x in around if x.kind is LoopKind.VECTORIZED]
            found += [(leaf.buffer, x.var, new, n) for x in along for n in (1, 4, *lanes * 3)]
    chosen = _one_of(rng, found)
    return chosen and CarryScan(*chosen, rng.random() < 0.5)


def _reverse_compute_at(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """A stage that reads another one."""
    written = {leaf.buffer for leaf, _ in write_sites(nest.body)}
    found = [
        ReverseComputeAt(leaf.buffer, load.tensor)
        for leaf, _ in write_sites(nest.body)
        for load in loads(leaf.value)
        if load.tensor in written - {leaf.buffer}
    ]
    return _one_of(rng, found)


def _stream(rng: random.Random, nest: Nest, _: str) -> Primitive | None:
    """An output."""
    return Stream(rng.choice(nest.outputs).name)


_RARE = (
    _initialise,
    _take_selected,
    _cache_padded,
    _skip_zeros,
    _solve,
    _scan_blocks,
    _carry_scan,
    _reverse_compute_at,
)
"""Kinds for which few nests have a place."""

_KINDS: tuple[Callable[[random.Random, Nest, str], Primitive | None], ...] = (
    _merge, _stagger, _block_read, _cache_along, _compute_at, _inline, _prefetch,
    _prefetch_stores, _pack_ahead, _stream, *(_fuse, _rfactor) * 2, *_RARE * 3,
)  # fmt: skip
