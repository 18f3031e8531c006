"""The command line: every command there, every bad input one line and its exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.service.records import HOST, MATMUL, keep_best
from tilewright.db import open_store
from tilewright.schedules.record import Evidence
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import analytic
from tilewright.service.cli import run
from tilewright.service.cli.options import Common, MachineOptions
from tilewright.service.cli.payloads import workload_payload
from tilewright.service.cli.run_tune import command_arguments
from tilewright.service.cli.typer_app import MODULES
from tilewright.service.errors import ExitCode
from tilewright.service.resolve import workloads
from tilewright.service.resolve.spelling import WorkloadSpelling

COMMANDS = [name for names in MODULES.values() for name in names]


@pytest.fixture
def target_file(tmp_path: Path) -> Path:
    path = tmp_path / "target.json"
    path.write_text(json.dumps(HOST.to_json()))
    return path


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "cli.sqlite")


@pytest.fixture(autouse=True)
def default_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice without measurement is tested elsewhere."""
    monkeypatch.setattr(analytic, "default_schedule", lambda *_: analytic.Chosen(Trace()))


def test_every_promised_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    promised = (
        "tune best bench explain show emit verify serve submit status watch cancel export import "
        "db doctor ops target keys worker fleet lock fetch cmake-dir monitoring-dir"
    )
    assert sorted(COMMANDS) == sorted(promised.split())
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f" {name} " in text


@pytest.mark.parametrize(
    "words",
    [[name] for name in COMMANDS if name not in ("db", "keys")]
    + [
        ["db", name]
        for name in ("check", "upgrade", "backup", "prune", "stats", "upgraded", "move")
    ]
    + [["keys", verb] for verb in ("create", "list", "rotate", "revoke")],
)
def test_every_command_has_help_and_the_general_options(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json" in text
    assert "--db" in text


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["dance"], 2, "No such command 'dance'"),
        (["tune"], 2, "give one workload"),
        (["tune", MATMUL, "--expr", "C[i] = A[i]"], 2, "give one workload"),
        (["tune", MATMUL, "--trials", "many"], 2, "--trials"),
        (["tune", MATMUL, "--trials", "0"], 2, "--trials"),
        (["tune", MATMUL, "--strategy", "luck"], 2, "--strategy"),
        (["tune", MATMUL, "--measurer", "dice"], 2, "measurer must be local"),
        (["tune", MATMUL, "--measurer", "simulated:/nowhere"], 2, "/nowhere"),
        (["tune", MATMUL, "--threads", "4096"], 2, "threads=4096"),
        (["tune", MATMUL, "--target", "/nowhere.json"], 2, "/nowhere.json"),
        (["best", "matmol:M=1"], 2, "did you mean matmul"),
        (["best", "matmul:M=8,N=8"], 2, "parameter K is missing"),
        (["best", "matmul:M=0,N=8,K=8"], 2, "M"),
        (["best", "matmul:M=8,N=8,K=99999999999999999999"], 2, "K"),
        (["best", "/nowhere.json"], 2, "cannot read /nowhere.json"),
        (["best", "/nowhere.py:f"], 2, "no such file"),
        (["best", "--expr", "C[i,j] += A[i", "--tensor", "A=f32[2]"], 2, "expected"),
        (["best", "--expr", "C[i] = A[i]", "--tensor", "A"], 2, "NAME=dtype"),
        (["best", MATMUL, "--tensor", "A=f32[2]"], 2, "--expr"),
        (["best", "C[i] = A[i]"], 2, "give them with --tensor A=f32[EXTENT]"),
        (["best", "C[i] = A[i]", "--tensor", "A=f32[2]"], 3, "no exact answer stored"),
        (["best", "--expr", "C[i] = A[i]*B[j]"], 2, "--tensor A=f32[EXTENT] --tensor B="),
        (["best", MATMUL], 3, "no exact answer stored for matmul:M=8,N=8,K=8"),
        (["verify", MATMUL], 3, "no exact answer stored"),
        (["emit", MATMUL, "-o", "out"], 3, "no exact answer stored"),
        (["emit", MATMUL], 2, "--output"),
        (["show", MATMUL, "--what", "dreams"], 2, "--what"),
        (["show", MATMUL, "--record", "sha256:00"], 3, "no record sha256:00"),
        (["bench", MATMUL, "--against", "abacus"], 2, "--against abacus"),
        (["ops", "matmol"], 2, "did you mean matmul"),
        (["status", "--url", "http://127.0.0.1:9"], 5, "no service answers"),
        (["submit", MATMUL, "--url", "http://127.0.0.1:9"], 5, "no service answers"),
        (["submit"], 2, "give one workload"),
        (["import", "/nowhere.jsonl"], 2, "/nowhere.jsonl"),
        (["serve", "--host", "0.0.0.0"], 1, "there is no key yet"),
        (["serve", "--port", "99999"], 2, "--port"),
    ],
)
def test_bad_input_is_one_clear_line_and_an_exit_code(
    words: list[str],
    code: int,
    says: str,
    db: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    target_file: Path,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", db)
    if words[0] in ("best", "verify", "emit", "show"):
        words = [*words, "--target", str(target_file)]
    assert run(words) == code
    told = capsys.readouterr()
    assert says in told.err.splitlines()[0]
    assert told.err.startswith("tilewright: ")
    assert len(told.err.splitlines()) <= 5
    assert "Traceback" not in told.err
    assert told.out == ""
    assert run([*words, "--json"]) == code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_code"] == code
    assert says in error["message"]
    assert error["code"]


def test_best_tells_the_stored_answer(
    db: str, target_file: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as store:
        record = keep_best(store, workload, secs=2e-6)
    words = ["best", MATMUL, "--db", db, "--target", str(target_file)]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert record.key in text
    assert "2 us, 0.512 GFLOP/s" in text
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["record_key"] == record.key
    assert document["grade"] == "exact"
    assert document["run_secs"] == 2e-6


@pytest.mark.parametrize("command", ["best", "show"])
def test_what_the_full_check_compared_is_told_where_it_is_known(
    command: str,
    db: str,
    target_file: Path,
    workload: Workload,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store(db) as store:
        keep_best(store, workload, secs=2e-6, trial=1)
        words = [command, MATMUL, "--db", db, "--target", str(target_file)]
        assert run(words) == 0
        assert "compared" not in "".join(capsys.readouterr())
        keep_best(store, workload, secs=1e-6, trial=2, evidence=Evidence(3, 0.25))
    assert run(words) == 0
    told = "".join(capsys.readouterr())
    assert "1 in 4 elements" in told
    assert "for 3 sets of inputs" in told
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["evidence"] == {"cases": 3, "sampled_fraction": 0.25}


def test_best_accepts_less_when_told_to(
    db: str, target_file: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as store:
        keep_best(store, workload)
    words = ["best", MATMUL, "--db", db, "--target", str(target_file), "--threads", "2", "--json"]
    assert run(words) == ExitCode.NO_ANSWER
    capsys.readouterr()
    assert run([*words, "--min-grade", "same-cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["grade"] == "same-cpu"
    assert run([*words, "--min-grade", "default", "--db", db + "other"]) == 0
    assert json.loads(capsys.readouterr().out)["grade"] == "default"
    assert not Path(db + "other").exists()


@pytest.mark.parametrize("what", ["trace", "plan", "nest", "before-after"])
def test_show_says_where_its_schedule_comes_from(
    what: str, db: str, target_file: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["show", MATMUL, "--db", db, "--target", str(target_file), "--what", what]
    assert run(words) == 0
    assert "without measurement" in capsys.readouterr().err
    with open_store(db) as store:
        record = keep_best(store, workload)
    assert run(words) == 0
    told = capsys.readouterr()
    assert f"stored best, grade exact, record {record.key}" in told.err
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == told.out.rstrip("\n")


def test_one_record_is_seen_on_any_machine(
    db: str, tmp_path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as store:
        record = keep_best(store, workload)
    arm = ROOT / "examples" / "targets" / "neoverse-n1.json"
    words = ["show", MATMUL, "--db", db, "--target", str(arm), "--record", record.key]
    assert run([*words, "--what", "asm"]) == 0
    told = capsys.readouterr()
    assert "fmadd" in told.out or "fmla" in told.out
    assert f"the schedule of {record.key}, made for znver3" in told.err
    other = [word if word != MATMUL else "matmul:M=9,N=8,K=8" for word in words]
    assert run(other) == 2
    assert "of another workload" in capsys.readouterr().err


def spelling(text: str) -> WorkloadSpelling:
    return WorkloadSpelling(workload=text)


def test_python_files_give_workloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text(
        "from tilewright.schedules.operators import build\n"
        "def mm(): return build('matmul', {'M': 8, 'N': 8, 'K': 8})\n"
        "def none(): return 3\n"
    )
    wanted = workloads.workload_of(MATMUL).key
    assert workloads.read_workload(spelling(f"{file}:mm")).key == wanted
    for name, says in (("none", "returned int"), ("other", "it has mm, none\n")):
        assert run(["best", f"{file}:{name}"]) == 2
        assert says in capsys.readouterr().err
    file.write_text(
        "import tilewright as tw\n"
        "a, b = tw.placeholder('A', (8, 8)), tw.placeholder('B', (8, 8))\n"
        "def mm(): return a @ b\n"
        "def named(): return (a @ b).named('C')\n"
        "def two(): return a @ b, a.argmax(1)\n"
    )
    for name in ("mm", "named"):
        assert workloads.read_workload(spelling(f"{file}:{name}")).key == wanted
    assert len(workloads.read_workload(spelling(f"{file}:two")).outputs) == 2
    file.write_text("def mm(:\n")
    assert run(["best", f"{file}:mm"]) == 2
    assert "line 1" in capsys.readouterr().err


def test_a_hint_can_be_typed_as_it_stands() -> None:
    plain = command_arguments(WorkloadSpelling(workload=MATMUL), MachineOptions(), Common())
    assert plain == MATMUL
    full = command_arguments(
        WorkloadSpelling(
            expr="C[i] = A[i]", tensor=["A=f32[8]"], range=["i=8"], constant=["A"], allow_error=1e-3
        ),
        MachineOptions(target="my target.json", threads=2),
        Common(db="x.sqlite"),
    )
    assert shlex.split(full) == [
        "--expr", "C[i] = A[i]", "--tensor", "A=f32[8]", "--range", "i=8", "--constant", "A",
        "--allow-error", "0.001", "--target", "my target.json", "--threads", "2",
        "--db", "x.sqlite",
    ]  # fmt: skip


def test_every_spelling_can_mark_constants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = workloads.workload_of(f"{MATMUL},constant=B").key
    document = tmp_path / "w.json"
    document.write_text(json.dumps(workloads.workload_of(MATMUL).to_json()))
    tensors = ["A=f32[8,8]", "B=f32[8,8]"]
    ways = [
        WorkloadSpelling(workload=MATMUL, constant=["b"]),
        WorkloadSpelling(workload=f"{MATMUL},constant=B"),
        WorkloadSpelling(workload=str(document), constant=["B"]),
        WorkloadSpelling(expr="C[i,j] += A[i,k] * B[k,j]", tensor=tensors, constant=["B"]),
        WorkloadSpelling(expr="C[i,j] += A[i,k] * B[k,j]", tensor=[tensors[0], "B=const f32[8,8]"]),
    ]
    for way in ways:
        assert workloads.read_workload(way).key == wanted
        assert workloads.workload_of(workload_payload(way)).key == wanted
    assert workloads.read_workload(ways[0]).name == "matmul:M=8,N=8,K=8,constant=B"
    both = WorkloadSpelling(workload=f"{MATMUL},constant=B", constant=["A"])
    assert workloads.read_workload(both).name == "matmul:M=8,N=8,K=8,constant=A+B"
    assert run(["best", MATMUL, "--constant", "W"]) == 2
    assert "constant=W: the inputs are A, B" in capsys.readouterr().err


def test_workload_files_give_workloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = workloads.workload_of(MATMUL)
    file = tmp_path / "workload.json"
    file.write_text(json.dumps(workload.to_json()))
    assert workloads.read_workload(spelling(str(file))).key == workload.key
    file.write_text("{")
    assert run(["best", str(file)]) == 2
    assert "not JSON" in capsys.readouterr().err
    file.write_bytes(b"\xff")
    assert run(["best", str(file)]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_records_go_out_and_in(
    db: str, tmp_path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as store:
        record = keep_best(store, workload)
    file = tmp_path / "records.jsonl"
    assert run(["export", str(file), "--db", db, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 1
    assert run(["import", str(file), "--db", db + "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file), "added": 1, "known": 0, "bad": [],
    }  # fmt: skip
    assert run(["export", "--db", db]) == 0
    assert record.workload_key in capsys.readouterr().out
    assert run(["export", "--db", db, "--json"]) == 2


def test_lines_that_are_not_taken_are_told_and_the_others_kept(
    db: str, tmp_path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as store:
        keep_best(store, workload)
    file = tmp_path / "records.jsonl"
    assert run(["export", str(file), "--db", db]) == 0
    file.write_text(file.read_text() + "{broken\n")
    capsys.readouterr()
    assert run(["import", str(file), "--db", db + "2", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["added"] == 1
    assert len(document["bad"]) == 1
    assert run(["import", str(file), "--db", db + "2"]) == 1
    assert "0 new, 1 known already" in capsys.readouterr().out


def test_an_unusable_database_is_exit_code_4(
    tmp_path: Path, target_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"this is not a database at all" * 100)
    for words in (["best", MATMUL, "--target", str(target_file)], ["db", "check"], ["export"]):
        assert run([*words, "--db", str(broken)]) == 4
        assert "broken.sqlite" in capsys.readouterr().err
        assert run([*words, "--db", "mysql://user:secret@host/x"]) == 4
        assert "secret" not in capsys.readouterr().err


def test_db_upgrade_makes_a_sound_database(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "upgrade", "--db", db, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 0
    assert run(["db", "check", "--db", db, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"]
    assert document["findings"] == []


def test_doctor_finds_what_is_there(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--db", db, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [finding["name"] for finding in document["findings"]]
    assert {"python", "llvmlite", "libgomp", "cores", "noise", "database"} <= set(names)
    assert not Path(db).exists()


def test_doctor_fails_where_the_database_is_unusable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"x" * 5000)
    assert run(["doctor", "--db", str(broken)]) == 1
    assert "fail" in capsys.readouterr().out


def test_ops_lists_every_operator_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--json"]) == 0
    operators = json.loads(capsys.readouterr().out)["operators"]
    matmul = next(op for op in operators if op["name"] == "matmul")
    assert [p["name"] for p in matmul["parameters"]] == ["M", "N", "K"]
    assert run(["ops", "matmul"]) == 0
    assert "A[M,K] B[K,N] C[M,N]" in capsys.readouterr().out


def test_target_prints_a_document_that_target_files_hold(
    target_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["target", "--target", str(target_file), "--threads", "2", "--json"]) == 0
    printed = capsys.readouterr().out
    document = json.loads(printed)
    assert document["key"] == HOST.with_threads(2).key
    again = tmp_path / "again.json"
    again.write_text(printed)
    assert Target.from_json(document) == HOST.with_threads(2)
    assert run(["target", "--target", str(again)]) == 0
    assert "znver3" in capsys.readouterr().out


def test_a_missing_library_is_a_line_saying_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tilewright.service.cli.server", raising=False)
    assert run(["serve"]) == 1
    assert 'pip install "tilewright[server]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["--help"], ["numpy", "sqlalchemy", "llvmlite", "xgboost", "httpx2", "pydantic"]),
        (["status"], ["numpy", "sqlalchemy", "llvmlite", "xgboost"]),
        (["submit", MATMUL], ["numpy", "sqlalchemy", "llvmlite", "xgboost"]),
        (["best", MATMUL], ["sqlalchemy", "alembic", "llvmlite.binding", "xgboost", "fastapi"]),
        (
            ["best", MATMUL, "--min-grade", "default"],
            ["sqlalchemy", "alembic", "llvmlite.binding", "xgboost", "fastapi"],
        ),
    ],
)
def test_queries_load_nothing_heavy(
    words: list[str], unwanted: list[str], target_file: Path, db: str
) -> None:
    if words[0] == "best":
        words = [*words, "--target", str(target_file), "--db", db]
    if words[0] in ("status", "submit"):
        words = [*words, "--url", "ftp://nowhere"]  # refused before anything is sent
    code = (
        "import sys; from tilewright.service.cli import run; run(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    loaded = set(result.stderr.splitlines()[-1].split())
    assert loaded.isdisjoint(unwanted), sorted(loaded & set(unwanted))


def test_a_program_that_left_its_pipe_is_no_error(db: str) -> None:
    words = [
        sys.executable,
        "-c",
        "from tilewright.service.cli import main; main(['ops', '--json'])",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, told = process.communicate(timeout=60)
    assert told == b""
