"""Has each commit make its kernels of a row: what it finds by tuning, and what it proposes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.commits.rows import Row
from benchmarks.commits.trees import SIDES, Side, one_machine
from benchmarks.suite.crew import RaceError, Served

PROGRAM = Path(__file__).with_name("side.py")
DEADLINE_SECS = 300.0
MADE_A_PROCESS = 40


class Makers:
    """A process of each commit that tunes and compiles, kept from row to row. A context manager.

    `targets` are files with each commit's description of the machine; objects go to `objects`.
    """

    def __init__(
        self, sides: Mapping[str, Side], targets: Mapping[str, Path], objects: Path
    ) -> None:
        self._sides, self._objects = sides, objects
        self._targets = {name: json.loads(file.read_text()) for name, file in targets.items()}
        self._running: dict[str, Served] = {}
        self._made = dict.fromkeys(sides, 0)
        objects.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Makers:
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._running):
            self._running.pop(name).close()

    def make(
        self, row: Row, threads: int, trials: int, seed: int, order: Sequence[str] = SIDES
    ) -> dict[str, Any]:
        """Each commit's answer (`side.made`), asked in this order. RaceError if one has none."""
        return {name: self._made_by(name, row, threads, trials, seed) for name in order}

    def _made_by(self, name: str, row: Row, threads: int, trials: int, seed: int) -> dict[str, Any]:
        maker = self._maker(name)
        try:
            maker.ask(
                {
                    "workload": row.workload.to_json(),
                    "target": {**self._targets[name], "threads": threads},
                    "trials": trials,
                    "seed": seed,
                    "objects": str(self._objects),
                }
            )
            answer = maker.answer(DEADLINE_SECS)
        except RaceError as error:
            self._running.pop(name).close()
            raise RaceError(f"{name}: {error}") from error
        if "failed" in answer:
            raise RaceError(f"{name}: {answer['failed']}")
        return answer

    def _maker(self, name: str) -> Served:
        if name in self._running and self._made[name] >= MADE_A_PROCESS:
            self._running.pop(name).close()
        if name not in self._running:
            side = self._sides[name]
            side.home.mkdir(parents=True, exist_ok=True)
            command = side.command(str(PROGRAM), "make")
            log = side.home / "make.log"
            self._running[name] = Served(command, side.environment(), log, side.tree)
            self._made[name] = 0
        self._made[name] += 1
        return self._running[name]


def described(sides: Mapping[str, Side], folder: Path) -> dict[str, Path]:
    """Files with the machine as each commit describes it, probed once, by the new one.

    A commit may have words for what another does not probe. What both know has the same figures,
    so that bounds and tiles see one machine. Made once: pieces of a run see one machine too.
    """
    files = {name: folder / f"target-{name}.json" for name in sides}
    if all(file.exists() for file in files.values()):
        return files
    folder.mkdir(parents=True, exist_ok=True)
    measured = _target(sides["new"], "--fresh")
    caches = {name: side.home / "cache" for name, side in sides.items()}
    shutil.copytree(caches["new"], caches["old"], dirs_exist_ok=True)
    files["new"].write_text(json.dumps(measured))
    files["old"].write_text(json.dumps(one_machine(_target(sides["old"]), measured)))
    return files


def _target(side: Side, *flags: str) -> dict[str, Any]:
    side.home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        side.tilewright("target", "--json", *flags),
        capture_output=True, text=True, env=side.environment(), cwd=side.home, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RaceError(f"{side.name}: tilewright target: {done.stderr.strip()[-300:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document
