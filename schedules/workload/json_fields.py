"""Typed access to single fields of a JSON document; errors include a JSON pointer."""

from __future__ import annotations

from collections.abc import Mapping

from ..algebra import values
from ..dtypes import DType
from ..errors import WorkloadError
from .checks import check_extent, check_name, shorten


def wrong(message: str, pointer: str, code: str = "bad_document") -> WorkloadError:
    where = f" at {pointer}" if pointer else ""
    return WorkloadError(f"{message}{where}", code=code, pointer=pointer)


def shown(value: object) -> str:
    """Return a short text for an invalid value in a message."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a huge number"
    return shorten(repr(value))


def json_fields(
    value: object, pointer: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise wrong(f"needs an object, got {shown(value)}", pointer)
    allowed = (*required, *optional)
    for key in value:
        if key not in allowed:
            raise WorkloadError(
                f"unknown field {shown(key)} at {pointer or '/'}; fields: {', '.join(allowed)}",
                code="unknown_field",
                pointer=pointer,
            )
    for key in required:
        if key not in value:
            raise wrong(f"field {key!r} is missing", pointer, "missing_field")
    return value


def json_list(value: object, pointer: str, limit: int) -> list[object]:
    if not isinstance(value, list | tuple):
        raise wrong(f"needs a list, got {shown(value)}", pointer)
    if len(value) > limit:
        raise wrong(f"at most {limit} entries, got {len(value)}", pointer, "too_large")
    return list(value)


def json_string(value: object, pointer: str) -> str:
    if not isinstance(value, str):
        raise wrong(f"needs a string, got {shown(value)}", pointer)
    return value


def json_count(value: object, pointer: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise wrong(f"needs an integer 0..2**63-1, got {shown(value)}", pointer)
    return value


def json_extent(value: object, what: str, pointer: str) -> int:
    if isinstance(value, int) and abs(value) >= 10**40:
        raise wrong(f"{what}: an extent must be 1..2**31-1, got a huge number", pointer,
                     "bad_extent")  # fmt: skip
    check_extent(value, what, pointer)  # type: ignore[arg-type]  # it rejects other types
    assert isinstance(value, int)
    return value


def json_dtype(value: object, pointer: str) -> DType:
    try:
        return values.dtype_named(json_string(value, pointer))
    except WorkloadError as error:
        raise wrong(str(error), pointer, error.code) from error


def json_name(value: object, what: str, pointer: str) -> str:
    name = json_string(value, pointer)
    check_name(name, what, pointer)
    return name
