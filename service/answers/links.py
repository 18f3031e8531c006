"""The files of a record in answers: name, key, size and URL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.db.values.records import Artefact

MEDIA_TYPES = {
    "object": "application/x-object",
    "header": "text/x-c; charset=utf-8",
    "llvm": "text/x-llvm; charset=utf-8",
    "asm": "text/x-asm; charset=utf-8",
}

Links = dict[str, dict[str, Any]]


def links(known: Iterable[Artefact]) -> Links:
    """Return the name, key, size and URL of each file, by kind. The explanation of a record is left
    out: unlike the files of a build, it may be replaced."""
    return {
        artefact.kind: {
            "name": artefact.name,
            "key": f"sha256:{artefact.sha256}",
            "bytes": artefact.bytes,
            "url": f"/v1/blobs/sha256:{artefact.sha256}",
        }
        for artefact in known
        if artefact.kind in MEDIA_TYPES
    }
