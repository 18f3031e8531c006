"""Finding loops and leaves in a nest, and replacing them: what every primitive needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..algebra.affine import (
    Affine,
    Cond,
    Interval,
    Var,
    affine,
    prove,
    simplify,
    substitute_cond,
    tighten,
    var,
)
from ..algebra.scalar import Load, Scalar, loads, rename_tensors
from ..algebra.scalar import map_index as map_scalar_index
from ..algebra.scalar import substitute as substitute_scalar
from ..errors import ScheduleError
from ..nest.ahead import ahead_problem
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    Leaf,
    LoopKind,
    Nest,
    Prefetch,
    Stmt,
    Store,
    Update,
    buffers_allocated,
    leaves,
    loops,
    loops_named,
    transform,
    with_body,
    writing,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A loop and what stands around it, outermost first."""

    loop: For
    outer: tuple[For, ...]
    allocated: tuple[Buffer, ...]


def find_loop(nest: Nest, name: str, asked_by: object) -> Place:
    """The loop called `name`; ScheduleError naming the loops there are if it is not one."""

    def search(
        stmts: tuple[Stmt, ...], outer: tuple[For, ...], allocated: tuple[Buffer, ...]
    ) -> Place | None:
        for stmt in stmts:
            found = None
            if isinstance(stmt, For):
                if not outer and name not in stmt.inside.loop_names:
                    continue
                if stmt.var == name:
                    return Place(stmt, outer, allocated)
                found = search(stmt.body, (*outer, stmt), allocated)
            elif isinstance(stmt, Allocate):
                found = search(stmt.body, outer, (*allocated, stmt.buffer))
            if found is not None:
                return found
        return None

    place = search(nest.body, (), ())
    if place is None:
        known = ", ".join(loop.var for loop in loops(nest.body))
        raise ScheduleError(asked_by, f"there is no loop {name!r}; the nest has {known}")
    return place


def require_serial(loop: For, asked_by: object) -> None:
    if loop.kind is not LoopKind.SERIAL:
        raise ScheduleError(
            asked_by, f"loop {loop.var!r} is {loop.kind.value}; this needs a serial loop"
        )


def require_body(loop: For, asked_by: object) -> None:
    """ScheduleError if `loop` is vectorised: its body holds leaves and nothing else."""
    if loop.kind is LoopKind.VECTORIZED:
        raise ScheduleError(asked_by, f"loop {loop.var!r} is vectorized: nothing goes inside it")


def replace_loop(nest: Nest, name: str, new: tuple[Stmt, ...]) -> Nest:
    """`nest` with the loop called `name` replaced by `new`."""

    def inside(stmts: tuple[Stmt, ...], outermost: bool) -> tuple[Stmt, ...]:
        for n, stmt in enumerate(stmts):
            if isinstance(stmt, For):
                if outermost and name not in stmt.inside.loop_names:
                    continue
                if stmt.var == name:
                    return (*stmts[:n], *new, *stmts[n + 1 :])
                body = inside(stmt.body, False)
            elif isinstance(stmt, Allocate):
                body = inside(stmt.body, outermost)
            else:
                continue
            if body is not stmt.body:
                return (*stmts[:n], with_body(stmt, body), *stmts[n + 1 :])
        return stmts

    return Nest(nest.inputs, nest.outputs, inside(nest.body, True), nest.streamed)


def still_ahead(nest: Nest, asked_by: object) -> Nest:
    """`nest`; ScheduleError if something it makes ahead of calls cannot be any more."""
    problem = ahead_problem(nest)
    if problem is not None:
        raise ScheduleError(asked_by, f"what is packed ahead must stay so: {problem}")
    return nest


def ranges_of(chain: tuple[For, ...]) -> dict[str, Interval]:
    """The values of each loop variable of `chain`."""
    return {loop.var: Interval(0, loop.extent - 1) for loop in chain}


def all_ranges(stmts: tuple[Stmt, ...]) -> dict[str, Interval]:
    return {loop.var: Interval(0, loop.extent - 1) for loop in loops(stmts)}


def names_in(nest: Nest) -> set[str]:
    """Every loop and buffer name in use."""
    names = {tensor.name for tensor in (*nest.inputs, *nest.outputs)}
    names |= loops_named(nest.body)
    names.update(buffer.name for buffer in buffers_allocated(nest.body))
    return names


def buffers_in(nest: Nest) -> dict[str, Buffer]:
    """Every buffer by name."""
    found = {b.name: b for b in nest.argument_buffers}
    found.update((buffer.name, buffer) for buffer in buffers_allocated(nest.body))
    return found


def map_leaf(
    leaf: Leaf,
    index: Callable[[Affine], Affine],
    scalar: Callable[[Scalar], Scalar],
    cond: Callable[[Cond], Cond],
) -> Leaf:
    """`leaf` with its index, value and conditions changed."""
    new_index = tuple(index(i) for i in leaf.index)
    if isinstance(leaf, Prefetch):
        return replace(leaf, index=new_index)
    guards = tuple(cond(g) for g in leaf.guards)
    value = scalar(leaf.value)
    if isinstance(leaf, Store):
        return Store(leaf.buffer, new_index, value, guards)
    first = None if leaf.first is None else tuple(cond(c) for c in leaf.first)
    return Update(leaf.buffer, new_index, value, leaf.reducer, first, guards)


def substitute_leaf(leaf: Leaf, mapping: Mapping[str, Affine]) -> Leaf:
    return map_leaf(
        leaf,
        lambda i: i.substitute(mapping),
        lambda s: substitute_scalar(s, mapping),
        lambda c: substitute_cond(c, mapping),
    )


def substitute_body(stmts: tuple[Stmt, ...], mapping: Mapping[str, Affine]) -> tuple[Stmt, ...]:
    """`stmts` with loop variables that are free in it replaced."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Store | Update | Prefetch):
            return (substitute_leaf(stmt, mapping),)
        return None

    return transform(stmts, change)


def divide_out(stmts: tuple[Stmt, ...], known: Mapping[str, Interval]) -> tuple[Stmt, ...]:
    """`stmts` with divisions and remainders by these variables' own strides resolved.

    `(17*o + i) // 17` with i in 0..16 is `o`, and stays so when i is split further.
    """

    def index(i: Affine) -> Affine:
        if all(isinstance(atom, Var) for atom, _ in i.terms):
            return i
        total = affine(i.const)
        for atom, c in i.terms:
            term = Affine(((atom, 1),), 0)
            inside = () if isinstance(atom, Var) else atom.numerator.vars()
            if inside and known.keys() >= set(inside):
                term = simplify(term, known)
            total = total + term * c
        return total

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Store() | Update() | Prefetch():
                leaf = map_leaf(
                    stmt,
                    index,
                    lambda s: map_scalar_index(s, index),
                    lambda c: type(c)(index(c.index)),
                )
                return (leaf,)
            case _:
                return None

    return transform(stmts, change)


def add_guards(stmts: tuple[Stmt, ...], guards: tuple[Cond, ...]) -> tuple[Stmt, ...]:
    """`stmts` with `guards` on every leaf."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Store | Update):
            return (replace(stmt, guards=(*stmt.guards, *guards)),)
        return None

    return transform(stmts, change)


def rename_all(
    stmts: tuple[Stmt, ...], loop_names: Mapping[str, str], buffer_names: Mapping[str, str]
) -> tuple[Stmt, ...]:
    """`stmts` with its own loops and buffers renamed, definitions and uses alike."""
    variables = {old: var(new) for old, new in loop_names.items()}

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case For():
                name = loop_names.get(stmt.var, stmt.var)
                bounds = tuple(substitute_cond(c, variables) for c in stmt.bounds)
                return (replace(stmt, var=name, bounds=bounds, body=transform(stmt.body, change)),)
            case Allocate():
                new = buffer_names.get(stmt.buffer.name, stmt.buffer.name)
                body = transform(stmt.body, change)
                return (Allocate(replace(stmt.buffer, name=new), body),)
            case Store() | Update() | Prefetch():
                leaf = substitute_leaf(stmt, variables)
                name = buffer_names.get(leaf.buffer, leaf.buffer)
                if isinstance(leaf, Prefetch):
                    return (replace(leaf, buffer=name),)
                value = rename_tensors(leaf.value, buffer_names)
                if isinstance(leaf, Store):
                    return (Store(name, leaf.index, value, leaf.guards),)
                return (Update(name, leaf.index, value, leaf.reducer, leaf.first, leaf.guards),)

    return transform(stmts, change)


def reads_of(stmts: tuple[Stmt, ...], buffer: str) -> list[Load]:
    """Every load of `buffer` below `stmts`."""
    found: list[Load] = []
    for leaf in leaves(stmts):
        if not isinstance(leaf, Prefetch):
            found.extend(ld for ld in loads(leaf.value) if ld.tensor == buffer)
    return found


def writes_of(stmts: tuple[Stmt, ...], buffer: str) -> list[Store | Update]:
    """Every leaf below `stmts` that writes `buffer`."""
    return [w for w in writing(stmts, buffer) if not isinstance(w, Prefetch)]


def private_buffers(stmts: tuple[Stmt, ...]) -> set[str]:
    """Buffers allocated below `stmts`."""
    return {buffer.name for buffer in buffers_allocated(stmts)}


def chain_to(stmts: tuple[Stmt, ...], wanted: Leaf) -> tuple[For, ...] | None:
    """The loops below `stmts` around the leaf that is `wanted`, outermost first."""
    for stmt in stmts:
        if stmt is wanted:
            return ()
        if isinstance(stmt, For):
            if wanted.buffer not in stmt.inside.written:
                continue
            inner = chain_to(stmt.body, wanted)
            if inner is not None:
                return (stmt, *inner)
        elif isinstance(stmt, Allocate):
            inner = chain_to(stmt.body, wanted)
            if inner is not None:
                return inner
    return None


def nest_loops(chain: tuple[For, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`body` inside fresh copies of the loops of `chain`."""
    for loop in reversed(chain):
        body = (replace(loop, body=body),)
    return body


def simplify_conds(
    conds: tuple[Cond, ...], ranges: Mapping[str, Interval]
) -> tuple[Cond, ...] | None:
    """`conds` without those that always hold, the rest tightened; None if one never holds."""
    kept: dict[Cond, None] = {}
    for cond in conds:
        known = prove(cond, ranges)
        if known is False:
            return None
        if known is None:
            kept.setdefault(tighten(cond, ranges))
    return tuple(kept)


def leaf_sites(
    stmts: tuple[Stmt, ...], outer: tuple[For, ...] = ()
) -> Iterator[tuple[Leaf, tuple[For, ...]]]:
    """Every leaf with the loops around it."""
    for stmt in stmts:
        match stmt:
            case For():
                yield from leaf_sites(stmt.body, (*outer, stmt))
            case Allocate():
                yield from leaf_sites(stmt.body, outer)
            case Store() | Update() | Prefetch():
                yield stmt, outer


def flattened(stmts: tuple[Stmt, ...]) -> tuple[list[Buffer], list[Stmt]]:
    """What a body allocates outside of its loops, and its statements without that."""
    buffers: list[Buffer] = []
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Allocate):
            inner, below = flattened(stmt.body)
            buffers += [stmt.buffer, *inner]
            flat += below
        else:
            flat.append(stmt)
    return buffers, flat


def allocated(buffers: list[Buffer], stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """`stmts` inside allocations of `buffers`."""
    for buffer in reversed(buffers):
        stmts = (Allocate(buffer, stmts),)
    return stmts
