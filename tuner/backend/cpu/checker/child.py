"""The forked process of one candidate: load, verify, time.

No candidate is timed before its result was compared with the expected outputs, and none can become
best without verification: two guarded runs with different fills of unwritten memory and stacks,
whose results are compared with the expected outputs and with each other. In a parallel kernel, the
*share* of a thread is the part of the iterations that it executes. The two runs execute the shares
in opposite orders and record the writes of each share (see `races`). For fast kernels, and in the
full check, shares also run on random memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.record import MeasureStatus

from .... import timeouts
from ....judge.timing_race import TimingRace
from ....process import linux
from ....process.frames import Frame
from ...protocol import LoadError
from ..loading import loader
from ..loading.entries import Entry, timed_entry, whole_entry
from ..memory.arena import Arena
from ..memory.flat import FlatBuffers
from ..memory.guarded import Flush, GuardedPool, same_bytes
from ..memory.line_offsets import TURNS
from . import races
from .flat_run import FlatRun, call_together, flat_run
from .guarded_run import Checks, Guarded, WrongError, arrays, check, compare, guarded_run, same
from .interference import InterferenceGuard
from .job import CheckerEnv, CheckJob
from .parallel_checks import verify_parallel
from .sandbox import Parent

_MIN_PLACES = 4  # number of alignments that are checked even after the time limit
_MAX_CALLS = 4096
_SLOW_VERIFY_SECS = 0.05  # a serial kernel slower than this has only one guarded run


def run_job(
    job: CheckJob,
    arenas: Iterable[Arena],
    env: CheckerEnv,
    parent: Parent,
) -> None:
    """Check `job` on the case of each of `arenas` in sequence, and time it on the first case.

    `parent.be_alone` is called before timing. It waits until the case builder is idle.

    These frames are sent: `{"case": NUMBER}` before each case, and finally `{"status": ...}` with
    the fields of the result. `{"buffers": ...}` is noted before each guarded run, to explain a
    fault.
    """
    start = time.perf_counter()
    document: dict[str, Any] = {"status": MeasureStatus.OK, **_NOTHING_FOUND}
    try:
        kernels, pool = _Kernels(job, env), GuardedPool(env.scratch)
        for number, arena in enumerate(arenas):
            parent.send(Frame({"case": number}))
            found = _check_and_time(job, arena, kernels, pool, env, parent)
            document = merged_results(document, found)
            job = replace(job, timed=False, case=job.case + 1)
    except WrongError as wrong:
        document = {"status": wrong.status, "detail": str(wrong)}
        document["verify_secs"] = time.perf_counter() - start
    except loader.MissingLibraryError as error:
        # The candidate is not wrong. It is measured again once the library is installed.
        document = {"status": MeasureStatus.LOST, "detail": str(error)}
    except LoadError as error:
        document = {"status": MeasureStatus.COMPILE_ERROR, "detail": str(error)}
    parent.send(Frame(document))


_NOTHING_FOUND: dict[str, Any] = {
    "error_found": None,
    "verify_secs": 0.0,
    "evidence": {"cases": 0, "sampled_fraction": 1.0},
}


def merged_results(before: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the result of all cases: the times of `before`, the largest error, and the evidence of
    all cases."""
    errors = [d["error_found"] for d in (before, document) if d["error_found"] is not None]
    evidence, more = before["evidence"], document["evidence"]
    return (document | before) | {
        "verify_secs": before["verify_secs"] + document["verify_secs"],
        "error_found": max(errors, default=None),
        "evidence": {
            "cases": evidence["cases"] + more["cases"],
            "sampled_fraction": min(evidence["sampled_fraction"], more["sampled_fraction"]),
        },
    }


class _Kernels:
    """The entries of an object, which is loaded on first use."""

    def __init__(self, job: CheckJob, env: CheckerEnv) -> None:
        self._job = job
        self._env = env
        self._loaded: list[Entry] | None = None
        self.flat_scratch: dict[int, FlatBuffers] = {}
        self.load_secs = 0.0

    def entries(self, arena: Arena, *, serial: bool = False) -> list[Entry]:
        """Return the entries. Until the next call, their regions run on the OpenMP stand-in if
        `serial`, otherwise on OpenMP itself."""
        start = time.perf_counter()
        stand_in = self._env.helpers.stand_in
        if self._job.parallel:
            openmp = loader.openmp_addresses()  # first, so that MissingLibraryError is raised
            stand_in.switch_to(None if serial else openmp)
        if self._loaded is None:
            if self._job.parallel:
                loader.use_openmp(stand_in.addresses)
            self._loaded = _load(self._job, arena, self._env.engine)
        self.load_secs += time.perf_counter() - start
        return self._loaded


def _check_and_time(
    job: CheckJob,
    arena: Arena,
    kernels: _Kernels,
    pool: GuardedPool,
    env: CheckerEnv,
    parent: Parent,
) -> dict[str, Any]:
    """Check a kernel on one case, time it if the job says so, and return the result document.

    A candidate that has an incumbent is timed after one run whose result is right. Unless it is
    faster than the incumbent, that is all: guarded runs would take longer than the race, and the
    full check has them all. A finalist is never guarded again, because the winner is checked fully.
    """
    clock = time.perf_counter
    start, loaded_before = clock(), kernels.load_secs
    openmp = races.SerialOpenMP(env.helpers.stand_in, env.stacks)
    checks = Checks(
        arena, openmp, parent.note, pool, kernels.flat_scratch, job.case, env.helpers.store_watch
    )
    document: dict[str, Any] = {
        "status": MeasureStatus.OK,
        "evidence": {"cases": 1, "sampled_fraction": arena.case.sampled_fraction},
    }
    sides: list[FlatRun] = []
    if job.timed and job.incumbent_secs is not None and not job.thorough:
        sides = _warmed(job, checks, kernels.entries(arena))
    contends = bool(sides)
    if contends:
        document["error_found"] = arena.case.error(arrays(arena, sides[0].outputs()))
        timed = _timed(job, sides, env, parent)
        document |= timed
        if job.finalist or timed["run_secs_estimate"] >= job.incumbent_secs:
            for flat in sides:
                flat.free(pool)
            return document | _secs_of(kernels, start, loaded_before, timed)
    found = _verified(job, checks, kernels)
    expected = found[0].results()
    document["error_found"] = arena.case.error(arrays(arena, expected))
    if contends:
        for flat in sides:
            flat.compare(expected)
        document |= _secs_of(kernels, start, loaded_before, document)
    else:
        sides = [flat_run(job, checks, entry) for entry in kernels.entries(arena)]
        _compare_calls(job, checks, sides, expected, env)
        document |= _secs_of(kernels, start, loaded_before, document)
        if job.timed:
            document |= _timed(job, sides, env, parent)
            for flat in sides:
                flat.compare(expected)
    for guarded in found:
        guarded.free()
    for flat in sides:
        flat.free(pool)
    return document


def _warmed(job: CheckJob, checks: Checks, entries: Sequence[Entry]) -> list[FlatRun]:
    """Call each entry with OpenMP itself. Return the calls, or none if a result is wrong: the
    guarded runs then find out why."""
    sides = [flat_run(job, checks, entry) for entry in entries]
    for flat in sides:
        flat.warm()
    right = all(
        checks.arena.case.check(arrays(checks.arena, flat.outputs())) is None for flat in sides
    )
    return sides if right else []


def _verified(job: CheckJob, checks: Checks, kernels: _Kernels) -> list[Guarded]:
    """Perform the guarded runs of the job, and return the buffers of one run of each entry."""
    arena, openmp = checks.arena, checks.openmp
    found: list[Guarded] = []
    if job.parallel:
        teams = job.team_sizes or (job.threads,)
        entries = kernels.entries(arena, serial=True)
        for team in teams:
            for guarded in found:
                guarded.free()
            openmp.threads = team
            found = [verify_parallel(job, checks, entry) for entry in entries]
        for entry, first in zip(entries, found, strict=True):
            _check_team_sizes(job.further_team_sizes, checks, entry, first.results())
        openmp.threads = teams[-1]
    else:
        entries = kernels.entries(arena)
        found = [_verify_serial(job, checks, entry) for entry in entries]
    if job.thorough:
        _check_repeated_calls(checks, found)
    if job.misaligned:
        for entry in entries:
            _check_alignments(checks, entry, found[0].results())
    for other in found[1:]:
        same(arena.outputs, found[0].results(), other.results(), "differs between its entries")
    return found


def _compare_calls(
    job: CheckJob,
    checks: Checks,
    sides: Sequence[FlatRun],
    expected: Sequence[NDArray[np.uint8]],
    env: CheckerEnv,
) -> None:
    """Raise WrongError if a call with OpenMP itself disagrees with `expected`, the outputs of a
    guarded run."""
    for flat in sides:
        for _ in range(job.repeats):
            flat.warm()
            flat.compare(expected)
        if job.together:
            call_together(checks, flat, env.helpers, expected, parallel=job.parallel)


def _timed(
    job: CheckJob, sides: Sequence[FlatRun], env: CheckerEnv, parent: Parent
) -> dict[str, Any]:
    """Time the entries, and return fields of the result document. If the first entry loses the race
    against the incumbent, the other one is not timed."""
    parent.be_alone()
    start = time.perf_counter()
    quiet = InterferenceGuard(
        env.helpers,
        env.burst_steps,
        env.burst_secs,
        threads=job.threads if job.parallel else 1,
        team_burst_secs=env.team_burst_secs,
    )
    document: dict[str, Any] = {}
    for flat, prefix in zip(sides, ("", "with_packing_"), strict=False):
        race = _race(job, flat, env, quiet, timed_first=not prefix)
        document[f"{prefix}run_secs_estimate"] = race.estimate_secs
        if not prefix:
            document["run_secs"] = race.samples
            if race.is_beaten:
                break
    document["team_burst_secs"] = quiet.team_burst_secs
    document["measure_secs"] = time.perf_counter() - start
    return document


def _secs_of(
    kernels: _Kernels, start: float, loaded_before: float, timed: dict[str, Any]
) -> dict[str, float]:
    """Return the seconds since `start` that loading took, and those that verification took:
    all but loading and the timing that `timed` states."""
    load_secs = kernels.load_secs - loaded_before
    other_secs = load_secs + timed.get("measure_secs", 0.0)
    return {"load_secs": load_secs, "verify_secs": time.perf_counter() - start - other_secs}


def _load(job: CheckJob, arena: Arena, engine: Any) -> list[Entry]:
    """Load the kernel. Return the timed entry first, then further entries to check."""
    kernel = loader.load_object(job.object_bytes, job.symbol, engine)
    entries = [timed_entry(kernel, job.symbol, job.needs, len(arena.tensors))]
    if job.every_entry and job.constants:
        entries.append(whole_entry(kernel, job.needs, len(arena.tensors)))
    return entries


def _verify_serial(job: CheckJob, checks: Checks, entry: Entry) -> Guarded:
    """Perform two guarded runs, or one for a slow kernel. Return the buffers of the first run.

    The two runs are compared in all elements, because the case may have expected values for only a
    sample. An element that was never written differs.
    """
    start = time.perf_counter()
    first, second = Flush.RIGHT, Flush.LEFT
    if job.case % 2:
        first, second = second, first
    run = guarded_run(checks, entry, first)
    check(checks.arena, run.results())
    sampled = job.thorough and checks.arena.case.sampled_fraction < 1.0
    if sampled or time.perf_counter() - start <= _SLOW_VERIFY_SECS:
        again = guarded_run(checks, entry, second)
        same(
            checks.arena.outputs, run.results(), again.results(), "reads memory it has not written"
        )
        again.free()
    return run


def _check_team_sizes(
    teams: Sequence[int], checks: Checks, entry: Entry, expected: Sequence[NDArray[np.uint8]]
) -> None:
    """Raise WrongError if the results differ from `expected` for one of `teams`.

    After a time limit, the remaining team sizes are skipped.
    """
    start = time.process_time()
    checks.openmp.watch(races.forward)
    for team in teams:
        if time.process_time() - start > timeouts.TEAM_SIZE_CHECK_SECS:
            return
        checks.openmp.threads = team
        run = guarded_run(checks, entry, Flush.LEFT)
        compare(checks.arena, expected, run.results())
        run.free()


def _check_repeated_calls(checks: Checks, runs: Sequence[Guarded]) -> None:
    """Raise WrongError if data that earlier calls left in the kernel's memory changes a result.

    Calls are repeated until a time limit, or until a call leaves the workspace unchanged. Later
    calls would then do the same.
    """
    checks.openmp.watch(races.forward)
    for run in runs:
        expected = [result.copy() for result in run.results()]
        start = time.process_time()
        for number in range(_MAX_CALLS):
            left = run.workspace.view().copy()
            if run.call_again():
                raise WrongError(MeasureStatus.WRONG_RESULT, f"call {number + 2} failed")
            same(checks.arena.outputs, expected, run.results(), "depends on calls before it")
            if same_bytes(left, run.workspace.view()):
                break
            if time.process_time() - start > timeouts.REPEATED_CALL_CHECK_SECS:
                break


def _check_alignments(checks: Checks, entry: Entry, expected: Sequence[NDArray[np.uint8]]) -> None:
    """Raise WrongError if the results depend on the offsets of arrays in their cache lines.

    All `TURNS` patterns of offsets are checked within a time limit, but at least `_MIN_PLACES` of
    them.
    """
    checks.openmp.watch(races.forward)
    start = time.process_time()
    for turn in range(TURNS):
        if turn >= _MIN_PLACES and time.process_time() - start > timeouts.ALIGNMENT_CHECK_SECS:
            return
        moved = guarded_run(checks, entry, tuple(Flush)[turn % 2], turn=turn)
        compare(checks.arena, expected, moved.results())
        moved.free()


def _race(
    job: CheckJob,
    flat: FlatRun,
    env: CheckerEnv,
    quiet: InterferenceGuard,
    *,
    timed_first: bool,
) -> TimingRace:
    """Time the kernel until its time is known precisely enough, or until it is certainly slower
    than the incumbent.

    An entry that is not `timed_first` is timed without an incumbent.
    """
    incumbent_secs = job.incumbent_secs if timed_first else None
    race = TimingRace(flat.warm_secs, env.burst_secs, incumbent_secs, job.final_secs)
    while (plan := race.plan()) is not None:
        before = linux.preemptions()
        samples, bursts = env.helpers.time(
            flat.entry.address, flat.argv, plan.calls, plan.rounds, env.burst_steps
        )
        preempted = linux.preemptions() - before
        round_secs = float(samples.sum()) * plan.calls + float(bursts.sum())
        if quiet.counts(float(bursts.min()), round_secs):
            race = race.add(tuple(samples.tolist()), tuple(bursts.tolist()), preempted)
    return race
