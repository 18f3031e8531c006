"""One fleet of simulated machines for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.support.fleet.local_fleet import LocalFleet, local_fleet


@pytest.fixture(scope="module")
def needs_dask() -> None:
    if find_spec("distributed") is None:
        pytest.skip("needs Dask distributed: pip install 'tilewright[fleet]'")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, needs_dask: None) -> Iterator[LocalFleet]:
    """Two machines, `one` and `two`, that take 20 ms a candidate."""
    with local_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        for name in ("one", "two"):
            fleet.join(name, latency_secs=0.02)
        fleet.wait_for(2)
        yield fleet
