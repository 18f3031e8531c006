"""What must be true of every workload, whoever made it: `validate` proves it or says what fails.

Every read is proved in bounds, or guarded by a condition that keeps it in bounds, from the
axes' ranges alone. Pointers in errors are those of the workload's JSON document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from .affine import Affine, Cond, FloorDiv, Ge0, Interval, Mod, Ranges, interval
from .conditions import follows, negated, within
from .dtypes import DType
from .errors import WorkloadError
from .limits import (
    MAX_ALL_CONDS,
    MAX_BODY_DEPTH,
    MAX_BYTES,
    MAX_CONDS,
    MAX_DIMS,
    MAX_EXTENT,
    MAX_INDEX_CONST,
    MAX_INPUTS,
    MAX_JSON_NODES,
    MAX_STAGES,
    check_limits,
    json_nodes,
)  # fmt: skip
from .scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    children,
    index_conds,
    vars_of,
)  # fmt: skip

if TYPE_CHECKING:
    from .workload import Axis, Stage, Tensor, Workload

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_ANY_TYPE = frozenset({UnaryOp.NEG, UnaryOp.ABS})


def validate(workload: Workload) -> None:
    """WorkloadError with a stable code and a JSON pointer unless every rule holds."""
    _check_counts(workload)
    known: dict[str, Tensor] = {}
    for number, tensor in enumerate(workload.inputs):
        _check_new(tensor, known, f"/inputs/{number}")
        known[tensor.name] = tensor
    nodes = conds = 0
    for number, stage in enumerate(workload.stages):
        pointer = f"/stages/{number}"
        _check_new(stage.tensor, known, pointer)
        check_depth(stage.body, f"{pointer}/body")
        nodes += json_nodes(stage.body)
        if nodes > MAX_JSON_NODES:
            raise WorkloadError(
                f"the expressions have {nodes} or more JSON values, at most {MAX_JSON_NODES}",
                code="too_large",
                pointer=f"{pointer}/body",
            )
        conds += sum(1 for _ in index_conds(stage.body))
        if conds > MAX_ALL_CONDS:
            raise WorkloadError(
                f"the guards have {conds} or more conditions, at most {MAX_ALL_CONDS}",
                code="too_large",
                pointer=f"{pointer}/body",
            )
        validate_stage(stage, known, pointer)
        known[stage.name] = stage.tensor
    _check_outputs(workload)
    check_limits(workload, max_bytes=MAX_BYTES)


def _check_counts(workload: Workload) -> None:
    for what, found, limit in (
        ("inputs", len(workload.inputs), MAX_INPUTS),
        ("stages", len(workload.stages), MAX_STAGES),
    ):
        if found > limit:
            raise WorkloadError(
                f"at most {limit} {what} are allowed, got {found}",
                code="too_large",
                pointer=f"/{what}",
            )


def _check_outputs(workload: Workload) -> None:
    stages = [s.name for s in workload.stages]
    if not workload.outputs:
        raise WorkloadError("a workload needs at least one output", pointer="/outputs")
    for number, name in enumerate(workload.outputs):
        if name not in stages:
            raise WorkloadError(
                f"output {name!r} is not computed by a stage; stages: {', '.join(stages)}",
                code="unknown_tensor",
                pointer=f"/outputs/{number}",
            )
        if name in workload.outputs[:number]:
            raise WorkloadError(
                f"output {name!r} is named twice", code="duplicate", pointer=f"/outputs/{number}"
            )


def _check_new(tensor: Tensor, known: Mapping[str, Tensor], pointer: str) -> None:
    check_name(tensor.name, "a tensor", pointer)
    if tensor.name in known:
        raise WorkloadError(
            f"two tensors are named {tensor.name!r}", code="duplicate", pointer=pointer
        )
    check_shape(tensor.name, tensor.shape, pointer)
    if tensor.dtype is DType.BOOL:
        raise WorkloadError(
            f"tensor {tensor.name!r} is bool; store i8 or u8 and compare with 0",
            code="bad_dtype",
            pointer=pointer,
        )


def check_name(name: str, what: str, pointer: str = "") -> None:
    """WorkloadError unless `name` is an identifier of C, of at most 64 characters."""
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise WorkloadError(
            f"the name of {what} must be a letter or _ and up to 63 letters, digits and _,"
            f" got {name!r}",
            code="bad_name",
            pointer=pointer,
        )


def check_shape(name: str, shape: tuple[int, ...], pointer: str = "") -> None:
    """WorkloadError unless there are 1..8 extents, each 1..2**31-1."""
    if not 1 <= len(shape) <= MAX_DIMS:
        raise WorkloadError(
            f"tensor {name!r} must have 1..{MAX_DIMS} dimensions, got {len(shape)}"
            + ("; a single value has the shape (1,)" if not shape else ""),
            code="bad_shape",
            pointer=pointer,
        )
    for dim, extent in enumerate(shape):
        check_extent(extent, f"dimension {dim} of tensor {name!r}", pointer)


def check_extent(extent: int, what: str, pointer: str = "") -> None:
    if not isinstance(extent, int) or isinstance(extent, bool):
        raise WorkloadError(
            f"{what}: an extent is an integer, got {extent!r}", code="bad_extent", pointer=pointer
        )
    if not 1 <= extent <= MAX_EXTENT:
        raise WorkloadError(
            f"{what}: an extent must be 1..{MAX_EXTENT}, got {shorten(str(extent))}",
            code="bad_extent",
            pointer=pointer,
        )


def shorten(text: str, limit: int = 60) -> str:
    """`text`, cut in the middle if it is longer than `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 20]}...{text[-12:]}"


def check_depth(node: Scalar, pointer: str = "") -> None:
    """WorkloadError if `node` is deeper than `MAX_BODY_DEPTH`; needs no deep call stack itself."""
    level, depth = [node], 0
    while level:
        depth += 1
        if depth > MAX_BODY_DEPTH:
            raise WorkloadError(
                f"an expression may be {MAX_BODY_DEPTH} levels deep; split it into two stages",
                code="too_deep",
                pointer=pointer,
            )
        level = [child for n in level for child in children(n)]


def stage_ranges(stage: Stage) -> dict[str, Interval]:
    """The values each axis of `stage` takes."""
    return {a.name: Interval(0, a.extent - 1) for a in (*stage.axes, *stage.reduce_axes)}


def validate_stage(stage: Stage, known: Mapping[str, Tensor], pointer: str = "") -> None:
    """WorkloadError unless `stage` is well formed; `known` are the tensors it may read."""
    _check_axes(stage, pointer)
    if stage.reducer is not None and stage.tensor.dtype is DType.BF16:
        raise WorkloadError(
            f"stage {stage.name!r} reduces in bf16; reduce in f32 and cast the result",
            code="bad_dtype",
            pointer=pointer,
        )
    ranges = stage_ranges(stage)
    _Checker(stage.name, known, ranges).check(stage.body, (), f"{pointer}/body")
    if stage.body.dtype is not stage.tensor.dtype:
        raise WorkloadError(
            f"stage {stage.name!r} stores {stage.tensor.dtype}, its expression is"
            f" {stage.body.dtype}; cast it",
            code="dtype_clash",
            pointer=f"{pointer}/body",
        )
    used = vars_of(stage.body)
    for axis in stage.reduce_axes:
        if axis.name not in used:
            raise WorkloadError(
                f"stage {stage.name!r} reduces over {axis.name!r}, which its expression never uses",
                code="unused_axis",
                pointer=f"{pointer}/reduce_axes",
            )


def _check_axes(stage: Stage, pointer: str) -> None:
    seen: set[str] = set()
    for axis in (*stage.axes, *stage.reduce_axes):
        check_name(axis.name, "an axis", f"{pointer}/axes")
        check_extent(axis.extent, f"axis {axis.name!r} of stage {stage.name!r}", f"{pointer}/axes")
        if axis.name in seen:
            raise WorkloadError(
                f"stage {stage.name!r} has two axes named {axis.name!r}",
                code="duplicate",
                pointer=f"{pointer}/axes",
            )
        seen.add(axis.name)
    if tuple(a.extent for a in stage.axes) != stage.tensor.shape:
        raise WorkloadError(
            f"stage {stage.name!r} has the shape {stage.tensor.shape}, its axes have"
            f" {_extents(stage.axes)}",
            code="bad_shape",
            pointer=f"{pointer}/axes",
        )
    if len(stage.reduce_axes) > MAX_DIMS:
        raise WorkloadError(
            f"stage {stage.name!r}: at most {MAX_DIMS} reduction axes,"
            f" got {len(stage.reduce_axes)}",
            code="too_large",
            pointer=f"{pointer}/reduce_axes",
        )
    if (stage.reducer is None) != (not stage.reduce_axes):
        raise WorkloadError(
            f"stage {stage.name!r}: a reducer needs reduction axes and they need a reducer",
            code="bad_reduction",
            pointer=f"{pointer}/reduce_axes",
        )


def _extents(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    return tuple(a.extent for a in axes)


class _Checker:
    """Checks one body, carrying the index conditions known to hold where a node is evaluated."""

    def __init__(self, stage: str, known: Mapping[str, Tensor], ranges: Ranges) -> None:
        self._stage = stage
        self._known = known
        self._ranges = ranges

    def check(self, node: Scalar, given: tuple[Cond, ...], pointer: str) -> None:
        match node:
            case Const():
                if node.dtype is DType.BOOL:
                    raise self._error("a constant may not be bool", "bad_dtype", pointer)
            case Load():
                self._check_load(node, given, pointer)
            case IndexValue():
                self._check_index_value(node, pointer)
            case Unary():
                self.check(node.x, given, f"{pointer}/x")
                self._check_unary(node, pointer)
            case Binary() | Compare():
                self.check(node.a, given, f"{pointer}/a")
                self.check(node.b, given, f"{pointer}/b")
                self._check_pair(node, pointer)
            case Cast():
                self.check(node.x, given, f"{pointer}/x")
                if DType.BOOL in (node.x.dtype, node.dtype):
                    raise self._error("a cast may not be from or to bool", "bad_dtype", pointer)
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
                self._check_select(node, given, pointer)
            case _:
                assert_never(node)

    def _error(self, what: str, code: str, pointer: str) -> WorkloadError:
        return WorkloadError(f"stage {self._stage!r}: {what}", code=code, pointer=pointer)

    def _check_load(self, node: Load, given: tuple[Cond, ...], pointer: str) -> None:
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
            self._check_index(index, f"{pointer}/index/{dim}")
            if all(follows(c, given, self._ranges) for c in within(index, extent)):
                continue
            found = interval(index, self._ranges)
            raise self._error(
                f"{node.tensor}[{', '.join(map(str, node.index))}] may be out of bounds:"
                f" {shorten(str(index))} in dimension {dim} takes {found.lo}..{found.hi},"
                f" the extent is {extent}; guard it with select or read it with padded",
                "out_of_bounds",
                f"{pointer}/index/{dim}",
            )

    def _check_index(self, index: Affine, pointer: str, level: int = 0) -> None:
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
        if node.dtype.is_float and node.dtype is not DType.BF16:
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
        wide_float = dtype.is_float and dtype is not DType.BF16
        integer = dtype in (DType.I8, DType.U8, DType.I32, DType.I64)
        if not (wide_float or (node.op in _ANY_TYPE and integer)):
            raise self._error(
                f"{node.op} of {dtype}: cast the operand to f32 or f64 first", "bad_dtype", pointer
            )

    def _check_pair(self, node: Binary | Compare, pointer: str) -> None:
        a, b = node.a.dtype, node.b.dtype
        if a is not b:
            raise self._error(f"{node.op} of {a} and {b}: cast one of them", "dtype_clash", pointer)
        if a in (DType.BF16, DType.BOOL):
            raise self._error(
                f"{node.op} of {a}: there is no arithmetic on it, cast to f32 or use select",
                "bad_dtype",
                pointer,
            )
        if node.op is BinaryOp.DIV and not a.is_float:
            raise self._error(f"div of {a}: only floats divide, cast first", "bad_dtype", pointer)

    def _check_select(self, node: Select, given: tuple[Cond, ...], pointer: str) -> None:
        self.check(node.cond, given, f"{pointer}/cond")
        if node.cond.dtype is not DType.BOOL:
            raise self._error(
                f"a select needs a condition, got a value of type {node.cond.dtype}",
                "bad_dtype",
                f"{pointer}/cond",
            )
        holds: tuple[Cond, ...] = ()
        fails: tuple[Cond, ...] = ()
        if isinstance(node.cond, All):
            holds = node.cond.conds
            only = holds[0]
            fails = (negated(only),) if len(holds) == 1 and isinstance(only, Ge0) else ()
        self.check(node.on_true, given + holds, f"{pointer}/on_true")
        self.check(node.on_false, given + fails, f"{pointer}/on_false")
        a, b = node.on_true.dtype, node.on_false.dtype
        if DType.BOOL in (a, b):
            raise self._error(
                "a select chooses between values, not conditions; nest the selects",
                "bad_dtype",
                pointer,
            )
        if a is not b:
            raise self._error(
                f"the two sides of a select are {a} and {b}: cast one", "dtype_clash", pointer
            )
