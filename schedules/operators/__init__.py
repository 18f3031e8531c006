"""The operator library: named computations with fixed parameters, layouts and operation counts.

    operators.matmul(M=512, N=512, K=512, epilogue="bias+relu")
    operators.build("conv2d_nhwc", {"h": "56", "w": "56", "ci": 64, "co": 64, "k": 3, "pad": 1})

Only the expression defines a workload: no later part of the system uses the operator's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ..errors import WorkloadError
from ..frontend.reading import TensorExpr
from ..python_numbers import as_whole_number
from ..workload.computation import with_constants
from ..workload.tensors import Stage
from ..workload.workload import Workload
from . import (
    attention,
    contractions,
    convolutions,
    losses,
    normalisations,
    pooling,
    recurrent,
    rowwise,
)
from .epilogue import EPILOGUES, Epilogue, parse_epilogue, published_bytes, with_epilogue
from .registry import Draft, Operator, Param, Types, closest

_LIBRARY = (
    contractions, convolutions, pooling, rowwise, normalisations, attention, recurrent, losses,
)  # fmt: skip

OPERATORS: dict[str, Operator] = {op.name: op for module in _LIBRARY for op in module.OPERATORS}
"""Every operator by name, in the order in which `tilewright ops` lists them."""

_OPTIONS = ("dtype", "epilogue", "constant", "allow_error")


def operator(name: str) -> Operator:
    """Return the operator `name`, ignoring case. Raise WorkloadError if it does not exist."""
    found = OPERATORS.get(name.casefold())
    if found is None:
        near = closest(name, list(OPERATORS))
        raise WorkloadError(
            f"unknown operator {name[:60]!r}{near or '; operators: ' + ', '.join(OPERATORS)}",
            code="unknown_operator",
        )
    return found


def build(name: str, params: Mapping[str, object] | None = None, **more: object) -> Workload:
    """Return the workload of operator `name` with the parameters `params` and `more`.

    Case is ignored in names, and numbers may be text. `dtype` is f32 by default. `epilogue` is a
    chain of operations on the result ("bias+relu"). `constant` lists inputs whose values never
    change ("B", "W+bias"). `allow_error` is the workload's `allowed_error`. Raise WorkloadError if
    a parameter is unknown, missing or out of range.
    """
    op = operator(name)
    numbers, options = _split_params(op, {**(params or {}), **more})
    dtype = options.get("dtype", op.dtypes[0]).casefold()
    if dtype not in op.dtypes:
        raise WorkloadError(
            f"{op.name}: dtype must be one of {', '.join(op.dtypes)}, got {dtype[:40]!r}",
            code="bad_dtype",
        )
    epilogues = _epilogues(op, options.get("epilogue", ""))
    sizes = op.sizes(numbers)
    core = op.build(sizes, Types.named(dtype))
    draft = _renamed_core(core, epilogues)
    if epilogues:
        draft = with_epilogue(draft, epilogues, core.output.name)
    workload = Workload.of(draft.output, *draft.more, inputs=draft.inputs)
    constants = [name for name in options.get("constant", "").split("+") if name]
    workload = with_constants(workload, constants, f"{op.name}: constant")
    allowed = _allowed_error(op, options.get("allow_error"))
    return replace(
        workload.allowing(allowed),
        name=spelling(op, sizes, dtype, epilogues, options.get("constant", ""), allowed),
        declared_flops=draft.flops,
        declared_min_bytes=published_bytes(core, epilogues) if epilogues else None,
    )


def _split_params(
    op: Operator, given: Mapping[str, object]
) -> tuple[dict[str, int], dict[str, str]]:
    """Divide `given` into integer parameters, by canonical name, and options."""
    known = {n.casefold(): n for n in (*op.names(), *_OPTIONS)}
    numbers: dict[str, int] = {}
    options: dict[str, str] = {}
    seen: set[str] = set()
    for key, value in given.items():
        name = known.get(str(key).casefold())
        if name is None:
            raise WorkloadError(
                f"{op.name} has no parameter {str(key)[:40]!r}"
                f"{closest(str(key), list(known.values()))}; parameters: {op.usage()}",
                code="unknown_parameter",
            )
        if name in seen:
            raise WorkloadError(f"{op.name}: {name} is given twice", code="duplicate")
        seen.add(name)
        if name in _OPTIONS:
            options[name] = str(value)
        else:
            numbers[name] = _integer(op, name, value)
    return numbers, options


def _integer(op: Operator, name: str, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,40}\s*", value, re.ASCII):
        return int(value)
    found = as_whole_number(value)
    if found is None:
        raise WorkloadError(
            f"{op.name}: {name} must be an integer, got {str(value)[:40]!r}", code="bad_extent"
        )
    return found


def _allowed_error(op: Operator, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise WorkloadError(
            f"{op.name}: allow_error must be a number such as 1e-3, got {text[:40]!r}",
            code="bad_error",
        ) from None


def _epilogues(op: Operator, text: str) -> tuple[Epilogue, ...]:
    if not text or text.casefold() == "none":
        return ()
    if not op.epilogues:
        raise WorkloadError(
            f"{op.name} takes no epilogue; operators with epilogues:"
            f" {', '.join(o.name for o in OPERATORS.values() if o.epilogues)}",
            code="unknown_epilogue",
        )
    return parse_epilogue(text)


def _renamed_core(core: Draft, epilogues: tuple[Epilogue, ...]) -> Draft:
    """Return `core`. If there are epilogues, `_acc` is appended to the name of its output."""
    if not epilogues:
        return core
    out = core.output
    *before, last = out.stages
    tensor = replace(out.tensor, name=f"{out.name}_acc")
    stages: tuple[Stage, ...] = (*before, replace(last, tensor=tensor))
    return replace(core, output=TensorExpr(tensor, stages, out.reads))


def spelling(
    op: Operator,
    sizes: Mapping[str, int],
    dtype: str = "f32",
    epilogues: tuple[Epilogue, ...] = (),
    constant: str = "",
    allow_error: float | None = None,
) -> str:
    """Return the canonical text, such as "matmul:M=512,N=512,K=512". It has all parameters that
    differ from their defaults, in declared order."""
    parts: list[str] = []
    for param in op.params:
        parts += _spelled(param, sizes)
    if dtype != op.dtypes[0]:
        parts.append(f"dtype={dtype}")
    if epilogues:
        parts.append(f"epilogue={'+'.join(e.name for e in epilogues)}")
    if constant:
        parts.append(f"constant={constant}")
    if allow_error is not None:
        parts.append(f"allow_error={allow_error!r}")
    return f"{op.name}:{','.join(parts)}"


def _spelled(param: Param, sizes: Mapping[str, int]) -> Iterator[str]:
    names = param.per_axis or (param.name,)
    found = [sizes[n] for n in names]
    if param.default is not None and all(v == param.default for v in found) and param.name != "N":
        return
    if len(set(found)) == 1:
        yield f"{param.name}={found[0]}"
    else:
        yield from (f"{n}={v}" for n, v in zip(names, found, strict=True))


def __getattr__(name: str) -> Callable[..., Workload]:
    """Return the builder of an operator, for calls such as `operators.matmul(M=512, ...)`."""
    if name not in OPERATORS:
        raise AttributeError(f"module {__name__!r} has no operator {name!r}")

    def call(**params: object) -> Workload:
        return build(name, params)

    call.__name__ = name
    call.__doc__ = f"{OPERATORS[name].summary}: {OPERATORS[name].layout}"
    return call


def __dir__() -> list[str]:
    return sorted([*globals(), *OPERATORS])


__all__ = ["EPILOGUES", "OPERATORS", "Operator", "Param", "build", "operator", "spelling"]
