"""The hash of a row, by which damage is detected when the row is read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.schedules.canonical import canonical_bytes

# The columns that the hash of a row covers, in the order of hashing.
WORKLOAD = ("key", "name", "flops", "document")
TARGET = ("key", "document")
RECORD = (
    "key",
    "workload_key",
    "target_key",
    "threads",
    "status",
    "estimate_secs",
    "codegen_version",
    "llvmlite",
    "llvm",
    "seed",
    "strategy",
    "trial",
    "verified_level",
    "object_sha256",
    "created_at",
    "document",
)
ARTEFACT = ("record_key", "kind", "name", "sha256", "bytes")
MODEL = ("target_key", "timings", "key", "created_at", "document", "quality")
PREPARATION = ("key", "workload_key", "target_key", "toolchain", "state", "document")
PREPARED_FILE = ("preparation_key", "kind", "name", "sha256", "bytes")


def row_hash(values: Sequence[Any]) -> str:
    """Return the SHA-256 of the hashed columns of a row; floats are hashed with all digits."""
    return hashlib.sha256(canonical_bytes(values)).hexdigest()


def is_intact(row: Any, columns: Sequence[str]) -> bool:
    """Return whether the hashed `columns` of `row` are unchanged since they were written."""
    try:
        return bool(row_hash([getattr(row, name) for name in columns]) == row.row_sha256)
    except (TypeError, ValueError):  # damage can turn a number into bytes
        return False


def guarded(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that `is_intact` needs: the hashed `columns` and the hash."""
    return (*columns, "row_sha256")


def as_row(columns: Sequence[str], values: Sequence[Any]) -> Any:
    """Return an object with an attribute per column, for values that were read without a model."""
    return SimpleNamespace(**dict(zip(columns, values, strict=True)))
