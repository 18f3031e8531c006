"""The code of a commit in a folder of its own, and processes that run it and nothing of another.

A tree is unpacked from `git archive`, which leaves nothing behind in the repository when a run is
killed, as a worktree would. Both sides are made that way: what is compared is two commits, not one
commit and whatever is being edited. Both are found by `PYTHONPATH`, before an editable install, by
an interpreter that puts no folder of its own in front (`-P`); installed packages serve both.
"""

from __future__ import annotations

import compileall
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.tuner.process.environment import clean_environment, openmp_environment

ROOT = Path(__file__).resolve().parents[2]
SIDES = ("old", "new")
FOLDERS = ("schedules", "costmodel", "tuner", "service", "db", "tilewright")
"""All that is installed: `tilewright` has links to the others, which compiling does not follow."""


class TreeError(Exception):
    """A commit cannot be had."""


def commit_key(ref: str, repository: Path = ROOT) -> str:
    """The full name of the commit that `ref` means. TreeError if it means none."""
    asked = ["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TreeError(f"{ref!r} is no commit of {repository.name}")
    return done.stdout.strip()


def has_changes(repository: Path = ROOT) -> bool:
    """Whether files differ from the commit that is checked out: they are not part of it."""
    asked = ["git", "-C", str(repository), "status", "--porcelain", "--untracked-files=no"]
    return bool(subprocess.run(asked, capture_output=True, check=True).stdout.strip())


def unpacked(commit: str, folder: Path, repository: Path = ROOT) -> Path:
    """The files of `commit` below `folder`, unpacked unless they are there already."""
    tree = folder / commit[:12]
    if tree.exists():
        return tree
    done = subprocess.run(
        ["git", "-C", str(repository), "archive", "--format=tar", commit],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise TreeError(done.stderr.decode().strip()[-300:])
    part = folder / f"{commit[:12]}.{os.getpid()}.part"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(part, filter="data")
    # As an installation does: else each process reads the source again, where the environment
    # forbids it to write bytecode, and the commit with more lines is said to start later.
    for name in FOLDERS:
        if (part / name).is_dir():
            compileall.compile_dir(part / name, quiet=1)
    part.rename(tree)  # whole or not at all
    return tree


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two commits. `home` has its caches and its data, which the other never sees."""

    name: str
    commit: str
    tree: Path
    home: Path

    def environment(self) -> dict[str, str]:
        """What its processes get: nothing that steers a library, and its own folders."""
        kept = clean_environment(os.environ, 1)
        for name in openmp_environment(1):  # commands decide about threads themselves
            del kept[name]
        kinds = ("CACHE", "DATA", "STATE")
        folders = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in kinds}
        return {**kept, **folders, "PYTHONPATH": str(self.tree)}

    def command(self, *arguments: str) -> list[str]:
        """The interpreter with the tree in front."""
        return [sys.executable, "-P", *arguments]

    def tilewright(self, *arguments: str) -> list[str]:
        """The command `tilewright` of this commit: what its entry point runs."""
        prefix = "tilewright." if (self.tree / "tilewright").is_dir() else ""
        entry = f"import sys; from {prefix}service.cli import main; sys.exit(main())"
        return self.command("-c", entry, *arguments)


def one_machine(own: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """`measured`, another commit's description of this machine, in the words of `own`: where both
    say something the measured one counts, so that no figure differs between the two."""
    return {
        name: (
            one_machine(value, measured[name])
            if isinstance(value, Mapping) and isinstance(measured.get(name), Mapping)
            else measured.get(name, value)
        )
        for name, value in own.items()
    }
