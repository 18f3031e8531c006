"""The runner: a long-lived process that forks a child for every candidate and never runs one.

It imports NumPy and LLVM once, builds the buffers of a workload once, and stays single-threaded:
no OpenMP (children start their own) and no xgboost (which brings another OpenMP runtime).
It ends when the process that started it does, and its children end with it.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
from typing import Any

from schedules.record import MeasureStatus
from tuner.host import available_memory_bytes

from . import child, linux
from .arena import Arena, build_arena, free_guarded
from .cases import Cases
from .child import Equipment, Job
from .explain import explain
from .frames import Frame, FrameReader, write_frame
from .guarded import GUARD_BYTES
from .native import Helpers, build_helpers
from .sandbox import FaultPage, Limits, ParentGoneError, Sandbox

_BURST_SECS = 50e-6
_WARM_SECS = 0.02
_SPARE_BYTES = 1 << 30
_FULL_CASES = 6
_KEPT_BYTES = 256 << 20
_USABLE = 0.8  # of the memory that is free: the rest of the machine goes on working


@dataclass(slots=True)
class _Session:
    """One workload opened: its cases, and what children work with."""

    cases: Cases
    equipment: Equipment
    sandbox: Sandbox
    cpus: tuple[int, ...]
    quick: Arena
    spare_bytes: int
    further: list[Arena] | None = None

    def full(self) -> Iterator[Arena]:
        """The arenas of a full check, `quick` first; kept for the next if they are small."""
        yield self.quick
        if self.further is not None:
            yield from self.further
            return
        keep = self.quick.size_bytes * _FULL_CASES <= _KEPT_BYTES
        kept: list[Arena] = []
        for case in islice(self.cases.full(), 1, None):
            arena = build_arena(self.cases.tensors, case, self.quick.flat)
            yield arena
            if keep:
                kept.append(arena)
            else:
                free_guarded(arena)
        if keep:
            self.further = kept


def _open(document: dict[str, Any], lifeline: int) -> _Session:
    module, _, function = document["cases"].partition(":")
    cases: Cases = getattr(import_module(module), function)(document)
    page = FaultPage()
    helpers = build_helpers(len(cases.tensors) + 1, document["lanes"], page.address)
    cpus = tuple(document["cpus"])
    steps, secs = _calibrate(helpers, cpus)
    session = _Session(
        cases=cases,
        equipment=Equipment(helpers, steps, secs),
        sandbox=Sandbox(page, helpers.fault_handler, lifeline),
        cpus=cpus,
        quick=build_arena(cases.tensors, cases.quick),
        spare_bytes=document.get("spare_bytes", _SPARE_BYTES),
    )
    gc.collect()
    gc.freeze()  # children then share these pages instead of copying them
    return session


def _calibrate(helpers: Helpers, cpus: tuple[int, ...]) -> tuple[int, float]:
    """Steps and seconds of the reference burst, on a core that has left its idle clock."""
    everywhere = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    # Short bursts with Python in between would not do: vector units wake up after a millisecond of
    # dense work, and are a third slower until then.
    probe, secs = 1000, 0.0
    while (secs := _fastest_burst_secs(helpers, probe, 1)) < _BURST_SECS:
        probe *= 2
    secs = _fastest_burst_secs(helpers, probe, int(_WARM_SECS / secs))
    steps = max(1, int(probe * _BURST_SECS / secs))
    secs = _fastest_burst_secs(helpers, steps, 100)
    os.sched_setaffinity(0, everywhere)
    return steps, secs


def _fastest_burst_secs(helpers: Helpers, steps: int, times: int) -> float:
    secs = []
    for _ in range(times):
        start = time.perf_counter()
        helpers.clock_burst(steps)
        secs.append(time.perf_counter() - start)
    return min(secs)


def _job(document: dict[str, Any], blob: bytes) -> Job:
    fields = dict(document["job"])
    for name in ("team_sizes", "constants"):
        fields[name] = tuple(fields.get(name, ()))
    return Job(object_bytes=blob, **fields)


def _run(session: _Session, job: Job, arena: Arena, deadline_secs: float) -> dict[str, Any]:
    """Run a kernel on one case in a child, unless its workspace alone is too much."""
    free_bytes = int(_USABLE * available_memory_bytes())
    own_bytes = job.workspace_bytes + job.packed_bytes
    if own_bytes > free_bytes:
        detail = f"wants a workspace of {own_bytes} bytes, {free_bytes} can be had"
        return {"status": MeasureStatus.OUT_OF_MEMORY, "detail": detail}
    wanted_bytes = 10 * (arena.size_bytes + own_bytes) + session.spare_bytes
    limits = Limits(
        deadline_secs=deadline_secs,
        memory_bytes=min(wanted_bytes, free_bytes),
        reserved_bytes=2 * GUARD_BYTES * (len(arena.outputs) + 2),
        threads=job.threads,
        cpus=session.cpus if job.threads == 1 else (),
    )
    outcome = session.sandbox.run(
        lambda send: child.run_job(job, arena, session.equipment, send), limits
    )
    return explain(outcome, limits)


def _check(session: _Session, job: Job, deadline_secs: float) -> dict[str, Any]:
    """Run a kernel on every case; times are those of the first, which is the quick one."""
    result: dict[str, Any] = {}
    job = replace(job, misaligned=True)
    for number, arena in enumerate(session.full()):
        job = replace(job, left_first=number % 2 == 1)
        answer = _run(session, job, arena, deadline_secs)
        if answer["status"] != MeasureStatus.OK:
            return answer
        if not result:
            result = answer
            # How work is divided and where tensors lie has nothing to do with values: the first
            # case has settled it.
            job = replace(job, timed=False, repeats=1, team_sizes=(), misaligned=False)
        else:
            result["verify_secs"] += answer["verify_secs"]
    return result


def _serve(requests: int, answers: int) -> None:
    session: _Session | None = None
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        document = frame.document
        answer: dict[str, Any]
        match document["op"], session:
            case "open", _:
                session = _open(document, requests)
                answer = {"opened": True, "burst_secs": session.equipment.burst_secs}
            case "measure", _Session():
                job = _job(document, frame.blob)
                answer = _run(session, job, session.quick, document["deadline_secs"])
            case "check", _Session():
                answer = _check(session, _job(document, frame.blob), document["deadline_secs"])
            case unknown, _:
                raise ValueError(f"the runner takes open, then measure or check; got {unknown!r}")
        write_frame(answers, Frame(answer))


def main() -> None:
    """`python -m tuner.measure.runner PARENT_PID`; 0 as PARENT_PID outlives its starter."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    parent = int(sys.argv[1])
    if parent:
        linux.die_with_parent(parent)
    gc.disable()
    done = False
    try:
        _serve(requests, answers)
        done = True
    except (ParentGoneError, BrokenPipeError):
        os._exit(1)
    finally:
        if not done:
            write_frame(answers, Frame({"bug": traceback.format_exc()}))


if __name__ == "__main__":
    main()
