"""Cases that a process of their own builds, and full checks that use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.tuner import planted_kernels as planted
from tests.support.tuner.planted_kernels import SomeCase
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureStatus
from tilewright.tuner.backend.cpu.checker import parallel_checks, runner
from tilewright.tuner.backend.cpu.checker.case_builder import CaseBuilder
from tilewright.tuner.measure.checking.runner_client import RunnerClient

OPEN: dict[str, Any] = {
    "cases": "tests.support.tuner.planted_kernels:open_cases",
    "lanes": 8,
    "cpus": [],
    "spare_bytes": 256 << 20,
    "kept_bytes": 0,  # as if the cases were too large to be kept
}
# The second share writes the greater of the first byte's number and less than it can be, which is
# what was there in both orders: only noise shows it.
HIDDEN_RACE = (
    planted.PARALLEL
    + """
#pragma omp parallel num_threads(2)
if (omp_get_thread_num() == 1) { volatile float *x = b; float v = *x; *x = v < -100 ? -100 : v; }
else b[0] = a[0] + 1;
"""
)


def some_cases(count: int) -> list[SomeCase]:
    return [SomeCase((np.full((n + 1) * 1000, n, np.float32), np.arange(3))) for n in range(count)]


def test_cases_come_in_order_as_they_were_built() -> None:
    cases = some_cases(5)
    with CaseBuilder(lambda: iter(cases)) as builder:
        for case in cases:
            taken = builder.take()
            assert isinstance(taken, SomeCase)
            for a, b in zip(taken.inputs, case.inputs, strict=True):
                np.testing.assert_array_equal(a, b)
                assert not a.flags.writeable  # whatever a kernel does, it does not write there
        assert builder.take() is None


def test_a_case_stays_as_it_is_while_the_next_is_built() -> None:
    with CaseBuilder(lambda: iter(some_cases(3))) as builder:
        first = builder.take()
        assert first is not None
        while not builder.idle():
            os.sched_yield()
        np.testing.assert_array_equal(first.inputs[0], 0)


def test_one_case_at_a_time_is_built_ahead() -> None:
    """Who waits for `idle` and times something then is alone."""
    asked, built = os.pipe()

    def cases() -> Iterator[SomeCase]:
        for case in some_cases(3):
            os.write(built, b".")
            yield case

    with CaseBuilder(cases) as builder:
        while not builder.idle():
            os.sched_yield()
        assert os.read(asked, 8) == b"."
        builder.take()
        while not builder.idle():
            os.sched_yield()
        assert os.read(asked, 8) == b"."
    os.close(asked)
    os.close(built)


def test_what_goes_wrong_while_building_is_told() -> None:
    def cases() -> Iterator[SomeCase]:
        raise ZeroDivisionError("no case")
        yield

    with CaseBuilder(cases) as builder, pytest.raises(RuntimeError, match="no case"):
        builder.take()

    def ended() -> Iterator[SomeCase]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield some_cases(1)[0]

    with CaseBuilder(ended) as builder, pytest.raises(MemoryError):
        builder.take()


def test_a_full_check_with_cases_built_ahead_meets_what_small_integers_hide() -> None:
    rounds = "for (int i = 0; i < N; i++) b[i] = (float)(int)a[i] + 1;"
    with RunnerClient(OPEN) as client:

        def check(body: str, **fields: Any) -> dict[str, Any]:
            job = {"symbol": "kernel", "workspace_bytes": 64, "threads": 1, **fields}
            client.submit(job, planted.c_object(body), 20.0, "check")
            return client.result()

        assert check(rounds)["status"] == MeasureStatus.WRONG_RESULT
        right = check(planted.RIGHT)
        assert right["status"] == MeasureStatus.OK, right
        assert right["run_secs_estimate"] > 0
        parallel = check(planted.PARALLEL, threads=2, team_sizes=[1, 2], repeats=3)
        assert parallel["status"] == MeasureStatus.OK, parallel


def print_result(slow: bool, op: str) -> None:
    """What becomes of a kernel whose race only noise shows, as JSON on stdout."""
    # Processor time moves in steps.
    parallel_checks._SLOW_WATCH_SECS = -1.0 if slow else float("inf")
    session = runner._open(OPEN, -1)
    fields = {"symbol": "kernel", "workspace_bytes": 64, "threads": 2, "timed": False}
    job = runner._job({"job": fields}, planted.c_object(HIDDEN_RACE))
    judge = session.judge([])
    if op == "check":
        result = runner._check(session, judge, job, 20.0, lambda number: None)
    else:
        result = runner._run(session, job, [judge.quick], 20.0)
    print(json.dumps(result))


@pytest.mark.parametrize("op", ["measure", "check"])
@pytest.mark.parametrize("slow", [False, True])
def test_shares_of_slow_kernels_run_on_noise_in_full_checks_only(slow: bool, op: str) -> None:
    """In a process of its own: children of one that has started threads of OpenMP, as other tests
    do, wait for threads they do not have."""
    module = "tests.tuner.test_measure_case_builder"
    code = f"from {module} import print_result; print_result({slow}, {op!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120, check=True, cwd=ROOT,
    )  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    if slow and op == "measure":
        assert result["status"] == MeasureStatus.OK, result
    else:
        assert result["status"] == MeasureStatus.WRONG_RESULT
        assert "threads 0 and 1 both write byte" in result["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("for (;;);", MeasureStatus.RUN_TIMEOUT),
        ("*(volatile int *)0 = 1;", MeasureStatus.RUN_CRASH),
        ("b[N + 1] = 0;", MeasureStatus.OUT_OF_BOUNDS),
        ("b[3] = 7;", MeasureStatus.WRONG_RESULT),
    ],
)
@pytest.mark.parametrize("check", ["first", "second"])
def test_what_goes_wrong_on_a_later_case_of_one_child_is_told(
    body: str, status: MeasureStatus, check: str
) -> None:
    """Cases after the first share a child; from the second check on they are kept."""
    mistake = f"{planted.RIGHT} if (a[0] != (float)(int)a[0]) {{ {body} }}"
    job = {"symbol": "kernel", "workspace_bytes": 4 * planted.N, "threads": 1}
    document = {name: value for name, value in OPEN.items() if name != "kept_bytes"}
    with RunnerClient(document) as client:
        if check == "second":
            client.submit(job, planted.c_object(planted.RIGHT), 20.0, "check")
            right = client.result()
            assert right["status"] == MeasureStatus.OK, right
            assert right["evidence"] == {"cases": 2, "sampled_fraction": 1.0}
        client.submit(job, planted.c_object(mistake), 2.0, "check")
        assert client.result()["status"] == status


def test_cases_that_there_are_none_of_are_refused_by_their_type() -> None:
    def cases() -> Iterator[SomeCase]:
        yield from some_cases(1)
        raise WorkloadError("it overflows", code="not_verifiable")

    with CaseBuilder(cases) as builder:
        assert builder.take() is not None
        with pytest.raises(WorkloadError, match="it overflows") as found:
            builder.take()
    assert found.value.code == "not_verifiable"
