"""The simulated machine: same file, same times; it rewards sense; a bad file is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.synthetic_sketch import synthetic_space
from tilewright.schedules.primitives import Parallel, Primitive, Split, Unroll, Vectorize
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.trace import Trace
from tilewright.tuner.measure.measurer_spec import parse_measurer
from tilewright.tuner.measure.mocked.simulated import (
    SimulatedMachine,
    SimulatedMeasurer,
    machine_from_json,
    walked_misses,
)
from tilewright.tuner.measure.protocol import MeasureRequest, MeasurerError
from tilewright.tuner.search.setting_grid import setting_grids

SPACE = synthetic_space(64, 64, 64, small=True)


def requests(count: int) -> list[MeasureRequest]:
    grid = setting_grids(SPACE)[0]
    codes = np.concatenate(list(grid.feasible_codes()))[::7][:count]
    return [MeasureRequest(i + 1, SPACE.trace(grid.candidate(int(c)))) for i, c in enumerate(codes)]


def measurer(threads: int = 1, **settings: Any) -> SimulatedMeasurer:
    return SimulatedMeasurer(SimulatedMachine(**settings), SPACE.workload, threads)


def cost(*steps: Primitive, threads: int = 1, **settings: Any) -> float:
    settings.setdefault("ruggedness", 0.0)
    return measurer(threads, **settings).true_secs(MeasureRequest(1, Trace(steps)))


def test_same_file_gives_the_same_times_in_any_process() -> None:
    code = (
        "from tests.tuner.test_simulated_measurer import *\n"
        "import json; print(json.dumps([r.run_secs for r in measurer().measure(requests(6))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={"PYTHONHASHSEED": "5", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    here = [list(r.run_secs) for r in measurer().measure(requests(6))]
    assert json.loads(done.stdout) == here


def test_the_seed_makes_another_machine() -> None:
    one = [r.run_secs_estimate for r in measurer(seed=1).measure(requests(6))]
    two = [r.run_secs_estimate for r in measurer(seed=2).measure(requests(6))]
    assert all(a != b for a, b in zip(one, two, strict=True))


def test_order_and_company_do_not_matter() -> None:
    batch = requests(6)
    together = measurer().measure(batch)
    assert [measurer().measure([r])[0] for r in reversed(batch)] == together[::-1]


def test_noise_only_adds_and_the_estimate_is_the_least_sample() -> None:
    for request in requests(6):
        (result,) = measurer(noise=0.05).measure([request])
        truth = measurer(noise=0.05).true_secs(request)
        assert all(truth <= s < 1.4 * truth for s in result.run_secs)
        assert result.run_secs_estimate == min(result.run_secs)


def test_confirming_is_another_measurement_of_the_same_thing() -> None:
    (request,) = requests(1)
    one, two = measurer().measure([request])[0], measurer().confirm(request)
    assert one.run_secs != two.run_secs
    assert two.run_secs_estimate == pytest.approx(one.run_secs_estimate, rel=0.1)


def test_sense_is_rewarded() -> None:
    vector = Split("i1", 16), Vectorize("i1i")
    assert cost(*vector) < 0.3 * cost(Split("i1", 16))
    assert cost(*vector) < cost(Split("i1", 15), Vectorize("i1i"))
    assert cost(*vector, Parallel("i0"), threads=4) < 0.5 * cost(*vector)
    tiled = Split("i0", 4), Split("i1", 4)
    assert cost(*tiled) < cost(Split("i0", 24), Split("i1", 1))


def test_machines_differ_in_character() -> None:
    tile = Split("i0", 4), Split("i1", 16), Vectorize("i1i"), Unroll("i0i")
    assert cost(*tile, code_limit=2) == pytest.approx(cost(*tile) * 2**0.8, rel=0.02)
    assert cost(*tile, code_limit=4) == cost(*tile)
    plain = cost(*tile[:2], vector_gain=0.0, lanes=1)
    assert cost(*tile, vector_gain=0.0, lanes=1) == pytest.approx(plain, rel=0.2)
    assert cost(*tile, stride_cost=1.0) == pytest.approx(2 * cost(*tile), rel=0.02)
    spread = *tile, Parallel("i0o")
    assert cost(*spread, threads=4, thread_gain=0.0) > 2 * cost(*spread, threads=4)


def test_interactions_are_of_pairs_alone() -> None:
    alone = [Split(f"i{n}", 8) for n in range(8)]
    assert cost(alone[0], interaction=1.0) == cost(alone[0])
    assert cost(*alone, interaction=1.0) != cost(*alone)


def test_tiles_near_the_size_of_the_cache_miss_least() -> None:
    misses = {t: walked_misses((t, t), 24) for t in (1, 2, 4, 8, 24)}
    assert min(misses, key=misses.__getitem__) in (4, 8)


def test_the_landscape_is_rugged_but_neighbours_are_alike() -> None:
    at = [cost(Split("i0", f), ruggedness=0.5, ops_per_sec=1e6) for f in range(8, 64)]
    steps = np.abs(np.diff(np.log2(at)))
    assert np.ptp(np.log2(at)) > 0.2
    assert np.median(steps) < 0.1


def test_failures_come_at_their_rates_and_are_typed() -> None:
    many = measurer(failure_rates={"run_timeout": 0.2, "wrong_result": 0.1}).measure(requests(400))
    share = {s: sum(r.status is s for r in many) / len(many) for s in MeasureStatus}
    assert len(many) > 100
    assert share[MeasureStatus.RUN_TIMEOUT] == pytest.approx(0.2, abs=0.08)
    assert share[MeasureStatus.WRONG_RESULT] == pytest.approx(0.1, abs=0.06)
    assert all(not r.run_secs and r.run_secs_estimate is None for r in many if not r.ok)


def test_the_full_check_can_fail_too() -> None:
    result = measurer(confirm_failure_rate=1.0).confirm(requests(1)[0])
    assert result.status is MeasureStatus.WRONG_RESULT


def test_latency_is_waited_for_once_a_candidate() -> None:
    waited: list[float] = []
    slow = SimulatedMeasurer(
        SimulatedMachine(latency_secs=0.25), SPACE.workload, sleep=waited.append
    )
    results = slow.measure(requests(3))
    assert waited == [0.25] * 3
    assert {r.measure_secs for r in results} == {0.25}


def test_a_file_opens_a_measurer(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text('{"simulated": 1, "seed": 3, "noise": 0}')
    opened = parse_measurer(f"simulated:{file}")(SPACE.workload, SPACE.target, 0)
    with opened as entered:
        (result,) = entered.measure(requests(1))
    assert len(set(result.run_secs)) == 1
    assert opened.toolchain.codegen_version == 0
    assert opened.toolchain != measurer().toolchain


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"simulated": 2}, "version must be 1, got 2"),
        ({"speed": 1}, "unknown field 'speed'; there are seed, ops_per_sec"),
        ({"seed": 1.5}, "seed must be a whole number, at least 0; got 1.5"),
        ({"noise": -1}, "noise must be a number, at least 0; got -1"),
        ({"noise": True}, "noise must be a number, at least 0; got True"),
        ({"lanes": 0}, "lanes must be above 0"),
        ({"failure_rates": []}, "must be an object of status and share"),
        ({"failure_rates": {"ok": 0.1}}, "'ok' is none of not_legal"),
        ({"failure_rates": {"lost": 2}}, "the share of lost must be 0..1; got 2"),
        ({"failure_rates": {"lost": 0.6, "run_crash": 0.6}}, "add up to 1.2, above 1"),
    ],
)
def test_a_bad_machine_is_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(MeasurerError, match=message):
        machine_from_json(document, "machine.json")
