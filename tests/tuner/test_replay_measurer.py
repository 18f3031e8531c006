"""Recorded timings: answered by exact trace, and a bad file is refused by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.synthetic_sketch import synthetic_space
from tilewright.schedules.record import MeasureStatus
from tilewright.tuner.measure.measurer_spec import parse_measurer
from tilewright.tuner.measure.mocked.replay import read_replay
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.measure.protocol import MeasureRequest, MeasurerError
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.session.run import run_session

SPACE = synthetic_space(64, 64, 64, small=True)
KEY = SPACE.workload.key


def request(place: int) -> MeasureRequest:
    """The request for the feasible candidate number `place` of the first sketch."""
    grid = setting_grids(SPACE)[0]
    code = next(grid.feasible_codes())[place]
    return MeasureRequest(place + 1, SPACE.trace(grid.candidate(int(code))))


def line(place: int, **more: Any) -> dict[str, Any]:
    trace = request(place).trace.to_json()
    return {
        "workload_key": KEY,
        "trace": trace,
        "status": "ok",
        "run_secs": [2e-3, 1e-3, 3e-3],
    } | more


def write(path: Path, *documents: Any) -> str:
    file = path / "timings.jsonl"
    file.write_text("".join(json.dumps(d) + "\n" for d in documents))
    return str(file)


def open_replay(path: str) -> Any:
    return parse_measurer(f"replay:{path}")(SPACE.workload, SPACE.target, 0)


def test_answers_by_exact_trace_in_the_order_asked(tmp_path: Path) -> None:
    crash = line(1, status="run_crash", run_secs=[], detail="signal 11")
    with open_replay(write(tmp_path, line(0), crash, line(2, run_secs=[5e-3]))) as measurer:
        last, first, crashed = measurer.measure([request(2), request(0), request(1)])
    assert first.run_secs == (2e-3, 1e-3, 3e-3)
    assert first.run_secs_estimate == 2e-3  # the median where no estimate was recorded
    assert last.run_secs_estimate == 5e-3
    assert (crashed.status, crashed.detail) == (MeasureStatus.RUN_CRASH, "signal 11")


def test_what_was_not_recorded_is_lost_and_says_so(tmp_path: Path) -> None:
    with open_replay(write(tmp_path, line(0))) as measurer:
        (result,) = measurer.measure([request(1)])
    assert result.status is MeasureStatus.LOST
    assert result.detail == "not among the 1 recorded traces of this workload and target"


def test_what_was_not_recorded_may_fail_or_be_the_nearest(tmp_path: Path) -> None:
    def answer(missing: str) -> Any:
        path = write(tmp_path, {"replay": 1, "missing": missing}, line(0), line(7, run_secs=[9.0]))
        return open_replay(path).measure([request(1)])[0]

    assert answer("fail").status is MeasureStatus.RUN_CRASH
    assert answer("nearest").run_secs_estimate in (2e-3, 9.0)


def test_other_workloads_and_targets_do_not_answer(tmp_path: Path) -> None:
    path = write(tmp_path, line(0, workload_key="else"), line(0, target_key="else"), line(1))
    assert open_replay(path).measure([request(0)])[0].status is MeasureStatus.LOST


def test_confirms_what_was_recorded(tmp_path: Path) -> None:
    measurer = open_replay(write(tmp_path, line(0)))
    assert measurer.confirm(request(0)) == measurer.measure([request(0)])[0]


def test_a_run_replays_from_its_own_records(tmp_path: Path) -> None:
    """Records out of one run, bare or as an export wraps them, give the same run again."""
    sink = MemorySink()
    simulated = SimulatedMachine()(SPACE.workload, SPACE.target, 0)
    first = run_session(SPACE.workload, SPACE, measurer=simulated, sink=sink, budget=Budget(24))
    records = sink.records(KEY, SPACE.target.key)
    lines: list[Any] = [{"format": "tilewright-records", "version": 1}]
    lines += [{"kind": "record", "key": r.key, "record": r.to_json()} for r in records[::2]]
    lines += [r.to_json() for r in records[1::2]]
    again = run_session(
        SPACE.workload, SPACE,
        measurer=open_replay(write(tmp_path, *lines)), sink=MemorySink(), budget=Budget(24),
    )  # fmt: skip
    assert again.best is not None
    assert first.best is not None
    assert again.best.trace == first.best.trace
    assert again.trials["by_status"] == first.trials["by_status"]
    assert [c["best_run_secs"] for c in again.curve] == [c["best_run_secs"] for c in first.curve]


def test_files_have_toolchains_of_their_own(tmp_path: Path) -> None:
    one = open_replay(write(tmp_path, line(0))).toolchain
    two = open_replay(write(tmp_path, line(1))).toolchain
    assert one != two
    assert one.codegen_version == two.codegen_version == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no recorded candidate"),
        ("[1]", ":1: expected a JSON object, got list"),
        ("{", ":1: not JSON"),
        ('{"trace": [], "workload_key": "k", "run_secs": [NaN]}', ":1: not JSON: NaN"),
        ('\n{"trace": []}', ":2: not a recorded candidate: KeyError 'workload_key'"),
        ('{"trace": 3, "workload_key": "k"}', "trace must be a list of steps, got int"),
        ('{"trace": [], "workload_key": "k", "status": "odd"}', "'odd' is not a valid"),
        ('{"trace": [], "workload_key": "k"}', "needs run_secs, each above 0"),
        ('{"trace": [], "workload_key": "k", "run_secs": [0]}', "needs run_secs, each above 0"),
        ('{"replay": 9}', "version must be 1, got 9"),
        ('{"replay": 1, "missing": "guess"}', "missing must be one of lost, fail, nearest"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(MeasurerError, match=message.replace("[", r"\[")):
        read_replay(file)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(MeasurerError, match="cannot be read: No such file"):
        parse_measurer(f"replay:{tmp_path / 'none'}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MeasurerError, match="must be UTF-8"):
        read_replay(tmp_path / "binary")


@pytest.mark.parametrize("spec", ["", "remote", "replay:", "simulated", "local:file", "dask:"])
def test_unknown_measurers_are_named_with_the_choices(spec: str) -> None:
    with pytest.raises(MeasurerError, match=r"must be local, .* or dask:tcp:"):
        parse_measurer(spec)
