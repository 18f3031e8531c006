"""Reading of files of timings, for both mocked measurers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..protocol import MeasurerError

MAX_FILE_BYTES = 256 << 20


def read_text(path: str | Path) -> str:
    """Return the text of a file of timings. Raise MeasurerError if the file is missing or too
    large."""
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise MeasurerError(
                f"{path}: a file of timings may have {MAX_FILE_BYTES} bytes, this one has {size}"
            )
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise MeasurerError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MeasurerError(f"{path}: must be UTF-8 text: {error.reason}") from error


def file_tag(content: bytes) -> str:
    """Return twelve letters derived from `content`, so that results of different files differ.

    There are only letters, because toolchains are compared by version, and a tag must not look like
    a version.
    """
    digest = hashlib.sha256(content).hexdigest()[:12]
    return digest.translate(str.maketrans("0123456789", "ghijklmnop"))


def parse_object(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object in `text`. Raise MeasurerError, which contains `where`, for any other
    text."""
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MeasurerError(f"{where}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MeasurerError(f"{where}: expected a JSON object, got {type(document).__name__}")
    return document


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
