"""What every row is given: settings, folders, and the command `tilewright`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class RowError(Exception):
    """A row has no figure: a command failed or answered nonsense. Stored, and tried again."""


@dataclass(frozen=True, slots=True)
class Context:
    """`quick` asks for the smallest run that goes the whole way; its figures mean nothing.

    `folder` holds databases, emitted files and the cache of everything that is run.
    """

    folder: Path
    target: dict[str, Any]
    quick: bool

    @property
    def cores(self) -> int:
        return int(self.target["cores"])

    def fresh_folder(self, key: str) -> Path:
        """An empty folder for the row `key`."""
        folder = self.folder / "rows" / key.replace(" ", "_").replace("/", "_")
        if folder.exists():
            for file in sorted(folder.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results. `run` measures it; `summary` says in a few words what came out."""

    key: str
    run: Callable[[Context], dict[str, Any]]
    summary: Callable[[dict[str, Any]], str]
    expected_secs: float


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with caches below `folder`: a user's own stay untouched."""
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}


def run_json(command: list[str], folder: Path, deadline_secs: float) -> tuple[Any, float]:
    """The last JSON document a command prints, and the wall time of its process.

    That is all of stdout, or its last line. RowError if the command fails or prints neither.
    """
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment(folder),
            timeout=deadline_secs, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RowError(f"{' '.join(command)}: no end after {deadline_secs:.0f} s") from error
    secs = time.perf_counter() - start
    if done.returncode:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-2:])[-300:]
        raise RowError(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    for text in (done.stdout, (done.stdout.strip().splitlines() or [""])[-1]):
        try:
            return json.loads(text), secs
        except ValueError:
            continue
    raise RowError(f"{' '.join(command)}: printed no JSON: {done.stdout[-200:]!r}")


def tilewright(
    folder: Path, *arguments: str, deadline_secs: float = 300.0
) -> tuple[dict[str, Any], float]:
    """A `tilewright` command's document and wall time, in a process of its own."""
    program = str(Path(sys.executable).with_name("tilewright"))
    document, secs = run_json([program, *arguments, "--json"], folder, deadline_secs)
    return document, secs
