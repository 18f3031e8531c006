"""Measures rows: each is tuned, checked, and raced against PyTorch, in three served processes."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.collection.serving import TOLERANCE
from benchmarks.suite.context import environment
from benchmarks.suite.crew import RaceError, Served, pace_of
from benchmarks.suite.race import alternate
from tilewright.peers.bench import speedup_interval
from tilewright.tuner.machine.machine_lock import machine_lock
from tilewright.tuner.process.environment import KEPT_MEMORY, clean_environment

COMMAND = [sys.executable, "-m", "benchmarks.collection.serving"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How rows are measured. With 0 `trials`, the default schedule is raced.

    `deadline_secs` limits each step of a row: tuning, PyTorch's eager calls, compiling, building
    the kernel. A race takes about `race_secs`. `folder` has caches, which a later run reuses.
    """

    threads: int = 2
    trials: int = 16
    seed: int = 0
    race_secs: float = 2.0
    deadline_secs: float = 120.0
    compiles: bool = True
    folder: Path = Path(tempfile.gettempdir()) / "tilewright_collection"


class Processes:
    """The processes that serve rows, started when they are first needed. A context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: dict[str, Served] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._running):
            self._end(name)

    def served(self, name: str) -> Served:
        """Return the process `name`: "tuner", "kernel" or "torch"."""
        if name not in self._running:
            log = self._settings.folder / f"{name}.log"
            self._running[name] = Served(COMMAND, self._environment(name), log)
        return self._running[name]

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the process `name`, which is stopped again. RaceError if it ends or
        does not answer in time; the next request is then served by a new one."""
        served = self.served(name)
        try:
            served.ask(request)
            answer = served.answer(self._settings.deadline_secs)
        except RaceError:
            self._end(name)
            raise
        served.pause()
        return answer

    def _end(self, name: str) -> None:
        self._running.pop(name).close()

    def _environment(self, name: str) -> dict[str, str]:
        """Return the environment of a process. The tuner starts processes of its own, which must
        not be bound to its core."""
        folder, threads = self._settings.folder, self._settings.threads
        if name == "tuner":
            return environment(folder)
        timed = clean_environment(os.environ, threads) | {"GLIBC_TUNABLES": KEPT_MEMORY}
        caches = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        timed |= {variable: str(folder / cache) for variable, cache in caches.items()}
        return timed | {"XDG_CACHE_HOME": str(folder / "cache")}


@dataclass(frozen=True, slots=True)
class _Timed:
    """A way of a process, with the pace that its calls allow."""

    served: Served
    way: str
    pace: tuple[int, int]

    def block(self) -> list[float]:
        calls, rounds = self.pace
        self.served.ask({"op": "time", "way": self.way, "calls": calls, "rounds": rounds})
        samples = [float(secs) for secs in self.served.answer()["samples"]]
        self.served.pause()
        return samples


def measured(name: str, processes: Processes, settings: Settings) -> dict[str, Any]:
    """Return the line of results of the row `name`.

    If it has no ratio, `cannot_be_expressed`, `failed` (an error, or no end in time) or `wrong`
    says why. Times are in seconds.
    """
    found: dict[str, Any] = {"name": name, "threads": settings.threads, "trials": settings.trials}
    try:
        with tempfile.TemporaryDirectory() as folder:
            return found | _measured(name, processes, settings, Path(folder))
    except RaceError as error:
        return found | {"failed": str(error)}


def _measured(name: str, processes: Processes, settings: Settings, folder: Path) -> dict[str, Any]:
    basics = {"row": name, "threads": settings.threads, "seed": settings.seed}
    basics |= {"pin": settings.threads == 1, "reference": str(folder / "reference.npy")}
    database = str(folder / "tune.sqlite")
    tuned = processes.ask(
        "tuner",
        {**basics, "op": "tune", "pin": False, "trials": settings.trials, "database": database},
    )
    if "trace" not in tuned:
        return tuned
    built = {"trace": tuned.pop("trace"), "target": tuned.pop("target")}
    ways = {"eager": processes.ask("torch", {**basics, "op": "torch"})}
    if "failed" in ways["eager"]:
        return tuned | {"failed": f"PyTorch: {ways['eager']['failed']}"}
    if settings.compiles:
        ways["compiled"] = _compiled(processes, basics)
    kernel = processes.ask("kernel", {**basics, **built, "op": "kernel"})
    if "failed" in kernel:
        return tuned | kernel
    tuned["max_error"] = kernel["max_error"]
    if not kernel["max_error"] <= max(TOLERANCE, ways["eager"]["max_error"]):
        return tuned | {"wrong": f"off by {kernel['max_error']:.3g} of the largest element"}
    ready = {way: said for way, said in ways.items() if "call_secs" in said}
    sides = {"ours": _Timed(processes.served("kernel"), "ours", _pace(kernel, settings))}
    sides |= {w: _Timed(processes.served("torch"), w, _pace(r, settings)) for w, r in ready.items()}
    with machine_lock():
        rounds = alternate(sides, settings.race_secs)
    for process in ("kernel", "torch"):
        processes.ask(process, {"op": "close"})
    return tuned | {"pytorch": ways} | _figures(rounds, ready, settings.seed)


def _compiled(processes: Processes, basics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the process says of `torch.compile`. If it ends, another one gets ready for the
    eager calls."""
    try:
        return processes.ask("torch", {**basics, "op": "compile"})
    except RaceError as error:
        processes.ask("torch", {**basics, "op": "torch"})
        return {"failed": str(error)}


def _pace(said: Mapping[str, Any], settings: Settings) -> tuple[int, int]:
    return pace_of(said["call_secs"], settings.threads)


def _figures(
    rounds: list[dict[str, list[float]]], ready: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Return the medians over blocks of the fastest samples, and the ratios within a round."""
    fastest = {side: np.array([min(each[side]) for each in rounds]) for side in rounds[0]}
    found: dict[str, Any] = {f"{side}_secs": float(np.median(s)) for side, s in fastest.items()}
    best = min(ready, key=lambda way: found[f"{way}_secs"])
    for way in ready:
        found[f"over_{way}"] = statistics.median(fastest[way] / fastest["ours"])
    low, middle, high = speedup_interval(
        fastest[best] / fastest["ours"], np.random.default_rng(seed)
    )
    return found | {
        "best_way": ready[best]["way"], "ratio": middle, "ratio_interval": [low, high],
        "blocks": len(rounds),
    }  # fmt: skip
