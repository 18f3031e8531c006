"""Kill workers and the scheduler of a fleet in the middle of a job, and look what was lost.

    python -m tests.support.fleet.chaos --worker-kills 20 --scheduler-kills 5

What must hold: every trial that was told is stored, once, with what was told; nothing that was
stored is ordered again; no candidate is LOST for the death of a machine. A short form runs in the
tests.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.fleet.local_fleet import LocalFleet, local_fleet
from tests.support.fleet.simulated import SPACE, TARGET
from tilewright.db import open_store
from tilewright.schedules.canonical import canonical_bytes
from tilewright.service.fleet.restarting_process import RestartingProcess
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.jobs.tuning import tune_into
from tilewright.tuner.measure.fleet.connection import Line
from tilewright.tuner.measure.fleet.machines import FleetMachine
from tilewright.tuner.measure.fleet.messages import FleetRequest
from tilewright.tuner.session.report import Budget


@dataclass
class Outcome:
    """What a job under fire told, stored and ordered."""

    told: list[dict[str, Any]] = field(default_factory=list)
    ordered_again: list[int] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    stored_twice: int = 0
    best_verified: bool = False
    kills: int = 0
    wall_secs: float = 0.0

    @property
    def sound(self) -> bool:
        spared = not self.statuses.get("lost") and self.best_verified
        return not (self.lost or self.stored_twice or self.ordered_again) and spared


def job_under_fire(
    fleet: LocalFleet,
    folder: Path,
    *,
    trials: int,
    victims: list[RestartingProcess],
    seed: int = 0,
) -> Outcome:
    """Tune for `trials`, killing one of `victims` after the other, evenly over the trials."""
    rng = random.Random(seed)
    outcome = Outcome()
    left = list(victims)
    step = max((trials - 4) // max(len(left), 1), 1)

    def on_event(event: dict[str, Any]) -> None:
        outcome.told.append(event)
        if left and len(outcome.told) % step == 0:
            time.sleep(rng.uniform(0, 0.03))  # somewhere in the middle of the next candidate
            outcome.kills += kill(left.pop(0))

    started = time.monotonic()
    options = TuneOptions(Budget(trials), strategy="random", measurer=f"dask:{fleet.address}")
    with open_store(f"sqlite:///{folder / 'chaos.sqlite'}") as store:
        with orders_watched(outcome):
            report = tune_into(store, SPACE.workload, TARGET, options, on_event)
        stored = [
            r for r in store.records(SPACE.workload.key, TARGET.key) if r.verified_level == "quick"
        ]
    keys = {record.key for record in stored}
    outcome.lost = sum(event["record_key"] not in keys for event in outcome.told)
    outcome.stored_twice = len(stored) - len({canonical_bytes(r.trace) for r in stored})
    outcome.statuses = {k: n for k, n in report.trials["by_status"].items() if n}
    outcome.best_verified = report.best is not None and report.best.verified
    outcome.wall_secs = time.monotonic() - started
    return outcome


def kill(keeper: RestartingProcess, patience_secs: float = 30) -> bool:
    """SIGKILL to what `keeper` keeps, once there is something."""
    end = time.monotonic() + patience_secs
    while (pid := keeper.pid) is None and time.monotonic() < end:
        time.sleep(0.02)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    return pid is not None


@contextmanager
def orders_watched(outcome: Outcome) -> Iterator[None]:
    """Note candidates that are ordered though their trial was told, and so is stored."""
    real = Line.submit

    def submit(line: Line, task: str, machine: FleetMachine, payload: bytes) -> None:
        told = {event["trial"] for event in outcome.told}
        given = FleetRequest.from_bytes(payload)
        if given.purpose == "measure":  # the final race and the full check measure again
            trials = (r.trial for r in given.requests.values() if not r.compared)
            outcome.ordered_again += told.intersection(trials)
        real(line, task, machine, payload)

    with patch.object(Line, "submit", submit):
        yield


def main() -> int:
    """Run the whole form; the exit code says whether all held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--worker-kills", type=int, default=20)
    parser.add_argument("--scheduler-kills", type=int, default=5)
    parser.add_argument("--machines", type=int, default=3)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name, local_fleet(Path(name)) as fleet:
        for number in range(asked.machines):
            fleet.join(f"m{number}", latency_secs=0.05)
        fleet.wait_for(asked.machines)
        machines = list(fleet.machines.values())
        victims = [rng.choice(machines) for _ in range(asked.worker_kills)]
        victims += [fleet.scheduler] * asked.scheduler_kills
        rng.shuffle(victims)
        outcome = job_under_fire(
            fleet, Path(name), trials=asked.trials, victims=victims, seed=asked.seed
        )
    sys.stdout.write(
        f"{outcome.kills} kills in {outcome.wall_secs:.0f} s: {len(outcome.told)} trials told, "
        f"{outcome.lost} lost, {outcome.stored_twice} stored twice, "
        f"{len(outcome.ordered_again)} ordered again though stored, statuses {outcome.statuses}\n"
    )
    return 0 if outcome.sound else 1


if __name__ == "__main__":
    sys.exit(main())
