"""What every `Measurer` promises; subclass it and give the fixtures `factory` and `requests`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

import psutil
import pytest

from tilewright.schedules.record import MeasureResult
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.measure.protocol import Measurer, MeasureRequest, MeasurerFactory


def assert_keeps_its_word(result: MeasureResult) -> None:
    """A time if and only if the candidate is OK, and a reason if it is not."""
    assert result.compile_secs >= 0
    assert result.verify_secs >= 0
    assert result.measure_secs >= 0
    if not result.ok:
        assert result.run_secs == ()
        assert result.run_secs_estimate is None
        assert result.detail
        return
    assert result.run_secs
    assert all(isfinite(secs) and secs > 0 for secs in result.run_secs)
    assert result.run_secs_estimate is not None
    assert isfinite(result.run_secs_estimate)
    # Normalising by the clock moves an estimate, but not out of sight of its samples.
    assert 0.5 * min(result.run_secs) <= result.run_secs_estimate <= 2 * max(result.run_secs)


class MeasurerContract:
    """`factory` opens the measurer under test; `requests` are at least two legal candidates of
    `workload`, the first of which is known to run."""

    @pytest.fixture(scope="class")
    @classmethod
    def factory(cls) -> MeasurerFactory:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def workload(cls) -> Workload:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def requests(cls) -> Sequence[MeasureRequest]:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def measurer(
        cls, factory: MeasurerFactory, workload: Workload, target: Target
    ) -> Iterator[Measurer]:
        with factory(workload, target, 0) as measurer:
            yield measurer

    def test_a_batch_gives_one_result_a_request_in_order(
        self, measurer: Measurer, requests: Sequence[MeasureRequest]
    ) -> None:
        results = measurer.measure(requests)
        assert len(results) == len(requests)
        assert results[0].ok, results[0]
        for result in results:
            assert_keeps_its_word(result)

    def test_each_result_is_told_once_as_it_comes(
        self, measurer: Measurer, requests: Sequence[MeasureRequest]
    ) -> None:
        told: dict[int, MeasureResult] = {}

        def on_result(position: int, result: MeasureResult) -> None:
            assert position not in told
            told[position] = result

        results = measurer.measure(requests, on_result)
        assert [told[i] for i in range(len(requests))] == results

    def test_a_listener_ends_a_batch_and_the_measurer_goes_on(
        self, measurer: Measurer, requests: Sequence[MeasureRequest]
    ) -> None:
        told: list[int] = []

        def on_result(position: int, result: MeasureResult) -> None:
            told.append(position)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            measurer.measure(requests, on_result)
        assert len(told) == 1
        assert measurer.confirm(requests[0]).ok
        assert measurer.measure(requests[:1])[0].ok

    def test_an_empty_batch_gives_nothing(self, measurer: Measurer) -> None:
        assert measurer.measure([]) == []

    def test_a_candidate_may_be_measured_again(
        self, measurer: Measurer, requests: Sequence[MeasureRequest]
    ) -> None:
        first, second = measurer.measure([requests[0], requests[0]])
        assert first.status == second.status

    def test_confirming_gives_the_same_kind_of_result(
        self, measurer: Measurer, requests: Sequence[MeasureRequest]
    ) -> None:
        result = measurer.confirm(requests[0])
        assert result.ok, result
        if result.run_secs_estimate is not None:
            assert_keeps_its_word(result)

    def test_the_toolchain_is_named_and_does_not_change(self, measurer: Measurer) -> None:
        assert measurer.toolchain == measurer.toolchain
        assert measurer.toolchain.llvmlite

    def test_leaving_ends_every_process(
        self,
        factory: MeasurerFactory,
        workload: Workload,
        target: Target,
        requests: Sequence[MeasureRequest],
    ) -> None:
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        with factory(workload, target, 0) as measurer:
            measurer.measure(requests[:1])
        after = {p.pid for p in psutil.Process().children(recursive=True)}
        assert after <= before
