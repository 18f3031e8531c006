"""Pytest fixtures for projects that use Tilewright: a mocked tuner, and a whole service.

Pytest loads this module in every run of every project that has Tilewright installed, so it imports
only pytest: each fixture imports what it needs when a test requests it. See
`docs/mocked_timings.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tilewright.service.testing import ServiceUnderTest
    from tilewright.tuner.testing import MockedTuner

# Start-up: every pytest run loads this module, whatever is tested.


@pytest.fixture
def tilewright_simulated() -> MockedTuner:
    """A tuner on a simulated machine with default settings; `.use({...})` changes them."""
    from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
    from tilewright.tuner.testing import MockedTuner

    return MockedTuner(SimulatedMachine())


@pytest.fixture
def tilewright_replay() -> MockedTuner:
    """A tuner that replays recorded timings: call `.use("timings.jsonl")` first."""
    from tilewright.tuner.testing import MockedTuner

    return MockedTuner(None)


@pytest.fixture
def tilewright_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceUnderTest]:
    """A complete service with its own database and a simulated machine, at `TILEWRIGHT_URL`."""
    from tilewright.service.testing import running_service

    folder = tmp_path / "tilewright"
    folder.mkdir()
    with running_service(folder) as service:
        monkeypatch.setenv("TILEWRIGHT_URL", service.url)
        yield service
