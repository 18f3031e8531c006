"""The whole search on simulated machines and recorded timings, against the committed figures.

`python -m benchmarks.search_figures --write` writes the figures again after an intended change.
"""

from __future__ import annotations

import pytest

from benchmarks.search_figures.figures import GAIN, Committed, measure, tolerances
from benchmarks.search_figures.recorded import CORRELATION
from benchmarks.search_figures.simulated import (
    MACHINE_NAMES,
    WORKLOADS,
    StaleSettingError,
    tasks_of,
)

MOST_OF_SHUFFLED = 0.97
"""The figures of a filled database over those of one whose labels were shuffled, at most."""

WRITE = "after an intended change: python -m benchmarks.search_figures --write"


@pytest.fixture(scope="module")
def committed() -> Committed:
    return Committed.read()


@pytest.mark.timeout(3600)
def test_the_search_is_not_worse_and_shuffled_labels_are_found_out(committed: Committed) -> None:
    """One test, because measuring takes most of a minute of processor time, and many minutes where
    other processes have the processors."""
    measured = measure(committed.best)
    worse = committed.worse(measured.figures)
    assert not worse, "\n".join([*worse, WRITE])
    assert measured.figures[GAIN] <= MOST_OF_SHUFFLED
    worse = committed.worse(measured.figures | measured.shuffled)
    assert CORRELATION in " ".join(worse)


def test_the_committed_figures_show_that_the_model_is_no_ornament(committed: Committed) -> None:
    assert committed.values[GAIN] <= MOST_OF_SHUFFLED
    assert committed.values[CORRELATION] < 0.7


def test_a_figure_is_worse_only_beyond_its_tolerance() -> None:
    committed = Committed({"a": 1.0, "b": 2.0}, {"a": 0.1, "b": 0.01}, {})
    assert committed.worse({"a": 1.09, "b": 1.0}) == []
    assert committed.worse({"a": 1.11, "b": 2.1}) == [
        "a: 1.110, was 1.000, allowed up to 1.100",
        "b: 2.100, was 2.000, allowed up to 2.020",
    ]


def test_the_tolerance_follows_from_the_spread_over_seeds() -> None:
    found = tolerances([{"fixed": 1.5, "varied": 1.0}, {"fixed": 1.5, "varied": 1.2}])
    assert found["fixed"] == 0.03
    assert found["varied"] == pytest.approx(2.5 * 0.1289, rel=0.01)


def test_a_best_setting_that_the_space_lacks_is_named(committed: Committed) -> None:
    name, text = MACHINE_NAMES[0], WORKLOADS[0]
    best = {**committed.best, name: {**committed.best[name], text: {"sketch": "gone", "knobs": {}}}}
    with pytest.raises(StaleSettingError, match=r"matmul.*no such setting any more"):
        tasks_of(name, best)
