"""Random traces: every primitive, with arguments that are often sensible and sometimes not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from tilewright.schedules.algebra.scalar import Compare, CompareOp
from tilewright.schedules.algebra.scalar import walk as walk_scalar
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, plain_nest, start
from tilewright.schedules.nest.finding import chain_to, write_sites
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    For,
    LoopKind,
    Nest,
    Stmt,
    Update,
    leaves,
    loops,
    loops_named,
    walk,
)
from tilewright.schedules.nest.verify_nest import MalformedNest, unproven_accesses, verify
from tilewright.schedules.primitives import (
    PRIMITIVES,
    BlockRead,
    CacheRead,
    CacheWrite,
    CarryScan,
    ComputeAt,
    Extend,
    Fuse,
    Initialise,
    Inline,
    KeepElements,
    Merge,
    PackAhead,
    Parallel,
    Partition,
    Prefetch,
    PrefetchStores,
    Primitive,
    Reorder,
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
    TransformLayout,
    Unroll,
    Vectorize,
)
from tilewright.schedules.primitives.scatters import check_selected
from tilewright.schedules.rewrites import (
    CopyOutput,
    MaskResult,
    MergeAxes,
    ReduceAxisLast,
    RepeatConditions,
    RepeatElements,
    Rewrite,
    SplitAxis,
)
from tilewright.schedules.sketches.forms.rewriting import regrouped, rewrites_for
from tilewright.schedules.trace import Step, Trace
from tilewright.schedules.workload.workload import Workload

from .fitting import fitting_step

MAX_COPIES = 256
"""Copies of statements that unrolling may make: more is slow to compile and finds nothing new."""


def random_trace(rng: random.Random, workload: Workload, most_steps: int = 25) -> tuple[Trace, int]:
    """A legal trace of up to `most_steps` steps, and how many illegal steps were refused; rewrites
    stand before them where the workload allows any, or is better regrouped.

    Any exception but ScheduleError is a failure of the primitives, and so is a nest, before or
    after it is cleaned up, that is malformed or has an access that is not proved in bounds.
    """
    form = workload.normalised()
    choices = [other.steps for other in (*rewrites_for(form), regrouped(form)) if other.steps]
    rewrites = rng.choice(choices) if choices and rng.random() < 0.7 else ()
    for moves in (_conditions, _divisions, _merges):
        rewrites = (*rewrites, *_one_of(rng, moves, start(workload, Trace(rewrites))[0]))
    rewritten, _ = start(workload, Trace(rewrites))
    nest = plain_nest(rewritten)
    _require_sound(nest, rewrites)
    steps: list[Step] = [*rewrites]
    refused = 0
    kinds = _some_kinds(rng)
    first = _longer_loop(rng, nest) if rng.random() < 0.3 else _scatter(rng, nest)
    for _ in range(rng.randint(1, most_steps) + len(first)):
        step = first.pop(0) if first else _step_of(rng, nest, kinds)
        try:
            made = step.made(nest)
            check_selected(made.nest, step)  # as `Trace.apply` does
        except ScheduleError:
            refused += 1
            continue
        except Exception as error:
            shown = Trace((*steps, step)).to_json()
            raise AssertionError(f"{type(error).__name__}: {error} from {shown}") from error
        after, old = made.nest, loops_named(nest.body)
        # A stage that moves may have loops of the same names again: those are made, and not new.
        told = [
            loop.var for loop in loops(after.body) if loop.var in made.loops or loop.var not in old
        ]
        assert list(made.loops) == told, f"{step} makes {told}, and says {made.loops}"
        if _copies(after) > MAX_COPIES or sum(1 for _ in walk(after.body)) > 150:
            continue
        _require_sound(after, (*steps, step))
        steps.append(step)
        nest = after
    try:
        _require_sound(clean(nest), steps)
    except ScheduleError:
        refused += 1
    return Trace(tuple(steps)), refused


def _one_of(
    rng: random.Random, kinds: Callable[[Workload], list[Rewrite]], form: Workload
) -> tuple[Rewrite, ...]:
    """A legal rewrite of `kinds`, or none; half the time none is tried."""
    if rng.random() < 0.5:
        return ()
    every = kinds(form)
    for step in rng.sample(every, len(every)):
        try:
            step.rewrite(form)
        except ScheduleError:
            continue
        return (step,)
    return ()


def _merges(form: Workload) -> list[Rewrite]:
    """The merges of two axes of a stage, and the splits of one, legal or not."""
    pairs = ((s.name, a.name, b.name) for s in form.stages for a, b in pairwise(s.all_axes))
    axes = ((s.name, a) for s in form.stages for a in s.all_axes)
    splits = (SplitAxis(name, a.name, n) for name, a in axes for n in (2, 3, a.extent // 2))
    return [*(MergeAxes(*pair) for pair in pairs), *splits]


def _divisions(form: Workload) -> list[Rewrite]:
    """Reductions over one axis last, and reads that are stored, legal or not."""
    last = (
        ReduceAxisLast(s.name, outer.name, inner.name)
        for s in form.stages
        for outer in s.axes
        for inner in s.reduce_axes
    )
    return [*last, *(RepeatElements(s.name, n) for s in form.stages for n in range(3))]


def _conditions(form: Workload) -> list[Rewrite]:
    """Conditions of results and of stored constants, moved to where work is skipped, and copies of
    outputs that are read."""
    kinds = (MaskResult, RepeatConditions, CopyOutput)
    return [kind(stage.name) for stage in form.stages for kind in kinds]


def _longer_loop(rng: random.Random, nest: Nest) -> list[Primitive]:
    """Steps that put a loop of more iterations, and a guard, in the place of one loop: to a step
    that looks at indices alone the stage is as it was."""
    loop = rng.choice(list(loops(nest.body)))
    around = [x for x in loops(nest.body) if x.body == (loop,) and x.reduce == loop.reduce]
    parts = (f"{loop.var}o", f"{loop.var}i")
    outer, inner = (around[0].var, parts[0]) if around else parts
    return [Split(loop.var, loop.extent + rng.choice((1, 3))), Fuse(outer, inner)]


def _scatter(rng: random.Random, nest: Nest) -> list[Primitive]:
    """Steps after which data may select an iteration of an output loop, of a reduction that
    compares with data; none of other nests."""
    found = [
        (leaf, around)
        for leaf, around in write_sites(nest.body)
        if isinstance(leaf, Update)
        and any(isinstance(x, Compare) and x.op is CompareOp.EQ for x in walk_scalar(leaf.value))
    ]
    if not found or rng.random() < 0.3:
        return []
    leaf, around = rng.choice(found)
    outputs = [loop.var for loop in around if not loop.reduce]
    order = (*(loop.var for loop in around if loop.reduce), *outputs)
    return [Initialise(leaf.buffer, ""), Reorder(order), *map(TakeSelected, outputs)]


def _some_kinds(rng: random.Random) -> Sequence[type[Primitive]]:
    """Nothing, which is all kinds, or half of the time Split and three others: what goes wrong
    needs few kinds, which hardly ever meet among all (swarm testing; A. Groce and others, 2012)."""
    return () if rng.random() < 0.5 else (Split, *rng.sample(PRIMITIVES, 3))


def _step_of(rng: random.Random, nest: Nest, kinds: Sequence[type[Primitive]]) -> Primitive:
    """A random step of one of `kinds`, each as often; of any kind where it is not drawn soon."""
    step = random_step(rng, nest)
    if kinds:
        kind = rng.choice(kinds)
        for _ in range(30):
            if isinstance(step, kind):
                break
            step = random_step(rng, nest)
    return step


def _require_sound(nest: Nest, steps: Sequence[Step]) -> None:
    """AssertionError unless `nest`, which `steps` gave, is well formed and provably in bounds."""
    shown = Trace(tuple(steps)).to_json()
    try:
        verify(nest)
    except MalformedNest as error:
        raise AssertionError(f"{error} from {shown}") from error
    unproven = [str(access) for access in unproven_accesses(nest)]
    assert not unproven, f"{unproven} from {shown}"


def _copies(nest: Nest) -> int:
    """How many leaves there are once unrolled loops are written out."""

    def count(stmts: tuple[Stmt, ...]) -> int:
        total = 0
        for stmt in stmts:
            match stmt:
                case For():
                    times = stmt.extent if stmt.kind is LoopKind.UNROLLED else 1
                    total += times * count(stmt.body)
                case Allocate():
                    total += count(stmt.body)
                case _:
                    total += 1
        return total

    return count(nest.body)


def random_step(rng: random.Random, nest: Nest) -> Primitive:
    """Any primitive with names that occur in `nest` (now and then one that does not); a third
    of the time one that is made for a place of it, where it has such a place."""
    new = f"q{rng.randint(0, 9)}"
    fitting = fitting_step(rng, nest, new) if rng.random() < 0.35 else None
    return fitting or _any_step(rng, nest, new)


def _any_step(rng: random.Random, nest: Nest, new: str) -> Primitive:
    """Any primitive with arguments that are often sensible and sometimes not."""
    found = list(loops(nest.body))
    by_name = {loop.var: loop for loop in found}
    names = list(by_name) or ["none"]
    # Marked loops allow little more: what is serial is asked for most of the time.
    serial = [n for n in names if n in by_name and by_name[n].kind is LoopKind.SERIAL] or names
    loop = rng.choice(serial if rng.random() < 0.9 else [*names, "no.such.loop"])
    private = [s.buffer for s in walk(nest.body) if isinstance(s, Allocate)]
    buffers = [*(b.name for b in nest.argument_buffers), *(b.name for b in private)]
    extent = by_name[loop].extent if loop in by_name else 1
    inner = by_name[loop].body[0] if loop in by_name else None
    body_loop = getattr(inner, "var", loop)
    kind = rng.random()
    if kind < 0.22:
        return Split(loop, rng.choice((1, 2, 3, 4, 5, 7, 8, 16, extent, 0)))
    if kind < 0.30:
        return Reorder(tuple(rng.sample(names, min(len(names), rng.randint(2, 4)))))
    if kind < 0.36:
        chain = _chain(nest, loop)
        rng.shuffle(chain)
        return Reorder(tuple(chain) or (loop,))
    if kind < 0.42:
        return Fuse(loop, body_loop if rng.random() < 0.8 else rng.choice(names))
    if kind < 0.50:
        return Vectorize(_innermost(by_name, loop) if rng.random() < 0.7 else loop)
    if kind < 0.55:
        return Unroll(loop)
    if kind < 0.60:
        return Parallel(loop)
    if kind < 0.62:
        if rng.random() < 0.3:
            return Extend(loop, rng.choice((extent, extent + 1, extent + 3, 2 * extent, 0)))
        same = [n for n in names if n in by_name and by_name[n].extent == extent]
        return Merge(loop, rng.choice(same or names))
    if kind < 0.63:
        below = [x.var for x in loops(by_name[loop].body)] if loop in by_name else []
        return Stagger(loop, tuple(rng.sample(below, min(len(below), rng.randint(1, 2)))))
    if kind < 0.67:
        return Partition(loop, rng.choice((1, 2, 3, max(extent // 2, 1), max(extent - 1, 1))))
    place = "" if rng.random() < 0.15 else loop
    if kind < 0.74:
        constants = [t.name for t in nest.inputs if t.constant]
        if constants and rng.random() < 0.5:  # what can be prepacked, more often than by chance
            return CacheRead(rng.choice(constants), "", new)
        if rng.random() < 0.15:
            blocks = rng.choice((False, True))
            tensor, along = rng.choice(buffers), rng.choice(names)
            if blocks:
                return BlockRead(tensor, place, new, along)
            return CacheRead(tensor, place, new, along=along)
        return CacheRead(rng.choice(buffers), place, new, rng.random() < 0.15)
    if kind < 0.82:
        if rng.random() < 0.3:
            return KeepElements(rng.choice(buffers), loop, new, rng.random() < 0.4)
        return CacheWrite(rng.choice(buffers), place, new, rng.random() < 0.4)
    own = [b.name for b in private] or buffers
    if kind < 0.88:
        return ComputeAt(rng.choice(own), loop, rng.random() < 0.2)
    if kind < 0.90:
        return Inline(rng.choice(own))
    if kind < 0.93:
        reducing = [n for n in names if n in by_name and by_name[n].reduce] or names
        return RFactor(rng.choice(reducing), new)
    if kind < 0.935:
        scatter = (
            TakeSelected(loop) if rng.random() < 0.5 else Initialise(rng.choice(buffers), place)
        )
        return scatter
    if kind < 0.94:
        reducing = [n for n in names if n in by_name and by_name[n].reduce] or names
        return Solve(rng.choice(reducing))
    if kind < 0.955:
        if rng.random() < 0.4:
            return rng.choice((SkipZeros, SkipBlocks))(rng.choice(own), loop)
        return SkipZeros(rng.choice(own))
    if kind < 0.965:
        if rng.random() < 0.5:
            around = _around(nest, loop)
            deal = rng.choice((*around, ""))
            return Prefetch(
                rng.choice(buffers), rng.choice(around), rng.randint(0, 2), loop, deal, 4
            )
        if rng.random() < 0.3:
            return PrefetchStores(rng.choice(own), loop, rng.choice((0, 1, 4, 16)))
        return Prefetch(rng.choice(buffers), loop, rng.randint(0, 3))
    if kind < 0.97:
        if rng.random() < 0.3:
            return _scan_step(rng, loop, buffers, new)
        return Stream(rng.choice(buffers))
    if kind < 0.98 and rng.random() < 0.7:
        return PackAhead(rng.choice(own))
    return _layout(rng, nest, rng.choice(own))


def _scan_step(rng: random.Random, loop: str, buffers: list[str], new: str) -> Primitive:
    """A step that is for scans."""
    one, other = rng.choice(buffers), rng.choice(buffers)
    return rng.choice(
        (
            ScanBlocks(loop, new, f"{new}.c"),
            CarryScan(one, loop, new, rng.choice((0, 1, 3, 4, 8)), rng.random() < 0.5),
            ReverseComputeAt(one, other),
        )
    )


def _chain(nest: Nest, name: str) -> list[str]:
    """The loops perfectly nested from `name` on."""
    current: object = next((loop for loop in loops(nest.body) if loop.var == name), None)
    found: list[str] = []
    while isinstance(current, For):
        found.append(current.var)
        current = current.body[0] if len(current.body) == 1 else None
    return found


def _around(nest: Nest, name: str) -> list[str]:
    """Loop `name` and the loops around it, outermost first."""
    for leaf in leaves(nest.body):
        names = [loop.var for loop in chain_to(nest.body, leaf) or ()]
        if name in names:
            return names[: names.index(name) + 1]
    return [name]


def _innermost(by_name: Mapping[str, For], name: str) -> str:
    """The first innermost loop within loop `name`."""
    current = by_name.get(name)
    while current is not None:
        name = current.var
        current = next((s for s in current.body if isinstance(s, For)), None)
    return name


def _layout(rng: random.Random, nest: Nest, name: str) -> TransformLayout:
    shapes = {b.name: b.shape for b in nest.argument_buffers}
    shapes |= {s.buffer.name: s.buffer.shape for s in walk(nest.body) if isinstance(s, Allocate)}
    rank = len(shapes[name])
    split = [(d, rng.choice((2, 3, 4, 8))) for d in range(rank) if rng.random() < 0.4]
    divided = {d for d, _ in split}
    dims = [(d, p) for d in range(rank) for p in ((1, 2) if d in divided else (0,))]
    rng.shuffle(dims)
    return TransformLayout(name, tuple(split), tuple(dims))
