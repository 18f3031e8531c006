"""Results as JSON lines: one line a measured row, appended when it is measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One row. `data` is what was measured, or {"failed": why}; `busy_share` how much of one core
    other processes used just before (0.05: five percent)."""

    key: str
    at: str
    session: str
    busy_share: float
    data: dict[str, Any]

    @property
    def failed(self) -> str | None:
        """Why there is no figure, None if there is one."""
        return self.data.get("failed")


class ResultsFile:
    """An append-only file of results and of the sessions they were measured in.

    A line is written whole and flushed, so an interrupted run keeps what it has; a torn last
    line is dropped. The last line of a key counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[str, Result] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        for document in _documents(path):
            if "machine" in document:
                self.sessions[document["session"]] = document["machine"]
            else:
                self.rows[document["key"]] = Result(**document)

    def begin(self, machine: dict[str, Any]) -> str:
        """Start a session on `machine`; its name."""
        session = now()
        self.sessions[session] = machine
        self._append({"session": session, "machine": machine})
        return session

    def add(self, result: Result) -> None:
        self.rows[result.key] = result
        self._append(
            {
                "key": result.key, "at": result.at, "session": result.session,
                "busy_share": result.busy_share, "data": result.data,
            }
        )  # fmt: skip

    def matching(self, prefix: str) -> dict[str, Result]:
        """Rows that have figures and whose key starts with `prefix`."""
        return {k: r for k, r in self.rows.items() if k.startswith(prefix) and not r.failed}

    def _append(self, document: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(document) + "\n")


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # torn by an interruption
            continue


def now() -> str:
    """The time in UTC, RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds")
