"""TVM as a side of a race: tuned once a case and thread count, by an interpreter of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.suite.cases import Case
from benchmarks.suite.context import Context, RowError, run_json

SECS_A_TRIAL, START_SECS = 6.0, 300.0


def tvm_best(context: Context, case: Case, threads: int) -> dict[str, Any]:
    """The document of `benchmarks.tvm_peer`: TVM's best, tuned now unless it was before.

    `missing` says why there is none; that is kept as well.
    """
    settings = context.settings
    folder = context.folder / "tvm" / f"{case.name.replace(' ', '_')}_{threads}t"
    known = folder / f"{settings.tvm_trials}.json"
    if not known.exists():
        of_trials = folder / str(settings.tvm_trials)  # what fewer or more trials find stays apart
        of_trials.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(_tune(context, case, threads, of_trials)))
    found: dict[str, Any] = json.loads(known.read_text())
    return found


def tvm_request(found: dict[str, Any], python: str) -> dict[str, Any]:
    """What a contestant under the interpreter `python` needs to time what `tvm_best` found."""
    if "missing" in found:
        return {"missing": found["missing"]}
    return {"python": python, "tvm_library": found["library"]}


def _tune(context: Context, case: Case, threads: int, folder: Path) -> dict[str, Any]:
    settings = context.settings
    command = [
        settings.tvm_python, "-m", "benchmarks.tvm_peer", case.name, str(threads),
        str(settings.tvm_trials), str(folder),
    ]  # fmt: skip
    deadline_secs = START_SECS + SECS_A_TRIAL * settings.tvm_trials
    try:
        document, _ = run_json(command, context.folder, deadline_secs)
    except RowError as error:
        return {"missing": str(error)}
    found: dict[str, Any] = document
    return found
