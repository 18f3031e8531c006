"""An allowed error, however it is asked for, and how a rewritten schedule is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.service.records import HOST
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from tilewright.schedules.rewrites import Winograd
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.trace import Trace
from tilewright.service.answers import objects
from tilewright.service.answers.find import StoredAnswer
from tilewright.service.answers.grades import StoredRecord
from tilewright.service.cli import facts
from tilewright.service.cli.payloads import workload_payload
from tilewright.service.grade import Grade
from tilewright.service.resolve import workloads
from tilewright.service.resolve.spelling import WorkloadSpelling

CONV = "conv2d_nhwc:N=1,H=9,W=8,CI=3,CO=4,K=3,pad=1"
EXPR = "Y[n,h,w,o] += X[n,h+r-1,w+s-1,c] * W[r,s,c,o]"
TENSORS = ["X=f32[1,9,8,3]", "W=f32[3,3,3,4]"]
KEY = parse_workload(CONV, allow_error=1e-3).key


def spellings(folder: Path) -> list[WorkloadSpelling]:
    document = folder / "conv.json"
    document.write_text(json.dumps(parse_workload(CONV).to_json()))
    function = folder / "ops.py"
    function.write_text(
        "from tilewright.schedules.spelling import parse_workload\n"
        f"def conv():\n    return parse_workload({CONV!r})\n"
    )
    return [
        WorkloadSpelling(workload=CONV, allow_error=1e-3),
        WorkloadSpelling(workload=f"{CONV},allow_error=0.001"),
        WorkloadSpelling(expr=EXPR, tensor=TENSORS, allow_error=1e-3),
        WorkloadSpelling(workload=str(document), allow_error=1e-3),
        WorkloadSpelling(workload=f"{function}:conv", allow_error=1e-3),
    ]


@pytest.mark.parametrize("number", range(5))
def test_every_spelling_can_allow_an_error_here_and_on_a_service(
    number: int, tmp_path: Path
) -> None:
    spelling = spellings(tmp_path)[number]
    assert workloads.read_workload(spelling).key == KEY
    assert workloads.workload_of(workload_payload(spelling)).key == KEY


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("error", [float("nan"), float("inf"), -1.0])
def test_no_spelling_takes_what_is_no_error_to_a_service(
    number: int, error: float, tmp_path: Path
) -> None:
    spelling = replace(spellings(tmp_path)[number], allow_error=error)
    with pytest.raises(WorkloadError, match="an allowed error is relative, between 0 and 1"):
        workload_payload(spelling)


def test_a_rewritten_schedule_is_shown_with_the_names_of_its_author() -> None:
    workload = parse_workload(CONV, allow_error=0.1)
    trace = Trace((Winograd("s0", ((1, 4), (2, 4))),))
    text = objects.shown(workload, trace, HOST, "trace")
    assert text.splitlines()[0] == "Winograd(stage='s0', tiles=((1, 4), (2, 4)))"
    nest = objects.shown(workload, trace, HOST, "before-after")
    before, after = nest.split("// after")
    for part in (before, after):
        assert "kernel(X: f32[1, 9, 8, 3], W: f32[3, 3, 3, 4]) -> Y: f32[1, 9, 8, 4]" in part
    assert "s4[" not in before
    assert "s4[" in after


@pytest.mark.parametrize(("found", "said"), [(4.8e-7, "found: 4.8e-07"), (None, "none measured")])
def test_a_summary_says_what_is_proven_and_what_was_found(found: float | None, said: str) -> None:
    rows = facts.rewritten_rows(
        {
            "steps": ["Winograd(...)"],
            "error_stated": 5.83e-4,
            "error_allowed": 1e-2,
            "error_found": found,
        }
    )
    assert rows[0] == ("rewritten", "Winograd(...)")
    assert rows[1][1].startswith("at most 0.00058 of max|data| * sum|weight| (allowed: 0.01)")
    assert said in rows[1][1]


def test_an_answer_and_a_header_say_what_was_rewritten() -> None:
    workload = parse_workload(CONV, allow_error=0.1)
    trace = Trace((Winograd("s0", ((1, 4), (2, 4))),))
    result = MeasureResult(MeasureStatus.OK, run_secs=(1e-6,), run_secs_estimate=1e-6)
    toolchain = Toolchain(4, "0.50.0", "22")
    result = replace(result, error_found=3e-7)
    record = TuningRecord(workload.key, HOST.key, 1, trace.to_json(), result, toolchain, 0, 1)
    found = StoredAnswer(Grade.EXACT, StoredRecord(record, HOST, record.key), "")
    summary = workloads.workload_summary(workload)
    told = found.answer(summary, {}, lambda: workload).to_json()
    assert told["rewritten"]["steps"] == ["Winograd(stage='s0', tiles=((1, 4), (2, 4)))"]
    assert told["rewritten"]["error_found"] == 3e-7
    assert 0 < told["rewritten"]["error_stated"] < 0.1 == told["rewritten"]["error_allowed"]
    assert "of max|data| * sum|weight| (allowed: 0.1); found: 3e-07" in facts.plain(
        facts.answer_rows(told)
    )
    plain = StoredAnswer(Grade.EXACT, StoredRecord(replace(record, trace=[]), HOST, record.key), "")
    assert plain.answer(summary, {}, lambda: workload).to_json()["rewritten"] is None

    variant = objects.variant_of(found.answer(summary, {}, lambda: workload), HOST)
    files = objects.build(workload, variant, "conv", ll=False, asm=False)
    header = next(f.data.decode() for f in files if f.kind == "header")
    assert " * rewritten: Winograd(stage='s0', tiles=((1, 4), (2, 4)))\n * error: at most" in header
