"""The canonical JSON of a workload: what HTTP takes, files hold and keys are made of.

`docs/workload.md` describes the format, `docs/workload.schema.json` is its JSON Schema. Indices
and index conditions are text in the syntax of index notation ("2*h + r - 1", "h >= 1").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, assert_never

from . import values
from .affine import Affine, Cond
from .conditions import normal_cond
from .dtypes import DType
from .errors import WorkloadError
from .index_text import parse_condition, parse_index
from .limits import MAX_BODY_DEPTH, MAX_CONDS, MAX_DIMS, MAX_INPUTS, MAX_JSON_NODES, MAX_STAGES
from .scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)  # fmt: skip
from .strict_json import parse_json_text
from .validate import check_extent, check_name, shorten, validate
from .workload import Axis, Stage, Tensor, Workload

FORMAT_VERSION = 1
_MAX_NAME = 200
_T = TypeVar("_T")


def to_json(workload: Workload) -> dict[str, Any]:
    """The document of `workload`. Fields that say nothing (no name, no reduction) are left out."""
    document: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "inputs": [_tensor_json(t) for t in workload.inputs],
        "stages": [_stage_json(s) for s in workload.stages],
        "outputs": list(workload.outputs),
    }
    if workload.name:
        document["name"] = workload.name
    if workload.declared_flops is not None:
        document["declared_flops"] = workload.declared_flops
    if workload.declared_min_bytes is not None:
        document["declared_min_bytes"] = workload.declared_min_bytes
    return document


def _tensor_json(tensor: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tensor.name,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
    }
    return {**found, "constant": True} if tensor.constant else found


def _stage_json(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": stage.name,
        "dtype": str(stage.tensor.dtype),
        "axes": [[a.name, a.extent] for a in stage.axes],
        "body": _node_json(stage.body),
    }
    if stage.reducer is not None:
        found["reducer"] = str(stage.reducer)
        found["reduce_axes"] = [[a.name, a.extent] for a in stage.reduce_axes]
    return found


def _node_json(node: Scalar) -> dict[str, Any]:
    match node:
        case Const():
            return {"op": "const", "value": _number_json(node.value), "dtype": str(node.dtype)}
        case Load():
            return {"op": "load", "tensor": node.tensor, "index": [str(i) for i in node.index]}
        case IndexValue():
            return {"op": "index", "index": str(node.index), "dtype": str(node.dtype)}
        case Unary():
            return {"op": str(node.op), "x": _node_json(node.x)}
        case Binary() | Compare():
            return {"op": str(node.op), "a": _node_json(node.a), "b": _node_json(node.b)}
        case Cast():
            return {"op": "cast", "x": _node_json(node.x), "dtype": str(node.dtype)}
        case All():
            return {"op": "all", "conds": [str(c) for c in node.conds]}
        case Select():
            return {
                "op": "select",
                "cond": _node_json(node.cond),
                "on_true": _node_json(node.on_true),
                "on_false": _node_json(node.on_false),
            }
        case _:
            assert_never(node)


def _number_json(value: float) -> int | float | str:
    return value if math.isfinite(value) else str(value)


def from_text(text: bytes | str) -> Workload:
    """The workload of a JSON text; WorkloadError says what is wrong and where."""
    return from_json(parse_json_text(text))


def from_json(document: object) -> Workload:
    """The workload of a parsed document; WorkloadError with a JSON pointer if it is not one.

    The document may come from anywhere: nothing in it can make this slow, deep or crash.
    """
    check_size(document)
    fields = _fields(
        document,
        "",
        required=("inputs", "stages", "outputs"),
        optional=("version", "name", "declared_flops", "declared_min_bytes"),
    )
    version = fields.get("version", FORMAT_VERSION)
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise _wrong(f"version must be {FORMAT_VERSION}, got {_shown(version)}", "/version",
                     "bad_version")  # fmt: skip
    name = _string(fields.get("name", ""), "/name")
    if len(name) > _MAX_NAME or not name.isprintable():
        raise _wrong(f"a name has at most {_MAX_NAME} printable characters", "/name", "bad_name")
    inputs = tuple(
        _tensor(item, f"/inputs/{n}")
        for n, item in enumerate(_list(fields["inputs"], "/inputs", MAX_INPUTS))
    )
    known: dict[str, Tensor] = {}
    for n, tensor in enumerate(inputs):
        if tensor.name in known:
            raise _wrong(f"two inputs are named {tensor.name!r}", f"/inputs/{n}", "duplicate")
        known[tensor.name] = tensor
    stages: list[Stage] = []
    for n, item in enumerate(_list(fields["stages"], "/stages", MAX_STAGES)):
        stage = _stage(item, f"/stages/{n}", known)
        stages.append(stage)
        known.setdefault(stage.name, stage.tensor)
    outputs = tuple(
        _string(item, f"/outputs/{n}")
        for n, item in enumerate(_list(fields["outputs"], "/outputs", MAX_STAGES))
    )
    workload = Workload(
        inputs,
        tuple(stages),
        outputs,
        name,
        _count(fields.get("declared_flops"), "/declared_flops"),
        _count(fields.get("declared_min_bytes"), "/declared_min_bytes"),
    )
    validate(workload)
    return workload


def check_size(document: object) -> None:
    """WorkloadError unless `document` is within the limits on values; needs no deep stack."""
    pending, count = [document], 0
    while pending:
        item = pending.pop()
        count += 1
        if count > MAX_JSON_NODES:
            raise _wrong(f"a document may hold {MAX_JSON_NODES} values", "", "too_large")
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)


def _wrong(message: str, pointer: str, code: str = "bad_document") -> WorkloadError:
    where = f" at {pointer}" if pointer else ""
    return WorkloadError(f"{message}{where}", code=code, pointer=pointer)


def _shown(value: object) -> str:
    """What was found, short: a container by its type, a huge number by its size."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"
    return shorten(repr(value))


def _fields(
    value: object, pointer: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _wrong(f"needs an object, got {_shown(value)}", pointer)
    allowed = (*required, *optional)
    for key in value:
        if key not in allowed:
            raise WorkloadError(
                f"unknown field {_shown(key)} at {pointer or '/'}; fields: {', '.join(allowed)}",
                code="unknown_field",
                pointer=pointer,
            )
    for key in required:
        if key not in value:
            raise _wrong(f"field {key!r} is missing", pointer, "missing_field")
    return value


def _list(value: object, pointer: str, limit: int) -> list[object]:
    if not isinstance(value, list | tuple):
        raise _wrong(f"needs a list, got {_shown(value)}", pointer)
    if len(value) > limit:
        raise _wrong(f"at most {limit} entries, got {len(value)}", pointer, "too_large")
    return list(value)


def _string(value: object, pointer: str) -> str:
    if not isinstance(value, str):
        raise _wrong(f"needs a string, got {_shown(value)}", pointer)
    return value


def _count(value: object, pointer: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _wrong(f"needs an integer 0..2**63-1, got {_shown(value)}", pointer)
    return value


def _extent(value: object, what: str, pointer: str) -> int:
    if isinstance(value, int) and abs(value) >= 10**40:
        raise _wrong(f"{what}: an extent must be 1..2**31-1, got a huge number", pointer,
                     "bad_extent")  # fmt: skip
    check_extent(value, what, pointer)  # type: ignore[arg-type]  # it refuses what is not an int
    assert isinstance(value, int)
    return value


def _dtype(value: object, pointer: str) -> DType:
    try:
        return values.dtype_named(_string(value, pointer))
    except WorkloadError as error:
        raise _wrong(str(error), pointer, error.code) from error


def _name(value: object, what: str, pointer: str) -> str:
    name = _string(value, pointer)
    check_name(name, what, pointer)
    return name


def _tensor(value: object, pointer: str) -> Tensor:
    fields = _fields(value, pointer, ("name", "dtype", "shape"), ("constant",))
    name = _name(fields["name"], "a tensor", f"{pointer}/name")
    shape = tuple(
        _extent(item, f"dimension {n} of tensor {name!r}", f"{pointer}/shape/{n}")
        for n, item in enumerate(_list(fields["shape"], f"{pointer}/shape", MAX_DIMS))
    )
    constant = fields.get("constant", False)
    if not isinstance(constant, bool):
        raise _wrong(f"needs true or false, got {_shown(constant)}", f"{pointer}/constant")
    return Tensor(name, shape, _dtype(fields["dtype"], f"{pointer}/dtype"), constant)


def _axes(value: object, pointer: str) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for n, item in enumerate(_list(value, pointer, MAX_DIMS)):
        here = f"{pointer}/{n}"
        pair = _list(item, here, 2)
        if len(pair) != 2:
            raise _wrong("an axis is a name and an extent", here)
        name = _name(pair[0], "an axis", f"{here}/0")
        axes.append(Axis(name, _extent(pair[1], f"axis {name!r}", f"{here}/1")))
    return tuple(axes)


def _stage(value: object, pointer: str, known: Mapping[str, Tensor]) -> Stage:
    fields = _fields(value, pointer, ("name", "dtype", "axes", "body"), ("reducer", "reduce_axes"))
    name = _name(fields["name"], "a tensor", f"{pointer}/name")
    dtype = _dtype(fields["dtype"], f"{pointer}/dtype")
    axes = _axes(fields["axes"], f"{pointer}/axes")
    reducer = None
    if "reducer" in fields:
        reducer = _member(Reducer, fields["reducer"], f"{pointer}/reducer")
    reduce_axes = _axes(fields.get("reduce_axes", []), f"{pointer}/reduce_axes")
    body = _BodyReader(known).read(fields["body"], f"{pointer}/body", 1)
    tensor = Tensor(name, tuple(a.extent for a in axes), dtype)
    return Stage(tensor, axes, body, reducer, reduce_axes)


def _member(kind: type[Reducer], value: object, pointer: str) -> Reducer:
    text = _string(value, pointer)
    try:
        return kind(text)
    except ValueError:
        raise _wrong(
            f"unknown reducer {_shown(text)}; choices: {', '.join(kind)}", pointer, "bad_reduction"
        ) from None


class _BodyReader:
    """Reads one expression; the types of loads come from the tensors known so far."""

    def __init__(self, known: Mapping[str, Tensor]) -> None:
        self._known = known

    def read(self, value: object, pointer: str, depth: int) -> Scalar:
        if depth > MAX_BODY_DEPTH:
            raise _wrong(f"an expression may be {MAX_BODY_DEPTH} levels deep", pointer, "too_deep")
        if not isinstance(value, Mapping):
            raise _wrong(f'needs an object with "op", got {_shown(value)}', pointer)
        op = _string(value.get("op", ""), f"{pointer}/op")
        reader = _READERS.get(op)
        if reader is None:
            raise _wrong(
                f"unknown op {_shown(op)}; choices: {', '.join(sorted(_READERS))}",
                f"{pointer}/op",
                "unknown_op",
            )
        wanted, build = reader
        return build(self, op, _fields(value, pointer, ("op", *wanted)), pointer, depth)

    def child(self, fields: Mapping[str, object], key: str, pointer: str, depth: int) -> Scalar:
        return self.read(fields[key], f"{pointer}/{key}", depth + 1)

    def const(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        dtype = _dtype(fields["dtype"], f"{pointer}/dtype")
        value = fields["value"]
        if value in ("inf", "-inf") and dtype.is_float:
            value = float(str(value))
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(
                f'a constant is a number, "inf" or "-inf", got {_shown(value)}', f"{pointer}/value"
            )
        elif not math.isfinite(value) if isinstance(value, float) else abs(value) >= 10**40:
            raise _wrong(f"not a constant: {_shown(value)}", f"{pointer}/value", "bad_constant")
        try:
            return values.const(value, dtype)
        except WorkloadError as error:
            raise _wrong(str(error), f"{pointer}/value", error.code) from error

    def load(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        name = _string(fields["tensor"], f"{pointer}/tensor")
        index = tuple(
            self.index(item, f"{pointer}/index/{n}")
            for n, item in enumerate(_list(fields["index"], f"{pointer}/index", MAX_DIMS))
        )
        tensor = self._known.get(name)
        if tensor is None:
            raise _wrong(
                f"{_shown(name)} is not an input or an earlier stage"
                f" ({', '.join(self._known) or 'none'})",
                f"{pointer}/tensor",
                "unknown_tensor",
            )
        return Load(name, index, tensor.dtype)

    def index(self, value: object, pointer: str) -> Affine:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value) if abs(value) < 10**40 else "9" * 40
        return _parsed(parse_index, value, pointer)

    def index_value(
        self, op: str, fields: Mapping[str, object], pointer: str, depth: int
    ) -> Scalar:
        index = self.index(fields["index"], f"{pointer}/index")
        return IndexValue(index, _dtype(fields["dtype"], f"{pointer}/dtype"))

    def unary(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        return Unary(UnaryOp(op), self.child(fields, "x", pointer, depth))

    def cast(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        dtype = _dtype(fields["dtype"], f"{pointer}/dtype")
        return Cast(self.child(fields, "x", pointer, depth), dtype)

    def pair(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        a = self.child(fields, "a", pointer, depth)
        b = self.child(fields, "b", pointer, depth)
        return Binary(BinaryOp(op), a, b) if op in _BINARY else Compare(CompareOp(op), a, b)

    def all(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        conds = [
            self.cond(item, f"{pointer}/conds/{n}")
            for n, item in enumerate(_list(fields["conds"], f"{pointer}/conds", MAX_CONDS))
        ]
        return All(tuple(sorted(set(conds), key=str)))

    def cond(self, value: object, pointer: str) -> Cond:
        return normal_cond(_parsed(parse_condition, value, pointer))

    def select(self, op: str, fields: Mapping[str, object], pointer: str, depth: int) -> Scalar:
        parts = (self.child(fields, key, pointer, depth) for key in _READERS["select"][0])
        return Select(*parts)


def _parsed(parse: Callable[[str], _T], value: object, pointer: str) -> _T:
    try:
        return parse(_string(value, pointer))
    except WorkloadError as error:
        raise _wrong(str(error), pointer, error.code) from error


_BINARY = frozenset(str(op) for op in BinaryOp)
_Reader = Callable[[_BodyReader, str, Mapping[str, object], str, int], Scalar]
_READERS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "const": (("value", "dtype"), _BodyReader.const),
    "load": (("tensor", "index"), _BodyReader.load),
    "index": (("index", "dtype"), _BodyReader.index_value),
    "cast": (("x", "dtype"), _BodyReader.cast),
    "all": (("conds",), _BodyReader.all),
    "select": (("cond", "on_true", "on_false"), _BodyReader.select),
    **{str(op): (("x",), _BodyReader.unary) for op in UnaryOp},
    **{str(op): (("a", "b"), _BodyReader.pair) for op in (*BinaryOp, *CompareOp)},
}

__all__ = ["FORMAT_VERSION", "check_size", "from_json", "from_text",
           "parse_json_text", "to_json"]  # fmt: skip
