"""Artefacts as values and rows: which stored bytes a record was built into."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from .rows import row_hash

log = logging.getLogger("tilewright.db")

HASHED = ("record_key", "kind", "name", "sha256", "bytes")


@dataclass(frozen=True, slots=True)
class Artefact:
    """A stored file of a record. `kind` is "object", "header", "llvm"; `sha256` names the blob."""

    kind: str
    name: str
    sha256: str
    bytes: int


class ArtefactLike(Protocol):
    """A row, however it was read."""

    record_key: Any
    kind: Any
    name: Any
    sha256: Any
    bytes: Any
    row_sha256: Any


def sound(row: ArtefactLike) -> bool:
    """Whether the row is what was once written."""
    try:
        return bool(row_hash([getattr(row, name) for name in HASHED]) == row.row_sha256)
    except (TypeError, ValueError):  # damage can turn a number into bytes
        return False


def artefacts_of(rows: Iterable[ArtefactLike]) -> list[Artefact]:
    """The artefacts of sound rows, by kind. A damaged one is not served: a line in the log."""
    found = []
    for row in rows:
        if sound(row):
            found.append(Artefact(row.kind, row.name, row.sha256, row.bytes))
        else:
            log.warning("an artefact of record %s is damaged and not served", row.record_key)
    return sorted(found, key=lambda artefact: artefact.kind)
