"""Computations and their schedules: expressions, workloads, operators, loop nests, traces, targets.

    from tilewright.schedules import Target, Workload, compute, operators, placeholder, sum

Names are imported at their first use, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .algebra.functions import NAMED

if TYPE_CHECKING:
    from . import operators
    from .dtypes import DType
    from .errors import ScheduleError, TargetError, TilewrightError, WorkloadError
    from .frontend.array.arrays import take, where
    from .frontend.array.functions import (
        concat,
        einsum,
        flip,
        one_hot,
        pad,
        repeat,
        resize,
        roll,
        split,
        stack,
        take_along_axis,
        tile,
        windows,
    )
    from .frontend.expr import (
        all_of,
        any_of,
        argmax,
        argmin,
        cast,
        clamp,
        compute,
        const,
        cummax,
        cummin,
        cumprod,
        cumsum,
        eq,
        max,
        maximum,
        min,
        minimum,
        ne,
        not_,
        padded,
        placeholder,
        prod,
        reduce_axis,
        reduce_tuple,
        relu,
        select,
        sum,
        wrap,
    )  # fmt: skip
    from .frontend.functions import ValueFunction, atan2, pow
    from .frontend.logic import all, any
    from .frontend.notation import from_notation, parse_tensor_spec
    from .spelling import parse_workload
    from .target import Target
    from .workload.size import check_limits
    from .workload.workload import Workload

_EXPR = (
    "all_of", "any_of", "argmax", "argmin", "cast", "clamp", "compute", "const", "cummax", "cummin",
    "cumprod", "cumsum", "eq", "max", "maximum", "min", "minimum", "ne", "not_", "padded",
    "placeholder", "prod", "reduce_axis", "reduce_tuple", "select", "sum", "wrap",
)  # fmt: skip
_ARRAYS = (
    "concat", "einsum", "flip", "one_hot", "pad", "repeat", "resize", "roll", "split", "stack",
    "take_along_axis", "tile", "windows",
)  # fmt: skip
_PAIRS = ("atan2", "pow")
_HOME = {
    **dict.fromkeys(("take", "where"), "frontend.array.arrays"),
    **dict.fromkeys(_ARRAYS, "frontend.array.functions"),
    **dict.fromkeys(("all", "any"), "frontend.logic"),
    "relu": "frontend.expr",
    **dict.fromkeys(_EXPR, "frontend.expr"),
    **dict.fromkeys((*NAMED, *_PAIRS), "frontend.functions"),
    "DType": "dtypes",
    "ScheduleError": "errors",
    "Target": "target",
    "TargetError": "errors",
    "TilewrightError": "errors",
    "Workload": "workload.workload",
    "WorkloadError": "errors",
    "check_limits": "workload.size",
    "from_notation": "frontend.notation",
    "parse_tensor_spec": "frontend.notation",
    "parse_workload": "spelling",
}


def _found(name: str) -> Any:
    if name == "operators":
        return import_module(".operators", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = found
    return found


if TYPE_CHECKING:
    # The names that are not imported above are the scalar functions of the table.
    def __getattr__(name: str) -> ValueFunction: ...
else:
    __getattr__ = _found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


__all__ = [
    "DType", "ScheduleError", "Target", "TargetError", "TilewrightError", "Workload",
    "WorkloadError", "all", "all_of", "any", "any_of", "argmax", "argmin", "cast", "check_limits",
    "clamp", "compute", "const", "cummax", "cummin", "cumprod", "cumsum", "eq", "from_notation",
    "max", "maximum", "min", "minimum", "ne", "not_", "operators", "padded", "parse_tensor_spec",
    "parse_workload", "placeholder", "prod", "reduce_axis", "reduce_tuple", "select", "sum", "wrap",
]  # fmt: skip
__all__ += [
    "atan2", "concat", "einsum", "flip", "one_hot", "pad", "pow", "relu", "repeat", "resize",
    "roll", "split", "stack", "take", "take_along_axis", "tile",
    "where", "windows",
]  # fmt: skip
__all__ += list(NAMED)
