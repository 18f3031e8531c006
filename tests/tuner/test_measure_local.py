"""The local measurer on real kernels: the whole way from a trace to a verified time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.contracts.measurer_contract import MeasurerContract
from tilewright.schedules import operators
from tilewright.schedules.errors import TargetError, WorkloadError
from tilewright.schedules.primitives import Split
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.local import LocalMeasurer, MeasureSettings, verify_full
from tilewright.tuner.measure.measurer_spec import parse_measurer
from tilewright.tuner.measure.protocol import MeasureRequest, MeasurerFactory
from tilewright.tuner.search.prior_ranking import rank_for_default

ILLEGAL = Trace((Split("no_such_axis", 4),))


def default_trace(workload: Workload, target: Target) -> Trace:
    space = space_for(workload, target)
    return space.trace(rank_for_default(space).default)


class _OnThisMachine(MeasurerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def factory(cls) -> MeasurerFactory:
        return parse_measurer("local")

    @pytest.fixture(scope="class")
    @classmethod
    def workload(cls) -> Workload:
        return operators.build("matmul", M=33, N=47, K=29).normalised()

    @pytest.fixture(scope="class")
    @classmethod
    def requests(cls, workload: Workload, target: Target) -> Sequence[MeasureRequest]:
        traces = (default_trace(workload, target), Trace(), ILLEGAL)
        return [MeasureRequest(i, trace) for i, trace in enumerate(traces, start=1)]

    def test_an_illegal_trace_is_not_compiled(
        self, measurer: LocalMeasurer, requests: Sequence[MeasureRequest]
    ) -> None:
        (result,) = measurer.measure([requests[2]])
        assert result.status == MeasureStatus.NOT_LEGAL
        assert "no_such_axis" in result.detail
        assert measurer.confirm(requests[2]).status == MeasureStatus.NOT_LEGAL


class TestOneThread(_OnThisMachine):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return detect()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
class TestTwoThreads(_OnThisMachine):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return detect().with_threads(2)


@pytest.fixture(scope="module")
def matmul() -> Workload:
    return operators.build("matmul", M=16, N=16, K=16).normalised()


@pytest.fixture
def opened(matmul: Workload) -> Iterator[Callable[..., LocalMeasurer]]:
    entered: list[LocalMeasurer] = []

    def open_measurer(**settings: object) -> LocalMeasurer:
        made = LocalMeasurer(matmul, detect(), 0, settings=MeasureSettings(**settings))  # type: ignore[arg-type]
        entered.append(made.__enter__())
        return made

    yield open_measurer
    for measurer in entered:
        measurer.__exit__(None, None, None)


def test_what_a_candidate_cost_is_kept(opened: Callable[..., LocalMeasurer]) -> None:
    measurer = opened()
    measurer.measure([MeasureRequest(1, Trace())])
    (cost,) = measurer.costs
    parts = cost["fork_secs"] + cost["load_secs"] + cost["verify_secs"] + cost["measure_secs"]
    assert 0 < parts <= cost["child_secs"]


def test_a_killed_runner_costs_one_candidate(opened: Callable[..., LocalMeasurer]) -> None:
    measurer = opened()
    request = MeasureRequest(1, Trace())
    assert measurer.measure([request])[0].ok
    psutil.Process(measurer.process_ids[-1]).kill()
    assert measurer.measure([request])[0].status == MeasureStatus.LOST
    assert measurer.measure([request])[0].ok


def test_killed_compile_workers_cost_their_candidates(
    opened: Callable[..., LocalMeasurer],
) -> None:
    measurer = opened(compile_workers=1)
    request = MeasureRequest(1, Trace())
    assert measurer.measure([request])[0].ok
    psutil.Process(measurer.process_ids[0]).kill()
    assert measurer.measure([request])[0].status == MeasureStatus.COMPILE_CRASH
    assert measurer.measure([request])[0].ok


def test_too_slow_for_the_deadline_is_a_timeout(opened: Callable[..., LocalMeasurer]) -> None:
    result = opened(run_deadline_secs=1e-4).measure([MeasureRequest(1, Trace())])[0]
    assert result.status == MeasureStatus.RUN_TIMEOUT


def test_faster_than_possible_is_implausible(matmul: Workload) -> None:
    with LocalMeasurer(matmul, detect(), 0, bound_secs=1.0) as measurer:
        (result,) = measurer.measure([MeasureRequest(1, Trace())])
    assert result.status == MeasureStatus.IMPLAUSIBLE
    assert "less than an eighth of the bound, 1 s" in result.detail
    assert result.run_secs == ()


def test_a_right_kernel_that_beats_the_bound_is_not_refused(matmul: Workload) -> None:
    """The bound is wrong then, and a session says so: `tuner/session/roofline_bound.py`."""
    request = MeasureRequest(1, Trace())
    with LocalMeasurer(matmul, detect(), 0) as measurer:
        (first,) = measurer.measure([request])
    assert first.run_secs_estimate is not None
    with LocalMeasurer(matmul, detect(), 0, bound_secs=1.5 * first.run_secs_estimate) as measurer:
        (result,) = measurer.measure([request])
    assert result.ok


def test_measuring_waits_for_the_machine_lock(
    opened: Callable[..., LocalMeasurer], tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    assert opened(lock_path=path).measure([MeasureRequest(1, Trace())])[0].ok
    assert path.exists()


def test_a_stored_schedule_is_verified_by_itself(matmul: Workload) -> None:
    assert verify_full(matmul, default_trace(matmul, detect()), detect()).ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"triple": "aarch64-unknown-linux-gnu"}, "cannot run code for aarch64"),
        ({"cpu": "future", "features": ("avx9999",)}, "future: it lacks avx9999"),
    ],
)
def test_a_target_this_machine_is_not_is_refused(
    matmul: Workload, change: dict[str, object], message: str
) -> None:
    with pytest.raises(TargetError, match=message):
        LocalMeasurer(matmul, replace(detect(), **change), 0)  # type: ignore[arg-type]


def test_what_does_not_fit_in_memory_is_refused_before_anything_is_allocated() -> None:
    huge = operators.build("matmul", M=1 << 20, N=1 << 20, K=1 << 20)
    with pytest.raises(WorkloadError, match=r"needs about \d+\.\d GiB of memory, of which"):
        LocalMeasurer(huge, detect(), 0)
