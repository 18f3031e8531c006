"""What the project does when tuning goes well, badly, and as it went before.

`tilewright_simulated` and `tilewright_replay` come with the package: nothing is configured.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fused_ops import LAYERS, NoScheduleError, choose_schedules

from tilewright.schedules import parse_workload
from tilewright.tuner.testing import MockedTuner

RECORDED = Path(__file__).parent / "timings.jsonl"


def test_every_layer_gets_a_schedule(tilewright_simulated: MockedTuner) -> None:
    assert set(choose_schedules(tilewright_simulated.tune)) == set(LAYERS)


def test_the_choice_is_the_same_every_time(tilewright_simulated: MockedTuner) -> None:
    first = tilewright_simulated.tune(parse_workload(LAYERS[1]), seed=3).best
    again = tilewright_simulated.tune(parse_workload(LAYERS[1]), seed=3).best
    assert first is not None
    assert again is not None
    assert first.trace == again.trace


def test_some_candidates_may_fail(tilewright_simulated: MockedTuner) -> None:
    tilewright_simulated.use({"failure_rates": {"run_crash": 0.3}, "seed": 4})
    report = tilewright_simulated.tune(parse_workload(LAYERS[0]))
    assert report.trials["by_status"]["run_crash"] > 0
    assert report.best is not None


def test_a_machine_on_which_nothing_runs_is_reported(tilewright_simulated: MockedTuner) -> None:
    tilewright_simulated.use({"failure_rates": {"run_timeout": 1.0}})
    with pytest.raises(NoScheduleError, match="no candidate passed"):
        choose_schedules(tilewright_simulated.tune)


def test_recorded_timings_decide(tilewright_replay: MockedTuner) -> None:
    report = tilewright_replay.use(RECORDED).tune(parse_workload(LAYERS[1]), trials=16)
    assert report.best is not None
    assert report.best.run_secs == pytest.approx(3.0e-6)
