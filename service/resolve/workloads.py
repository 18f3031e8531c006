"""Parsing of workloads in commands and requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.schedules.workload.strict_json import parse_json_text

from .notation import read_notation
from .python_file import call_function
from .spelling import WorkloadSpelling, check_one_spelling, read_text

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload

# Start-up: keys, invalid notations and lists of operators need no parser.


def read_workload(spelling: WorkloadSpelling) -> Workload:
    """Return the workload of a command, in normal form. Files are read, and functions in them are
    called. Raise WorkloadError or UsageProblem."""
    check_one_spelling(spelling)
    return _parsed(spelling, read_file=_read_file, load_function=call_function)


def _parsed(spelling: WorkloadSpelling, **files: Any) -> Workload:
    from tilewright.schedules.spelling import parse_workload

    return parse_workload(
        spelling.workload or "",
        expr=spelling.expr,
        tensors=spelling.tensor or [],
        ranges=spelling.range or [],
        constants=spelling.constant or [],
        allow_error=spelling.allow_error,
        **files,
    )


def workload_of(spelled: str | dict[str, Any]) -> Workload:
    """Return the workload of a request's `workload` field; no file is read. Raise WorkloadError if
    it is invalid."""
    from tilewright.schedules.workload.workload import Workload

    if isinstance(spelled, str):
        return _parsed(WorkloadSpelling(spelled))
    if "expr" not in spelled:
        return Workload.from_json(spelled)
    return _parsed(read_notation(spelled))


def workload_summary(workload: Workload) -> dict[str, Any]:
    return {
        "key": workload.key,
        "name": workload.name,
        "flops": workload.flops,
        "min_bytes": workload.min_bytes,
    }


def computed_lines(workload: Workload) -> list[str]:
    """Describe a computation as text lines: its outputs with types and shapes, and the reads that
    go beyond a tensor and yield zero."""
    from tilewright.schedules.workload.padding import padded_reads

    outputs = ", ".join(
        f"{t.name} {t.dtype}[{','.join(map(str, t.shape))}]" for t in workload.output_tensors
    )
    padded = "; ".join(map(str, padded_reads(workload)))
    lines = [f"computes {outputs}"]
    return [*lines, f"reads outside are zero: {padded}"] if padded else lines


def flops_of(workload: Workload) -> float:
    return float(workload.flops)


def parse_json(text: bytes, *, max_bytes: int, max_values: int) -> Any:
    """Parse strict JSON, without duplicate keys, NaN or deep nesting. Raise WorkloadError with the
    location of the error."""
    return parse_json_text(text, max_bytes=max_bytes, max_values=max_values)


def _read_file(name: str) -> bytes:
    return read_text(Path(name)).encode()


def operator_documents(name: str | None) -> list[dict[str, Any]]:
    """Return the operator library, or only the operator `name`, as JSON data. Raise WorkloadError
    if it does not exist."""
    from tilewright.schedules.operators import OPERATORS, operator

    chosen = OPERATORS.values() if name is None else [operator(name)]
    return [
        {
            "name": op.name,
            "summary": op.summary,
            "layout": op.layout,
            "flops": op.flops,
            "dtypes": list(op.dtypes),
            "epilogues": op.epilogues,
            "parameters": [
                {
                    "name": param.name,
                    "default": param.default,
                    "minimum": param.minimum,
                    "per_axis": list(param.per_axis),
                    "doc": param.doc,
                }
                for param in op.params
            ],
        }
        for op in chosen
    ]
