"""What a loop nest means: it is run here, slowly and plainly, one NumPy scalar at a time.

Compiled kernels and primitives are held to this. Besides computing the result, it raises
`InterpretError` on everything a correct nest never does: an access out of bounds, a read of an
element that was not written, an output left unwritten, iterations of a parallel or vectorised
loop that depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from tests.support.interpreter import arithmetic
from tests.support.interpreter.memory import (
    BufferView,
    InterpreterMemory,
    InterpretError,
    Iterations,
    Watch,
    element_text,
)
from tests.support.interpreter.values import NameScope, conds_test, evaluator, flat_evaluator
from tilewright.schedules.algebra.comparisons import Cond
from tilewright.schedules.algebra.scalar import Binary, Reducer, loads
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import (
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
    leaves,
)
from tilewright.schedules.nest.selected import selected_iteration
from tilewright.schedules.workload.computation import Computation

Run: TypeAlias = Callable[[], None]

VECTORIZED = LoopKind.VECTORIZED


def interpret(nest: Nest, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The outputs of `nest` for `inputs`, in argument order; the inputs stay as they are.

    Arrays have the shapes and stored types of the arguments (bf16 as its bits, in uint16). A
    loop that is parallel or vectorised runs like any other, but no iteration may touch what
    another one writes, except that lanes may update one element together, and that a lane may
    combine its value with the element of the lane before (a scan).

    Runs about 3e5 leaves a second. ValueError if the inputs do not fit the nest,
    InterpretError if the nest does something undefined, UndefinedOperationError if it has an
    operation that does not exist for its type.
    """
    check_inputs(nest, inputs)
    scope = NameScope()
    for tensor, array in zip(nest.inputs, inputs, strict=True):
        buffer = Buffer(tensor.name, tensor.shape, tensor.dtype, BufferScope.ARGUMENT)
        place = scope.memory.add(buffer, read_only=True)
        scope.memory.cells[place.number] = arithmetic.from_storage(array, tensor.dtype)
        scope = scope.with_place(place)
    outputs = [scope.memory.add(buffer) for buffer in nest.argument_buffers[len(nest.inputs) :]]
    for place in outputs:
        scope = scope.with_place(place)
    run = _block(nest.body, scope)
    with np.errstate(all="ignore"):
        run()
    return [_finished(place, scope.memory) for place in outputs]


def interpret_for(
    workload: Computation, nest: Nest, inputs: Sequence[npt.NDArray[Any]]
) -> list[npt.NDArray[Any]]:
    """`interpret` for a nest of a form of `workload`: `inputs` and results have the shapes of the
    workload, the arguments of the nest have the same elements in shapes of their own."""
    shaped = [_bytes(a).reshape(t.shape) for a, t in zip(inputs, nest.inputs, strict=True)]
    outputs = zip(interpret(nest, shaped), workload.output_tensors, strict=True)
    return [
        (found.view(np.bool_) if tensor.dtype is DType.BOOL else found).reshape(tensor.shape)
        for found, tensor in outputs
    ]


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A nest has tensors of bytes where the workload has tensors of bools."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def check_inputs(nest: Nest, inputs: Sequence[npt.NDArray[Any]]) -> None:
    """ValueError unless `inputs` are arrays as `nest` takes them."""
    if len(inputs) != len(nest.inputs):
        names = ", ".join(t.name for t in nest.inputs)
        raise ValueError(f"the nest takes {len(nest.inputs)} inputs ({names}), got {len(inputs)}")
    for tensor, array in zip(nest.inputs, inputs, strict=True):
        if array.shape != tensor.shape or array.dtype != tensor.dtype.numpy:
            raise ValueError(
                f"input {tensor.name} is {tensor.dtype.numpy}{list(tensor.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )


def _finished(place: BufferView, memory: InterpreterMemory) -> npt.NDArray[Any]:
    cells, buffer = memory.cells[place.number], place.buffer
    missing = [flat for flat, value in enumerate(cells) if value is None]
    if missing:
        raise InterpretError(
            f"{element_text(buffer, missing[0])} is an output and was never written "
            f"({len(missing)} of {len(cells)} elements were not)"
        )
    return arithmetic.to_storage(cells, buffer.dtype, buffer.shape)


def _block(stmts: tuple[Stmt, ...], scope: NameScope) -> Run:
    runs = [_stmt(s, scope) for s in stmts if not isinstance(s, PrefetchHint)]
    if len(runs) == 1:
        return runs[0]

    def run() -> None:
        for each in runs:
            each()

    return run


def _stmt(stmt: For | Allocate | StoreElement | Update, scope: NameScope) -> Run:
    match stmt:
        case For():
            return _loop(stmt, scope)
        case Allocate():
            return _allocate(stmt, scope)
        case StoreElement():
            return _guarded(stmt.guards, _store(stmt, scope), scope)
        case Update():
            return _guarded(stmt.guards, _update(stmt, scope), scope)
        case _:
            assert_never(stmt)


def _loop(loop: For, scope: NameScope) -> Run:
    outer, scope = scope, scope.with_var(loop.var)
    variables, slot, extent = scope.variables, scope.slot(loop.var), loop.extent
    goes_on = conds_test(loop.bounds, scope)
    iterations = Iterations(loop, _written(loop))
    watched = loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.SELECTED)
    body = _block(loop.body, scope.watched_by(iterations) if watched else scope)

    if loop.kind is LoopKind.SELECTED:
        return _selected(loop, slot, body, outer)

    def run() -> None:
        iterations.start()
        for value in range(extent):
            variables[slot] = iterations.current = value
            if not goes_on():
                break
            body()

    return run


def _selected(loop: For, slot: int, body: Run, scope: NameScope) -> Run:
    """Run the iteration that data select, with the statements as they are written: only that the
    others have no effect is believed."""
    selected = selected_iteration(loop)
    if selected is None:
        raise InterpretError(f"data select no iteration of {loop.var}")
    variables, place = scope.variables, evaluator(selected.place, scope)
    reads = conds_test(selected.guards, scope)

    def run() -> None:
        if reads() and 0 <= (value := int(place())) < loop.extent:
            variables[slot] = value
            body()

    return run


def _written(loop: For) -> frozenset[str]:
    return frozenset(s.buffer for s in leaves(loop.body) if isinstance(s, StoreElement | Update))


def _allocate(stmt: Allocate, scope: NameScope) -> Run:
    place = scope.memory.add(stmt.buffer)
    cells, number, elements = scope.memory.cells, place.number, stmt.buffer.elements
    body = _block(stmt.body, scope.with_place(place))

    def run() -> None:
        cells[number] = [None] * elements
        body()

    return run


def _guarded(guards: tuple[Cond, ...], leaf: Run, scope: NameScope) -> Run:
    if not guards:
        return leaf
    test = conds_test(guards, scope)

    def run() -> None:
        if test():
            leaf()

    return run


def _store(stmt: StoreElement, scope: NameScope) -> Run:
    place = scope.place(stmt.buffer, stmt.index)
    _check_value_type(stmt, place)
    lane = _scanned_lane(stmt, scope)
    if lane is not None:
        scope = scope.scanning(stmt.buffer, lane)
    flat, value = flat_evaluator(place, stmt.index, scope), evaluator(stmt.value, scope)
    write = scope.memory.writer(place, scope.watches(stmt.buffer))

    def run() -> None:
        write(flat(), value())

    return run


def _scanned_lane(stmt: StoreElement, scope: NameScope) -> str | None:
    """The vectorised loop along which `stmt` combines a value with the element of the lane before,
    in an associative way; then lanes are allowed to depend on each other."""
    value = stmt.value
    if not isinstance(value, Binary) or value.op not in {reducer.op for reducer in Reducer}:
        return None
    own = [read.index for read in loads(value.a) if read.tensor == stmt.buffer]
    if len(own) != 1 or any(read.tensor == stmt.buffer for read in loads(value.b)):
        return None
    for loop in (x.loop for x in scope.watching[stmt.buffer] if x.loop.kind is VECTORIZED):
        # In a folded buffer, the lane before the first one is the last one.
        pairs = [(i, j) for i, j in zip(stmt.index, own[0], strict=True) if i != j]
        names = {name for pair in pairs for i in pair for name in i.vars()}
        if all(
            i.evaluate({**dict.fromkeys(names, n), loop.var: lane - 1})
            == j.evaluate({**dict.fromkeys(names, n), loop.var: lane})
            for i, j in pairs for lane in range(1, loop.extent) for n in _SOME
        ):  # fmt: skip
            return loop.var
    return None


_SOME = (0, 1, 2, 3, 5, 8, 13, 34)
"""Values of the other loops for which two indices are compared."""


def _update(stmt: Update, scope: NameScope) -> Run:
    place = scope.place(stmt.buffer, stmt.index)
    _check_value_type(stmt, place)
    flat, value = flat_evaluator(place, stmt.index, scope), evaluator(stmt.value, scope)
    watches = _update_watches(stmt, scope)
    read, write = scope.memory.reader(place, watches), scope.memory.writer(place, watches)
    combine = arithmetic.binary(stmt.reducer.op, place.buffer.dtype)
    if stmt.first is None:

        def run() -> None:
            element, new = flat(), value()
            write(element, combine(read(element), new))

        return run
    stores = conds_test(stmt.first, scope)

    def run_first() -> None:
        element, new = flat(), value()
        write(element, new if stores() else combine(read(element), new))

    return run_first


def _update_watches(stmt: Update, scope: NameScope) -> tuple[Watch, ...]:
    """Lanes may update one element together; then they count as one, apart from other leaves."""
    varying = frozenset[str]().union(*(i.vars() for i in stmt.index))
    together = next(scope.leaf_numbers)
    return tuple(
        (loop, together)
        if loop.loop.kind is VECTORIZED and loop.loop.var not in varying
        else (loop, None)
        for loop, _ in scope.watches(stmt.buffer)
    )


def _check_value_type(stmt: StoreElement | Update, place: BufferView) -> None:
    if stmt.value.dtype is not place.buffer.dtype:
        raise InterpretError(
            f"{place.buffer.name} holds {place.buffer.dtype}, the value written "
            f"is {stmt.value.dtype}"
        )
