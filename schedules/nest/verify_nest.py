"""The verifier of nests. It runs after every primitive in tests and before code generation.

An illegal primitive raises `ScheduleError`. A legal primitive that produces a malformed nest has a
bug, so `MalformedNest` is not a subclass of `TilewrightError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import NoReturn, assert_never

from ..algebra import scalar
from ..algebra.affine import Affine, FloorDiv, Interval, Var, vars_inside
from ..algebra.comparisons import Cond, Ge0
from ..algebra.scalar import (
    DATA_TYPES,
    All,
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    Components,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    is_defined,
)
from ..dtypes import DType
from .instructions import call_of
from .loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    RunByInstruction,
    Stmt,
    StoreElement,
    Update,
    buffers_allocated,
    leaves,
    loops,
)
from .prepacking import prepack_problem
from .printer import access_text, to_scalar_text
from .selected import selected_iteration
from .verify_bounds import BoundedAccess, unproven_accesses

__all__ = ["BoundedAccess", "MalformedNest", "unproven_accesses", "verify"]


class MalformedNest(Exception):  # noqa: N818
    """An error in a nest that violates a rule of `verify`: a bug in the code that produced the
    nest."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The scope at one position in a nest."""

    buffers: dict[str, Buffer]
    inputs: frozenset[str]
    ranges: dict[str, Interval] = field(default_factory=dict)
    inside: frozenset[LoopKind | RunByInstruction] = field(default_factory=frozenset)
    """The kinds of the enclosing loops."""

    @property
    def variables(self) -> Set[str]:
        return self.ranges.keys()


def verify(nest: Nest) -> None:
    """Raise MalformedNest if `nest` is not well formed.

    - Names of loops are unique, and so are names of buffers. Extents are >= 1.
    - Every variable has an enclosing loop, every buffer is in scope at its uses, and ranks match.
    - Operands have equal types, and written values have the types of their buffers. Operations are
      defined for these types (`is_defined`). Constants fit their type.
    - No input is written, and every output is written.
    - A bound that is false remains false as the loop variable grows.
    - Parallel loops are not nested in each other and are not reductions. The body of a vectorised
      loop has leaves only. A loop executed by an instruction has the semantics of the instruction.
    - Data select an iteration of every selected loop (`selected_iteration`).
    - Allocated buffers are workspace, registers or prepacked. No buffer has the type bool.
    - A prepacked buffer is computed from constant inputs only.

    This function does not check that accesses are in bounds: see `unproven_accesses`.
    """
    _check_names(nest)
    _check_arguments(nest)
    buffers = {b.name: b for b in nest.argument_buffers}
    _check_block(nest.body, _Place(buffers, frozenset(t.name for t in nest.inputs)))
    problem = prepack_problem(nest)
    _need(problem is None, f"a buffer cannot be prepacked: {problem}")


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise MalformedNest(message)


def _check_names(nest: Nest) -> None:
    _check_unique("loop", [loop.var for loop in loops(nest.body)])
    buffers = (*nest.argument_buffers, *buffers_allocated(nest.body))
    _check_unique("buffer", [buffer.name for buffer in buffers])


def _check_unique(what: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        _need(bool(name), f"every {what} has a name, found an empty one")
        _need(count == 1, f"{what} names are unique, {name} occurs more than once")


def _check_arguments(nest: Nest) -> None:
    written = {leaf.buffer for leaf in leaves(nest.body) if isinstance(leaf, StoreElement | Update)}
    for buffer in nest.argument_buffers:
        _check_shape(buffer)
    for tensor in nest.outputs:
        _need(tensor.name in written, f"output {tensor.name} is never written")
    for name in nest.streamed:
        _need(name in {t.name for t in nest.outputs}, f"{name} is streamed, but not an output")


def _check_shape(buffer: Buffer) -> None:
    _need(buffer.dtype is not DType.BOOL, f"{buffer.name} holds bool, which is never stored")
    sizes = all(isinstance(n, int) and n >= 1 for n in buffer.shape)
    _need(sizes, f"extents of {buffer.name} are >= 1, its shape is {list(buffer.shape)}")


def _check_block(stmts: tuple[Stmt, ...], place: _Place) -> None:
    _need(bool(stmts), "a block has at least one statement, found an empty one")
    for stmt in stmts:
        match stmt:
            case For():
                _check_loop(stmt, place)
            case Allocate():
                _check_allocate(stmt, place)
            case StoreElement():
                _check_write(stmt, place)
            case Update():
                _check_write(stmt, place)
                _check_update(stmt, place)
            case PrefetchHint():
                _check_access(stmt.buffer, stmt.index, place)
            case _:
                assert_never(stmt)


def _check_loop(loop: For, place: _Place) -> None:
    _need(
        isinstance(loop.extent, int) and loop.extent >= 1,
        f"the extent of loop {loop.var} is >= 1, got {loop.extent}",
    )
    if loop.kind is LoopKind.PARALLEL:
        nested = LoopKind.PARALLEL in place.inside
        _need(not nested, f"parallel loop {loop.var} is inside a parallel loop")
        _need(
            not loop.reduce, f"parallel loop {loop.var} is a reduction: its iterations would race"
        )
    if loop.kind is LoopKind.VECTORIZED:
        deeper = any(isinstance(s, For | Allocate) for s in loop.body)
        _need(not deeper, f"the body of vectorized loop {loop.var} has leaves only")
    if isinstance(loop.kind, RunByInstruction):
        call = call_of(loop, loop.kind.name, place.buffers, place.ranges)
        _need(not isinstance(call, str), f"loop {loop.var} is no {loop.kind.name}: {call}")
    if loop.kind is LoopKind.SELECTED:
        selects = selected_iteration(loop) is not None
        _need(selects, f"loop {loop.var} is selected, but data select no iteration of it")
    ranges = {**place.ranges, loop.var: Interval(0, loop.extent - 1)}
    inner = replace(place, ranges=ranges, inside=place.inside | {loop.kind})
    for bound in loop.bounds:
        _check_cond(bound, inner, f"the bounds of loop {loop.var}")
        _need(
            _stays_false(bound, loop.var),
            f"bounds of loop {loop.var} stay false once they are false, found {bound}",
        )
    _check_block(loop.body, inner)


def _stays_false(bound: Cond, name: str) -> bool:
    """Return whether a false `bound` remains false as variable `name` grows."""
    if isinstance(bound, Ge0):
        return _never_grows(bound.index, name)
    return name not in bound.index.vars()


def _never_grows(index: Affine, name: str, sign: int = 1) -> bool:
    """Return whether it is proved that `sign * index` does not increase with variable `name`."""
    for atom, c in index.terms:
        match atom:
            case Var():
                fine = atom.name != name or c * sign < 0
            case FloorDiv(numerator, _):
                fine = _never_grows(numerator, name, sign if c > 0 else -sign)
            case _:
                fine = name not in vars_inside(atom)
        if not fine:
            return False
    return True


def _check_allocate(stmt: Allocate, place: _Place) -> None:
    buffer = stmt.buffer
    _check_shape(buffer)
    _need(
        buffer.scope is not BufferScope.ARGUMENT,
        f"allocated buffer {buffer.name} is workspace, registers or prepacked,"
        f" found {buffer.scope}",
    )
    _check_block(stmt.body, replace(place, buffers={**place.buffers, buffer.name: buffer}))


def _check_write(stmt: StoreElement | Update, place: _Place) -> None:
    buffer = _check_access(stmt.buffer, stmt.index, place)
    _no_data(stmt.index, f"the write {access_text(stmt.buffer, stmt.index)}")
    _need(stmt.buffer not in place.inputs, f"input {stmt.buffer} is written")
    where = f"the value written to {access_text(stmt.buffer, stmt.index)}"
    _check_scalar(stmt.value, place, where)
    _need(
        stmt.value.dtype is buffer.dtype,
        f"{where} is {stmt.value.dtype}, {buffer.name} holds {buffer.dtype}",
    )
    for guard in stmt.guards:
        _check_cond(guard, place, f"a guard of {access_text(stmt.buffer, stmt.index)}")


def _check_update(stmt: Update, place: _Place) -> None:
    where = f"the update of {access_text(stmt.buffer, stmt.index)}"
    _check_defined(stmt.reducer.op, stmt.value.dtype, where)
    for cond in stmt.first or ():
        _check_cond(cond, place, f"`first` of {access_text(stmt.buffer, stmt.index)}")


def _check_access(name: str, index: tuple[Affine, ...], place: _Place) -> Buffer:
    buffer = place.buffers.get(name)
    if buffer is None:
        text, known = access_text(name, index), ", ".join(place.buffers)
        raise MalformedNest(f"{text}: there is no buffer {name} here, only {known}")
    rank = len(buffer.shape)
    if len(index) != rank:
        text = access_text(name, index)
        raise MalformedNest(f"{text} has {len(index)} indices, {name} has {rank} axes")
    for i in index:
        if not i.vars() <= place.variables:
            _unknown(i.vars(), place, access_text(name, index))
    return buffer


def _no_data(index: tuple[Affine, ...], where: str) -> None:
    _need(not any(i.has_data for i in index), f"{where} depends on data; only a read may")


def _check_cond(cond: Cond, place: _Place, where: str) -> None:
    _no_data((cond.index,), f"{where}, {cond}")
    if not cond.index.vars() <= place.variables:
        _unknown(cond.index.vars(), place, f"{where}, {cond}")


def _unknown(names: frozenset[str], place: _Place, where: str) -> NoReturn:
    """Raise MalformedNest: the text `where` uses a variable of `names` that no enclosing loop
    defines."""
    unknown = min(names - place.variables)
    known = ", ".join(sorted(place.variables)) or "none"
    raise MalformedNest(f"{where} uses {unknown}, the loops around it are: {known}")


def _check_scalar(node: Scalar, place: _Place, where: str) -> None:
    for each in scalar.walk(node):
        _check_node(each, place, where)


def _check_node(node: Scalar, place: _Place, where: str) -> None:
    """Check one node without its children."""
    match node:
        case Const(value, dtype):
            _need(_fits(value, dtype), f"{where} has the constant {value!r}, which is no {dtype}")
        case Load(name, index, dtype):
            held = _check_access(name, index, place).dtype
            for datum in scalar.data_of(node):
                _check_datum(datum, where)
            if held is not dtype:
                text = access_text(name, index)
                raise MalformedNest(f"{where} loads {text} as {dtype}, {name} holds {held}")
        case IndexValue(index, _):
            _no_data((index,), f"{where}: the number {index}")
            if not index.vars() <= place.variables:
                _unknown(index.vars(), place, where)
        case Cast():
            pass
        case Unary(unary_op, x):
            _check_defined(unary_op, x.dtype, where)
        case Binary(op, a, b):
            _check_alike(node, a, b, where)
            _check_defined(op, a.dtype, where)
        case Compare(_, a, b):
            _check_alike(node, a, b, where)
            no_order = a.dtype is DType.BOOL or a.dtype.is_narrow_float
            _need(
                not no_order, f"{where} compares values of {a.dtype}; cast {a.dtype} to f32 first"
            )
        case All(conds):
            for cond in conds:
                _check_cond(cond, place, where)
        case Select(cond, on_true, on_false):
            is_bool = cond.dtype is DType.BOOL
            _need(is_bool, f"{where} selects by {to_scalar_text(cond)}, which is {cond.dtype}")
            _check_alike(node, on_true, on_false, where)
        case Components():
            _need(False, f"{where} stores a tuple; a leaf has one value")
        case _:
            assert_never(node)


def _check_datum(datum: Clamped, where: str) -> None:
    _, most = DType.I32.integer_range
    _need(
        datum.value.dtype in DATA_TYPES and 1 <= datum.extent <= most,
        f"{where}: data in an index are {' or '.join(DATA_TYPES)} in 0..{most}, found {datum}"
        f" of {datum.value.dtype} in 0..{datum.extent - 1}",
    )


def _fits(value: int | float, dtype: DType) -> bool:
    if dtype.is_float:
        return True
    if dtype is DType.BOOL:
        return value in (0, 1)
    low, high = dtype.integer_range
    return isinstance(value, int) and low <= value <= high


def _check_alike(node: Scalar, a: Scalar, b: Scalar, where: str) -> None:
    if a.dtype is not b.dtype:
        text = to_scalar_text(node)
        raise MalformedNest(f"{where} has operands of {a.dtype} and {b.dtype} in {text}")


def _check_defined(op: UnaryOp | BinaryOp, dtype: DType, where: str) -> None:
    types = "f32, f64 and integers" if is_defined(op, DType.I32) else "f32 and f64"
    _need(is_defined(op, dtype), f"{where}: {op} is defined on {types}, got {dtype}")
