"""`tune` for several workloads: the command, its files, its exit codes, and `tune_many`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.support.service.records import HOST
from tilewright.service.cli import run
from tilewright.service.cli.many_progress import ManyLines, Tasks
from tilewright.service.cli.progress import LineReporter
from tilewright.service.resolve.entries import read_entries
from tilewright.service.resolve.workloads import workload_of
from tilewright.tuner.many.entries import MAX_ENTRIES, ManyError, distinct_tasks
from tilewright.tuner.many.report import DONE, FAILED, TUNING, ManyEvent, TaskStatus

SMALL, OTHER = "matmul:M=8,N=16,K=8", "matmul:M=16,N=16,K=8"
NOTATION = {
    "expr": "C[i,j] += A[i,k] * B[k,j]",
    "tensors": {"A": "f32[8,8]", "B": "f32[8,16]"},
}


@pytest.fixture
def machine(tmp_path: Path) -> str:
    path = tmp_path / "machine.json"
    path.write_text('{"simulated": 1}')
    return f"simulated:{path}"


@pytest.fixture
def refusing(tmp_path: Path) -> str:
    """A machine on which nothing compiles."""
    path = tmp_path / "refusing.json"
    path.write_text('{"simulated": 1, "failure_rates": {"compile_error": 1.0}}')
    return f"simulated:{path}"


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    target = tmp_path / "target.json"
    target.write_text(json.dumps(HOST.to_json()))
    return ["--db", str(tmp_path / "many.sqlite"), "--target", str(target), "--trials", "6"]


def written(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "many.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def document_of(words: Sequence[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_file_is_tuned_and_again_measures_nothing(
    tmp_path: Path, machine: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The second workload learns from the first, in both runs from the same trials."""
    entries = [
        {"workload": SMALL, "weight": 3, "name": "fc"},
        OTHER,
        {"workload": NOTATION, "weight": 0.5},
        {"workload": tw.parse("softmax_mn:M=8,N=16").to_json(), "name": "document"},
    ]
    words = ["tune", "--many", written(tmp_path, entries), "--measurer", machine, *options]
    first = document_of(words, capsys)
    assert set(first) == {"tasks", "wall_secs", "weighted_secs", "stopped_because"}
    assert [(t["name"], t["weight"]) for t in first["tasks"]] == [
        ("fc", 3.5),
        (OTHER, 1.0),
        ("document", 1.0),
    ]
    for task in first["tasks"]:
        assert task["workload_key"] == task["workload"]["key"]
        assert task["error"] is None
        assert task["trials"]["measured_now"] > 0
    total = sum(t["weight"] * t["best"]["run_secs"] for t in first["tasks"])
    assert first["weighted_secs"] == pytest.approx(total)
    again = document_of(words, capsys)
    assert [t["trials"]["measured_now"] for t in again["tasks"]] == [0, 0, 0]
    assert [t["best"] for t in again["tasks"]] == [t["best"] for t in first["tasks"]]


def test_several_spellings_are_tuned_and_shown(
    machine: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", SMALL, OTHER, "--measurer", machine, *options]) == 0
    shown = capsys.readouterr()
    assert SMALL in shown.out
    assert OTHER in shown.out
    assert "2, 2 with a best" in shown.out
    assert f"{SMALL}: " in shown.err
    best = document_of(["best", OTHER, *options[:4]], capsys)
    assert best["grade"] == "exact"


def test_a_run_without_a_best_ends_with_1_and_says_why(
    refusing: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", SMALL, OTHER, "--measurer", refusing, *options]
    document = document_of(words, capsys, code=1)
    assert all("compile_error" in task["error"]["message"] for task in document["tasks"])
    assert run(words) == 1
    assert f"tilewright: {SMALL}: " in capsys.readouterr().err


BAD = [
    ("[]", "the list of workloads is empty"),
    (json.dumps([SMALL] * 2000), f"2000 workloads; at most {MAX_ENTRIES}"),
    ("{}", "must be a list"),
    ("[1, 2", "not JSON"),
    (f'[{{"workload": "{SMALL}", "weight": NaN}}]', "NaN is not a number"),
    ([{"workload": SMALL, "weight": 0, "name": "a"}], "entry 1 (a): weight must be"),
    ([SMALL, {"workload": SMALL, "weight": -2}], "entry 2: weight must be a number above 0"),
    ([SMALL, {"workload": SMALL, "weight": "2"}], "entry 2: weight must be"),
    ([SMALL, "nope:M=3"], "entry 2: unknown operator 'nope'"),
    ([SMALL, 7], "entry 2: workload must be text"),
    ([{"workload": None, "name": "a"}], "entry 1 (a): workload must be text"),
    ([{"weight": 2}], "entry 1: workload is missing"),
    ([{"workload": SMALL, "wieght": 2}], "entry 1: there is no field 'wieght'"),
    ([{"workload": SMALL, "name": 3}], "entry 1: name must be text"),
    ([{"workload": {"expr": 3}}], "entry 1: expr: must be text"),
    ([{"workload": SMALL, "name": "a"}, {"workload": OTHER, "name": "a"}], "entry 2 (a)"),
]


@pytest.mark.parametrize(("document", "says"), BAD)
def test_a_bad_list_is_one_line_that_names_the_entry(
    document: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, document)
    assert run(["tune", "--many", path, "--db", str(tmp_path / "none.sqlite")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"tilewright: {path}: ")
    assert says in said[0]
    assert len(said) <= 2
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tune", SMALL, "--many", "some.json"], "either --many FILE or WORKLOADs, not both"),
        (["tune", SMALL, OTHER, "--allow-error", "1e-3"], "describe one WORKLOAD"),
        (["tune", "--many", "none.json"], "cannot read none.json"),
        (["tune", SMALL, "nope:M=3"], "entry 2: unknown operator"),
    ],
)
def test_a_bad_command_line_is_one_line(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert says in capsys.readouterr().err.splitlines()[0]


def test_the_pointer_of_an_error_leads_to_the_entry() -> None:
    with pytest.raises(ManyError) as error:
        read_entries([SMALL, {"workload": {**NOTATION, "ranges": 3}}], workload_of)
    assert error.value.pointer == "/1/workload/ranges"


def test_the_function_takes_workloads_texts_and_mappings(tmp_path: Path, machine: str) -> None:
    url = tmp_path / "own.sqlite"
    names: set[str] = set()
    report = tw.tune_many(
        [tw.parse(SMALL), OTHER, {"workload": tw.parse(OTHER), "weight": 2, "name": "b"}],
        HOST,
        measurer=machine,
        budget=tw.Budget(4),
        database=url,
        on_event=lambda event: names.add(event.task.name),
    )
    assert isinstance(report, tw.ManyReport)
    assert names == {SMALL, "b"}
    assert [(t.name, t.weight) for t in report.tasks] == [(SMALL, 1.0), ("b", 3.0)]
    with tw.open_database(url) as store:
        best = store.best(report.tasks[1].workload_key, HOST.key)
    assert best is not None
    assert tw.tune_many([SMALL], HOST, measurer=machine, database=":memory:").complete


def status(number: int, state: str, secs: float | None) -> TaskStatus:
    weighted = None if secs is None else 2.0 * secs
    return TaskStatus(number, f"t{number}", "", 2.0, state, 3, 9, secs, weighted, 0.5, 0.1, 60.0)


def test_the_table_shows_shares_and_what_runs() -> None:
    specs = distinct_tasks(read_entries([SMALL, OTHER, "softmax_mn:M=8,N=16"], workload_of))
    tasks = Tasks.of(specs)
    tasks.update(ManyEvent(status(0, TUNING, 3e-3), None, 70.0))
    tasks.update(ManyEvent(status(1, DONE, 1e-3), None, 60.0))
    assert tasks.summary() == "1 of 3 tasks ended, total 8 ms, ETA 1:00"
    rows = tasks.rows(3)
    assert rows[0] == ["t0", "2", "3 ms", "50%", "75%", "10%", "3", "1:00"]
    assert [row[-1] for row in rows] == ["1:00", "done", "waiting"]
    assert [row[0] for row in tasks.rows(1)] == ["t0", "... and 2 more"]


def test_a_log_hears_of_each_end_and_of_the_whole_now_and_then() -> None:
    said: list[str] = []
    secs = [0.0]
    lines = ManyLines(Tasks([]), LineReporter(0.0, said.append, lambda: secs[0]))
    lines.tasks.statuses = [status(0, TUNING, None), status(1, TUNING, None)]
    for _ in range(30):
        secs[0] += 0.1
        lines.on_event(ManyEvent(status(0, TUNING, 1e-3), None, 9.0))
    assert 1 <= len(said) <= 3
    lines.on_event(ManyEvent(status(0, DONE, 1e-3), None, 9.0))
    lines.on_event(ManyEvent(status(1, FAILED, None), None, None))
    assert said[-2].startswith("t0: 1 ms, 50% of the bound, 3 trials")
    assert said[-1].startswith("t1: no best")
