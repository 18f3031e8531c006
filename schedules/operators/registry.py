"""Definition of a library operator: declared parameters, layout and builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from .. import dtypes
from ..errors import WorkloadError
from ..frontend.reading import TensorExpr
from ..limits import MAX_EXTENT

FLOATS = tuple(dtype.value for dtype in dtypes.FLOATS)
ANY = tuple(dtype.value for dtype in dtypes.NUMBERS)
PRODUCTS = (*FLOATS, "u8s8s32", "i32", "i64", "i8", "u8")
"""Types of contractions: `u8s8s32` has u8 data, i8 weights and an i32 result."""


@dataclass(frozen=True, slots=True)
class Param:
    """A size of an operator. It is required if `default` is None. The names `per_axis` set it for a
    single axis, such as `stride_h`, and take precedence over `name`."""

    name: str
    default: int | None = None
    minimum: int = 1
    per_axis: tuple[str, ...] = ()
    doc: str = ""
    maximum: int = MAX_EXTENT


@dataclass(frozen=True, slots=True)
class Types:
    """The element types of the operands `data` and `weight`."""

    data: str
    weight: str

    @staticmethod
    def named(dtype: str) -> Types:
        return Types("u8", "i8") if dtype == "u8s8s32" else Types(dtype, dtype)


Sizes = Mapping[str, int]
"""Values of parameters by name, including `per_axis` names."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The result of a builder: the tensors and the operator's operation count."""

    output: TensorExpr
    inputs: tuple[TensorExpr, ...]
    flops: int
    channel: int = -1
    """The axis of the output that has one bias and one scale per position."""
    more: tuple[TensorExpr, ...] = ()
    """Further outputs, after `output`."""


Builder = Callable[[Sizes, Types], Draft]


@dataclass(frozen=True, slots=True)
class Operator:
    """An entry of the library. `layout` is the text of the shapes and `flops` the formula of the
    operation count, both for display."""

    name: str
    summary: str
    layout: str
    flops: str
    params: tuple[Param, ...]
    dtypes: tuple[str, ...]
    build: Builder
    epilogues: bool = False

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return all parameters by canonical name, with defaults for those not in `given`. Raise
        WorkloadError if a parameter is missing or out of range."""
        found: dict[str, int] = {}
        for param in self.params:
            general = given.get(param.name, param.default)
            for name in param.per_axis or (param.name,):
                value = given.get(name, general)
                if value is None:
                    raise self._missing(param)
                found[name] = self._checked(name, value, param)
            if param.per_axis and general is not None:
                found[param.name] = self._checked(param.name, general, param)
        return found

    def _missing(self, param: Param) -> WorkloadError:
        either = f" (or {', '.join(param.per_axis)})" if param.per_axis else ""
        return WorkloadError(
            f"{self.name}: parameter {param.name}{either} is missing; parameters: {self.usage()}",
            code="missing_parameter",
        )

    def _checked(self, name: str, value: int, param: Param) -> int:
        if not param.minimum <= value <= param.maximum:
            shown = str(value) if abs(value) < 10**20 else "a huge number"
            raise WorkloadError(
                f"{self.name}: {name} must be {param.minimum}..{param.maximum}, got {shown}",
                code="bad_extent",
            )
        return value

    def names(self) -> tuple[str, ...]:
        """Return every parameter name, including per-axis names."""
        return tuple(n for p in self.params for n in (p.name, *p.per_axis))

    def usage(self) -> str:
        """Return the parameters as text, with defaults: "M, N, K, stride=1"."""
        parts = [p.name if p.default is None else f"{p.name}={p.default}" for p in self.params]
        parts.append(f"dtype={self.dtypes[0]}")
        if self.epilogues:
            parts.append("epilogue=")
        return ", ".join(parts)


def closest(name: str, choices: Sequence[str]) -> str:
    """Return the text `; did you mean ...?` if a choice is similar to `name`, else ""."""
    by_folded = {c.casefold(): c for c in choices}
    near = get_close_matches(name.casefold()[:80], list(by_folded), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(by_folded[n] for n in near)}?" if near else ""
