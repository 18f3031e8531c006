"""The interpreter's expressions: indices, conditions and values as closures over its state.

A tree is taken apart once; what runs for each element is a few nested calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias, assert_never

import numpy as np

from tests.support.interpreter import arithmetic
from tests.support.interpreter.arithmetic import Value
from tests.support.interpreter.memory import (
    SEVERAL,
    BufferView,
    InterpreterMemory,
    InterpretError,
    Iterations,
    Watch,
    out_of_bounds,
)
from tilewright.schedules.algebra.affine import Affine, Atom, Datum, FloorDiv, Mod, Var
from tilewright.schedules.algebra.comparisons import Cond, Ge0
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
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
)
from tilewright.schedules.nest.printer import access_text

Evaluate: TypeAlias = Callable[[], Value]
EvaluateIndex: TypeAlias = Callable[[], int]
Test: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class NameScope:
    """What names mean at one place of a nest.

    `variables[slots[name]]` is the value of a loop variable now. `watching[name]` are the
    parallel and vectorised loops around this place that see the buffer shared by all iterations.
    `leaf_numbers` gives names below `SEVERAL` to leaves whose lanes count as one.
    """

    variables: list[int] = field(default_factory=list)
    memory: InterpreterMemory = field(default_factory=InterpreterMemory)
    slots: dict[str, int] = field(default_factory=dict)
    places: dict[str, BufferView] = field(default_factory=dict)
    watching: dict[str, tuple[Iterations, ...]] = field(default_factory=dict)
    leaf_numbers: Iterator[int] = field(default_factory=lambda: count(SEVERAL - 1, -1))

    def with_var(self, name: str) -> NameScope:
        """With a loop variable of its own."""
        self.variables.append(0)
        return replace(self, slots={**self.slots, name: len(self.variables) - 1})

    def with_place(self, place: BufferView) -> NameScope:
        """With one more buffer, not shared by iterations of the loops so far."""
        name = place.buffer.name
        return replace(
            self, places={**self.places, name: place}, watching={**self.watching, name: ()}
        )

    def watched_by(self, iterations: Iterations) -> NameScope:
        """With one more loop around. What it does not write needs no watching."""
        watching = {
            name: (*loops, iterations) if name in iterations.written else loops
            for name, loops in self.watching.items()
        }
        return replace(self, watching=watching)

    def scanning(self, buffer: str, lane: str) -> NameScope:
        """Without the watch of loop `lane` on `buffer`: its lanes may read the one before."""
        loops = tuple(x for x in self.watching[buffer] if x.loop.var != lane)
        return replace(self, watching={**self.watching, buffer: loops})

    def watches(self, buffer: str) -> tuple[Watch, ...]:
        return tuple((loop, None) for loop in self.watching[buffer])

    def slot(self, name: str) -> int:
        if name not in self.slots:
            known = ", ".join(self.slots) or "none"
            raise InterpretError(f"variable {name} has no loop around it; there are: {known}")
        return self.slots[name]

    def place(self, name: str, index: tuple[Affine, ...]) -> BufferView:
        """Where buffer `name` is. InterpretError if there is none with so many axes."""
        if name not in self.places:
            known = ", ".join(self.places)
            raise InterpretError(f"buffer {name} does not exist here; there are: {known}")
        place = self.places[name]
        if len(index) != len(place.buffer.shape):
            raise InterpretError(
                f"{access_text(name, index)} has {len(index)} indices, "
                f"the shape of {name} is {list(place.buffer.shape)}"
            )
        return place


def index_evaluator(index: Affine, scope: NameScope) -> EvaluateIndex:
    """A function that gives the value of `index` now."""
    const = index.const
    terms = [(_atom(atom, scope), c) for atom, c in index.terms]
    plain = [(scope.slot(a.name), c) for a, c in index.terms if isinstance(a, Var)]
    variables = scope.variables
    if not terms:
        return lambda: const
    if len(terms) == len(plain) == 1:
        ((slot, c),) = plain
        if c == 1 and not const:
            return lambda: variables[slot]
        return lambda: c * variables[slot] + const
    if len(terms) == len(plain) == 2:
        (slot, c), (slot2, c2) = plain
        return lambda: c * variables[slot] + c2 * variables[slot2] + const

    def evaluate() -> int:
        total = const
        for atom, c in terms:
            total += c * atom()
        return total

    return evaluate


def _atom(atom: Atom, scope: NameScope) -> EvaluateIndex:
    if isinstance(atom, Var):
        variables, slot = scope.variables, scope.slot(atom.name)
        return lambda: variables[slot]
    if isinstance(atom, Datum):
        assert isinstance(atom, Clamped)
        value, most = evaluator(atom.value, scope), atom.extent - 1
        return lambda: min(max(int(value()), 0), most)
    numerator, divisor = index_evaluator(atom.numerator, scope), atom.divisor
    match atom:
        case FloorDiv():
            return lambda: numerator() // divisor
        case Mod():
            return lambda: numerator() % divisor
        case _:
            assert_never(atom)


def conds_test(conds: tuple[Cond, ...], scope: NameScope) -> Test:
    """A function that says whether all of `conds` hold now."""
    tests = [_cond(c, scope) for c in conds]
    if len(tests) == 1:
        return tests[0]

    def test() -> bool:
        for each in tests:  # noqa: SIM110 (three times as fast as all())
            if not each():
                return False
        return True

    return test


def _cond(cond: Cond, scope: NameScope) -> Test:
    index = index_evaluator(cond.index, scope)
    if isinstance(cond, Ge0):
        return lambda: index() >= 0
    return lambda: index() == 0


def flat_evaluator(place: BufferView, index: tuple[Affine, ...], scope: NameScope) -> EvaluateIndex:
    """A function that gives the flat index of the element at `index` now.

    InterpretError there if it is out of bounds in any axis.
    """
    buffer = place.buffer
    axes = [(index_evaluator(i, scope), n) for i, n in zip(index, buffer.shape, strict=True)]

    def evaluate() -> int:
        flat = 0
        for axis, extent in axes:
            i = axis()
            if not 0 <= i < extent:
                raise out_of_bounds(buffer, index, [a() for a, _ in axes])
            flat = flat * extent + i
        return flat

    return evaluate


def evaluator(node: Scalar, scope: NameScope) -> Evaluate:
    """A function that gives the value of `node` now. Only the side of a select taken is read."""
    match node:
        case Const(value, dtype):
            constant = arithmetic.constant(value, dtype)
            return lambda: constant
        case Load():
            return _load(node, scope)
        case IndexValue(index, dtype):
            number, position = arithmetic.from_index(dtype), index_evaluator(index, scope)
            return lambda: number(position())
        case Unary(op, x):
            function, inner = arithmetic.unary(op, x.dtype), evaluator(x, scope)
            return lambda: function(inner())
        case Cast(x, dtype):
            convert, inner = arithmetic.cast(x.dtype, dtype), evaluator(x, scope)
            return lambda: convert(inner())
        case Binary(op, a, b):
            _check_same_type(node, a, b)
            combine = arithmetic.binary(op, a.dtype)
            left, right = evaluator(a, scope), evaluator(b, scope)
            return lambda: combine(left(), right())
        case Compare(compare_op, a, b):
            _check_same_type(node, a, b)
            relation = arithmetic.compare(compare_op)
            left, right = evaluator(a, scope), evaluator(b, scope)
            return lambda: relation(left(), right())
        case All(conds):
            test = conds_test(conds, scope)
            return lambda: np.bool_(test())
        case Select(cond, on_true, on_false):
            _check_same_type(node, on_true, on_false)
            taken = evaluator(cond, scope)
            left, right = evaluator(on_true, scope), evaluator(on_false, scope)
            return lambda: left() if taken() else right()
        case Components():
            raise AssertionError("a leaf has one value, not a tuple")
        case _:
            assert_never(node)


def _load(load: Load, scope: NameScope) -> Evaluate:
    place = scope.place(load.tensor, load.index)
    flat = flat_evaluator(place, load.index, scope)
    read = scope.memory.reader(place, scope.watches(load.tensor))
    return lambda: read(flat())


def _check_same_type(node: Scalar, a: Scalar, b: Scalar) -> None:
    if a.dtype is not b.dtype:
        raise InterpretError(
            f"operands of {type(node).__name__} need one type, got {a.dtype} and {b.dtype}"
        )
