"""Compile workers: whatever the compiler does, the candidate gets a typed outcome."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tilewright.schedules.record import MeasureStatus
from tilewright.tuner.compiling.pool import Compiled, CompilePool

FAKE = "tests.support.tuner.compile_fakes:compile_fake"


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilePool]:
    with CompilePool(workers=2, compiler=FAKE) as pool:
        yield pool


def compile_all(pool: CompilePool, *what: str) -> list[Compiled]:
    for number, do in enumerate(what):
        pool.submit(number, {"do": do})
    outcomes: list[Compiled] = []
    while pool.pending:
        outcomes += pool.poll(None)
    return sorted(outcomes, key=lambda o: o.key)


def test_every_candidate_of_a_batch_gets_its_own_outcome(pool: CompilePool) -> None:
    what = ["right", "refuse", "right", "abort", "right", "bad text", "right"]
    outcomes = compile_all(pool, *what)
    assert [o.status for o in outcomes] == [
        MeasureStatus.OK,
        MeasureStatus.NOT_LEGAL,
        MeasureStatus.OK,
        MeasureStatus.COMPILE_CRASH,
        MeasureStatus.OK,
        MeasureStatus.COMPILE_ERROR,
        MeasureStatus.OK,
    ]
    assert outcomes[0].workspace_bytes == 64
    assert all(o.secs >= 0 for o in outcomes)


@pytest.mark.parametrize(
    ("do", "status", "detail"),
    [
        ("refuse", MeasureStatus.NOT_LEGAL, r"factor must be 2\.\.9, got 0"),
        ("bad text", MeasureStatus.COMPILE_ERROR, "LLVM refuses the module: "),
        ("abort", MeasureStatus.COMPILE_CRASH, "ended with signal 6"),
        ("exit", MeasureStatus.COMPILE_CRASH, "exit code 1: LLVM ERROR: out of registers"),
        ("balloon", MeasureStatus.COMPILE_ERROR, "needed more than 4096 MiB"),
    ],
)
def test_a_failure_says_what_happened(
    pool: CompilePool, do: str, status: MeasureStatus, detail: str
) -> None:
    (outcome,) = compile_all(pool, do)
    assert outcome.status == status
    assert re.search(detail, outcome.detail)
    assert outcome.object_bytes == b""


def test_a_hanging_compile_is_ended_at_its_deadline_and_the_rest_goes_on() -> None:
    with CompilePool(workers=1, compiler=FAKE, deadline_secs=300.0) as pool:
        compile_all(pool, "right")  # the worker is up
        pool.deadline_secs = 0.5
        pool.submit(0, {"do": "hang"})
        pool.submit(1, {"do": "right"})
        (first,) = pool.poll(None)
        pool.deadline_secs = 300.0
        (second,) = pool.poll(None)
    assert first.status == MeasureStatus.COMPILE_TIMEOUT
    assert first.detail == "the compiler did not end within 0.5 s"
    assert second.status == MeasureStatus.OK


def test_workers_are_replaced_after_so_many_candidates() -> None:
    with CompilePool(workers=1, compiler=FAKE, recycle_after=2) as pool:
        pids = [o.object_bytes for o in compile_all(pool, *["right"] * 4)]
    assert pids[0] == pids[1]
    assert pids[2] == pids[3] != pids[0]


def test_a_fresh_build_has_a_process_of_its_own(pool: CompilePool) -> None:
    known = {str(pid).encode() for pid in pool.process_ids}
    builds = {o.object_bytes for o in pool.fresh({"do": "right"}, builds=2)}
    assert len(builds) == 2
    assert not builds & known


def test_starting_does_not_wait_for_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, python = tmp_path / "begin", tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nuntil [ -e {begin} ]; do sleep 0.05; done\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with CompilePool(workers=1, compiler=FAKE) as pool:
        pool.start()
        pool.submit(0, {"do": "right"})
        assert pool.poll(0.0) == []
        begin.touch()
        (outcome,) = pool.poll(None)
    assert outcome.status is MeasureStatus.OK


def test_closing_ends_busy_workers() -> None:
    pool = CompilePool(workers=2, compiler=FAKE)
    with pool:
        compile_all(pool, "right", "right")
        pool.submit(0, {"do": "hang"})
        processes = [psutil.Process(pid) for pid in pool.process_ids]
    assert not any(p.is_running() for p in processes)


def test_a_bug_of_ours_is_raised_with_its_traceback() -> None:
    with (
        CompilePool(workers=1, compiler=FAKE) as pool,
        pytest.raises(
            RuntimeError, match=r"(?s)in our own code:.*unexpected keyword argument 'do'"
        ),
    ):
        compile_all(pool, "bug")


def test_fresh_builds_are_in_processes_that_never_compiled() -> None:
    with CompilePool(workers=2, compiler=FAKE) as pool:
        compiled = {o.object_bytes for o in compile_all(pool, "right", "right")}
        pids = [o.object_bytes for _ in range(3) for o in pool.fresh({"do": "right"}, builds=2)]
        assert len({*pids, *compiled}) == 6 + len(compiled)


@pytest.mark.parametrize(
    ("do", "status", "detail"),
    [
        ("refuse", MeasureStatus.NOT_LEGAL, "factor must be"),
        ("abort", MeasureStatus.COMPILE_CRASH, "the compiler ended with signal 6"),
        ("exit", MeasureStatus.COMPILE_CRASH, "the compiler ended with exit code 1"),
        ("hang", MeasureStatus.COMPILE_TIMEOUT, "did not end within 0.5 s"),
    ],
)
def test_a_failure_in_a_fresh_build_says_what_happened(
    do: str, status: MeasureStatus, detail: str
) -> None:
    with CompilePool(workers=1, compiler=FAKE, deadline_secs=60.0) as pool:
        (built,) = pool.fresh({"do": "right"})
        assert built.status == MeasureStatus.OK
        pool.deadline_secs = 0.5 if do == "hang" else 60.0
        first, second = pool.fresh({"do": do}, builds=2)
        assert first.status == second.status == status
        assert detail in first.detail
        pool.deadline_secs = 60.0
        assert [o.status for o in pool.fresh({"do": "right"}, builds=2)] == [MeasureStatus.OK] * 2


def test_a_bug_in_a_fresh_build_is_a_bug() -> None:
    with (
        CompilePool(workers=1, compiler=FAKE) as pool,
        pytest.raises(RuntimeError, match="failed in our own code"),
    ):
        pool.fresh({"do": "bug"})


def test_a_compiler_that_cannot_be_imported_is_a_bug() -> None:
    with (
        CompilePool(workers=1, compiler="no_such_module:compile") as pool,
        pytest.raises(RuntimeError, match="No module named 'no_such_module'"),
    ):
        compile_all(pool, "right")


def test_all_workers_are_forks_of_one_process() -> None:
    with CompilePool(workers=2, compiler=FAKE) as pool:
        compile_all(pool, "right", "right")
        parents = {psutil.Process(pid).ppid() for pid in pool.process_ids}
    assert len(parents) == 1
    assert not psutil.pid_exists(parents.pop())


def test_killed_builds_are_typed_and_the_pool_goes_on() -> None:
    with CompilePool(workers=1, compiler=FAKE) as pool:
        compile_all(pool, "right")
        pool.submit(0, {"do": "hang"})
        pool.kill()
        (killed,) = pool.poll(None)
        assert killed.status == MeasureStatus.COMPILE_CRASH
        (built,) = compile_all(pool, "right")
        assert built.status == MeasureStatus.OK


def test_a_dropped_candidate_is_not_built() -> None:
    with CompilePool(workers=2, compiler=FAKE) as pool:
        compile_all(pool, "right", "right")
        pool.submit(0, {"do": "hang"})
        pool.drop()
        assert pool.pending == 0
        pool.start()
        assert compile_all(pool, "right")[0].status == MeasureStatus.OK


def test_workers_end_with_the_process_that_forks_them() -> None:
    with CompilePool(workers=2, compiler=FAKE) as pool:
        compile_all(pool, "right", "right")
        workers = [psutil.Process(pid) for pid in pool.process_ids]
        parent = workers[0].parent()
        assert parent is not None
    _, alive = psutil.wait_procs([parent, *workers], timeout=60)
    assert not alive


def test_a_pool_that_closes_while_it_starts_leaves_no_process() -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = CompilePool(workers=2, compiler=FAKE)
    pool.start()
    pool.submit(0, {"do": "hang"})
    started = set(psutil.Process().children(recursive=True)) - before
    pool.drop()  # the worker is not forked yet
    pool.close()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
