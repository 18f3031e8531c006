"""Processes kept from row to row: contestants, which time a side of a race each, and the tuner."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from tilewright.tuner.process.environment import KEPT_MEMORY, clean_environment

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_SECS, BLOCK_SECS = 1e-3, 0.03
MOST_ROUNDS = 40
# The scheduler needs a call or two to find each thread a core of its own.
LEAST_ROUNDS, LEAST_LONG_ROUNDS, LONG_SECS = {True: 8, False: 1}, {True: 2, False: 1}, 0.01
ANSWER_SECS = 120.0
TUNED_A_PROCESS = 25


class RaceError(Exception):
    """A side that must take part cannot."""


class Served:
    """The near end of a process that answers each line of JSON with one. `environment` is all it
    gets; its own code is that of `root`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, root: Path = ROOT
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._errors = log.open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            cwd=root, env={**environment, "PYTHONPATH": str(root)},
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request; the process works again until `pause`. RaceError if it has ended."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def answer(self, deadline_secs: float = ANSWER_SECS) -> dict[str, Any]:
        """Its answer to the last request. RaceError if there is none in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], deadline_secs)
        if not ready:
            raise RaceError(f"no answer for {deadline_secs:.0f} s; see {self._log}")
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def pause(self) -> None:
        """Stop the process, with all its threads, until it is asked again."""
        self._process.send_signal(signal.SIGSTOP)

    def _ended(self) -> RaceError:
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return RaceError(f"a process ended: {said[-1] if said else 'it said nothing'}")


def pace_of(call_secs: float, threads: int) -> tuple[int, int]:
    """Return how many calls a sample and how many samples a block of a side has."""
    secs = max(call_secs, 1e-8)
    calls = max(1, ceil(SAMPLE_SECS / secs))
    least = LEAST_ROUNDS if secs < LONG_SECS else LEAST_LONG_ROUNDS
    return calls, max(least[threads > 1], min(MOST_ROUNDS, int(BLOCK_SECS / (calls * secs))))


class Contestant(Served):
    """A process that times one side, with the pace it is given."""

    def __init__(self, threads: int, log: Path, python: str = sys.executable) -> None:
        environment = {
            **clean_environment(os.environ, threads),
            "GLIBC_TUNABLES": KEPT_MEMORY,
        }
        super().__init__([python, "-m", "benchmarks.suite.contestant"], environment, log)
        self._threads = threads
        self._calls = self._rounds = 1

    def pace(self, call_secs: float) -> None:
        """Fix how many calls a sample and how many samples a block has."""
        self._calls, self._rounds = pace_of(call_secs, self._threads)

    def block(self) -> list[float]:
        self.ask({"op": "time", "calls": self._calls, "rounds": self._rounds})
        samples = [float(s) for s in self.answer()["samples"]]
        self.pause()
        return samples


class Crew:
    """Processes that are kept from row to row, started when first needed. A context manager.

    Contestants by side and thread count: a library is imported once, not once a race. And one that
    tunes, replaced now and then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._members: dict[tuple[str, int], Contestant] = {}
        self._tuner: Served | None = None
        self._tuned = 0

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        for key in list(self._members):
            self.dismiss(*key)
        self._dismiss_tuner()

    def member(self, side: str, threads: int, python: str = sys.executable) -> Contestant:
        """The contestant for `side`; `python` is the interpreter it runs in."""
        if (side, threads) not in self._members:
            log = self.folder / f"{side}_{threads}t.log"
            self._members[side, threads] = Contestant(threads, log, python)
        return self._members[side, threads]

    def release(self, side: str, threads: int) -> None:
        """Let go of what a race needed memory for."""
        if (side, threads) in self._members:
            contestant = self._members[side, threads]
            contestant.ask({"op": "close"})
            contestant.answer()
            contestant.pause()

    def dismiss(self, side: str, threads: int) -> None:
        """End a contestant; the next time it is needed, it is a new process."""
        self._members.pop((side, threads)).close()

    def tune(
        self, request: Mapping[str, Any], environment: Mapping[str, str], deadline_secs: float
    ) -> dict[str, Any]:
        """The answer of `benchmarks.suite.tune_case`. RaceError if it gives none."""
        if self._tuner is None or self._tuned >= TUNED_A_PROCESS:
            self._dismiss_tuner()
            command = [sys.executable, "-m", "benchmarks.suite.tune_case"]
            self._tuner = Served(command, environment, self.folder / "tune_case.log")
        self._tuned += 1
        try:
            self._tuner.ask(request)
            answer = self._tuner.answer(deadline_secs)
        except RaceError:
            self._dismiss_tuner()
            raise
        self._tuner.pause()
        return answer

    def _dismiss_tuner(self) -> None:
        if self._tuner is not None:
            self._tuner.close()
        self._tuner, self._tuned = None, 0
