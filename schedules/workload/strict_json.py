"""Parse untrusted JSON text within limits.

Python's parser is recursive and accepts numbers of any length, repeated keys and NaN. The nesting
depth is therefore checked on the text before parsing, so that the call stack cannot overflow.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import NoReturn

from ..errors import WorkloadError
from ..limits import MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_JSON_NODES

_MAX_DIGITS = 40
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_MANY_DIGITS = re.compile(rf"[0-9]{{{_MAX_DIGITS}}}")
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}


def parse_json_text(
    text: bytes | str, *, max_bytes: int = MAX_JSON_BYTES, max_values: int = MAX_JSON_NODES
) -> object:
    """Return the value of `text`.

    Raise WorkloadError "too_large" if the text has more than `max_bytes`, 64 levels or `max_values`
    values. Raise WorkloadError "bad_json" if it is not JSON in UTF-8, or contains a repeated key,
    NaN, an infinity, or a number of more than 40 digits or outside the range of f64.
    """
    if len(text) > max_bytes:
        raise WorkloadError(
            f"the document has {len(text)} bytes, at most {max_bytes} are allowed",
            code="too_large",
        )
    plain = _decoded(text)
    bare = _STRING.sub("", plain)
    _check_nesting(bare, max_values)
    try:
        document: object = json.loads(
            plain,
            object_pairs_hook=_object,
            parse_constant=_constant,
            # One Python call per number takes longer than the rest of the parsing.
            parse_int=_integer if _MANY_DIGITS.search(bare) else None,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        raise WorkloadError(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", code="bad_json"
        ) from error
    if "\\u" in plain:
        _check_strings(document)
    return document


def _decoded(text: bytes | str) -> str:
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        plain.encode("utf-8")
    except UnicodeError as error:
        raise WorkloadError(
            f"not JSON: not UTF-8 ({type(error).__name__})", code="bad_json"
        ) from error
    return plain


def _check_nesting(bare: str, max_values: int) -> None:
    """Raise WorkloadError if JSON text is nested too deep or has too many values. `bare` is the
    text without its strings."""
    brackets = _NO_BRACKET.sub("", bare)
    if max(accumulate(map(_DEEPER.__getitem__, brackets)), default=0) > MAX_JSON_DEPTH:
        raise WorkloadError(
            f"JSON may be {MAX_JSON_DEPTH} levels deep, this is deeper", code="too_large"
        )
    # Every value of a container except the first follows a comma, so the count is correct within a
    # factor of 2.
    values = bare.count(",") + brackets.count("[") + brackets.count("{")
    if values > max_values:
        raise WorkloadError(f"JSON may hold {max_values} values, this holds more", code="too_large")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise WorkloadError(f"not JSON: key {twice[:60]!r} is given twice", code="bad_json")
    return found


def _check_strings(document: object) -> None:
    """Raise WorkloadError if a string has a lone surrogate (\\ud800), which is not UTF-8."""
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend((*item.keys(), *item.values()))
        elif isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, str) and any("\ud800" <= c <= "\udfff" for c in item):
            raise WorkloadError("not JSON: a string holds half a surrogate pair", code="bad_json")


def _constant(text: str) -> NoReturn:
    raise WorkloadError(
        f'not JSON: {text} is not a number; infinities are written "inf" and "-inf"',
        code="bad_json",
    )


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise WorkloadError(
            f"not JSON: a number has {len(text)} characters, at most {_MAX_DIGITS}",
            code="bad_json",
        )
    return int(text)


def _float(text: str) -> float:
    if len(text) > _MAX_DIGITS:
        raise WorkloadError(
            f"not JSON: a number has {len(text)} characters, at most {_MAX_DIGITS}",
            code="bad_json",
        )
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise WorkloadError(f"not JSON: {text} is beyond the range of f64", code="bad_json")
    return value
