"""A fleet keeps the contract of every measurer: the search cannot tell it from one machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contracts.measurer_contract import MeasurerContract
from tests.support.fleet.local_fleet import LocalFleet
from tests.support.fleet.simulated import SPACE, TARGET, candidates
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.measure.measurer_spec import parse_measurer
from tilewright.tuner.measure.protocol import MeasureRequest, MeasurerFactory


class TestFleet(MeasurerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def factory(cls, fleet: LocalFleet) -> MeasurerFactory:
        return parse_measurer(f"dask:{fleet.address}")

    @pytest.fixture(scope="class")
    @classmethod
    def workload(cls) -> Workload:
        return SPACE.workload

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return TARGET

    @pytest.fixture(scope="class")
    @classmethod
    def requests(cls) -> Sequence[MeasureRequest]:
        return candidates(5)
