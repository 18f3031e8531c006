"""Runs inside the tree of either commit: `python -P side.py make|trials`.

It is handed to both commits as it stands here, so it goes by what is promised to last (`schedules`
and `tuner` as programs import them, which stood at the top level before there was `tilewright`)
and imports nothing of this folder.

    make                                serve requests: tune a workload, write objects
    trials WORKLOAD TARGET MACHINE N    the processor time of proposing N trials by annealing
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

SEED = 0
WARM_TRIALS = 4


def packages() -> tuple[Any, Any]:
    """`schedules` and `tuner` of the tree that PYTHONPATH names, which must be this side's own: an
    editable install would give those of the working copy."""
    tree = Path(os.environ["PYTHONPATH"])
    prefix = "tilewright." if (tree / "tilewright").is_dir() else ""
    return import_module(f"{prefix}schedules"), import_module(f"{prefix}tuner")


def digest(document: Any) -> str:
    """A short name of a JSON document."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def made(
    workload: dict[str, Any], target: dict[str, Any], trials: int, seed: int, objects: str
) -> dict[str, Any]:
    """Tune, and compile what was found (`best`) and the schedule chosen with no measurement
    (`proposal`). Objects are written below `objects` under the names of their digests."""
    schedules, tuner = packages()
    computed = schedules.Workload.from_json(workload)
    machine = schedules.Target.from_json(target)
    start = time.perf_counter()
    budget = tuner.Budget(trials=trials)
    report = tuner.tune(computed, machine, budget=budget, seed=seed).to_json()
    tune_secs = time.perf_counter() - start
    if report["best"] is None:
        return {"failed": f"nothing works: {report['trials']['by_status']}"}
    trace = report["best"]["trace"]
    start = time.perf_counter()
    proposed = tuner.compile(computed, None, machine)
    proposal_secs = time.perf_counter() - start
    return {
        "best": {
            "trace": digest(trace),
            **stored(tuner.compile(computed, trace, machine), objects),
        },
        "proposal": stored(proposed, objects),
        "run_secs": report["best"]["run_secs"],
        "trial": report["best"]["trial"],
        "trials": report["trials"]["total"],
        "stopped_because": report["stopped_because"],
        "tune_secs": tune_secs,
        "proposal_secs": proposal_secs,
    }


def stored(kernel: Any, objects: str) -> dict[str, Any]:
    """Where a kernel's object is, and what calling it takes."""
    compiled = kernel.compiled
    name = hashlib.sha256(compiled.object_bytes).hexdigest()[:16]
    file = Path(objects) / f"{name}.o"
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(compiled.object_bytes)
    part.replace(file)
    return {
        "object": name,
        "symbol": compiled.symbol,
        "workspace_bytes": compiled.workspace_bytes,
    }


def serve() -> None:
    """Answer each line of JSON, the arguments of `made`, with one, until stdin ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with who started it
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may write to stdout
    for line in sys.stdin:
        answers.write(json.dumps(made(**json.loads(line))) + "\n")
        answers.flush()


def trials(workload_file: str, target_file: str, machine: str, count: str) -> dict[str, Any]:
    """Milliseconds of processor time a trial that choosing candidates takes, learning included.

    Times come from a simulated machine: no kernel is compiled, and every commit is told the same
    of the same trace. The session's clock is made to count processor time, so that what it books
    under `propose` is that; a short run before has loaded all code.
    """
    time.monotonic = time.process_time
    schedules, tuner = packages()
    workload = schedules.Workload.from_json(json.loads(Path(workload_file).read_text()))
    target = schedules.Target.from_json(json.loads(Path(target_file).read_text()))

    def run(count: int, seed: int) -> dict[str, Any]:
        measurer = f"simulated:{machine}"
        budget = tuner.Budget(trials=count)
        report = tuner.tune(workload, target, budget=budget, seed=seed, measurer=measurer)
        document: dict[str, Any] = report.to_json()
        return document

    run(WARM_TRIALS, SEED + 1)
    start = time.process_time()
    report = run(int(count), SEED)
    secs = time.process_time() - start
    total = report["trials"]["total"]
    return {
        "propose_ms": 1e3 * report["wall_secs_by_phase"]["propose"] / total,
        "all_ms": 1e3 * secs / total,
        "trials": total,
    }


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "make":
        serve()
    else:
        print(json.dumps(trials(*arguments)))


if __name__ == "__main__":
    main()
