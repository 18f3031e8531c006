"""Parse and validate the JSON document of a workload.

`docs/workload.md` describes the format; `docs/workload.schema.json` is its JSON Schema. Indices and
index conditions are text in the syntax of index notation ("2*h + r - 1", "h >= 1").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..algebra.scalar import Components, Const, Reducer, Scalar
from ..errors import WorkloadError
from ..limits import MAX_COMPONENTS, MAX_DIMS, MAX_INPUTS, MAX_JSON_NODES, MAX_STAGES
from .body_json import BodyReader
from .checks import check_allowed_error
from .computation import Computation
from .document import FORMAT_VERSION
from .json_fields import (
    json_count,
    json_dtype,
    json_extent,
    json_fields,
    json_list,
    json_name,
    json_string,
    shown,
    wrong,
)
from .strict_json import parse_json_text
from .tensors import (
    Axis,
    Elementwise,
    Reduction,
    Scan,
    Stage,
    StageKind,
    Tensor,
    TupleReduction,
)
from .tuple_stages import component_tensors
from .validate import settled

_MAX_NAME = 200


def read_text(text: bytes | str) -> Computation:
    """Return the computation of a JSON text. Raise WorkloadError if it is not valid."""
    return read_document(parse_json_text(text))


def read_document(document: object) -> Computation:
    """Return the computation of a parsed, untrusted document.

    Raise WorkloadError with a JSON pointer if it is too large or not valid.
    """
    check_size(document)
    fields = json_fields(
        document,
        "",
        required=("inputs", "stages", "outputs"),
        optional=("version", "name", "declared_flops", "declared_min_bytes", "allowed_error"),
    )
    version = fields.get("version", FORMAT_VERSION)
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise wrong(f"version must be {FORMAT_VERSION}, got {shown(version)}", "/version",
                     "bad_version")  # fmt: skip
    name = json_string(fields.get("name", ""), "/name")
    if len(name) > _MAX_NAME or not name.isprintable():
        raise wrong(f"a name has at most {_MAX_NAME} printable characters", "/name", "bad_name")
    inputs = tuple(
        _tensor(item, f"/inputs/{n}")
        for n, item in enumerate(json_list(fields["inputs"], "/inputs", MAX_INPUTS))
    )
    known: dict[str, Tensor] = {}
    for n, tensor in enumerate(inputs):
        if tensor.name in known:
            raise wrong(f"two inputs are named {tensor.name!r}", f"/inputs/{n}", "duplicate")
        known[tensor.name] = tensor
    stages: list[Stage] = []
    for n, item in enumerate(json_list(fields["stages"], "/stages", MAX_STAGES)):
        stage = _stage(item, f"/stages/{n}", known)
        stages.append(stage)
        known.setdefault(stage.name, stage.tensor)
    outputs = tuple(
        json_string(item, f"/outputs/{n}")
        for n, item in enumerate(json_list(fields["outputs"], "/outputs", MAX_STAGES))
    )
    computation = Computation(
        inputs,
        tuple(stages),
        outputs,
        name,
        json_count(fields.get("declared_flops"), "/declared_flops"),
        json_count(fields.get("declared_min_bytes"), "/declared_min_bytes"),
        _allowed_error(fields.get("allowed_error")),
    )
    return settled(computation)


def _allowed_error(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(f"needs a number, got {shown(value)}", "/allowed_error", "bad_error")
    check_allowed_error(value, "/allowed_error")
    return float(value)


def check_size(document: object) -> None:
    """Raise WorkloadError if `document` has too many values. Not recursive: it may be deep."""
    pending, count = [document], 0
    while pending:
        item = pending.pop()
        count += 1
        if count > MAX_JSON_NODES:
            raise wrong(f"a document may hold {MAX_JSON_NODES} values", "", "too_large")
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)


def _tensor(value: object, pointer: str) -> Tensor:
    fields = json_fields(value, pointer, ("name", "dtype", "shape"), ("constant",))
    name = json_name(fields["name"], "a tensor", f"{pointer}/name")
    shape = tuple(
        json_extent(item, f"dimension {n} of tensor {name!r}", f"{pointer}/shape/{n}")
        for n, item in enumerate(json_list(fields["shape"], f"{pointer}/shape", MAX_DIMS))
    )
    constant = fields.get("constant", False)
    if not isinstance(constant, bool):
        raise wrong(f"needs true or false, got {shown(constant)}", f"{pointer}/constant")
    return Tensor(name, shape, json_dtype(fields["dtype"], f"{pointer}/dtype"), constant)


def _axes(value: object, pointer: str) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for n, item in enumerate(json_list(value, pointer, MAX_DIMS)):
        here = f"{pointer}/{n}"
        pair = json_list(item, here, 2)
        if len(pair) != 2:
            raise wrong("an axis is a name and an extent", here)
        name = json_name(pair[0], "an axis", f"{here}/0")
        axes.append(Axis(name, json_extent(pair[1], f"axis {name!r}", f"{here}/1")))
    return tuple(axes)


def _stage(value: object, pointer: str, known: Mapping[str, Tensor]) -> Stage:
    optional = ("reducer", "reduce_axes", "scan_axis", "reverse", *_OF_TUPLES)
    fields = json_fields(value, pointer, ("name", "dtype", "axes", "body"), optional)
    name = json_name(fields["name"], "a tensor", f"{pointer}/name")
    dtype = json_dtype(fields["dtype"], f"{pointer}/dtype")
    axes = _axes(fields["axes"], f"{pointer}/axes")
    if any(field in fields for field in _OF_TUPLES):
        kind, body = _tuple_reduction(fields, name, known, pointer)
    else:
        kind = _kind(fields, name, axes, pointer)
        body = BodyReader(known).read(fields["body"], f"{pointer}/body", 1)
    tensor = Tensor(name, tuple(a.extent for a in axes), dtype)
    return Stage(tensor, axes, body, kind)


_OF_TUPLES = ("identities", "combine", "position", "commutative")
"""The fields of a reduction of tuples, the optional one last."""


def _tuple_reduction(
    fields: Mapping[str, object], stage: str, known: Mapping[str, Tensor], pointer: str
) -> tuple[StageKind, Scalar]:
    """Return the kind and the body of a reduction of tuples."""
    wanted = ("reduce_axes", *_OF_TUPLES[:-1])
    extra = [name for name in ("reducer", "scan_axis", "reverse") if name in fields]
    if extra or not all(name in fields for name in wanted):
        raise WorkloadError(
            f"stage {stage!r}: a reduction of tuples has {', '.join(wanted)}, and no reducer",
            code="bad_reduction",
            pointer=f"{pointer}/combine",
        )
    axes = _axes(fields["reduce_axes"], f"{pointer}/reduce_axes")
    body = json_fields(fields["body"], f"{pointer}/body", ("op", "values"))
    if body["op"] != "tuple":
        raise wrong(f'needs the op "tuple", got {shown(body["op"])}', f"{pointer}/body/op")
    values = _nodes(body["values"], BodyReader(known), f"{pointer}/body/values")
    given = _nodes(fields["identities"], BodyReader({}), f"{pointer}/identities")
    identities = tuple(node for node in given if isinstance(node, Const))
    if len(identities) < len(given):
        raise wrong("an identity is a constant", f"{pointer}/identities", "bad_reduction")
    position = fields["position"]
    if isinstance(position, bool) or not isinstance(position, int):
        raise wrong(f"needs an integer, got {shown(position)}", f"{pointer}/position")
    commutative = fields.get("commutative", False)
    if not isinstance(commutative, bool):
        raise wrong(f"needs true or false, got {shown(commutative)}", f"{pointer}/commutative")
    kind = TupleReduction(axes, identities, (), position, commutative)
    combine = _nodes(fields["combine"], BodyReader(component_tensors(kind)), f"{pointer}/combine")
    return replace(kind, combine=combine), Components(values)


def _nodes(value: object, reader: BodyReader, pointer: str) -> tuple[Scalar, ...]:
    items = json_list(value, pointer, MAX_COMPONENTS)
    if not items:
        raise wrong("a tuple has a component or more", pointer, "bad_reduction")
    return tuple(reader.read(item, f"{pointer}/{n}", 2) for n, item in enumerate(items))


def _kind(
    fields: Mapping[str, object], stage: str, spatial: tuple[Axis, ...], pointer: str
) -> StageKind:
    reducer = None
    if "reducer" in fields:
        reducer = _member(Reducer, fields["reducer"], f"{pointer}/reducer")
    axes = _axes(fields.get("reduce_axes", []), f"{pointer}/reduce_axes")
    if "scan_axis" in fields or "reverse" in fields:
        return _scan(fields, stage, reducer, spatial, pointer)
    if reducer is not None and axes:
        return Reduction(reducer, axes)
    if reducer is not None or axes:
        raise WorkloadError(
            f"stage {stage!r}: a reducer and reduction axes need each other",
            code="bad_reduction",
            pointer=f"{pointer}/reduce_axes",
        )
    return Elementwise()


def _scan(
    fields: Mapping[str, object],
    stage: str,
    reducer: Reducer | None,
    spatial: tuple[Axis, ...],
    pointer: str,
) -> Scan:
    if reducer is None or "scan_axis" not in fields or fields.get("reduce_axes"):
        raise WorkloadError(
            f"stage {stage!r}: a scan has a reducer and a scan_axis, and no reduction axes",
            code="bad_reduction",
            pointer=f"{pointer}/scan_axis",
        )
    name = json_name(fields["scan_axis"], "an axis", f"{pointer}/scan_axis")
    names = [axis.name for axis in spatial]
    if name not in names:
        raise WorkloadError(
            f"stage {stage!r} scans along {name!r}, which is none of its axes {', '.join(names)}",
            code="unknown_axis",
            pointer=f"{pointer}/scan_axis",
        )
    reverse = fields.get("reverse", False)
    if not isinstance(reverse, bool):
        raise wrong(f"needs true or false, got {shown(reverse)}", f"{pointer}/reverse")
    return Scan(reducer, names.index(name), reverse)


def _member(kind: type[Reducer], value: object, pointer: str) -> Reducer:
    text = json_string(value, pointer)
    try:
        return kind(text)
    except ValueError:
        raise wrong(
            f"unknown reducer {shown(text)}; choices: {', '.join(kind)}", pointer, "bad_reduction"
        ) from None
