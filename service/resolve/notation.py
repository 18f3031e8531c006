"""Index notation in a request: `{"expr": ..., "tensors": ..., "ranges": ...}`."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.errors import WorkloadError

from .spelling import WorkloadSpelling

MAX_PARTS = 64


def read_notation(document: dict[str, Any]) -> WorkloadSpelling:
    """Parse the document. Raise WorkloadError with a JSON pointer if a part has the wrong type.
    `tensors` is `{"A": "f32[2,2]"}` (in the order of the arguments) or `["A=f32[2,2]"]`; `ranges`
    is `{"r": 3}`; `allow_error` is a number."""
    unknown = sorted(document.keys() - {"expr", "tensors", "ranges", "allow_error"})
    if unknown:
        raise _wrong(f"{unknown[0][:60]!r}: no such field is allowed with expr", f"/{unknown[0]}")
    expr = document["expr"]
    if not isinstance(expr, str):
        raise _wrong("expr: must be text such as 'C[i,j] += A[i,k] * B[k,j]'", "/expr")
    return WorkloadSpelling(
        expr=expr,
        tensor=_tensors(document.get("tensors", {})),
        range=_ranges(document.get("ranges", {})),
        allow_error=_allow_error(document.get("allow_error")),
    )


def _allow_error(found: object) -> float | None:
    if found is None:
        return None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise _wrong("allow_error: must be a number such as 1e-3", "/allow_error")
    return float(found)


def _tensors(found: object) -> list[str]:
    if isinstance(found, dict) and len(found) <= MAX_PARTS:
        parts = [(name, f"{name}={kind}", kind) for name, kind in found.items()]
    elif isinstance(found, list) and len(found) <= MAX_PARTS:
        parts = [(str(number), text, text) for number, text in enumerate(found)]
    else:
        raise _wrong(
            f'tensors: must be {{"A": "f32[512,512]"}}, at most {MAX_PARTS} of them', "/tensors"
        )
    for where, _, given in parts:
        if not isinstance(given, str):
            raise _wrong(f"tensors.{where[:60]}: must be text such as 'f32[512,512]'", "/tensors")
    return [text for _, text, _ in parts]


def _ranges(found: object) -> list[str]:
    if not isinstance(found, dict) or len(found) > MAX_PARTS:
        raise _wrong(f'ranges: must be {{"r": 3}}, at most {MAX_PARTS} of them', "/ranges")
    for name, extent in found.items():
        if not isinstance(extent, int) or isinstance(extent, bool):
            raise _wrong(f"ranges.{name[:60]}: must be a whole number", "/ranges")
    return [f"{name}={extent}" for name, extent in found.items()]


def _wrong(message: str, pointer: str) -> WorkloadError:
    return WorkloadError(message, code="bad_spelling", pointer=pointer)
