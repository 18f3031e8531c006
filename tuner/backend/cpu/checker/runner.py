"""The runner: a long-lived process that forks a child for each candidate. The process itself runs
no candidate.

It imports NumPy and LLVM once, and builds the buffers of a workload once. It has a single thread.
Therefore it loads neither OpenMP (children load it) nor xgboost (which loads another OpenMP
runtime). It ends when its parent ends, and its children end with it.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureStatus

from ....judge.cases import Cases, CheckCase
from ....process import linux
from ....process.frames import Frame, FrameReader, refusal, write_frame
from ....process.host import available_memory_bytes
from ....process.serving import take_over_pipes
from ..loading.loader import empty_engine
from ..loading.native import Helpers, build_helpers
from ..memory.arena import Arena, build_arena, give_guarded
from ..memory.fills import numbers
from ..memory.guarded import GUARD_BYTES, Flush, GuardedBuffer, GuardedPool, guarded
from ..memory.line_offsets import TURNS
from ..memory.stacks import build_stacks
from . import child
from .case_builder import CaseBuilder
from .explain import explain
from .job import CheckerEnv, CheckJob
from .races import share_fills
from .sandbox import FaultPage, Outcome, Parent, ParentGoneError, ResourceLimits, Sandbox

_BURST_SECS = 50e-6
_WARM_SECS = 0.02
_SPARE_BYTES = 1 << 30
_FULL_CASES = 40  # upper estimate for small workloads, which have many cases
_MAX_CASES = 200  # upper limit for any workload
_TOGETHER_BYTES = 64 << 20  # size of all tensors up to which one child runs all later cases
_MAPPED_AHEAD_BYTES = 16 << 20  # size of all outputs up to which a child maps them in advance
_KEPT_BYTES = 256 << 20
_GUARDED_SETS = 4  # sets of buffers per child: for each of two entries, a run and a misaligned run
_CASES_AHEAD = 3  # cases are built in advance if this multiple of the memory in use is free
_RUNS_COMPARED = 2  # runs of a child that are compared, each with separate outputs and workspace
_USABLE = 0.8  # fraction of the free memory that a candidate may use


@dataclass(slots=True)
class _Judge:
    """The cases and arenas for kernels of one form of the workload: the original, or one after
    rewrites."""

    cases: Cases
    quick: Arena
    kept_bytes: int
    further: list[Arena] | None = None
    checks: int = 0

    @property
    def planned(self) -> int:
        """The planned number of cases of a full check, or 0 if it is unknown."""
        return int(getattr(self.cases, "planned", 0))

    @property
    def keeps_arenas(self) -> bool:
        """Return whether arenas are cached. They are cached if they are small, and only from the
        second full check on."""
        is_small = self.quick.size_bytes * _FULL_CASES <= self.kept_bytes
        return is_small and self.checks > 1

    def further_arenas(self) -> list[Arena]:
        """Return the arenas of a full check after the quick case."""
        if self.further is None:
            self.further = [
                build_arena(self.cases.tensors, case, self.quick.flat, turn=_turn(number))
                for number, case in enumerate(self.further_cases(), start=1)
            ]
        return self.further

    def further_cases(self) -> Iterator[CheckCase]:
        """Yield the cases of a full check after the quick case."""
        return islice(self.cases.full(), 1, None)

    def full(self) -> Iterator[Arena]:
        """Yield the arenas of a full check, `quick` first.

        Cached arenas remain valid. Other arenas are valid until the next one is requested.
        """
        yield self.quick
        yield from (
            self.further_arenas() if self.keeps_arenas else self._one_by_one(self.further_cases())
        )

    def full_ahead(self, builder: CaseBuilder) -> Iterator[Arena]:
        """Yield the arenas of a full check, `quick` first. The further cases come from
        `builder`."""
        yield self.quick
        yield from self._one_by_one(iter(builder.take, None))

    def _one_by_one(self, cases: Iterator[CheckCase]) -> Iterator[Arena]:
        pool = GuardedPool(inherited=False)
        for number, case in enumerate(cases, start=1):
            arena = build_arena(self.cases.tensors, case, self.quick.flat, pool, _turn(number))
            yield arena
            give_guarded(arena, pool)
        pool.free()


def _turn(case: int) -> int:
    """Return the `turn` of the `line_offsets` for a case: 31, 15, 30, 14, ... for cases 1, 2, 3,
    ... The first case checks these turns last."""
    half = TURNS // 2
    return -((case + 1) // 2) % half + case % 2 * half


@dataclass(slots=True)
class _Session:
    """An open workload, the judges of its forms, and the environment of children."""

    document: dict[str, Any]
    env: CheckerEnv
    sandbox: Sandbox
    cpus: tuple[int, ...]
    plain: _Judge
    spare_bytes: int
    quick_secs: float
    rewritten: dict[str, _Judge] = field(default_factory=dict)

    def judge(self, rewrites: list[Any]) -> _Judge:
        """Return the judge of kernels whose traces begin with `rewrites`. It is created on first
        use."""
        if not rewrites:
            return self.plain
        key = json.dumps(rewrites, sort_keys=True)
        if key not in self.rewritten:
            cases = _cases({**self.document, "rewrites": rewrites})
            self.rewritten[key] = _Judge(
                cases, _like(self.plain.quick, cases), self.plain.kept_bytes
            )
            gc.collect()
            gc.freeze()
            self.sandbox.discard_spare()
        return self.rewritten[key]


def _cases(document: dict[str, Any]) -> Cases:
    module, _, function = document["cases"].partition(":")
    found: Cases = getattr(import_module(module), function)(document)
    return found


def _like(arena: Arena, cases: Cases) -> Arena:
    """Return the quick arena of `cases`. It uses the memory of `arena` if the inputs are equal."""
    case = cases.quick
    pairs = zip(arena.case.inputs, case.inputs, strict=True)
    if all(np.array_equal(a, b) for a, b in pairs):
        return replace(arena, case=case)
    return build_arena(cases.tensors, case, arena.flat)


def _open(document: dict[str, Any], lifeline: int) -> _Session:
    start = time.perf_counter()
    cases = _cases(document)
    quick = cases.quick
    quick_secs = time.perf_counter() - start
    page = FaultPage()
    helpers = build_helpers(len(cases.tensors) + 1, document["lanes"], page.address)
    cpus = tuple(document["cpus"])
    steps, secs = _calibrate(helpers, cpus)
    session = _Session(
        document=document,
        env=CheckerEnv(helpers, build_stacks(), steps, secs, _inherited_engine()),
        sandbox=Sandbox(page, helpers.fault_handler, lifeline),
        cpus=cpus,
        plain=_Judge(
            cases,
            build_arena(cases.tensors, quick),
            document.get("kept_bytes", _KEPT_BYTES),
        ),
        spare_bytes=document.get("spare_bytes", _SPARE_BYTES),
        quick_secs=quick_secs,
    )
    gc.freeze()  # children then share these pages with this process instead of copying them
    return session


def _inherited_engine() -> Any:
    """Return the LLVM engine of every child, and compute what every child needs besides it."""
    numbers(0)
    share_fills(0)
    return empty_engine()


def _calibrate(helpers: Helpers, cpus: tuple[int, ...]) -> tuple[int, float]:
    """Return the steps and the seconds of the reference burst, measured at full clock."""
    everywhere = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    # Short bursts with Python code between them would be a third slower, because vector units reach
    # full speed only after a millisecond of dense arithmetic.
    probe, secs = 1000, 0.0
    while (secs := _fastest_burst_secs(helpers, probe, 1)) < _BURST_SECS:
        probe *= 2
    secs = _fastest_burst_secs(helpers, probe, 1 + int(_WARM_SECS / secs))
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


def _job(document: dict[str, Any], blob: bytes) -> CheckJob:
    fields = dict(document["job"])
    fields.pop("rewrites", None)
    for name in ("team_sizes", "further_team_sizes", "constants"):
        fields[name] = tuple(fields.get(name, ()))
    return CheckJob(object_bytes=blob, **fields)


def _measure(
    session: _Session, job: CheckJob, judge: _Judge, deadline_secs: float
) -> dict[str, Any]:
    """Run a kernel in a child on the quick case of `judge`, and return the result document."""
    limits = _limits(session, job, deadline_secs, 1)
    if isinstance(limits, dict):
        return limits
    judges = [session.plain, *session.rewritten.values()]

    def start() -> Callable[[bytes, Parent], None]:
        """Map the memory that the child will write, and return its work."""
        session.env.stacks.populate()
        scratch = _written_memory(session.plain.quick)

        def work(task: bytes, parent: Parent) -> None:
            number, job, team_burst_secs = pickle.loads(task)
            env = replace(session.env, team_burst_secs=team_burst_secs, scratch=scratch)
            child.run_job(job, [judges[number].quick], env, parent)

        return work

    task = pickle.dumps((judges.index(judge), job, session.env.team_burst_secs))
    return _explained(session, session.sandbox.run_task(start, task, limits), limits)


def _written_memory(arena: Arena) -> tuple[GuardedBuffer, ...]:
    """Map the flat outputs of `arena`, and return guarded buffers for the outputs of the runs that
    a child compares. Large outputs are mapped when they are written, so that only the child that
    works needs memory for them."""
    if sum(t.bytes for t in arena.outputs) > _MAPPED_AHEAD_BYTES:
        return ()
    page = linux.PAGE_BYTES
    first = len(arena.inputs)
    flat = arena.flat
    for address, size in zip(flat.addresses[first:], flat.size_bytes[first:], strict=True):
        start = address // page * page
        linux.populate(start, -(-(address + size - start) // page) * page)
    return tuple(
        guarded(t.name, t.bytes, Flush.LEFT) for t in arena.outputs for _ in range(_RUNS_COMPARED)
    )


def _run(
    session: _Session,
    job: CheckJob,
    arenas: Iterable[Arena],
    deadline_secs: float,
    is_alone: Callable[[], bool] | None = None,
    *,
    cases: int = 1,
) -> dict[str, Any]:
    """Run a kernel in a child on up to `cases` arenas, and return the result document.

    The deadline applies to each case. `is_alone` returns whether no other work of this program
    runs (see `Sandbox.run`).
    """
    limits = _limits(session, job, deadline_secs, cases)
    if isinstance(limits, dict):
        return limits

    def body(parent: Parent) -> None:
        session.env.stacks.populate()
        child.run_job(job, arenas, session.env, parent)

    return _explained(session, session.sandbox.run(body, limits, is_alone), limits)


def _limits(
    session: _Session, job: CheckJob, deadline_secs: float, cases: int
) -> ResourceLimits | dict[str, Any]:
    """Return the limits of a child, or a result document with the status OUT_OF_MEMORY if the
    workspace is too large."""
    arena = session.plain.quick
    free_bytes = int(_USABLE * available_memory_bytes())
    own_bytes = job.workspace_bytes + job.packed_bytes
    if own_bytes > free_bytes:
        detail = f"needs a workspace of {own_bytes} bytes, but only {free_bytes} are available"
        return {"status": MeasureStatus.OUT_OF_MEMORY, "detail": detail}
    wanted_bytes = 10 * (arena.size_bytes + own_bytes) + session.spare_bytes
    return ResourceLimits(
        deadline_secs=deadline_secs,
        memory_bytes=min(wanted_bytes, free_bytes),
        reserved_bytes=2 * GUARD_BYTES * _GUARDED_SETS * (len(arena.tensors) + 2) * cases,
        threads=job.threads,
        cpus=session.cpus if job.threads == 1 else (),
        cases=cases,
    )


def _explained(session: _Session, outcome: Outcome, limits: ResourceLimits) -> dict[str, Any]:
    """Return the result document of `outcome`. Keep its burst time of the team for later
    children."""
    result = explain(outcome, limits)
    team_burst_secs = result.pop("team_burst_secs", None)
    if team_burst_secs is not None:
        session.env = replace(session.env, team_burst_secs=team_burst_secs)
    return result


def _check(
    session: _Session,
    judge: _Judge,
    job: CheckJob,
    deadline_secs: float,
    before: Callable[[int], None],
) -> dict[str, Any]:
    """Run a kernel on every case of a full check, and return the result document.

    The result has the times of the first (quick) case, the largest error, and the `evidence`.
    `before` is called for each case that starts a child, with the number of the case from 0.

    If memory allows, another process builds the next case while a case runs. Unless cases are
    large, one child runs all cases after the first. Starting a child takes as long as the runs of a
    small kernel.
    """
    judge.checks += 1
    spare_bytes = available_memory_bytes() - _CASES_AHEAD * linux.resident_bytes(os.getpid())
    if judge.keeps_arenas or spare_bytes < 0:
        arenas = (
            iter([judge.quick, *judge.further_arenas()]) if judge.keeps_arenas else judge.full()
        )
        return _check_each(session, arenas, job, deadline_secs, before, together=judge.keeps_arenas)
    # All children share these buffers, so that each new page is touched only once.
    outputs = [(t.name, t.bytes) for t in judge.quick.outputs]
    written = [*outputs, ("the workspace", job.workspace_bytes)] * _RUNS_COMPARED
    scratch = tuple(guarded(name, size, Flush.LEFT, shared=True) for name, size in written)
    session.env = replace(session.env, scratch=scratch)
    try:
        with CaseBuilder(judge.further_cases) as builder:
            arenas = judge.full_ahead(builder)
            together = judge.quick.size_bytes <= _TOGETHER_BYTES
            return _check_each(
                session, arenas, job, deadline_secs, before, builder.idle, together=together
            )
    finally:
        session.env = replace(session.env, scratch=())
        for buffer in scratch:
            buffer.free()


def _check_each(
    session: _Session,
    arenas: Iterator[Arena],
    job: CheckJob,
    deadline_secs: float,
    before: Callable[[int], None],
    is_alone: Callable[[], bool] | None = None,
    *,
    together: bool = False,
) -> dict[str, Any]:
    """Run a kernel on each of `arenas`, and return the merged results.

    Each case has a separate child. If `together`, one child runs all cases after the first.
    """
    job = replace(job, misaligned=True, together=True, thorough=True)
    before(0)
    result = _run(session, job, [next(arenas)], deadline_secs, is_alone)
    # Team sizes, alignments and concurrent calls do not depend on values, so the first case
    # suffices.
    job = replace(
        job,
        timed=False,
        repeats=1,
        team_sizes=(),
        further_team_sizes=(),
        misaligned=False,
        together=False,
        thorough=False,
        settled=True,
        case=1,
    )
    groups: Iterator[Iterable[Arena]] = iter([arenas]) if together else ([a] for a in arenas)
    cases = _MAX_CASES if together else 1
    for some in groups:
        if result["status"] != MeasureStatus.OK:
            return result
        before(job.case)
        answer = _run(session, job, some, deadline_secs, cases=cases)
        if answer["status"] != MeasureStatus.OK:
            return answer
        result = child.merged_results(result, answer)
        job = replace(job, case=job.case + 1)
    return result


def _await_permission(reader: FrameReader, answers: int, planned: int, number: int) -> None:
    """Report the next case and wait for permission, because another run may need the machine
    first."""
    write_frame(answers, Frame({"case": number, "of": max(planned, number + 1)}))
    if reader.read_frame() is None:
        raise ParentGoneError


def _serve(requests: int, answers: int) -> None:
    session: _Session | None = None
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        document = frame.document
        try:
            if document["op"] == "open":
                if session is not None:
                    session.sandbox.discard_spare()
                session = _open(document, requests)
                opened = {
                    "opened": True,
                    "burst_secs": session.env.burst_secs,
                    "quick_secs": session.quick_secs,
                    "cases": session.plain.planned,
                }
                answer = Frame(opened)
            else:
                await_permission = partial(_await_permission, reader, answers)
                answer = Frame(_answer(document, frame.blob, session, await_permission))
        except WorkloadError as error:
            answer = refusal(error)
        write_frame(answers, answer)


def _answer(
    document: dict[str, Any],
    blob: bytes,
    session: _Session | None,
    await_permission: Callable[[int, int], None],
) -> dict[str, Any]:
    if document["op"] not in ("measure", "check") or session is None:
        raise ValueError(f"the runner takes open, then measure or check; got {document['op']!r}")
    job, rewrites = _job(document, blob), document["job"].get("rewrites", [])
    try:
        judge = session.judge(rewrites)
    except WorkloadError as error:
        if not rewrites:
            raise
        detail = f"its rewritten form cannot be checked: {error}"
        return {"status": MeasureStatus.NOT_LEGAL, "detail": detail}
    if document["op"] == "measure":
        return _measure(session, job, judge, document["deadline_secs"])
    before = partial(await_permission, judge.planned)
    return _check(session, judge, job, document["deadline_secs"], before)


def main() -> None:
    """Serve requests from the parent process, whose process id is the argument.

    Usage: `python -m tilewright.tuner.backend.cpu.checker.runner PARENT_PID`. If PARENT_PID is 0,
    the process does not end with its parent.
    """
    requests, answers = take_over_pipes()
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
