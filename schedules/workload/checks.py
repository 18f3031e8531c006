"""Validation of the names, extents and shapes that a user can write."""

from __future__ import annotations

import re

from ..errors import WorkloadError
from ..limits import MAX_DIMS, MAX_EXTENT

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


def check_name(name: str, what: str, pointer: str = "") -> None:
    """Raise WorkloadError if `name` is not a C identifier of at most 64 characters."""
    if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
        raise WorkloadError(
            f"the name of {what} must be a letter or _ and up to 63 letters, digits and _,"
            f" got {name!r}",
            code="bad_name",
            pointer=pointer,
        )


def check_shape(name: str, shape: tuple[int, ...], pointer: str = "") -> None:
    """Raise WorkloadError if the number of extents is not 0..8 or an extent is not 1..2**31-1."""
    if len(shape) > MAX_DIMS:
        raise WorkloadError(
            f"tensor {name!r} must have 0..{MAX_DIMS} dimensions, got {len(shape)}",
            code="bad_shape",
            pointer=pointer,
        )
    for dim, extent in enumerate(shape):
        check_extent(extent, f"dimension {dim} of tensor {name!r}", pointer)


def check_extent(extent: int, what: str, pointer: str = "") -> None:
    if not isinstance(extent, int) or isinstance(extent, bool):
        raise WorkloadError(
            f"{what}: an extent is an integer, got {extent!r}", code="bad_extent", pointer=pointer
        )
    if not 1 <= extent <= MAX_EXTENT:
        raise WorkloadError(
            f"{what}: an extent must be 1..{MAX_EXTENT}, got {shorten(str(extent))}",
            code="bad_extent",
            pointer=pointer,
        )


def shorten(text: str, limit: int = 60) -> str:
    """Return `text`, with its middle replaced by "..." if it is longer than `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 20]}...{text[-12:]}"


def check_allowed_error(error: object, pointer: str = "") -> None:
    """Raise WorkloadError if `error` is neither None nor a number strictly between 0 and 1."""
    if error is None:
        return
    number = isinstance(error, int | float) and not isinstance(error, bool)
    if not number or not 0.0 < error < 1.0:  # type: ignore[operator]  # `number` is checked first
        raise WorkloadError(
            f"an allowed error is relative, between 0 and 1, such as 1e-3; got {str(error)[:40]}",
            code="bad_error",
            pointer=pointer,
        )
