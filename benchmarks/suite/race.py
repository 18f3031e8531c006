"""Races: several sides of one computation, timed in alternation, each in a process of its own.

Time is spent in blocks, one a side in turn and there and back again, while the other processes are
stopped: threads of a pool spin for up to a tenth of a second after a call. A block's figure is its
fastest sample, a side's the median over its blocks, and a ratio the median of the ratios of
neighbouring blocks with a bootstrap interval: what slows the machine for longer than a block
slows every side.
"""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.measure.bench import speedup_interval
from tuner.measure.loader import openmp_environment
from tuner.measure.machine_lock import machine_lock

ROOT = Path(__file__).resolve().parents[2]
TIMER = Path(__file__).with_name("timer.c")
SAMPLE_SECS, BLOCK_SECS = 1e-3, 0.03
# Enough for the scheduler to find each thread a core of its own, which may take a call or two.
LEAST_ROUNDS = {True: 8, False: 1}
LEAST_BLOCKS = 5
ANSWER_SECS = 120.0


class RaceError(Exception):
    """A side that must take part cannot."""


class Contestant:
    """The near end of a contestant process. Use as a context manager."""

    def __init__(self, threads: int, log: Path) -> None:
        self._threads, self._log = threads, log
        self._calls = self._rounds = 1

    def __enter__(self) -> Contestant:
        threads = str(self._threads)
        names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self._errors = self._log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.suite.contestant"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            cwd=ROOT, env={
                **os.environ, **dict.fromkeys(names, threads), **openmp_environment(self._threads),
            },
        )  # fmt: skip
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def ask(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECS)
        if not ready:
            raise RaceError(f"a side gave no answer for {ANSWER_SECS:.0f} s; see {self._log}")
        line = self._process.stdout.readline()
        if not line:
            raise RaceError(f"a side's process ended; {self._log} says why")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def pace(self, call_secs: float) -> None:
        """Fix how many calls a sample and how many samples a block has."""
        secs = max(call_secs, 1e-8)
        self._calls = max(1, ceil(SAMPLE_SECS / secs))
        least = LEAST_ROUNDS[self._threads > 1]
        self._rounds = max(least, min(40, int(BLOCK_SECS / (self._calls * secs))))

    def block(self) -> list[float]:
        self._process.send_signal(signal.SIGCONT)
        self.ask({"op": "time", "calls": self._calls, "rounds": self._rounds})
        samples = [float(s) for s in self.answer()["samples"]]
        self.pause()
        return samples

    def pause(self) -> None:
        """Stop the process, with all its threads, until its next block."""
        self._process.send_signal(signal.SIGSTOP)


def build_library(object_file: Path, arguments: int) -> Path:
    """The emitted object and the timer as a shared library; `arguments` without the workspace."""
    library = object_file.with_suffix(".so")
    compiler = os.environ.get("CC", "cc")
    flags = [
        f"-DARGS={','.join(['void *'] * (arguments + 1))}",
        f"-DPASS={','.join(f'p[{i}]' for i in range(arguments + 1))}",
    ]
    command = [
        compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fopenmp", *flags,
        str(TIMER), str(object_file), "-o", str(library),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RaceError(f"{compiler} failed on {object_file}: {done.stderr.strip()[-300:]}")
    return library


def race(
    sides: Mapping[str, Mapping[str, Any]], *, threads: int, seconds: float, log: Path, seed: int
) -> dict[str, Any]:
    """Open `sides` (name to request), then time those that can for about `seconds`.

    The first must take part: RaceError if it cannot. The result has, a side, the median and the
    least seconds and the spread over blocks, or why it is `missing`; and, for every side after
    the first, `ratio`: how many times longer than the first it takes, with its interval.
    """
    with ExitStack() as stack:
        everyone = {name: stack.enter_context(Contestant(threads, log)) for name in sides}
        for name, request in sides.items():
            common = {"op": "open", "side": name, "threads": threads, "seed": seed}
            everyone[name].ask({**common, **request})
        ready, found = _open(everyone)
        first = next(iter(sides))
        if first not in ready:
            raise RaceError(f"{first}: {found[first]['missing']}")
        with machine_lock():
            blocks = _alternate(list(ready.values()), seconds)
    base = np.array([min(block) for block in blocks[0]])
    for name, samples in zip(ready, blocks, strict=True):
        found[name] |= _figures(samples)
        if name != first:
            fastest = np.array([min(block) for block in samples])
            found[name]["ratio"] = _interval(fastest / base, seed)
    return found


def _open(
    everyone: Mapping[str, Contestant],
) -> tuple[dict[str, Contestant], dict[str, dict[str, Any]]]:
    """The sides that can take part, and what each said of itself."""
    ready: dict[str, Contestant] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, contestant in everyone.items():
        answer = contestant.answer()
        if "missing" in answer:
            found[name] = {"missing": answer["missing"]}
            continue
        contestant.pace(answer["call_secs"])
        found[name] = {"difference": answer["difference"]}
        ready[name] = contestant
        contestant.pause()
    for contestant in ready.values():  # opened while others still worked: take the pace again
        contestant.pace(min(contestant.block()))
    return ready, found


def _alternate(contestants: Sequence[Contestant], seconds: float) -> list[list[list[float]]]:
    """Blocks of samples of each contestant, in turn."""
    blocks: list[list[list[float]]] = [[] for _ in contestants]
    end = time.monotonic() + seconds
    while len(blocks[0]) < LEAST_BLOCKS or time.monotonic() < end:
        order = range(len(contestants))
        for i in order if len(blocks[0]) % 2 == 0 else reversed(order):
            blocks[i].append(contestants[i].block())
    return blocks


def _figures(blocks: Sequence[Sequence[float]]) -> dict[str, Any]:
    fastest = [min(block) for block in blocks]
    every = [sample for block in blocks for sample in block]
    low, high = np.percentile(fastest, [25, 75])
    return {
        "run_secs": statistics.median(fastest),
        "least_secs": min(fastest),
        "median_sample_secs": statistics.median(every),
        "quartiles_secs": [float(low), float(high)],
        "blocks": len(blocks),
    }


def _interval(ratios: NDArray[np.float64], seed: int) -> dict[str, float]:
    low, middle, high = speedup_interval(ratios, np.random.default_rng(seed))
    return {"median": middle, "low": low, "high": high}
