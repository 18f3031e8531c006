"""What every row is given: settings, folders, and the command `tilewright`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.suite.crew import Crew
from tilewright.tuner.process.environment import clean_environment, openmp_environment

ROOT = Path(__file__).resolve().parents[2]


class RowError(Exception):
    """A row has no figure: a command failed or answered nonsense. Stored, and tried again."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator suite is asked for. `trials` a case; no `families` means all of them.

    `tvm_python` is an interpreter that has TVM: with it, TVM tunes every case too (`tvm_trials`)
    and takes part in the races. `compile_secs`: how long `torch.compile` may take for a way of its
    own, 0 for none.
    """

    trials: int = 24
    families: tuple[str, ...] = ()
    heavy: bool = False
    default_side: bool = False
    tvm_python: str = ""
    tvm_trials: int = 128
    compile_secs: float = 0.0


@dataclass(frozen=True, slots=True)
class Context:
    """`quick` asks for the smallest run that goes the whole way; its figures mean nothing.

    `folder` holds databases, emitted files and the cache of everything that is run; `crew` the
    processes that time, from row to row. `tuned` has rows measured before, by key, whose kernels
    are raced again as they are.
    """

    folder: Path
    target: dict[str, Any]
    quick: bool
    crew: Crew
    settings: Settings = Settings()
    tuned: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        return int(self.target["cores"])

    def row_folder(self, key: str) -> Path:
        """Where the row `key` keeps its database and emitted files."""
        return self.folder / "rows" / key.replace(" ", "_").replace("/", "_")

    def fresh_folder(self, key: str) -> Path:
        """An empty folder for the row `key`."""
        folder = self.row_folder(key)
        if folder.exists():
            for file in sorted(folder.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results. `run` measures it; `summary` says in a few words what came out.

    `timed` rows want a quiet machine.
    """

    key: str
    run: Callable[[Context], dict[str, Any]]
    summary: Callable[[dict[str, Any]], str]
    expected_secs: float
    timed: bool = True


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with caches below `folder`: a user's own stay untouched.

    Without anything that steers a library: what is tuned is tuned as it will be raced."""
    kept = clean_environment(os.environ, 1)
    for name in openmp_environment(1):  # commands decide about threads themselves
        del kept[name]
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}


def run(command: list[str], folder: Path, deadline_secs: float) -> tuple[int, str, str, float]:
    """Exit code, stdout, stderr and wall time of a process. RowError if it does not end in time."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment(folder),
            timeout=deadline_secs, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RowError(f"{shown(command)}: no end after {deadline_secs:.0f} s") from error
    return done.returncode, done.stdout, done.stderr, time.perf_counter() - start


def run_json(command: list[str], folder: Path, deadline_secs: float) -> tuple[Any, float]:
    """The JSON a command prints, and the wall time of its process. RowError if it fails."""
    code, out, errors, secs = run(command, folder, deadline_secs)
    if code:
        raise RowError(f"{shown(command)}: exit code {code}: {last_words(errors or out)}")
    return last_document(command, out), secs


def last_document(command: list[str], out: str) -> Any:
    """All of `out` as JSON, or its last line. RowError if neither is."""
    for text in (out, (out.strip().splitlines() or [""])[-1]):
        try:
            return json.loads(text)
        except ValueError:
            continue
    raise RowError(f"{shown(command)}: printed no JSON: {last_words(out)!r}")


def last_words(text: str) -> str:
    """The end of what a process wrote, on one line."""
    return " ".join(text.strip().splitlines()[-2:])[-300:]


def shown(command: list[str]) -> str:
    """A command without the folders of its program and of this repository."""
    return " ".join([Path(command[0]).name, *command[1:]]).replace(f"{ROOT}/", "")


def tilewright(
    folder: Path, *arguments: str, deadline_secs: float = 300.0
) -> tuple[dict[str, Any], float]:
    """A `tilewright` command's document and wall time, in a process of its own."""
    program = str(Path(sys.executable).with_name("tilewright"))
    document, secs = run_json([program, *arguments, "--json"], folder, deadline_secs)
    return document, secs
