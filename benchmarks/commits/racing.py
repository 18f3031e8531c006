"""Races kernels of one computation in alternation: the near end of `stage`.

A round is some samples of each kernel in turn and then the cores' peak. Rounds in which the peak
shows that a core was shared count for no kernel and are repeated for a while, as in the operator
suite (`benchmarks/suite/race.py`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.crew import Crew, RaceError, Served
from benchmarks.suite.race import PAUSE_SECS, REFERENCE, Round, counting, settled, unshared
from tilewright.tuner.machine.machine_lock import machine_lock
from tilewright.tuner.process.environment import KEPT_MEMORY, clean_environment

PATIENCE_SECS = 6.0
"""How much longer than its rounds alone a race may take where the machine is disturbed."""
INPUT_SEED = 1


@dataclass(frozen=True, slots=True)
class Race:
    """`rounds` has the seconds a call of each kernel, its fastest sample, in each round that
    counts; `left_out` says how many others there were."""

    rounds: tuple[Mapping[str, float], ...]
    left_out: int


def race(
    crew: Crew, workload: Path, kernels: Mapping[str, Mapping[str, Any]],
    target: Mapping[str, Any], *, threads: int, rounds: int,
) -> Race:  # fmt: skip
    """Time `kernels` (by name: `library`, `workspace_bytes`) in at most `rounds` rounds that count.

    It ends early when every ratio is settled. RaceError if one fails, or gives another result.
    """
    peak = crew.member(REFERENCE, threads)
    peak.ask({"op": "open", "side": REFERENCE, "threads": threads, "target": target})
    peak.pace(float(peak.answer()["call_secs"]))
    peak.pause()
    stage = Served(
        [sys.executable, "-m", "benchmarks.commits.stage"],
        {**clean_environment(os.environ, threads), "GLIBC_TUNABLES": KEPT_MEMORY},
        crew.folder / f"stage_{threads}t.log",
    )
    try:
        opened = _ask(
            stage,
            {
                "op": "open",
                "workload": str(workload),
                "kernels": kernels,
                "threads": threads,
                "seed": INPUT_SEED,
            },
        )
        asked = {"op": "round", "samples": opened["samples"]}
        with machine_lock():
            taken = alternate(
                lambda: {**_ask(stage, asked)["round"], REFERENCE: peak.block()}, rounds
            )
    finally:
        stage.close()
    counted = counting(taken)
    fastest = tuple({name: min(each[name]) for name in kernels} for each in counted)
    return Race(fastest, len(taken) - len(counted))


def _ask(stage: Served, request: Mapping[str, Any]) -> dict[str, Any]:
    """Its answer; it is stopped until it is asked again."""
    stage.ask(request)
    answer = stage.answer()
    stage.pause()
    if "failed" in answer:
        raise RaceError(answer["failed"])
    return answer


def alternate(take: Callable[[], Round], most: int) -> list[Round]:
    """Rounds until `most` of them count, or fewer that settle every ratio; or until those that do
    not count have cost too much."""
    taken: list[Round] = []
    lost_secs = 0.0
    while _goes_on(taken, most, lost_secs):
        start = time.monotonic()
        taken.append(take())
        if taken[-1] not in unshared(taken):
            time.sleep(PAUSE_SECS)
            lost_secs += time.monotonic() - start
    return taken


def _goes_on(taken: Sequence[Round], most: int, lost_secs: float) -> bool:
    """`lost_secs` is what went into rounds that do not count and the rests after them."""
    alone = unshared(taken)
    if len(alone) >= most or lost_secs > PATIENCE_SECS:
        return False
    kernels = [{n: s for n, s in each.items() if n != REFERENCE} for each in alone]
    return not settled(kernels)
