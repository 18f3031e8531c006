"""The parser of the JSON of one expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import TypeVar

from ..algebra import values
from ..algebra.affine import Affine
from ..algebra.comparisons import Cond
from ..algebra.conditions import normal_cond
from ..algebra.index_text import parse_condition, parse_index
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    CompareOp,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from ..dtypes import DType
from ..errors import WorkloadError
from ..limits import MAX_BODY_DEPTH, MAX_CONDS, MAX_DIMS
from .json_fields import json_dtype, json_fields, json_list, json_string, shown, wrong
from .tensors import Tensor

_T = TypeVar("_T")


class BodyReader:
    """A parser of one expression. The expression may read the tensors `known`."""

    def __init__(self, known: Mapping[str, Tensor]) -> None:
        self._known = known

    def read(self, value: object, pointer: str, depth: int) -> Scalar:
        if depth > MAX_BODY_DEPTH:
            raise wrong(f"an expression may be {MAX_BODY_DEPTH} levels deep", pointer, "too_deep")
        if not isinstance(value, Mapping):
            raise wrong(f'needs an object with "op", got {shown(value)}', pointer)
        op = json_string(value.get("op", ""), f"{pointer}/op")
        reader = _READERS.get(op)
        if reader is None:
            raise wrong(
                f"unknown op {shown(op)}; choices: {', '.join(sorted(_READERS))}",
                f"{pointer}/op",
                "unknown_op",
            )
        wanted, build = reader
        return build(self, op, json_fields(value, pointer, ("op", *wanted)), pointer, depth)

    def child(self, fields: Mapping[str, object], key: str, pointer: str, depth: int) -> Scalar:
        return self.read(fields[key], f"{pointer}/{key}", depth + 1)

    def const(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        dtype = json_dtype(fields["dtype"], f"{pointer}/dtype")
        value = fields["value"]
        if value in ("inf", "-inf") and dtype.is_float:
            value = float(str(value))
        elif isinstance(value, bool) and dtype is DType.BOOL:
            pass
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(
                f'a constant is a number, "inf" or "-inf", got {shown(value)}', f"{pointer}/value"
            )
        elif not math.isfinite(value) if isinstance(value, float) else abs(value) >= 10**40:
            raise wrong(f"not a constant: {shown(value)}", f"{pointer}/value", "bad_constant")
        try:
            return values.const(value, dtype)
        except WorkloadError as error:
            raise wrong(str(error), f"{pointer}/value", error.code) from error

    def load(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        name = json_string(fields["tensor"], f"{pointer}/tensor")
        items = json_list(fields["index"], f"{pointer}/index", MAX_DIMS)
        tensor = self._known.get(name)
        if tensor is None:
            raise wrong(
                f"{shown(name)} is not an input or an earlier stage"
                f" ({', '.join(self._known) or 'none'})",
                f"{pointer}/tensor",
                "unknown_tensor",
            )
        index = tuple(
            self.data(item, extent, f"{pointer}/index/{n}", depth)
            if isinstance(item, Mapping)
            else self.index(item, f"{pointer}/index/{n}")
            for n, (item, extent) in enumerate(zip_longest(items, tensor.shape))
            if n < len(items)
        )
        return Load(name, index, tensor.dtype)

    def data(
        self, item: Mapping[str, object], extent: int | None, pointer: str, depth: int
    ) -> Affine:
        """Return the index `{"clamp": integer}` in a dimension of `extent` positions; None if the
        tensor has no such dimension."""
        value = self.child(json_fields(item, pointer, ("clamp",)), "clamp", pointer, depth)
        return Affine(((Clamped(value, extent or 1), 1),), 0)

    def index(self, value: object, pointer: str) -> Affine:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value) if abs(value) < 10**40 else "9" * 40
        return _parsed(parse_index, value, pointer)

    def index_value(
        self, op: str, fields: Mapping[str, object], pointer: str, depth: int
    ) -> Scalar:
        index = self.index(fields["index"], f"{pointer}/index")
        return IndexValue(index, json_dtype(fields["dtype"], f"{pointer}/dtype"))

    def unary(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        return Unary(UnaryOp(op), self.child(fields, "x", pointer, depth))

    def cast(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        dtype = json_dtype(fields["dtype"], f"{pointer}/dtype")
        return Cast(self.child(fields, "x", pointer, depth), dtype)

    def pair(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        a = self.child(fields, "a", pointer, depth)
        b = self.child(fields, "b", pointer, depth)
        return Binary(BinaryOp(op), a, b) if op in _BINARY else Compare(CompareOp(op), a, b)

    def all(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        conds = [
            self.cond(item, f"{pointer}/conds/{n}")
            for n, item in enumerate(json_list(fields["conds"], f"{pointer}/conds", MAX_CONDS))
        ]
        return All(tuple(sorted(set(conds), key=str)))

    def cond(self, value: object, pointer: str) -> Cond:
        return normal_cond(_parsed(parse_condition, value, pointer))

    def select(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        parts = (self.child(fields, key, pointer, depth) for key in _READERS["select"][0])
        return Select(*parts)


def _parsed(parse: Callable[[str], _T], value: object, pointer: str) -> _T:
    try:
        return parse(json_string(value, pointer))
    except WorkloadError as error:
        raise wrong(str(error), pointer, error.code) from error


_BINARY = frozenset(str(op) for op in BinaryOp)
_Reader = Callable[[BodyReader, str, Mapping[str, object], str, int], Scalar]
_READERS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "const": (("value", "dtype"), BodyReader.const),
    "load": (("tensor", "index"), BodyReader.load),
    "index": (("index", "dtype"), BodyReader.index_value),
    "cast": (("x", "dtype"), BodyReader.cast),
    "all": (("conds",), BodyReader.all),
    "select": (("cond", "on_true", "on_false"), BodyReader.select),
    **{str(op): (("x",), BodyReader.unary) for op in UnaryOp},
    **{str(op): (("a", "b"), BodyReader.pair) for op in (*BinaryOp, *CompareOp)},
}
