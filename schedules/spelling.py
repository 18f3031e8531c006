"""Parse one argument into a workload: an operator, a JSON document, a Python function, or index
notation.

This package opens no files and runs no user code. The command line passes functions that do both.
Without these functions, a path or a Python function is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from . import operators
from .errors import WorkloadError
from .python_numbers import as_number
from .workload.computation import with_constants
from .workload.workload import Workload

ReadFile = Callable[[str], bytes]
"""Function from a path to the bytes of the file; the caller defines its errors."""

LoadFunction = Callable[[str, str], Workload]
"""Function from (path, function name) to the workload that the named function returns."""

_ASSIGNMENT = re.compile(r"[\s;]*\w+\s*(?:\[|[+*]?=|(?:max|min)=)")
_PYTHON = re.compile(r"(?P<path>.+\.py)(?::(?P<function>\w*))?", re.DOTALL)


def parse_workload(
    text: str = "",
    *,
    expr: str | None = None,
    tensors: Sequence[str] = (),
    ranges: Sequence[str] | Mapping[str, int] = (),
    constants: Sequence[str] = (),
    allow_error: float | None = None,
    read_file: ReadFile | None = None,
    load_function: LoadFunction | None = None,
) -> Workload:
    """Return the workload that the arguments describe.

    `text` is `matmul:M=512,N=512,K=512`, a path ending in .json, `my_ops.py:function`, or index
    notation. `expr` is index notation over `tensors` ("A=f32[512,512]") and `ranges` ("r=3"). If
    `expr` is given, `text` is the name of the workload or empty. `constants` names inputs whose
    values do not change between calls. `allow_error` sets `Workload.allowed_error`; None keeps the
    value in `text`. Raise WorkloadError if an argument is not valid.
    """
    if expr is None and _ASSIGNMENT.match(text):
        text, expr = "", text
    workload = _parsed(text, expr, tensors, ranges, allow_error, read_file, load_function)
    if not constants:
        return workload
    marked = with_constants(workload, constants)
    if expr is not None or ":" not in workload.name:
        return marked
    said = [part for part in workload.name.split(",") if not part.startswith("constant=")]
    return marked.named(",".join([*said, f"constant={'+'.join(c.name for c in marked.constants)}"]))


def _parsed(
    text: str,
    expr: str | None,
    tensors: Sequence[str],
    ranges: Sequence[str] | Mapping[str, int],
    allow_error: float | None,
    read_file: ReadFile | None,
    load_function: LoadFunction | None,
) -> Workload:
    if expr is not None:
        # Start-up: loading the parser of expressions takes as long as parsing and looking up an
        # operator, and most arguments are operators.
        from .frontend.notation import from_notation, parse_tensor_spec

        return from_notation(
            expr, [parse_tensor_spec(t) for t in tensors], parse_ranges(ranges), name=text
        ).allowing(allow_error)
    if tensors or ranges:
        raise WorkloadError(
            "tensors and ranges are for index notation, but no expression was given",
            code="bad_spelling",
        )
    python = _PYTHON.fullmatch(text)
    if python is not None:
        found = _from_python(python["path"], python["function"] or "", load_function)
        return found if allow_error is None else found.allowing(allow_error)
    if text.casefold().endswith(".json"):
        if read_file is None:
            raise WorkloadError(
                f"files are not read here: {text[:80]!r}; send the document itself",
                code="bad_spelling",
            )
        found = Workload.from_text(read_file(text))
        return found if allow_error is None else found.allowing(allow_error)
    return parse_operator(text, allow_error)


def _from_python(path: str, function: str, load: LoadFunction | None) -> Workload:
    if load is None:
        raise WorkloadError(
            f"Python files are run by the command line only, got {path[:80]!r}; send JSON",
            code="bad_spelling",
        )
    if not function:
        raise WorkloadError(
            f"which function of {path[:80]}? Write {path[:80]}:FUNCTION", code="bad_spelling"
        )
    return load(path, function)


def parse_operator(text: str, allow_error: float | None = None) -> Workload:
    """Return the workload of `name:key=value,key=value`. `allow_error` is an additional
    parameter."""
    name, _, rest = text.strip().partition(":")
    if not name:
        raise WorkloadError(
            "no workload given; write OPERATOR:NAME=VALUE,..., such as matmul:M=512,N=512,K=512",
            code="bad_spelling",
        )
    operators.operator(name)
    params: dict[str, object] = {}
    if allow_error is not None:
        params["allow_error"] = allow_error
    for part in rest.split(",") if rest.strip() else []:
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not key or not value:
            raise WorkloadError(
                f"{name}: a parameter is NAME=VALUE, got {part[:40]!r}", code="bad_spelling"
            )
        if key.casefold() in params:
            raise WorkloadError(f"{name}: {key[:40]} is given twice", code="duplicate")
        params[key.casefold()] = value
    return operators.build(name, params)


def parse_ranges(texts: Sequence[str] | Mapping[str, int]) -> dict[str, int]:
    """Return the extents of ranges such as `r=3`, by index name."""
    if isinstance(texts, Mapping):
        return {name: as_number(extent) for name, extent in texts.items()}
    found: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"\s*([A-Za-z_]\w{0,63})\s*=\s*(\d{1,20})\s*", text, re.ASCII)
        if match is None:
            raise WorkloadError(
                f"a range is NAME=EXTENT, such as r=3, got {text[:40]!r}", code="bad_spelling"
            )
        if match[1] in found:
            raise WorkloadError(f"two ranges are given for {match[1]!r}", code="duplicate")
        found[match[1]] = int(match[2])
    return found
