"""Validation of one expression: every node is well typed, and every evaluated read is in bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from ..algebra.affine import Affine, FloorDiv, Mod, Ranges, interval
from ..algebra.comparisons import Cond, Ge0
from ..algebra.conditions import follows, negated, within
from ..algebra.scalar import (
    DATA_TYPES,
    ON_BOOLS,
    ON_FLOATS_ONLY,
    ON_INTEGERS_ONLY,
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
    children,
    data_of,
    is_defined,
)
from ..dtypes import DType
from ..errors import WorkloadError
from ..limits import MAX_CONDS, MAX_DIMS, MAX_INDEX_CONST
from .checks import shorten
from .tensors import Stage, Tensor, TupleReduction


def check_nodes(stage: Stage, known: Mapping[str, Tensor], ranges: Ranges, pointer: str) -> None:
    """Raise WorkloadError if a node of the body has invalid types, names or ranks. Branches that
    are never evaluated are included. `pointer` is the JSON pointer of the body."""
    checker, body = _NodeChecker(stage.name, known, ranges), stage.body
    if isinstance(body, Components) and isinstance(stage.kind, TupleReduction):
        for number, value in enumerate(body.values):
            checker.check(value, f"{pointer}/values/{number}")
    else:
        checker.check(body, pointer)


def check_combination(stage: Stage, known: Mapping[str, Tensor], pointer: str) -> None:
    """Raise WorkloadError if a component of the combination of a reduction of tuples has invalid
    types, or reads anything but the components `known`. `pointer` is its JSON pointer."""
    assert isinstance(stage.kind, TupleReduction)
    for number, node in enumerate(stage.kind.combine):
        _NodeChecker(stage.name, known, {}).check(node, f"{pointer}/{number}")


def check_reads(
    stage: Stage, body: Scalar, known: Mapping[str, Tensor], ranges: Ranges, pointer: str
) -> None:
    """Raise WorkloadError if a read of `body` is not proved in bounds under its guards.

    `body` is the simplified `stage.body`, and has the same load objects. JSON pointers in errors
    refer to `stage.body`. `pointer` is the JSON pointer of the stage.
    """
    for load, given in _reads(body, ()):
        extents = known[load.tensor].shape
        for dim, (index, extent) in enumerate(zip(load.index, extents, strict=True)):
            if all(follows(c, given, ranges) for c in within(index, extent)):
                continue
            found = interval(index, ranges)
            place = _place(stage.body, load, f"{pointer}/body") or f"{pointer}/body"
            raise WorkloadError(
                f"stage {stage.name!r}: {load.tensor}[{', '.join(map(str, load.index))}] may be"
                f" out of bounds: {shorten(str(index))} in dimension {dim} takes"
                f" {found.lo}..{found.hi}, the extent is {extent}; guard it with select or read it"
                " with padded",
                code="out_of_bounds",
                pointer=f"{place}/index/{dim}",
            )


def _reads(node: Scalar, given: tuple[Cond, ...]) -> Iterator[tuple[Load, tuple[Cond, ...]]]:
    """Yield every read with the index conditions that hold when it is evaluated."""
    if isinstance(node, Load):
        yield node, given
    if not isinstance(node, Select):
        for child in children(node):
            yield from _reads(child, given)
        return
    holds: tuple[Cond, ...] = ()
    fails: tuple[Cond, ...] = ()
    if isinstance(node.cond, All):
        holds = node.cond.conds
        only = holds[0]
        fails = (negated(only),) if len(holds) == 1 and isinstance(only, Ge0) else ()
    yield from _reads(node.cond, given)
    yield from _reads(node.on_true, given + holds)
    yield from _reads(node.on_false, given + fails)


_FIELDS: dict[type, tuple[str, ...]] = {
    Unary: ("x",), Cast: ("x",), Binary: ("a", "b"), Compare: ("a", "b"),
    Select: ("cond", "on_true", "on_false"),
}  # fmt: skip


def _place(node: Scalar, wanted: Scalar, pointer: str) -> str | None:
    """Return the JSON pointer of the node `wanted` in `node`, or None. Nodes are compared by
    identity."""
    if node is wanted:
        return pointer
    if isinstance(node, Load):
        for dim, index in enumerate(node.index):
            for datum in data_of(replace(node, index=(index,))):
                found = _place(datum.value, wanted, f"{pointer}/index/{dim}/clamp")
                if found is not None:
                    return found
    if isinstance(node, Components):
        places = (_place(v, wanted, f"{pointer}/values/{n}") for n, v in enumerate(node.values))
        return next((place for place in places if place is not None), None)
    for name in _FIELDS.get(type(node), ()):
        found = _place(getattr(node, name), wanted, f"{pointer}/{name}")
        if found is not None:
            return found
    return None


class _NodeChecker:
    """A checker of the nodes of one body. The axes of the body have the ranges `ranges`."""

    def __init__(self, stage: str, known: Mapping[str, Tensor], ranges: Ranges) -> None:
        self._stage = stage
        self._known = known
        self._ranges = ranges

    def check(self, node: Scalar, pointer: str) -> None:
        match node:
            case Const():
                pass
            case Load():
                self._check_load(node, pointer)
            case IndexValue():
                self._check_index_value(node, pointer)
            case Unary():
                self.check(node.x, f"{pointer}/x")
                self._check_unary(node, pointer)
            case Binary() | Compare():
                self.check(node.a, f"{pointer}/a")
                self.check(node.b, f"{pointer}/b")
                self._check_pair(node, pointer)
            case Cast():
                self.check(node.x, f"{pointer}/x")
            case All():
                if not 1 <= len(node.conds) <= MAX_CONDS:
                    raise self._error(
                        f"a guard needs 1..{MAX_CONDS} conditions, got {len(node.conds)}",
                        "bad_node",
                        pointer,
                    )
                for cond in node.conds:
                    self._check_index(cond.index, pointer)
            case Select():
                self._check_select(node, pointer)
            case Components():
                raise self._error(
                    "a tuple is the whole expression of a reduction of tuples, and nothing else",
                    "bad_node",
                    pointer,
                )
            case _:
                assert_never(node)

    def _error(self, what: str, code: str, pointer: str) -> WorkloadError:
        return WorkloadError(f"stage {self._stage!r}: {what}", code=code, pointer=pointer)

    def _check_load(self, node: Load, pointer: str) -> None:
        tensor = self._known.get(node.tensor)
        if tensor is None:
            names = ", ".join(self._known) or "none"
            raise self._error(
                f"reads {node.tensor!r}, which is not an input or an earlier stage ({names})",
                "unknown_tensor",
                pointer,
            )
        if tensor.dtype is not node.dtype:
            raise self._error(
                f"reads {node.tensor!r} as {node.dtype}, it is {tensor.dtype}",
                "dtype_clash",
                pointer,
            )
        if len(node.index) != len(tensor.shape):
            raise self._error(
                f"{node.tensor!r} has {len(tensor.shape)} dimensions,"
                f" got {len(node.index)} indices",
                "bad_rank",
                pointer,
            )
        for dim, (index, extent) in enumerate(zip(node.index, tensor.shape, strict=True)):
            place = f"{pointer}/index/{dim}"
            if index.has_data:
                self._check_data(index, extent, place)
            else:
                self._check_index(index, place)

    def _check_data(self, index: Affine, extent: int, pointer: str) -> None:
        """Check an index that contains data. It must be one integer, clamped to the dimension."""
        datum, *others = index.data()
        if others or index != Affine(((datum, 1),), 0) or not isinstance(datum, Clamped):
            raise self._error(
                f"an index is made of index variables, or it is one integer: {index}; compute"
                " with the integer itself",
                "bad_index",
                pointer,
            )
        self.check(datum.value, f"{pointer}/clamp")
        if datum.value.dtype not in DATA_TYPES:
            raise self._error(
                f"an integer in an index is {' or '.join(DATA_TYPES)}, got"
                f" {datum.value.dtype}; cast it",
                "bad_dtype",
                pointer,
            )
        if datum.extent != extent:
            raise self._error(
                f"an integer in an index is clamped to 0..{extent - 1}, the positions of its"
                f" dimension, got 0..{datum.extent - 1}",
                "bad_index",
                pointer,
            )

    def _check_index(self, index: Affine, pointer: str, level: int = 0) -> None:
        if index.has_data:
            raise self._error(
                f"{shorten(str(index))}: only the index of a read may be data", "bad_index", pointer
            )
        unknown = index.vars() - self._ranges.keys()
        if unknown:
            raise self._error(
                f"{shorten(str(index))} uses {sorted(unknown)[0]}, which is not one of its"
                f" axes ({', '.join(self._ranges)})",
                "unknown_axis",
                pointer,
            )
        numbers = [index.const, *(c for _, c in index.terms)]
        for atom, _ in index.terms:
            if isinstance(atom, FloorDiv | Mod):
                numbers.append(atom.divisor)
                if level >= MAX_DIMS:
                    raise self._error("divisions are nested too deeply", "too_deep", pointer)
                self._check_index(atom.numerator, pointer, level + 1)
        if any(abs(n) > MAX_INDEX_CONST for n in numbers):
            raise self._error(
                f"numbers in an index must be within +-{MAX_INDEX_CONST}", "bad_index", pointer
            )

    def _check_index_value(self, node: IndexValue, pointer: str) -> None:
        self._check_index(node.index, pointer)
        if node.dtype.is_float and not node.dtype.is_narrow_float:
            return
        if node.dtype not in (DType.I32, DType.I64):
            raise self._error(
                f"an index is a number of type i32, i64, f32 or f64, got {node.dtype}",
                "bad_dtype",
                pointer,
            )
        found = interval(node.index, self._ranges)
        if found.lo < -(2**31) or found.hi >= 2**31:
            raise self._error(
                f"{node.index} takes {found.lo}..{found.hi}, more than 32 bits hold",
                "bad_index",
                pointer,
            )

    def _check_unary(self, node: Unary, pointer: str) -> None:
        dtype = node.x.dtype
        if not is_defined(node.op, dtype):
            raise self._error(
                f"{node.op} of {dtype}: cast the operand to f32 or f64 first", "bad_dtype", pointer
            )

    def _check_pair(self, node: Binary | Compare, pointer: str) -> None:
        a, b = node.a.dtype, node.b.dtype
        if a is not b:
            raise self._error(f"{node.op} of {a} and {b}: cast one of them", "dtype_clash", pointer)
        if a is DType.BOOL and node.op in ON_BOOLS:
            return
        if a is DType.BOOL or a.is_narrow_float:
            raise self._error(
                f"{node.op} of {a}: there is no arithmetic on it, cast first or use select",
                "bad_dtype",
                pointer,
            )
        if node.op in ON_FLOATS_ONLY and not a.is_float:
            verb = "divide" if node.op is BinaryOp.DIV else "have it"
            raise self._error(
                f"{node.op} of {a}: only floats {verb}, cast first", "bad_dtype", pointer
            )
        if node.op in ON_INTEGERS_ONLY and a.is_float:
            raise self._error(
                f"{node.op} of {a}: only integers have it, cast first", "bad_dtype", pointer
            )

    def _check_select(self, node: Select, pointer: str) -> None:
        self.check(node.cond, f"{pointer}/cond")
        if node.cond.dtype is not DType.BOOL:
            raise self._error(
                f"a select needs a condition, got a value of type {node.cond.dtype}",
                "bad_dtype",
                f"{pointer}/cond",
            )
        self.check(node.on_true, f"{pointer}/on_true")
        self.check(node.on_false, f"{pointer}/on_false")
        a, b = node.on_true.dtype, node.on_false.dtype
        if a is not b:
            raise self._error(
                f"the two sides of a select are {a} and {b}: cast one", "dtype_clash", pointer
            )
