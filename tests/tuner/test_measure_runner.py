"""The runner: right kernels are timed, every kind of failure is a typed result, life goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.schedules.workloads import notation
from tests.support.tuner import planted_kernels as planted
from tests.support.tuner.planted_kernels import OPEN
from tilewright.peers.bench import bench
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureStatus
from tilewright.tuner.backend.cpu.loading import elf, loader
from tilewright.tuner.backend.protocol import LoadError
from tilewright.tuner.judge.cases import DEFAULT_CASES
from tilewright.tuner.judge.team_sizes import checked_team_sizes
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.checking.runner_client import RunnerClient
from tilewright.tuner.measure.local import LocalMeasurer
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.search.default import default_trace


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerClient]:
    with RunnerClient(OPEN) as client:
        yield client


def run(
    runner: RunnerClient, body: str, deadline_secs: float = 60.0, op: str = "measure", **job: Any
) -> dict[str, Any]:
    job = {"symbol": "kernel", "workspace_bytes": 0, "threads": 1, **job}
    runner.submit(job, planted.c_object(body), deadline_secs, op)
    return runner.result()


def test_a_right_kernel_is_verified_and_timed(runner: RunnerClient) -> None:
    result = run(runner, planted.RIGHT)
    assert result["status"] == MeasureStatus.OK
    assert 0 < result["run_secs_estimate"] < 1e-3
    assert len(result["run_secs"]) >= 6
    assert min(result["run_secs"]) > 0


def test_a_kernel_that_cannot_win_is_timed_less(runner: RunnerClient) -> None:
    slow = planted.RIGHT + "for (volatile int i = 0; i < 300000; i++);"
    loser = run(runner, slow, incumbent_secs=1e-6)
    assert loser["status"] == MeasureStatus.OK
    assert len(loser["run_secs"]) <= 2


READS_BEHIND = planted.RIGHT + "volatile float x = a[N]; (void)x;"
"""Right, but it reads one element behind its input, which only guard pages show."""


def test_a_contender_has_guarded_runs(runner: RunnerClient) -> None:
    found = run(runner, READS_BEHIND, incumbent_secs=1.0)
    assert found["status"] == MeasureStatus.OUT_OF_BOUNDS
    racy = run(runner, planted.RACY_SUM, threads=2, incumbent_secs=1.0)
    assert racy["status"] == MeasureStatus.WRONG_RESULT
    assert run(runner, planted.RIGHT, incumbent_secs=1.0)["status"] == MeasureStatus.OK


def test_a_finalist_has_none_but_its_result_is_compared(runner: RunnerClient) -> None:
    once = run(runner, READS_BEHIND, incumbent_secs=1.0, finalist=True)
    assert once["status"] == MeasureStatus.OK
    wrong = "for (int i = 0; i < N; i++) b[i] = a[i];"
    found = run(runner, wrong, incumbent_secs=1.0, finalist=True)
    assert found["status"] == MeasureStatus.WRONG_RESULT


def test_a_loser_has_none_but_cannot_pass_the_full_check(runner: RunnerClient) -> None:
    slow = READS_BEHIND + "for (volatile int i = 0; i < 300000; i++);"
    loser = run(runner, slow, incumbent_secs=1e-6)
    assert loser["status"] == MeasureStatus.OK
    checked = run(runner, slow, op="check", incumbent_secs=None)
    assert checked["status"] == MeasureStatus.OUT_OF_BOUNDS


def test_a_loser_with_a_wrong_result_is_refused_with_the_cause(runner: RunnerClient) -> None:
    wrong = "for (int i = 0; i < N; i++) b[i] = a[i]; for (volatile int i = 0; i < 300000; i++);"
    found = run(runner, wrong, incumbent_secs=1e-6)
    assert found["status"] == MeasureStatus.WRONG_RESULT
    behind = run(runner, wrong + "volatile float x = a[N]; (void)x;", incumbent_secs=1e-6)
    assert behind["status"] == MeasureStatus.OUT_OF_BOUNDS


def test_a_parallel_kernel_is_verified_and_timed(runner: RunnerClient) -> None:
    result = run(runner, planted.PARALLEL, threads=2)
    assert (result["status"], result.get("detail")) == (MeasureStatus.OK, None)


def test_a_full_check_meets_what_small_integers_hide(runner: RunnerClient) -> None:
    rounds = "for (int i = 0; i < N; i++) b[i] = (float)(int)a[i] + 1;"
    assert run(runner, rounds)["status"] == MeasureStatus.OK
    assert run(runner, rounds, op="check")["status"] == MeasureStatus.WRONG_RESULT
    assert run(runner, planted.RIGHT, op="check")["status"] == MeasureStatus.OK
    parallel = run(runner, planted.PARALLEL, op="check", threads=2, team_sizes=[1, 2], repeats=3)
    assert parallel["status"] == MeasureStatus.OK, parallel


FAILURES = {
    "null pointer": ("*(volatile int *)8 = 1;", MeasureStatus.RUN_CRASH, "SIGSEGV at address 0x8"),
    "abort": ("raise_signal(6);", MeasureStatus.RUN_CRASH, "SIGABRT"),
    "illegal instruction": ("__builtin_trap();", MeasureStatus.RUN_CRASH, "SIGILL"),
    "stack overflow": (
        "volatile char x[16 << 20]; for (int i = 16 << 20; i > 0; i -= 4096) x[i - 1] = 1;",
        MeasureStatus.RUN_CRASH,
        "SIGSEGV: took more than 256 KiB of stack",
    ),
    "exit": ("end(0);", MeasureStatus.RUN_CRASH, "ended its process"),
    "one past the end": (
        planted.RIGHT + "b[N] = 0;",
        MeasureStatus.OUT_OF_BOUNDS,
        "0 bytes past the end of B",
    ),
    "one before the start": (
        planted.RIGHT + "b[-1] = 0;",
        MeasureStatus.OUT_OF_BOUNDS,
        "4 bytes before the start of B",
    ),
    "reads past the end": (
        planted.RIGHT + "b[0] += 0 * a[N];",
        MeasureStatus.OUT_OF_BOUNDS,
        "0 bytes past the end of A",
    ),
    "far past the end": (
        planted.RIGHT + "b[N + (1 << 27)] = 0;",
        MeasureStatus.OUT_OF_BOUNDS,
        "past the end of B",
    ),
    "writes its input": (
        planted.RIGHT + "((float *)a)[0] = 7;",
        MeasureStatus.OUT_OF_BOUNDS,
        "write to A, which is an input",
    ),
    "past the workspace": (
        planted.RIGHT + "((char *)ws)[100] = 1;",
        MeasureStatus.OUT_OF_BOUNDS,
        "0 bytes past the end of the workspace",
    ),
    "dropped tail": (
        "for (int i = 0; i < N - 1; i++) b[i] = a[i] + 1;",
        MeasureStatus.WRONG_RESULT,
        "B\\[1000\\] is nan",
    ),
    "wrong value": (
        planted.RIGHT + "b[17] += 1;",
        MeasureStatus.WRONG_RESULT,
        "B\\[17\\]",
    ),
    "hides an unwritten element behind a maximum": (
        planted.RIGHT + "{ float z; memcpy(&z, ws, 4); b[3] = a[3] + 1 + (z > 1 ? 1 : 0); }",
        MeasureStatus.WRONG_RESULT,
        "reads memory it has not written",
    ),
    "error code": (planted.RIGHT + "return 3;", MeasureStatus.WRONG_RESULT, "error code 3"),
    "stack taken for zero": (
        planted.READS_STACK,
        MeasureStatus.WRONG_RESULT,
        r"B\[0\] is nan",
    ),
    "a little stack taken for zero": (
        planted.RIGHT
        + '{ float x[64]; __asm__ volatile("" : : "r"(x) : "memory"); b[5] += x[9] > 1; }',
        MeasureStatus.WRONG_RESULT,
        "reads memory it has not written",
    ),
    "scratch in a global": (
        planted.GLOBAL_SCRATCH,
        MeasureStatus.COMPILE_ERROR,
        "4004 writable bytes in section .bss",
    ),
    "data that can be written": (
        "static volatile float one = 1; for (int i = 0; i < N; i++) b[i] = a[i] + one;",
        MeasureStatus.COMPILE_ERROR,
        "4 writable bytes in section .data",
    ),
    "scratch of each thread": (
        'static __thread float scratch[N]; __asm__ volatile("" : : "r"(scratch));',
        MeasureStatus.COMPILE_ERROR,
        "writable bytes in section .tbss|resolved at run time|__tls_get_addr",
    ),
    "memory of the C library": (
        "extern void *malloc(size_t); float *s = malloc(4 * N); " + planted.RIGHT,
        MeasureStatus.COMPILE_ERROR,
        "needs malloc, which no kernel may call",
    ),
    "unknown function": (
        "extern void no_such_function(void); no_such_function();",
        MeasureStatus.COMPILE_ERROR,
        "needs no_such_function",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failing_kernel_is_a_typed_result(runner: RunnerClient, what: str) -> None:
    body, status, detail = FAILURES[what]
    result = run(runner, body, workspace_bytes=100)
    assert result["status"] == status, result
    assert "run_secs" not in result
    assert re.search(detail, result["detail"])


@pytest.mark.parametrize("handler", ["", "ignore(15); ignore(24);"])
def test_an_endless_kernel_is_ended_at_its_deadline(runner: RunnerClient, handler: str) -> None:
    result = run(runner, handler + "for (;;) wait_for_signals();", deadline_secs=0.4)
    assert result["status"] == MeasureStatus.RUN_TIMEOUT
    assert result["detail"] == "did not end within 0.4 s"


def test_a_kernel_that_eats_memory_is_ended(runner: RunnerClient) -> None:
    body = "for (;;) memset(pages(1 << 20), 1, 1 << 20);"
    assert run(runner, body)["status"] == MeasureStatus.OUT_OF_MEMORY


def test_a_kernel_refused_memory_ran_out_of_it(runner: RunnerClient) -> None:
    body = "for (;;) pages(1 << 30)[0] = 1;"
    assert run(runner, body)["status"] == MeasureStatus.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (planted.RACY_SUM, "threads 0 and 1 both write byte"),
        (planted.RACY_READ, "depends on the order|is nan"),
        (planted.RACY_STACK, "threads 0 and 1 both write byte .* of its caller's stack"),
        (planted.READS_THREAD_STACK, "is nan"),
    ],
)
def test_races_are_found_every_time(runner: RunnerClient, body: str, detail: str) -> None:
    for _ in range(2):
        result = run(runner, body, threads=2, workspace_bytes=4 * planted.N)
        assert result["status"] == MeasureStatus.WRONG_RESULT, result
        assert re.search(detail, result["detail"])


def test_every_number_of_threads_up_to_the_promised_one_is_checked(runner: RunnerClient) -> None:
    wrong = planted.WRONG_FOR_THREE
    before = run(runner, wrong, op="check", threads=4, team_sizes=[1, 2, 4])
    assert before["status"] == MeasureStatus.OK
    now = run(runner, wrong, op="check", threads=4, team_sizes=checked_team_sizes(4))
    assert now["status"] == MeasureStatus.WRONG_RESULT


def test_calls_at_the_same_time_are_checked(runner: RunnerClient) -> None:
    """What the object file does not tell: the runs themselves show that calls share something."""
    assert run(runner, planted.HIDDEN_SCRATCH)["status"] == MeasureStatus.OK
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    # Both callers need a CPU at the same time, which a busy machine may not give them at once.
    end = time.monotonic() + 120
    while run(runner, planted.HIDDEN_SCRATCH, op="check")["status"] != MeasureStatus.WRONG_RESULT:
        assert time.monotonic() < end


@pytest.mark.parametrize(
    ("threads", "teams"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (5, (1, 2, 3, 4, 5)),
        (12, (1, 2, 3, 4, 5, 6, 7, 8, 11, 12)),
        (16, (1, 2, 3, 4, 5, 6, 7, 8, 15, 16)),
        (64, (1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64)),
    ],
)
def test_teams_of_a_check(threads: int, teams: tuple[int, ...]) -> None:
    assert checked_team_sizes(threads) == teams


def test_failures_leave_the_runner_working_and_no_process_behind() -> None:
    with RunnerClient(OPEN) as runner:
        for _ in range(2):
            run(runner, "raise_signal(6);")
            run(runner, "for (;;);", deadline_secs=0.2)
            assert run(runner, planted.RIGHT)["status"] == MeasureStatus.OK
        left = psutil.Process(runner.pid).children(recursive=True)
        assert len(left) <= 2  # the child for the next kernel, and the last one while it ends
    assert psutil.wait_procs(left, timeout=60)[1] == []


def test_a_child_that_was_forked_in_advance_ends_with_its_runner() -> None:
    with RunnerClient(OPEN) as runner:
        assert run(runner, planted.RIGHT)["status"] == MeasureStatus.OK
        children = psutil.Process(runner.pid).children(recursive=True)
        assert children
        os.kill(runner.pid, signal.SIGKILL)
        assert psutil.wait_procs(children, timeout=60)[1] == []


def test_the_runner_maps_neither_openmp_nor_xgboost(runner: RunnerClient) -> None:
    run(runner, planted.PARALLEL, threads=2)
    maps = Path(f"/proc/{runner.pid}/maps").read_text()
    assert "libgomp" not in maps
    assert "xgboost" not in maps
    assert len(os.listdir(f"/proc/{runner.pid}/task")) == 1


def test_a_killed_runner_loses_one_candidate_and_is_started_again() -> None:
    with RunnerClient(OPEN) as runner:
        assert run(runner, planted.RIGHT)["status"] == MeasureStatus.OK
        job = {"symbol": "kernel", "workspace_bytes": 0, "threads": 1}
        runner.submit(job, planted.c_object("for (;;);"), 60.0)
        child = _wait_for_child(runner.pid)
        os.kill(runner.pid, signal.SIGKILL)
        result = runner.result()
        assert result["status"] == MeasureStatus.LOST
        psutil.wait_procs([child], timeout=60)
        assert not child.is_running()
        assert run(runner, planted.RIGHT)["status"] == MeasureStatus.OK


def test_nothing_outlives_a_killed_parent() -> None:
    program = """
        from tests.support.tuner import planted_kernels as planted
        from tilewright.tuner.measure.checking.runner_client import RunnerClient
        from tests.support.tuner.planted_kernels import OPEN
        with RunnerClient(OPEN) as r:
            job = {"symbol": "kernel", "workspace_bytes": 0, "threads": 1}
            r.submit(job, planted.c_object("for (;;);"), 60.0)
            print(r.pid, flush=True)
            r.result()
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        runner = psutil.Process(int(parent.stdout.readline()))
        child = _wait_for_child(runner.pid)
        parent.kill()
    psutil.wait_procs([runner, child], timeout=60)
    assert not child.is_running()
    assert not runner.is_running()


def test_a_bug_of_ours_is_raised_not_recorded() -> None:
    with RunnerClient(
        {**OPEN, "cases": "tests.support.tuner.planted_kernels:no_such_function"}
    ) as runner:
        runner.submit({"symbol": "kernel", "workspace_bytes": 0}, b"", 1.0)
        with pytest.raises(RuntimeError, match="no_such_function"):
            runner.result()


def _wait_for_child(pid: int) -> psutil.Process:
    for _ in range(6000):
        children = psutil.Process(pid).children()
        if children:
            return children[0]
        time.sleep(0.01)
    raise AssertionError("the runner has no child")


def test_the_runtime_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "OPENMP_LIBRARY", "libgomp_is_not_here.so.1")
    with pytest.raises(LoadError, match=r"libgomp_is_not_here.*apt install libgomp1"):
        loader.load_openmp()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a 64-bit ELF object"),
        (b"MZ" + bytes(100), "not a 64-bit ELF object"),
        (b"\x7fELF\x02\x01" + bytes(20), "a broken ELF object"),
        (b"\x7fELF\x02\x01" + b"\xff" * 100, "a broken ELF object"),
    ],
)
def test_what_is_not_an_object_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        elf.undefined_symbols(data)


def test_a_kernel_without_its_symbol_is_refused() -> None:
    with pytest.raises(LoadError, match="no function 'other'"):
        loader.load_object(planted.c_object(planted.RIGHT), "other")


NO_VALUES = notation("Y[i] = log(X[i] - 1000.0)", X="f32[64]")


def test_a_workload_without_values_is_refused_by_its_type() -> None:
    opened = OPEN | {"cases": DEFAULT_CASES, "workload": NO_VALUES.to_json(), "seed": 0}
    with RunnerClient(opened) as runner, pytest.raises(WorkloadError, match="cannot be verif") as e:
        run(runner, planted.RIGHT)
    assert e.value.code == "not_verifiable"


def test_a_rewritten_form_that_cannot_be_held_to_anything_is_no_trace_for_it() -> None:
    opened = OPEN | {"cases": "tests.tuner.test_measure_runner:picky_cases"}
    with RunnerClient(opened) as runner:
        refused = run(runner, planted.RIGHT, rewrites=["any"])
        assert refused["status"] == MeasureStatus.NOT_LEGAL
        assert "rewritten form" in refused["detail"]
        assert run(runner, planted.RIGHT)["status"] == MeasureStatus.OK


def picky_cases(document: dict[str, Any]) -> Any:
    if document.get("rewrites"):
        raise WorkloadError("it overflows", code="not_verifiable")
    return planted.open_cases(document)


def test_every_way_to_measure_tells_what_cannot_be_verified() -> None:
    """Also the processes that time a kernel beside others: `bench`."""
    target = detect()
    with (
        LocalMeasurer(NO_VALUES, target, seed=0) as measurer,
        pytest.raises(WorkloadError, match="cannot be verified"),
    ):
        measurer.measure([MeasureRequest(0, default_trace(NO_VALUES, target))])
    with pytest.raises(WorkloadError, match="cannot be verified"):
        bench(NO_VALUES, default_trace(NO_VALUES, target), target, seconds=0.1)
