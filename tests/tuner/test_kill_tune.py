"""`tune` killed with SIGKILL: what was reported is stored, nothing is left, and it goes on.

`benchmarks/kill_tune.py` does it at ten random moments.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill_tune import Plan, kill_once, plans

TRIALS = 20
SIMULATED_TRIALS = 60
"""Three seconds: a busy machine kills the run in the midst of them as well."""


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The machine is described once, in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def words(measurer: str, trials: int) -> list[str]:
    command = ["tune", "matmul:M=24,N=16,K=20", "--trials", str(trials), "--strategy", "random"]
    return [*command, "--measurer", measurer]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("machine") / "slow.json"
    path.write_text('{"seed": 5, "latency_secs": 0.05}')
    return f"simulated:{path}"


@pytest.mark.parametrize("family", [False, True])
def test_a_killed_run_loses_nothing_and_goes_on(
    family: bool, simulated: str, tmp_path: Path
) -> None:
    plan = Plan(60.0, family, reported=5)
    command = words(simulated, SIMULATED_TRIALS)
    outcome = kill_once(command, plan, tmp_path / "killed.sqlite", SIMULATED_TRIALS)
    assert outcome.problems == []
    assert outcome.was_running
    assert 5 <= outcome.reported <= outcome.stored


def test_helpers_of_a_killed_run_on_this_machine_end_by_themselves(tmp_path: Path) -> None:
    plan = Plan(60.0, family=False, reported=1)
    outcome = kill_once(words("local", TRIALS), plan, tmp_path / "killed.sqlite", TRIALS)
    assert outcome.problems == []
    assert outcome.was_running


def test_moments_are_drawn_from_the_whole_run_and_fixed_by_the_seed() -> None:
    drawn = [plan for plan, _ in zip(plans(10.0, 3), range(100), strict=False)]
    assert drawn == [plan for plan, _ in zip(plans(10.0, 3), range(100), strict=False)]
    assert min(p.secs for p in drawn) < 2.5
    assert max(p.secs for p in drawn) > 9.0
