"""Epilogues of a contraction in the same kernel: bias, activations, residual, requantisation.

Operations per output element: bias 1, relu 1, relu6 2, gelu 9, add 1, requant 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..dtypes import DType
from ..errors import WorkloadError
from ..frontend.expr import cast, compute_labelled, maximum, minimum, placeholder
from ..frontend.expr_core import Expr, Index
from ..frontend.functions import tanh
from ..frontend.reading import TensorExpr
from .registry import Draft, closest


@dataclass(frozen=True, slots=True)
class _Context:
    """The operands of an epilogue: the tensor it reads, the index of the element, the extra inputs,
    and the index in those that have one element per channel."""

    accumulator: TensorExpr
    index: tuple[Index, ...]
    inputs: dict[str, TensorExpr]
    channel: Index


def _bias(x: Expr, at: _Context) -> Expr:
    return x + at.inputs["bias"][at.channel]


def _relu(x: Expr, at: _Context) -> Expr:
    return maximum(x, 0)


def _relu6(x: Expr, at: _Context) -> Expr:
    return minimum(maximum(x, 0), 6)


def _gelu(x: Expr, at: _Context) -> Expr:
    """Return 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the tanh approximation of GELU."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1 + tanh(inner))


def _add(x: Expr, at: _Context) -> Expr:
    return x + at.inputs["residual"][at.index]


def _requant(x: Expr, at: _Context) -> Expr:
    """Return scale[co] * x + zero_point as u8, rounded to nearest (ties up), clipped to 0..255."""
    scaled = cast(x, "f32") * at.inputs["scale"][at.channel] + at.inputs["zero_point"][0]
    return cast(minimum(maximum(scaled, 0), 255) + 0.5, "u8")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An operation on the result of a contraction."""

    name: str
    summary: str
    flops: int
    apply: Callable[[Expr, _Context], Expr]
    """Function that returns one element of the result."""
    extra: tuple[tuple[str, str], ...] = ()
    """The name and the kind of shape of each extra input; `_shape` returns the shape."""
    floats: bool = True
    """Whether the operation is defined for floats."""
    integers: bool = True
    """Whether the operation is defined for integers."""


EPILOGUES = {
    e.name: e
    for e in (
        Epilogue("bias", "adds bias[channel]", 1, _bias, (("bias", "channel"),)),
        Epilogue("relu", "max(x, 0)", 1, _relu),
        Epilogue("relu6", "min(max(x, 0), 6)", 2, _relu6),
        Epilogue("gelu", "GELU, tanh form", 9, _gelu, integers=False),
        Epilogue("add", "adds a residual of the output's shape", 1, _add, (("residual", "same"),)),
        Epilogue(
            "requant", "u8 of x * scale[channel] + zero_point, clipped", 4, _requant,
            (("scale", "channel"), ("zero_point", "one")), floats=False,
        ),
    )
}  # fmt: skip


def parse_epilogue(text: str) -> tuple[Epilogue, ...]:
    """Parse a chain such as `bias+relu` or `bias_relu`. Raise WorkloadError for an unknown name."""
    found: list[Epilogue] = []
    for name in text.casefold().replace("_", "+").split("+"):
        epilogue = EPILOGUES.get(name)
        if epilogue is None:
            raise WorkloadError(
                f"unknown epilogue {name[:40]!r}{closest(name, list(EPILOGUES))};"
                f" choices: {', '.join(EPILOGUES)}, joined by +",
                code="unknown_epilogue",
            )
        if epilogue in found:
            raise WorkloadError(f"epilogue {name} is given twice", code="duplicate")
        found.append(epilogue)
    return tuple(found)


def with_epilogue(draft: Draft, epilogues: tuple[Epilogue, ...], name: str) -> Draft:
    """Return `draft` followed by one more stage `name` that applies `epilogues` in order."""
    acc = draft.output
    inputs: dict[str, TensorExpr] = {}
    dtype = acc.dtype
    for epilogue in epilogues:
        if not (epilogue.floats if dtype.is_float else epilogue.integers):
            raise WorkloadError(
                f"epilogue {epilogue.name} is for {'integers' if dtype.is_float else 'floats'},"
                f" but its operand is {dtype}",
                code="bad_dtype",
            )
        for extra, kind in epilogue.extra:
            inputs[extra] = placeholder(extra, _shape(draft, kind), _extra_type(extra, dtype))
        if epilogue.name == "requant":
            dtype = DType.U8

    def element(*index: Index) -> Expr:
        at = _Context(acc, index, inputs, index[draft.channel])
        value = acc[index]
        for epilogue in epilogues:
            value = epilogue.apply(value, at)
        return value

    axes = [(a.name, a.extent) for a in acc.stages[-1].axes]
    output = compute_labelled(name, axes, element)
    elements = acc.tensor.elements
    flops = draft.flops + elements * sum(e.flops for e in epilogues)
    return replace(draft, output=output, inputs=(*draft.inputs, *inputs.values()), flops=flops)


def published_bytes(draft: Draft, epilogues: tuple[Epilogue, ...]) -> int:
    """Return the published number of bytes: operands, result and residual.

    Vectors (bias, scale) do not count. The result has the type of the contraction, so it is i32
    before requantisation.
    """
    operands = sum(t.tensor.bytes for t in draft.inputs) + draft.output.tensor.bytes
    residual = any(e.name == "add" for e in epilogues)
    return operands + (draft.output.tensor.bytes if residual else 0)


def _shape(draft: Draft, kind: str) -> tuple[int, ...]:
    shape = draft.output.shape
    return {"channel": (shape[draft.channel],), "same": shape, "one": (1,)}[kind]


def _extra_type(name: str, dtype: DType) -> str:
    return "f32" if name in ("scale", "zero_point") else dtype
