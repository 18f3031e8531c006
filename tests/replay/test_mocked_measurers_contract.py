"""Recorded and simulated measurers keep the contract of every measurer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contracts.measurer_contract import MeasurerContract
from tests.support.synthetic_sketch import synthetic_space
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.measure.mocked.replay import Recorded, ReplayFile
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.measure.protocol import MeasureRequest, MeasurerFactory
from tilewright.tuner.search.setting_grid import setting_grids

SPACE = synthetic_space(64, 64, 64, small=True)


def candidates() -> list[MeasureRequest]:
    grid = setting_grids(SPACE)[0]
    codes = next(grid.feasible_codes())[:3].tolist()
    return [MeasureRequest(i + 1, SPACE.trace(grid.candidate(c))) for i, c in enumerate(codes)]


class Mocked(MeasurerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def workload(cls) -> Workload:
        return SPACE.workload

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return SPACE.target

    @pytest.fixture(scope="class")
    @classmethod
    def requests(cls) -> Sequence[MeasureRequest]:
        return candidates()


class TestSimulated(Mocked):
    @pytest.fixture(scope="class")
    @classmethod
    def factory(cls) -> MeasurerFactory:
        return SimulatedMachine()


class TestReplay(Mocked):
    """The first candidate was recorded, the second failed, the third is missing."""

    @pytest.fixture(scope="class")
    @classmethod
    def factory(cls) -> MeasurerFactory:
        ran = MeasureResult(MeasureStatus.OK, (2e-3, 1e-3), 1.5e-3)
        crashed = MeasureResult(MeasureStatus.RUN_CRASH, detail="signal 11")
        first, second, _ = candidates()
        return ReplayFile(
            (
                Recorded(SPACE.workload.key, None, first.trace.to_json(), ran),
                Recorded(SPACE.workload.key, SPACE.target.key, second.trace.to_json(), crashed),
            )
        )


def test_mocked_results_can_be_told_from_real_ones() -> None:
    """Code generator 0 is older than any real one, so a real record always replaces these."""
    for factory in (SimulatedMachine(), ReplayFile(())):
        toolchain: Toolchain = factory(SPACE.workload, SPACE.target, 0).toolchain
        assert toolchain.codegen_version == 0
