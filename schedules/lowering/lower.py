"""Lower a workload and a trace to the loop nest from which code is generated.

    workload -> its rewrites -> plain nest -> every other step of the trace -> cleaned nest

The plain nest is the unscheduled program: stages in order, loops in the order of the axes,
reductions innermost. A scan is a store that reads the element of the iteration before, and a
reduction of tuples is one such store for each component (`tuples.py`). Loops are named
`stage.axis`. Cleaning simplifies guards, bounds and extents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from ..algebra.affine import Affine, Index, Interval, affine, interval, simplify, var
from ..algebra.comparisons import Cond, Eq0, Ge0
from ..algebra.neutral import identity_of
from ..algebra.scalar import All, Binary, Load, Scalar, Select, rewrite, substitute
from ..algebra.scalar import map_index as map_scalar_index
from ..errors import ScheduleError, require
from ..limits import MAX_COPIES
from ..nest.editing import map_writes, simplify_conds, substitute_body
from ..nest.finding import accesses_of, ranges_of, write_sites
from ..nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
    StoreElement,
    Update,
    buffers_allocated,
    leaves,
    loops,
    with_body,
)
from ..nest.prepacking import prepack_problem
from ..nest.verify_bounds import first_unproven
from ..nest.verify_nest import verify
from ..primitives.dependence import check_marks
from ..primitives.marks import written_out
from ..primitives.scatters import check_selected
from ..primitives.tensorize import check_instructions
from ..rewrites import Rewrite, check_order
from ..trace import Trace
from ..workload.tensors import Elementwise, Reduction, Scan, Stage, TupleReduction
from ..workload.workload import Workload
from .empty_iterations import end_early, ends
from .relax import relax_guards
from .tuples import TupleGroup, tuple_groups
from .unread import skip_unread


def lower(workload: Workload, trace: Trace) -> Nest:
    """Return the cleaned and checked nest of `trace` on the normal form of `workload`.

    Code is generated only from such nests. Raise ScheduleError if a step is illegal or
    `check_lowered` rejects the nest. Raise MalformedNest if a step or `clean` has a bug.
    """
    rewritten, rest = start(workload, trace)
    nest = clean(rest.apply(plain_nest(rewritten)))
    check_lowered(nest)
    return nest


def check_lowered(nest: Nest) -> None:
    """Raise ScheduleError if an access is not proved in bounds, a parallel or vectorised loop is
    not legal, or the code is too large. Raise MalformedNest if the nest is not well formed.

    Every step and `clean` prove most of these rules for their results. An error therefore means
    that the code is too large, or that a step or `clean` has a bug.
    """
    verify(nest)
    copies = sum(map(written_out, nest.body))
    problem = f"unrolled loops make {copies} statements, at most {MAX_COPIES} are allowed"
    require(copies <= MAX_COPIES, "the lowered nest", problem)
    check_marks(nest.body, "the lowered nest")
    access = first_unproven(nest)
    require(access is None, "the lowered nest", f"every access must be proved in bounds; {access}")


def start(workload: Workload, trace: Trace) -> tuple[Workload, Trace]:
    """Return `workload` in the form in which it is scheduled, after the rewrites of `trace`, and
    the remaining primitives as a trace.

    Raise ScheduleError if a rewrite does not match, its error is not allowed, or the order of the
    rewrites is not allowed (`check_order`).
    """
    workload = workload.stored()
    check_order(trace.rewrites)
    for step in trace.rewrites:
        workload = step.rewrite(workload)
    return workload, Trace(trace.steps[len(trace.rewrites) :])


def stated_error(workload: Workload, rewrites: Sequence[Rewrite]) -> float:
    """Return the largest proven error of `rewrites`, which are applied in sequence, in the unit of
    `Workload.allowed_error`. Raise ScheduleError if a rewrite does not match or its error is not
    allowed."""
    workload, largest = workload.stored(), 0.0
    for step in rewrites:
        largest = max(largest, step.stated_error(workload))
        workload = step.rewrite(workload)
    return largest


def plain_nest(workload: Workload) -> Nest:
    """Return the unscheduled loop nest, to which the first primitive of a trace is applied."""
    workload = workload.stored()
    groups = tuple_groups(workload.stages)
    body = tuple(
        _tuple_nest(groups[stage.name]) if stage.name in groups else _stage_nest(stage)
        for stage in workload.stages
        if stage.name not in groups or stage.name == groups[stage.name].first
    )
    outputs = set(workload.outputs)
    for stage in reversed(workload.stages):
        if stage.name not in outputs:
            tensor = stage.tensor
            buffer = Buffer(tensor.name, tensor.shape, tensor.dtype, BufferScope.WORKSPACE)
            body = (Allocate(buffer, body),)
    return Nest(workload.inputs, workload.output_tensors, body)


def loop_name(stage: str, axis: str) -> str:
    return f"{stage}.{axis}"


def _stage_nest(stage: Stage) -> Stmt:
    renamed = {a.name: var(loop_name(stage.name, a.name)) for a in stage.all_axes}
    if isinstance(stage.kind, Scan) and stage.kind.reverse:
        last = stage.axes[stage.kind.dim]
        renamed[last.name] = affine(last.extent - 1) - renamed[last.name]
    index = tuple(renamed[a.name] for a in stage.axes)
    value = substitute(stage.body, renamed)
    stmt: Stmt
    match stage.kind:
        case Elementwise():
            stmt = StoreElement(stage.name, index, value)
        case Reduction(reducer, reduce_axes):
            first = tuple(Eq0(renamed[a.name]) for a in reduce_axes)
            stmt = Update(stage.name, index, value, reducer, first)
            for axis in reversed(reduce_axes):
                stmt = For(loop_name(stage.name, axis.name), axis.extent, (stmt,), reduce=True)
        case Scan():
            stmt = StoreElement(stage.name, index, _scanned(stage, stage.kind, index, value))
        case TupleReduction():
            raise AssertionError("every reduction of tuples is in a group")
        case _:
            assert_never(stage.kind)
    for axis in reversed(stage.axes):
        stmt = For(loop_name(stage.name, axis.name), axis.extent, (stmt,))
    return stmt


def _tuple_nest(group: TupleGroup) -> Stmt:
    """Return the nest of the stages of a reduction of tuples. Its loops are named after the stage
    with all components."""
    whole = group.whole
    renamed = {a.name: var(loop_name(whole.name, a.name)) for a in whole.all_axes}
    iteration = affine(0)
    for axis in whole.reduce_axes:
        iteration = iteration * axis.extent + renamed[axis.name]
    index = tuple(renamed[a.name] for a in whole.axes)
    value = substitute(whole.body, renamed)
    body: tuple[Stmt, ...] = group.leaves(index, value, Ge0(iteration - 1))
    for axis in reversed(whole.reduce_axes):
        body = (For(loop_name(whole.name, axis.name), axis.extent, body, reduce=True),)
    for axis in reversed(whole.axes):
        body = (For(loop_name(whole.name, axis.name), axis.extent, body),)
    for buffer in group.private_buffers:
        body = (Allocate(buffer, body),)
    (nest,) = body
    return nest


def _scanned(stage: Stage, kind: Scan, index: Index, value: Scalar) -> Scalar:
    """Return the element of a scan at `index`: `value` combined with the previous element, or with
    the identity in the first iteration of the loop."""
    dtype, iteration = stage.tensor.dtype, var(loop_name(stage.name, stage.axes[kind.dim].name))
    before = [*index]
    before[kind.dim] = before[kind.dim] + (1 if kind.reverse else -1)
    previous = Load(stage.name, tuple(before), dtype)
    is_later = All((Ge0(iteration - 1),))
    combined = Select(is_later, previous, identity_of(kind.reducer, value))
    return Binary(kind.reducer.op, combined, value)


def clean(nest: Nest) -> Nest:
    """Return an equivalent nest with simpler guards, bounds and extents.

    Redundant guards are removed, updates of unused elements are guarded, guards are moved into loop
    bounds, and loops are shrunk to useful iterations. Raise ScheduleError if a register buffer is
    indexed by a loop that is neither unrolled nor vectorised. Raise it also if an instruction or
    prepacking no longer applies.
    """
    zero: dict[str, Affine] = {}
    body = substitute_body(_shrink(nest.body, {}, zero), zero)
    body = end_early(_simplify(body, {}), {})
    body = relax_guards(body, nest.argument_buffers)
    body = _simplify(skip_unread(body), {})
    body = _bound_loops(body, {})
    cleaned = replace(nest, body=body)
    check_registers(cleaned)
    check_instructions(cleaned, "the lowered nest")
    check_selected(cleaned, "the lowered nest")
    problem = prepack_problem(cleaned)
    if problem is not None:
        raise ScheduleError("prepacking", problem)
    return cleaned


def _shrink(
    stmts: tuple[Stmt, ...], ranges: dict[str, Interval], zero: dict[str, Affine]
) -> tuple[Stmt, ...]:
    """Shrink loops to the iterations in which a leaf may write. Loops of one iteration are removed.
    Their variables are added to `zero`, and the caller must substitute them."""
    result: list[Stmt] = []
    for stmt in stmts:
        match stmt:
            case For():
                result.extend(_shrink_loop(stmt, ranges, zero))
            case Allocate():
                body = _shrink(stmt.body, ranges, zero)
                if body:
                    result.append(with_body(stmt, body))
            case StoreElement() | Update():
                if simplify_conds(stmt.guards, ranges) is not None:
                    result.append(stmt)
            case PrefetchHint():
                result.append(stmt)
    return tuple(result)


def _shrink_loop(
    loop: For, ranges: dict[str, Interval], zero: dict[str, Affine]
) -> tuple[Stmt, ...]:
    useful = (_useful(leaf.guards, loop, chain, ranges) for leaf, chain in write_sites((loop,)))
    extent = max(useful, default=0)
    if extent <= 0:
        return ()
    if extent == 1 and loop.kind is not LoopKind.VECTORIZED and not loop.bounds:
        zero[loop.var] = affine(0)
        return _shrink(loop.body, {**ranges, loop.var: Interval(0, 0)}, zero)
    body = _shrink(loop.body, {**ranges, loop.var: Interval(0, extent - 1)}, zero)
    shrunk = For(loop.var, extent, body, loop.kind, loop.reduce, loop.bounds)
    return (shrunk,) if body else ()


def _useful(
    guards: tuple[Cond, ...], loop: For, chain: tuple[For, ...], ranges: dict[str, Interval]
) -> int:
    """Return an upper bound on the iterations of `loop` in which the `guards` of a leaf may hold.
    `chain` are the loops from `loop` to the leaf. `ranges` has the ranges of the outer loops."""
    count = loop.extent
    for guard in guards:
        if not isinstance(guard, Ge0):
            continue
        c = guard.index.coefficient(loop.var)
        if c >= 0 or not guard.index.is_linear_in(loop.var):
            continue
        rest = interval(guard.index - var(loop.var) * c, ranges | ranges_of(chain)).hi
        count = min(count, rest // -c + 1)
    return count


def _simplify(stmts: tuple[Stmt, ...], ranges: dict[str, Interval]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in stmts:
        match stmt:
            case For():
                body = _simplify(stmt.body, ranges | ranges_of((stmt,)))
                if body:
                    result.append(with_body(stmt, body))
            case Allocate():
                body = _simplify(stmt.body, ranges)
                if body:
                    result.append(with_body(stmt, body))
            case PrefetchHint():
                result.append(replace(stmt, index=tuple(simplify(i, ranges) for i in stmt.index)))
            case StoreElement() | Update():
                result.extend(_simplify_leaf(stmt, ranges))
    return tuple(result)


def _simplify_leaf(stmt: StoreElement | Update, ranges: dict[str, Interval]) -> tuple[Stmt, ...]:
    guards = simplify_conds(stmt.guards, ranges)
    if guards is None:
        return ()
    index = tuple(simplify(i, ranges) for i in stmt.index)
    value = simplify_scalar(stmt.value, ranges, guards)
    if isinstance(stmt, StoreElement):
        return (StoreElement(stmt.buffer, index, value, guards),)
    first = stmt.first
    if first is not None:
        first = simplify_conds(first, ranges)
        if first == ():
            return (StoreElement(stmt.buffer, index, value, guards),)
    return (Update(stmt.buffer, index, value, stmt.reducer, first, guards),)


def simplify_scalar(value: Scalar, ranges: dict[str, Interval], known: tuple[Cond, ...]) -> Scalar:
    """Return `value` with simplified indices. Selects whose conditions follow from `ranges` or from
    the conditions `known` are replaced by the branch taken."""

    def leaf(node: Scalar) -> Scalar | None:
        if isinstance(node, Select) and isinstance(node.cond, All):
            conds = simplify_conds(node.cond.conds, ranges)
            if conds is None:
                return simplify_scalar(node.on_false, ranges, known)
            conds = tuple(c for c in conds if c not in known)
            if not conds:
                return simplify_scalar(node.on_true, ranges, known)
            on_true = simplify_scalar(node.on_true, ranges, (*known, *conds))
            return Select(All(conds), on_true, simplify_scalar(node.on_false, ranges, known))
        return None

    return map_scalar_index(rewrite(value, leaf), lambda i: simplify(i, ranges))


def _bound_loops(stmts: tuple[Stmt, ...], ranges: dict[str, Interval]) -> tuple[Stmt, ...]:
    """Convert guards to bounds of a loop if all leaves of the loop have them. A guard must be
    loop-invariant, or remain false once it is false."""
    result: list[Stmt] = []
    for stmt in stmts:
        match stmt:
            case For():
                result.append(_bound_loop(stmt, ranges))
            case Allocate():
                result.append(with_body(stmt, _bound_loops(stmt.body, ranges)))
            case StoreElement() | Update() | PrefetchHint():
                result.append(stmt)
    return tuple(result)


def _bound_loop(loop: For, ranges: dict[str, Interval]) -> For:
    inner = ranges | ranges_of((loop,))
    bounds: tuple[Cond, ...] = loop.bounds
    body = loop.body
    if loop.kind in (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.SELECTED):
        guards = [set(leaf.guards) for leaf in leaves(body) if not isinstance(leaf, PrefetchHint)]
        shared = set.intersection(*guards) if guards else set()
        serial = loop.kind is LoopKind.SERIAL
        found = (
            g
            for g in shared
            if g.index.vars() <= ranges.keys() or (serial and ends(g, loop.var, inner))
        )
        new = tuple(sorted(found, key=str))
        if new:
            bounds = tuple(sorted({*bounds, *new}, key=str))
            body = map_writes(
                body, lambda s: replace(s, guards=tuple(g for g in s.guards if g not in new))
            )
    body = _bound_loops(body, inner)
    return For(loop.var, loop.extent, body, loop.kind, loop.reduce, bounds)


def check_registers(nest: Nest) -> None:
    """Raise ScheduleError if a register buffer is indexed by data, or by a serial, parallel or
    selected loop."""
    registers = {b.name for b in buffers_allocated(nest.body) if b.scope is BufferScope.REGISTER}
    if not registers:
        return
    at_run_time = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.SELECTED)
    running = {loop.var for loop in loops(nest.body) if loop.kind in at_run_time}
    for leaf in leaves(nest.body):
        for buffer, index in accesses_of(leaf):
            if buffer in registers and any(i.has_data for i in index):
                raise ScheduleError(f"registers of {buffer!r}", "an index of it is data")
            names = {n for i in index for n in i.vars()} & running
            if buffer in registers and names:
                raise ScheduleError(
                    f"registers of {buffer!r}",
                    f"loops {sorted(names)} index it and must be unrolled or vectorised",
                )
