"""Tilewright finds the fastest correct schedule of a tensor expression on a machine, and stores it.

    import tilewright as tw

    workload = tw.parse("C[i,j] += A[i,k] * B[k,j]", tensors=["A=f32[96,64]", "B=f32[64,80]"])
    report = tw.tune(workload)  # reads and writes the default database
    kernel = tw.build(workload)  # the stored best
    c = kernel(a, b)  # NumPy arrays

The names in `__all__` are the public Python API; `docs/python_api.md` lists them with the stability
rule. Each is imported on first use: `import tilewright` loads neither NumPy nor a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.schedules import (
        ScheduleError,
        Target,
        TargetError,
        TilewrightError,
        Workload,
        WorkloadError,
        abs,
        acos,
        acosh,
        all,
        any,
        argmax,
        argmin,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        cast,
        cbrt,
        ceil,
        clamp,
        compute,
        concat,
        const,
        cos,
        cosh,
        cummax,
        cummin,
        cumprod,
        cumsum,
        einsum,
        eq,
        erf,
        exp,
        exp2,
        expm1,
        flip,
        floor,
        log,
        log1p,
        log2,
        log10,
        max,
        maximum,
        min,
        minimum,
        ne,
        one_hot,
        operators,
        pad,
        placeholder,
        pow,
        prod,
        reduce_axis,
        reduce_tuple,
        relu,
        repeat,
        resize,
        roll,
        round,
        rsqrt,
        select,
        sigmoid,
        sign,
        sin,
        sinh,
        softplus,
        split,
        sqrt,
        stack,
        sum,
        take,
        take_along_axis,
        tan,
        tanh,
        tile,
        trunc,
        where,
        windows,
        wrap,
    )
    from tilewright.service.client import AsyncClient, Client
    from tilewright.tuner.arrays import aligned, empty
    from tilewright.tuner.kernel import BoundCall, Kernel
    from tilewright.tuner.machine.native_target import native_target
    from tilewright.tuner.many.report import ManyReport
    from tilewright.tuner.session.report import Budget, TuneReport

    from .api import build, open_database, parse, tune, tune_many

_ARRAYS = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "concat",
    "cos", "cosh", "einsum", "eq", "erf", "exp", "exp2", "expm1", "flip", "floor", "log", "log10",
    "log1p", "log2", "ne", "one_hot", "pad", "pow", "relu", "repeat", "resize", "roll", "round",
    "rsqrt", "sigmoid", "sign", "sin", "sinh", "softplus", "split", "sqrt", "stack", "take",
    "take_along_axis", "tan", "tanh", "tile", "trunc", "where", "windows",
)  # fmt: skip
_MODULE_OF = {
    **dict.fromkeys(_ARRAYS, "schedules"),
    **dict.fromkeys(("build", "open_database", "parse", "tune", "tune_many"), "api"),
    **dict.fromkeys(
        (
            "ScheduleError", "Target", "TargetError", "TilewrightError", "Workload",
            "WorkloadError", "all", "any", "argmax", "argmin", "cast", "clamp", "compute", "const",
            "cummax", "cummin", "cumprod", "cumsum", "max", "maximum", "min", "minimum",
            "operators", "placeholder", "prod", "reduce_axis", "reduce_tuple", "select",
            "sum", "wrap",
        ),
        "schedules",
    ),
    **dict.fromkeys(("AsyncClient", "Client"), "service.client"),
    **dict.fromkeys(("aligned", "empty"), "tuner.arrays"),
    **dict.fromkeys(("BoundCall", "Kernel"), "tuner.kernel"),
    "native_target": "tuner.machine.native_target",
    "ManyReport": "tuner.many.report",
    **dict.fromkeys(("Budget", "TuneReport"), "tuner.session.report"),
}  # fmt: skip

__all__ = [
    "AsyncClient", "BoundCall", "Budget", "Client", "Kernel", "ManyReport", "ScheduleError",
    "Target", "TargetError", "TilewrightError", "TuneReport", "Workload", "WorkloadError",
    "__version__", "aligned", "all", "any", "argmax", "argmin", "build", "cast", "clamp", "compute",
    "const", "cummax", "cummin", "cumprod", "cumsum", "empty", "max", "maximum", "min", "minimum",
    "native_target", "open_database", "operators", "parse", "placeholder", "prod", "reduce_axis",
    "reduce_tuple", "select", "sum", "tune", "tune_many", "wrap",
]  # fmt: skip
__all__ += [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "concat",
    "cos", "cosh", "einsum", "eq", "erf", "exp", "exp2", "expm1", "flip", "floor", "log", "log1p",
    "log2", "log10", "ne", "one_hot", "pad", "pow", "relu", "repeat", "resize", "roll", "round",
    "rsqrt", "sigmoid", "sign", "sin", "sinh", "softplus", "split", "sqrt", "stack", "take",
    "take_along_axis", "tan", "tanh", "tile", "trunc", "where", "windows",
]  # fmt: skip


def _resolve(name: str) -> Any:
    if name == "__version__":
        # Start-up: reading the metadata of the installed distribution takes 10 ms.
        from importlib.metadata import version

        found: Any = version("tilewright")
    elif name in _MODULE_OF:
        found = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


if TYPE_CHECKING:
    __version__: str
else:
    __getattr__ = _resolve


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
