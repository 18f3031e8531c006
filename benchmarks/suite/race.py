"""Races: several sides of one computation, timed in alternation, each in a process of its own.

Time is spent in blocks, one a side in turn and there and back again, while the other processes are
stopped: threads of a pool spin for up to a tenth of a second after a call. A block's figure is its
fastest sample, a side's the median over its blocks, and a ratio the median of the ratios of
neighbouring blocks with a bootstrap interval: what slows the machine for longer than a block
slows every side.

Cores of a virtual machine run at half their speed at times, for less than a block. Where the cores'
peak takes part, rounds in which its usual sample was much slower than its fastest one do not count,
for any side, and are repeated for a while.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.suite.crew import ANSWER_SECS, Crew, RaceError
from tilewright.peers.bench import speedup_interval
from tilewright.tuner.machine.machine_lock import machine_lock

PEERS = ("numpy", "torch")
TIMER = Path(__file__).with_name("timer.c")
LEAST_BLOCKS = 5
LEAST_UNSHARED = 3
REFERENCE = "peak"
SHARED_CORE = 1.25
"""A core was shared in a block where the reference's median sample takes so many times longer than
its fastest one of the race. As in races between candidates (ADR 18)."""
PATIENCE_SECS, PAUSE_SECS = 4.0, 0.2
"""How long shared rounds are repeated, and the rest before the next one: cores are dealt anew."""
EARLY, SETTLED, SETTLED_BLOCKS = 0.5, 0.003, 6
"""A race may end after this share of its time, when the quartiles of each ratio over so many blocks
are so near to each other (relative, over the root of the number of blocks)."""
HOPELESS, HOPELESS_SECS = 20.0, 1e-3
HOPELESS_WORDS = "times slower than the other peer"
"""A peer that takes so many times longer than another one, and this long, is left out."""

Round = dict[str, list[float]]
"""Seconds a call of each side, the samples of one block."""


def build_library(object_file: Path, arguments: int, entry: str = "kernel") -> Path:
    """The emitted object and the timer of its function `entry` as a shared library; `arguments`
    of that function, without the workspace."""
    library = object_file.with_name(f"{object_file.stem}.{entry}.so")
    compiler = os.environ.get("CC", "cc")
    flags = [
        f"-DENTRY={entry}",
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
    sides: Mapping[str, Mapping[str, Any]], crew: Crew, *, threads: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Open `sides` (name to request), then time those that can for about `seconds`.

    The first must take part: RaceError if it cannot. The result has, a side, the median and the
    least seconds and the spread over blocks, or why it is `missing`; and, for every side after
    the first, `ratio`: how many times longer than the first it takes, with its interval. A
    request may name the interpreter of its contestant, `python`, or say why it is `missing`.
    """
    found = {name: _open(crew, name, threads, seed, request) for name, request in sides.items()}
    _leave_out_hopeless(found)
    first = next(iter(sides))
    if "missing" in found[first]:
        raise RaceError(f"{first}: {found[first]['missing']}")
    ready = [name for name in sides if "missing" not in found[name]]
    try:
        with machine_lock():
            rounds = alternate({name: crew.member(name, threads) for name in ready}, seconds)
    except RaceError:
        for name in ready:
            crew.dismiss(name, threads)
        raise
    counted = counting(rounds)
    base = np.array([min(each[first]) for each in counted])
    for name in ready:
        samples = [each[name] for each in counted]
        found[name] |= {**_figures(samples), "left_out": len(rounds) - len(counted)}
        if name != first:
            fastest = np.array([min(block) for block in samples])
            found[name]["ratio"] = _interval(fastest / base, seed)
    for name in sides:
        crew.release(name, threads)
    return found


def _open(
    crew: Crew, side: str, threads: int, seed: int, request: Mapping[str, Any]
) -> dict[str, Any]:
    """What a side says of itself, once it was called and its result compared. One at a time:
    some choose between several ways of calling their library."""
    if "missing" in request:
        return {"missing": request["missing"]}
    contestant = crew.member(side, threads, request.get("python", sys.executable))
    try:
        contestant.ask({"op": "open", "side": side, "threads": threads, "seed": seed, **request})
        # It may compile its way twice: once more on next to nothing.
        answer = contestant.answer(ANSWER_SECS + 3 * request.get("compile_secs", 0.0))
    except RaceError as error:
        crew.dismiss(side, threads)
        return {"missing": str(error)}
    contestant.pause()
    if "missing" not in answer:
        contestant.pace(answer["call_secs"])
    return answer


def _leave_out_hopeless(found: dict[str, dict[str, Any]]) -> None:
    """A peer far behind another one would only cost time."""
    peers = {n: f["call_secs"] for n, f in found.items() if n in PEERS and "call_secs" in f}
    best = min(peers.values(), default=0.0)
    for name, secs in peers.items():
        if secs > HOPELESS_SECS and secs > HOPELESS * best:
            found[name] = {"missing": f"{secs / best:.0f} {HOPELESS_WORDS}"}


class Timed(Protocol):
    """A side of a race."""

    def block(self) -> list[float]:
        """Return the seconds a call of each sample of one block."""
        ...


def alternate(contestants: Mapping[str, Timed], seconds: float) -> list[Round]:
    """Rounds of a block each, in turn."""
    rounds: list[Round] = []
    start = time.monotonic()
    while _goes_on(rounds, time.monotonic() - start, seconds):
        order = list(contestants)
        if len(rounds) % 2:
            order.reverse()
        samples = {name: contestants[name].block() for name in order}
        rounds.append({name: samples[name] for name in contestants})  # the first one stays first
        if rounds[-1] not in unshared(rounds):
            time.sleep(PAUSE_SECS)
    return rounds


def _goes_on(rounds: Sequence[Round], passed_secs: float, seconds: float) -> bool:
    if len(rounds) < LEAST_BLOCKS:
        return True
    if passed_secs < seconds:
        return not (passed_secs > EARLY * seconds and settled(rounds))
    return len(unshared(rounds)) < LEAST_BLOCKS and passed_secs < seconds + PATIENCE_SECS


def settled(rounds: Sequence[Round]) -> bool:
    """Whether every ratio is known to SETTLED already. Decided by spreads, never by who leads."""
    alone = unshared(rounds)
    if len(alone) < SETTLED_BLOCKS:
        return False
    first, *others = alone[0]
    base = np.array([min(each[first]) for each in alone])
    for name in others:
        ratios = np.array([min(each[name]) for each in alone]) / base
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        if (high - low) / middle / np.sqrt(len(ratios)) > SETTLED:
            return False
    return True


def unshared(rounds: Sequence[Round]) -> list[Round]:
    """The rounds in which the reference had its cores to itself; all where it takes no part."""
    if not rounds or REFERENCE not in rounds[0]:
        return list(rounds)
    limit = SHARED_CORE * min(min(each[REFERENCE]) for each in rounds)
    return [each for each in rounds if statistics.median(each[REFERENCE]) <= limit]


def counting(rounds: Sequence[Round]) -> list[Round]:
    """The rounds that count: unshared ones, or all where these are too few to say anything."""
    alone = unshared(rounds)
    return alone if len(alone) >= LEAST_UNSHARED else list(rounds)


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
