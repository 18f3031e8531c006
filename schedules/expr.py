"""The Python way to write a computation; index notation and the operator library use it as well.

    A = placeholder("A", (512, 512))
    B = placeholder("B", (512, 512))
    k = reduce_axis(512, "k")
    C = compute("C", (512, 512), lambda i, j: sum(A[i, k] * B[k, j], axis=k))
    matmul = Workload.of(C, inputs=[A, B])

Index variables have integer arithmetic (`+ - *`, `//` and `%` by a constant); tensors indexed by
them are values. Comparisons of either are conditions for `select`. `==` keeps Python's meaning:
write `eq(i, j)`. Every error is a `WorkloadError`.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from . import values
from .affine import Affine, Cond, Eq0, Ge0, Interval, affine, var
from .conditions import needed, normal_cond, within
from .dtypes import DType
from .errors import WorkloadError
from .limits import MAX_BODY_DEPTH, MAX_JSON_NODES
from .scalar import All, BinaryOp, CompareOp, IndexValue, Load, Reducer, Scalar, Select, UnaryOp
from .validate import check_extent, check_name, check_shape
from .workload import Stage, Tensor

if TYPE_CHECKING:
    from .workload import Workload


class LoopVar:
    """One index variable. Its identity is the object: two may have the same label."""

    __slots__ = ("extent", "label", "name", "reduce")

    def __init__(self, label: str, extent: int, *, reduce: bool) -> None:
        check_name(label, "an axis")
        check_extent(extent, f"axis {label!r}")
        self.label = label
        self.extent = extent
        self.reduce = reduce
        # Unique while the object lives, and every expression that uses it keeps it alive.
        # Stages get plain names, so it never leaves this front end.
        self.name = f"{label}@{id(self):x}"


Vars: TypeAlias = Mapping[str, LoopVar]


class Index:
    """An integer made of index variables; comparisons give conditions."""

    __slots__ = ("affine", "vars")

    def __init__(self, index: Affine, variables: Vars) -> None:
        self.affine = index
        self.vars = variables

    def _with(self, other: object, build: Callable[[Affine, Affine], Affine]) -> Index:
        if not isinstance(other, Index | int) or isinstance(other, bool):
            return NotImplemented  # a value takes the index as a number, from its own side
        right = as_index(other)
        return Index(build(self.affine, right.affine), {**self.vars, **right.vars})

    def __add__(self, other: object) -> Any:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: object) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __radd__(self, other: object) -> Any:
        return self._with(other, lambda a, b: b + a)

    def __rsub__(self, other: object) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __neg__(self) -> Index:
        return Index(-self.affine, self.vars)

    def __mul__(self, other: object) -> Any:
        if isinstance(other, Expr | float) or isinstance(other, bool):
            return NotImplemented
        factor, index = _constant_factor(self, other)
        return Index(index.affine * factor, index.vars)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: object) -> Index:
        return Index(self.affine // _divisor(divisor, "//"), self.vars)

    def __mod__(self, divisor: object) -> Index:
        return Index(self.affine % _divisor(divisor, "%"), self.vars)

    def __lt__(self, other: object) -> Any:
        return _index_condition(self, other, lambda a, b: Ge0(b - a - 1))

    def __le__(self, other: object) -> Any:
        return _index_condition(self, other, lambda a, b: Ge0(b - a))

    def __gt__(self, other: object) -> Any:
        return _index_condition(self, other, lambda a, b: Ge0(a - b - 1))

    def __ge__(self, other: object) -> Any:
        return _index_condition(self, other, lambda a, b: Ge0(a - b))


class ReduceAxis(Index):
    """An index variable to reduce over: use it in indices and as `axis=` of a reducer."""

    __slots__ = ("var",)

    def __init__(self, variable: LoopVar) -> None:
        super().__init__(var(variable.name), {variable.name: variable})
        self.var = variable


def as_index(value: object) -> Index:
    """`value` as an index; WorkloadError if it is neither an index nor an integer."""
    if isinstance(value, Index):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Index(affine(value), {})
    raise WorkloadError(
        f"an index is an integer or made of index variables, got {_described(value)}",
        code="bad_index",
    )


def _described(value: object) -> str:
    if isinstance(value, Expr):
        return f"a value of type {value.dtype}; indices may not depend on tensors"
    return f"{type(value).__name__} {values_repr(value)}"


def values_repr(value: object) -> str:
    """A short `repr` for messages."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _constant_factor(a: Index, other: object) -> tuple[int, Index]:
    b = as_index(other)
    if b.affine.is_const:
        return b.affine.const, a
    if a.affine.is_const:
        return a.affine.const, b
    raise WorkloadError(
        "the product of two index variables is not an affine index; cast one of them to use"
        " the product as a value",
        code="bad_index",
    )


def _divisor(value: object, what: str) -> int:
    if isinstance(value, Index) and value.affine.is_const:
        value = value.affine.const
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WorkloadError(
            f"an index {what} needs a constant integer >= 1, got {_described(value)}",
            code="bad_index",
        )
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A reduction inside an expression, before it becomes a stage of its own."""

    reducer: Reducer
    node: Scalar
    axes: tuple[LoopVar, ...]
    free: Vars
    inner: Mapping[str, Reduction]

    def same_as(self, other: Reduction) -> bool:
        return (self.reducer, self.node, self.axes) == (other.reducer, other.node, other.axes)


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A value computed for one element. `vars` are the index variables it is free in.

    A reduction inside is a `Load` of a tensor that `reductions` explains. `size` and `depth`
    count the tree, so that shared parts cannot grow it beyond what a document may hold.
    """

    node: Scalar
    vars: Vars
    tensors: Mapping[str, TensorExpr]
    reductions: Mapping[str, Reduction]
    size: int = 1
    depth: int = 1

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def __add__(self, other: object) -> Any:
        return arithmetic(BinaryOp.ADD, self, other)

    def __radd__(self, other: object) -> Any:
        return arithmetic(BinaryOp.ADD, other, self)

    def __sub__(self, other: object) -> Any:
        return arithmetic(BinaryOp.SUB, self, other)

    def __rsub__(self, other: object) -> Any:
        return arithmetic(BinaryOp.SUB, other, self)

    def __mul__(self, other: object) -> Any:
        return arithmetic(BinaryOp.MUL, self, other)

    def __rmul__(self, other: object) -> Any:
        return arithmetic(BinaryOp.MUL, other, self)

    def __truediv__(self, other: object) -> Any:
        return arithmetic(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: object) -> Any:
        return arithmetic(BinaryOp.DIV, other, self)

    def __neg__(self) -> Expr:
        return function(UnaryOp.NEG, self)

    def __lt__(self, other: object) -> Any:
        return _value_condition(CompareOp.LT, self, other)

    def __le__(self, other: object) -> Any:
        return _value_condition(CompareOp.LE, self, other)

    def __gt__(self, other: object) -> Any:
        return _value_condition(CompareOp.LT, other, self)

    def __ge__(self, other: object) -> Any:
        return _value_condition(CompareOp.LE, other, self)


Operand: TypeAlias = Expr | Index | int | float
"""What may stand in an expression: a value, an index used as a number, or a number."""


def derived(node: Scalar, *parts: Expr) -> Expr:
    """`node`, made of `parts`, with what they know together. WorkloadError if it is too large."""
    size = 1 + builtins.sum(p.size for p in parts)
    depth = 1 + builtins.max((p.depth for p in parts), default=0)
    if size > MAX_JSON_NODES or depth > MAX_BODY_DEPTH:
        raise WorkloadError(
            f"an expression may have {MAX_JSON_NODES} operations in {MAX_BODY_DEPTH} levels, this"
            f" one has {size} in {depth}; split it into several stages",
            code="too_large" if size > MAX_JSON_NODES else "too_deep",
        )
    variables: dict[str, LoopVar] = {}
    tensors: dict[str, TensorExpr] = {}
    reductions: dict[str, Reduction] = {}
    for part in parts:
        variables.update(part.vars)
        reductions.update(part.reductions)
        for name, tensor in part.tensors.items():
            if tensors.setdefault(name, tensor) is not tensor:
                raise WorkloadError(f"two tensors are named {name!r}", code="duplicate")
    return Expr(node, variables, tensors, reductions, size, depth)


def _number(value: Operand, dtype: DType) -> Expr:
    """A number or index as a value of `dtype`."""
    if isinstance(value, Index) and value.affine.is_const:
        value = value.affine.const
    if isinstance(value, Index):
        return Expr(IndexValue(value.affine, dtype), value.vars, {}, {})
    assert not isinstance(value, Expr)
    return Expr(values.const(value, dtype), {}, {}, {})


def _operand(value: object) -> Operand:
    if isinstance(value, Expr | Index) or (
        isinstance(value, int | float) and not isinstance(value, bool)
    ):
        return value
    if isinstance(value, TensorExpr):
        raise WorkloadError(
            f"{value.name} is a tensor; index it to get a value: {value.name}[...]", code="bad_node"
        )
    raise WorkloadError(
        f"an expression is made of values, indices and numbers, got {_described(value)}",
        code="bad_node",
    )


def as_value(value: object, dtype: DType | None = None) -> Expr:
    """`value` as an expression; numbers become `dtype` (None: i32 or i64 if whole, else f32)."""
    operand = _operand(value)
    if isinstance(operand, Expr):
        return operand
    if dtype is None:
        dtype = DType.F32 if isinstance(operand, float) else DType.I32
    return _number(operand, dtype)


def typed_pair(a: object, b: object, *, keep_narrow: bool = False) -> tuple[Expr, Expr]:
    """Both operands as values, a number in the type of the other one."""
    left, right = _operand(a), _operand(b)
    if isinstance(left, Expr) and isinstance(right, Expr):
        return left, right
    if isinstance(left, Expr):
        return left, _number_beside(left, right, keep_narrow)
    if isinstance(right, Expr):
        return _number_beside(right, left, keep_narrow), right
    dtype = DType.F32 if isinstance(left, float) or isinstance(right, float) else DType.I32
    return _number(left, dtype), _number(right, dtype)


def _number_beside(typed: Expr, number: Operand, keep_narrow: bool) -> Expr:
    dtype = values.wide(typed.dtype)
    if keep_narrow and dtype is not typed.dtype and not typed.dtype.is_float:
        low, high = values.integer_range(typed.dtype)
        if isinstance(number, int) and low <= number <= high:
            dtype = typed.dtype
    return _number(number, dtype)


def arithmetic(op: BinaryOp, a: object, b: object) -> Expr:
    """`op(a, b)` by the type rules of `values`."""
    left, right = typed_pair(a, b, keep_narrow=op in (BinaryOp.MIN, BinaryOp.MAX))
    return derived(values.binary(op, left.node, right.node), left, right)


def function(op: UnaryOp, x: object) -> Expr:
    """`op(x)`, in f32 for bf16; a plain number is f32."""
    operand = _operand(x)
    value = operand if isinstance(operand, Expr) else _number(operand, DType.F32)
    return derived(values.unary(op, value.node), value)


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of two values (the reducer is `min`)."""
    return arithmetic(BinaryOp.MIN, a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of two values (the reducer is `max`)."""
    return arithmetic(BinaryOp.MAX, a, b)


def exp(x: Operand) -> Expr:
    return function(UnaryOp.EXP, x)


def log(x: Operand) -> Expr:
    return function(UnaryOp.LOG, x)


def sqrt(x: Operand) -> Expr:
    return function(UnaryOp.SQRT, x)


def rsqrt(x: Operand) -> Expr:
    """`1 / sqrt(x)`."""
    return function(UnaryOp.RSQRT, x)


def tanh(x: Operand) -> Expr:
    return function(UnaryOp.TANH, x)


def erf(x: Operand) -> Expr:
    return function(UnaryOp.ERF, x)


def sigmoid(x: Operand) -> Expr:
    """`1 / (1 + exp(-x))`."""
    return function(UnaryOp.SIGMOID, x)


def floor(x: Operand) -> Expr:
    """The greatest whole number not above `x`, still a float."""
    return function(UnaryOp.FLOOR, x)


def abs(x: Operand) -> Expr:
    return function(UnaryOp.ABS, x)


def const(value: float, dtype: str = "f32") -> Expr:
    """A number with a type of its own."""
    return _number(_operand(value), values.dtype_named(dtype))


def cast(x: Operand, dtype: str) -> Expr:
    """`x` as `dtype`. Float to integer truncates towards zero and saturates."""
    wanted = values.dtype_named(dtype)
    operand = _operand(x)
    if not isinstance(operand, Expr):
        return _number(operand, wanted)
    return derived(values.cast(operand.node, wanted), operand)


# --- conditions ---


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition over indices and values: `choose(a, b)` is `a` where it holds, else `b`."""

    choose: Callable[[Expr, Expr], Expr]

    def __bool__(self) -> bool:
        raise WorkloadError(
            "a condition has no truth value yet; combine with all_of, any_of and not_,"
            " use it in select",
            code="bad_node",
        )


def _index_condition(a: Index, b: object, build: Callable[[Affine, Affine], Cond]) -> Any:
    if isinstance(b, Expr | float):
        return NotImplemented
    right = as_index(b)
    cond = normal_cond(build(a.affine, right.affine))
    return _guard((cond,), {**a.vars, **right.vars})


def _guard(conds: tuple[Cond, ...], variables: Vars) -> Condition:
    test = Expr(All(conds), variables, {}, {})

    def choose(a: Expr, b: Expr) -> Expr:
        return derived(Select(test.node, a.node, b.node), test, a, b)

    return Condition(choose)


def _value_condition(op: CompareOp, a: object, b: object) -> Condition:
    left, right = typed_pair(a, b, keep_narrow=True)
    test = derived(values.compare(op, left.node, right.node), left, right)

    def choose(x: Expr, y: Expr) -> Expr:
        return derived(Select(test.node, x.node, y.node), test, x, y)

    return Condition(choose)


def eq(a: Operand, b: Operand) -> Condition:
    """`a == b`, of two indices or two values."""
    if isinstance(a, Expr | float) or isinstance(b, Expr | float):
        return _value_condition(CompareOp.EQ, a, b)
    left = as_index(a)
    found: Condition = _index_condition(left, b, lambda x, y: Eq0(x - y))
    return found


def ne(a: Operand, b: Operand) -> Condition:
    """`a != b`, of two indices or two values."""
    if isinstance(a, Expr | float) or isinstance(b, Expr | float):
        return _value_condition(CompareOp.NE, a, b)
    return not_(eq(a, b))


def not_(condition: Condition) -> Condition:
    """Where `condition` does not hold."""
    return Condition(lambda a, b: condition.choose(b, a))


def all_of(*conditions: Condition) -> Condition:
    """Where every one of `conditions` holds."""
    if not conditions:
        raise WorkloadError("all_of needs at least one condition", code="bad_node")

    def choose(a: Expr, b: Expr) -> Expr:
        for condition in reversed(conditions):
            a = condition.choose(a, b)
        return a

    return Condition(choose)


def any_of(*conditions: Condition) -> Condition:
    """Where at least one of `conditions` holds."""
    return not_(all_of(*(not_(c) for c in conditions)))


def select(condition: Condition, on_true: Operand, on_false: Operand) -> Expr:
    """`on_true` where `condition` holds, else `on_false`; only the side taken is evaluated."""
    if not isinstance(condition, Condition):
        raise WorkloadError(
            f"select needs a condition such as i >= j or eq(i, j), got {_described(condition)}",
            code="bad_node",
        )
    a, b = typed_pair(on_true, on_false, keep_narrow=True)
    if a.dtype is not b.dtype:
        left, right = values.same_type(a.node, b.node, "select")
        a, b = derived(left, a), derived(right, b)
    return condition.choose(a, b)


# --- tensors and reductions ---


@dataclass(frozen=True, slots=True, eq=False)
class TensorExpr:
    """A tensor to read: an input, or one computed by the last of `stages`."""

    tensor: Tensor
    stages: tuple[Stage, ...] = ()
    reads: tuple[TensorExpr, ...] = ()

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def __getitem__(self, index: object) -> Expr:
        """The element at `index`: one integer or index a dimension."""
        given = index if isinstance(index, tuple) else (index,)
        if len(given) != len(self.shape):
            raise WorkloadError(
                f"{self.name} has {len(self.shape)} dimensions {self.shape},"
                f" got {len(given)} indices",
                code="bad_rank",
            )
        indices = [as_index(i) for i in given]
        variables: dict[str, LoopVar] = {}
        for i in indices:
            variables.update(i.vars)
        load = Load(self.name, tuple(i.affine for i in indices), self.dtype)
        return Expr(load, variables, {self.name: self}, {})

    def __iter__(self) -> Any:
        raise TypeError(f"tensor {self.name} cannot be iterated; index it with index variables")


def padded(tensor: TensorExpr, *index: Index | int, fill: float = 0) -> Expr:
    """`tensor[index]`, and `fill` outside of it: only where a read may really be outside."""
    read = tensor[tuple(index)]
    ranges = {name: Interval(0, v.extent - 1) for name, v in read.vars.items()}
    load = read.node
    assert isinstance(load, Load)
    conds = tuple(
        c for i, extent in zip(load.index, tensor.shape, strict=True) for c in within(i, extent)
    )
    kept = needed(conds, ranges)
    if kept == ():
        return read
    outside = _number(fill, tensor.dtype if fill else values.wide(tensor.dtype))
    if outside.dtype is not read.dtype:
        outside = Expr(_zero(tensor.dtype), {}, {}, {})
    return _guard(conds if kept is None else kept, read.vars).choose(read, outside)


def _zero(dtype: DType) -> Scalar:
    """Zero of a narrow type; bf16 has no constants of its own."""
    if dtype is DType.BF16:
        return values.cast(values.const(0, DType.F32), dtype)
    return values.const(0, dtype)


def placeholder(
    name: str, shape: Sequence[int], dtype: str = "f32", constant: bool = False
) -> TensorExpr:
    """An input tensor. `constant` says that its values do not change between calls."""
    check_name(name, "a tensor")
    check_shape(name, tuple(shape))
    return TensorExpr(Tensor(name, tuple(shape), values.dtype_named(dtype), constant))


def reduce_axis(extent: int, name: str | None = None) -> ReduceAxis:
    """An index variable over `0..extent-1` to reduce over; `name` is for people (default "k")."""
    return ReduceAxis(LoopVar("k" if name is None else name, extent, reduce=True))


def reduction(reducer: Reducer, x: object, axis: object) -> Expr:
    """`x` combined by `reducer` over `axis`: `sum`, `max`, `min` and `prod` by name."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if not axes or not all(isinstance(a, ReduceAxis) for a in axes):
        better = {Reducer.MAX: "maximum", Reducer.MIN: "minimum"}.get(reducer)
        hint = f" (of two values: {better}(a, b))" if better and not isinstance(axis, tuple) else ""
        raise WorkloadError(
            f"{reducer} needs axis=k or axis=(k1, k2) made by reduce_axis,"
            f" got {values_repr(axis)}{hint}",
            code="bad_reduction",
        )
    value = as_value(x)
    loop_vars = tuple(a.var for a in axes if isinstance(a, ReduceAxis))
    for n, v in enumerate(loop_vars):
        if v.name not in value.vars:
            raise WorkloadError(
                f"{reducer} over axis {v.label!r}, which the expression does not use",
                code="unused_axis",
            )
        if v in loop_vars[:n]:
            raise WorkloadError(f"axis {v.label!r} is named twice", code="duplicate")
    node = values.reduced(reducer, value.node)
    bound = {v.name for v in loop_vars}
    free = {name: v for name, v in value.vars.items() if name not in bound}
    found = Reduction(reducer, node, loop_vars, free, value.reductions)
    name = f"{reducer}@{id(found):x}"
    return Expr(
        Load(name, (), node.dtype), free, value.tensors, {name: found}, value.size + 1,
        value.depth,
    )  # fmt: skip


def sum(x: Operand, axis: object) -> Expr:
    """The sum of `x` over `axis`, a reduce axis or a tuple of them; narrow types sum wide."""
    return reduction(Reducer.SUM, x, axis)


def prod(x: Operand, axis: object) -> Expr:
    """The product of `x` over `axis`; narrow types multiply wide."""
    return reduction(Reducer.PROD, x, axis)


def max(x: Operand, axis: object) -> Expr:
    """The greatest `x` over `axis` (of two values: `maximum`)."""
    return reduction(Reducer.MAX, x, axis)


def min(x: Operand, axis: object) -> Expr:
    """The least `x` over `axis` (of two values: `minimum`)."""
    return reduction(Reducer.MIN, x, axis)


def compute(
    name: str, shape: Sequence[int], fn: Callable[..., Any], dtype: str | None = None
) -> TensorExpr:
    """The tensor whose element `[i, j, ...]` is `fn(i, j, ...)`.

    The axes are called what `fn` calls its parameters. `dtype` casts the result; without it the
    tensor has the type of the expression. A reduction inside a larger expression becomes a stage
    of its own, over those of its free axes it depends on.
    """
    check_name(name, "a tensor")
    check_shape(name, tuple(shape))
    labels = _labels(fn, name, len(shape))
    return compute_labelled(name, tuple(zip(labels, shape, strict=True)), fn, dtype)


def compute_labelled(
    name: str,
    labelled: Sequence[tuple[str, int]],
    fn: Callable[..., Any],
    dtype: str | None = None,
) -> TensorExpr:
    """`compute` with the axes given as (name, extent) pairs."""
    from .staging import build_stages

    check_name(name, "a tensor")
    check_shape(name, tuple(extent for _, extent in labelled))
    axes = tuple(LoopVar(label, extent, reduce=False) for label, extent in labelled)
    given = fn(*(Index(var(v.name), {v.name: v}) for v in axes))
    wanted = values.dtype_named(dtype) if dtype is not None else None
    value = as_value(given, wanted or (DType.F32 if isinstance(given, int) else None))
    if wanted is not None and value.dtype is not wanted:
        value = derived(values.cast(value.node, wanted), value)
    return build_stages(name, axes, value)


def _labels(fn: Callable[..., Any], name: str, rank: int) -> list[str]:
    """Axis names from the parameters of `fn`."""
    labels: list[str] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return labels + [f"i{n}" for n in range(len(labels), rank)]
        if parameter.default is parameter.empty:
            labels.append(parameter.name)
    if len(labels) != rank:
        raise WorkloadError(
            f"{name} has {rank} dimensions, its function takes {len(labels)} indices"
            f" ({', '.join(labels)})",
            code="bad_rank",
        )
    return labels


def build_workload(
    outputs: Sequence[TensorExpr], inputs: Sequence[TensorExpr] | None, name: str
) -> Workload:
    """See `Workload.of`."""
    from .staging import assemble

    return assemble(outputs, inputs, name)
