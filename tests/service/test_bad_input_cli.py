"""Hostile files, illegal traces, a database of the future, a library that is not installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.paths import ROOT
from tests.support.service.records import HOST, MATMUL, make_record
from tilewright.db import open_store
from tilewright.schedules.errors import TargetError
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.workload.workload import Workload
from tilewright.service.cli import run
from tilewright.service.jobs import tuning
from tilewright.service.resolve import targets

EXPR = "C[i,j] += A[i,k] * B[k,j]"
Told = Callable[[list[str], int], str]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Run the command; what it says on standard error. It ended with `code`, not in a traceback."""

    def tell(words: list[str], code: int) -> str:
        capsys.readouterr()
        assert run(words) == code
        said = capsys.readouterr().err
        assert said.startswith("tilewright: ")
        assert "Traceback" not in said
        return said

    return tell


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (["A=f32[4,5]", "B=f32[6,7]"], "index 'k' has the extent 5 from dimension 1 of A, but 6"),
        (["A=f32[4]", "B=f32[6,7]"], "A has 1 dimensions [4], got 2 indices"),
        (["A=f32[0,5]", "B=f32[5,7]"], "an extent must be 1..2147483647, got 0"),
        (["A=f32[-3,5]", "B=f32[5,7]"], "an extent is a positive integer, got '-3'"),
        (["A=f99[3,5]", "B=f32[5,7]"], "f99"),
        (["A=f32[3,5]"], "B"),
        (["A=f32[99999,5]", "B=f32[5,2000000000]"], "the tensors need 800032001999980 bytes"),
    ],
)
def test_clashes_of_shapes_are_pointed_at(tensors: list[str], says: str, told: Told) -> None:
    words = ["tune", "--expr", EXPR, *(word for t in tensors for word in ("--tensor", t))]
    assert says in told(words, 2)


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["tune", "--measurer", f"simulated:{ROOT / 'examples' / 'machine.json'}", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_a_workspace_that_is_too_large_is_a_limit_of_the_workload(
    words: list[str], told: Told
) -> None:
    huge = ["--expr", "T[i,j] += A[i,k] * B[k,j]; C[i] += T[i,j] * T[j,i]"]
    huge += ["--tensor", "A=f32[65536,4]", "--tensor", "B=f32[4,65536]"]
    said = told([*words, *huge], 2)
    assert "the workspace of all stages needs 17179869184 bytes, at most 8589934592 are" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "line 1, column 1"),
        (b'{"a":', "line 1, column 6"),
        (b"{}", "field 'inputs' is missing"),
        (b"[]", "list"),
        (b'{"inputs": 3, "stages": [], "outputs": []}', "inputs"),
        (b"[" * 100_000, "64 levels deep"),
        (b'{"version": 1, "version": 1}', "'version' is given twice"),
        (b'{"version": NaN}', "NaN is not a number"),
        (b'{"version": 1e999}', "1e999"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b" " * (2 << 20), "at most 1048576 are allowed"),
    ],
)
def test_hostile_workload_files(text: bytes, says: str, told: Told, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_bytes(text)
    assert says in told(["tune", str(path)], 2)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("simulated", '{"luck": 1}', "unknown field 'luck'; there are seed"),
        ("simulated", "[", "not JSON"),
        ("replay", "garbage", "not JSON"),
        ("replay", '{"trace": []}', "not a recorded candidate"),
    ],
)
def test_files_of_timings_that_are_none(
    kind: str, text: str, says: str, told: Told, tmp_path: Path
) -> None:
    path = tmp_path / "timings.json"
    path.write_text(text)
    said = told(["tune", MATMUL, "--measurer", f"{kind}:{path}"], 2)
    assert says in said
    assert "Use local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT" in said


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('ouch')", "f.py:f raised ValueError: ouch (line 2 of"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing' (line 2"),
        ("raise SystemExit(9)", "f.py:f ended the program (exit code 9)"),
        ("return 1 // 0", "f.py:f raised ZeroDivisionError"),
        ("return 3", "f.py:f returned int; it must return a Workload"),
    ],
)
def test_what_goes_wrong_in_a_file_of_somebody_is_one_line(
    code: str, says: str, told: Told, tmp_path: Path
) -> None:
    path = tmp_path / "f.py"
    path.write_text(f"def f():\n    {code}\n")
    for command in ("best", "submit"):
        assert says in told([command, f"{path}:f"], 2)
    path.write_text("def f(size):\n    return size\n")
    assert "f.py:f raised TypeError: f() missing 1 required" in told(["best", f"{path}:f"], 2)
    path.write_text("from tilewright.schedules import compute\nraise OSError(1, 'no')\n")
    assert "raised PermissionError: [Errno 1] no (line 2 of" in told(["best", f"{path}:f"], 2)
    path.write_text("from tilewright.schedules import compute\ndef g():\n    pass\n")
    assert "has no function 'f'; it has g\n" in told(["best", f"{path}:f"], 2)


def test_what_a_file_prints_is_not_in_the_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "f.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from tilewright.schedules import compute, placeholder, Workload\n"
        "print('loading')\n"
        "@dataclass\n"
        "class Size:\n"
        "    n: int = 4\n"
        "def f():\n"
        "    print('called')\n"
        "    a = placeholder('A', (Size().n,))\n"
        "    return Workload.of(compute('B', (Size().n,), lambda i: a[i] + a[i]))\n"
    )
    assert run(["best", f"{path}:f", "--db", str(tmp_path / "x.sqlite"), "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "no_answer"
    assert err.startswith("loading\ncalled\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"version": NaN}', "NaN is not a number"),
        ('{"version": 1e400}', "beyond the range of f64"),
        ('{"name": "\\ud800"}', "half a surrogate pair"),
        ('{"version": ' + "9" * 5000 + "}", "a number has 5000 characters"),
        ('{"version": 1, "version": 1}', "'version' is given twice"),
        ("[" * 100_000, "64 levels deep"),
    ],
)
def test_what_is_sent_to_a_service_is_strict_json(
    text: str, says: str, told: Told, tmp_path: Path
) -> None:
    path = tmp_path / "w.json"
    path.write_text(text)
    nowhere = ["--url", "http://127.0.0.1:1"]
    assert says in told(["submit", str(path), *nowhere], 2)
    assert says in told(["submit", MATMUL, "--target", str(path), *nowhere], 2)


BAD_TARGETS: list[tuple[dict[str, Any], str]] = [
    ({"triple": ""}, "triple must be LLVM's"),
    ({"triple": "foo"}, "got 'foo'"),
    ({"cpu": 'a"b'}, "names of LLVM"),
    ({"features": ["avx2,-sse"]}, "got 'avx2,-sse'"),
    ({"threads": 0}, "threads must be a whole number from 1 to 4, got 0"),
    ({"threads": 10**9}, "threads must be"),
    ({"cores": 10**9}, "cores must be a whole number from 1 to 4096"),
    ({"vector_registers": 10**9}, "vector_registers must be"),
    ({"caches": [{"bytes": 32768, "ways": 0}]}, "caches/0/ways must be"),
    ({"caches": [{"bytes": 32768, "ways": 8, "line_bytes": 0}]}, "caches/0/line_bytes must be"),
    ({"caches": [{"bytes": -1, "ways": 8}]}, "caches/0/bytes must be"),
    ({"caches": [{"bytes": "x", "ways": 8}]}, "caches/0/bytes must be"),
    ({"caches": [{"bytes": 32768, "ways": 8}] * 9}, "the number of caches must be"),
    ({"features": ["a"] * 1001}, "at most 1000 features"),
    ({"probes": {"peak_gflops": 3}}, "probes/peak_gflops must be an object"),
    ({"probes": {"peak_gflops": {"f32": ["x"]}}}, "probes/peak_gflops/f32 must be a list"),
    ({"probes": {"bandwidth_gbs": {"L1": [-5.0]}}}, "probes/bandwidth_gbs/L1 must be a list"),
    ({"probes": {"parallel_region_secs": -1}}, "probes/parallel_region_secs must be"),
    ({"probes": {"clock_ghz": "fast"}}, "probes/clock_ghz must be"),
    ({"probes": {"doubtful": "no"}}, "probes/doubtful must be true or false"),
]


@pytest.mark.parametrize(("change", "says"), BAD_TARGETS)
def test_a_machine_that_cannot_be_is_refused(
    change: dict[str, Any], says: str, told: Told, tmp_path: Path
) -> None:
    """Such numbers divided by zero, took all memory, or ended a worker inside LLVM."""
    document = {**HOST.to_json(), **change}
    path = tmp_path / "target.json"
    path.write_text(json.dumps(document))
    assert says in told(["best", MATMUL, "--target", str(path)], 2)
    with pytest.raises(TargetError, match=re.escape(says)):
        targets.target_of(document, None)


ILLEGAL: list[tuple[list[Any], str]] = [
    ([{"do": "Split", "loop": "nope", "factor": 4}], "there is no loop 'nope'; the nest has"),
    ([{"do": "Split", "loop": "s0.d0", "factor": -1}], "factor must be 1.."),
    ([{"do": "Explode"}], '"do" must be one of '),
    ([{"do": "Split", "loop": "s0.d0"}], "factor"),
    ([{"do": "Split", "loop": "s0.d0", "factor": 1e300}], "factor"),
    ([{"do": "Parallel", "loop": "s0.r0"}], "s0.r0"),
]


@pytest.mark.parametrize(("trace", "says"), ILLEGAL)
def test_an_illegal_trace_is_never_compiled(
    trace: list[Any], says: str, told: Told, workload: Workload, tmp_path: Path
) -> None:
    """Anybody can write one into a file of records: it is kept as a claim, and refused in use."""
    db, file = str(tmp_path / "x.sqlite"), tmp_path / "records.jsonl"
    with open_store(str(tmp_path / "source.sqlite")) as store:
        tuning.register(store, workload, HOST)
        store.add([make_record(workload)])
        with file.open("w") as out:
            store.export(out)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line.get("kind") == "record":
            line["record"]["trace"] = trace
            line["key"] = key = TuningRecord.from_json(line["record"]).key
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert run(["import", str(file), "--db", db]) == 0
    with open_store(db) as store:
        stored = next(iter(store.records(workload.key, HOST.key, include_imported=True)))
    target = tmp_path / "host.json"
    target.write_text(json.dumps(HOST.to_json()))
    words = ["show", MATMUL, "--db", db, "--target", str(target), "--record", stored.key]
    for what in ("nest", "llvm", "asm"):
        assert says in told([*words, "--what", what], 1)
    told(["best", MATMUL, "--db", db, "--target", str(target)], 3)
    assert key


@pytest.mark.parametrize(
    ("redirect", "code", "says"),
    [
        ("| true", 0, ""),
        (">&-", 0, ""),
        pytest.param(
            "> /dev/full",
            1,
            "cannot write the output: No space left on device",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full"),
        ),
    ],
)
def test_output_that_nobody_takes(redirect: str, code: int, says: str, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "x.sqlite")):
        pass
    program = f"{shlex.quote(sys.executable)} -c 'from tilewright.service.cli import main; main()'"
    for words in ("ops", "ops --json", f"export --db {shlex.quote(str(tmp_path / 'x.sqlite'))}"):
        # The reader is gone before there is anything to read.
        line = f"{{ sleep 0.2; {program} {words}; echo $? >{tmp_path}/code; }} {redirect}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert int((tmp_path / "code").read_text()) == code, done.stderr
        assert "Traceback" not in done.stderr
        assert says in done.stderr


def test_a_folder_of_timings_that_is_not_there(told: Told, tmp_path: Path) -> None:
    words = ["serve", "--port", "0", "--measurer-folder", str(tmp_path / "none")]
    assert "none: no such folder" in told([*words, "--db", str(tmp_path / "x")], 1)


def test_a_place_where_no_database_can_be(told: Told, tmp_path: Path) -> None:
    """Nobody is told to tune what cannot be looked up."""
    for db, says in (
        (tmp_path, "this is a folder"),
        (tmp_path / ("a" * 300), "cannot be opened"),
        ("mysql://x/y", "unknown kind of database"),
    ):
        for words in (["best", MATMUL], ["tune", MATMUL, "--trials", "1"], ["db", "check"]):
            said = told([*words, "--db", str(db)], 4)
            assert says in said
            assert "Name another with --db" in said
    (tmp_path / "empty").write_bytes(b"")
    told(["best", MATMUL, "--db", str(tmp_path / "empty")], 3)


def test_a_database_of_a_newer_version_is_left_alone(told: Told, tmp_path: Path) -> None:
    db = tmp_path / "newer.sqlite"
    open_store(str(db)).close()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = db.read_bytes()
    machine = tmp_path / "machine.json"
    machine.write_text("{}")
    for words in (
        ["tune", MATMUL, "--measurer", f"simulated:{machine}", "--trials", "1"],
        ["best", MATMUL],
        ["verify", MATMUL],
        ["export"],
        ["db", "check"],
        ["db", "upgrade"],
        ["serve", "--port", "0"],
    ):
        said = told([*words, "--db", str(db)], 4)
        assert "its schema is revision '9999', this version knows up to" in said
        assert "use a newer tilewright, or another database" in said
    assert db.read_bytes() == before


def test_without_libgomp_the_same_command_goes_on_once_it_is_there(tmp_path: Path) -> None:
    """A missing library is no property of the candidates: they are measured when it comes."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "from tilewright.tuner.backend.cpu.loading import loader\n"
        "loader.OPENMP_LIBRARY = 'libgomp_is_not_here.so.1'\n"
    )
    program = "from tilewright.service.cli import main; main()"
    # Little work may do without: one thread does it all.
    words = ["tune", "matmul:M=256,N=256,K=256", "--trials", "2", "--threads", "2", "--json"]
    command = [sys.executable, "-c", program, *words, "--db", str(tmp_path / "x.sqlite")]

    def tune(*path: str) -> tuple[int, dict[str, Any], str]:
        paths = os.pathsep.join([*path, os.getcwd()])
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout), done.stderr

    code, report, said = tune(str(folder))
    assert (code, report["best"]) == (1, None)
    assert "Traceback" not in said
    text = json.dumps(report)
    assert "libgomp_is_not_here.so.1, which was not found" in text
    assert "apt install libgomp1" in text
    code, report, said = tune()
    assert (code, report["trials"]["ok"]) == (0, 2), said


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        ({"expr": EXPR, "tensors": {"A": "f32[4,5]", "B": "f32[6,7]"}}, "but 6 from"),
        ({"expr": EXPR, "tensors": {"A": "f32[0,5]", "B": "f32[5,7]"}}, "got 0"),
        ("matmol:M=8,N=8,K=8", "did you mean matmul"),
        ("matmul:M=8,N=8,K=8,Q=1", "no parameter 'q'; parameters: M, N, K"),
        ("matmul:M=2000000000,N=2000000000,K=2", "bytes"),
    ],
)
def test_the_same_over_http_is_422(api: TestClient, workload: Any, says: str) -> None:
    answer = api.post("/v1/jobs", json={"workload": workload, "target": HOST.to_json()})
    assert answer.status_code == 422
    assert says in json.dumps(answer.json())
    assert api.get("/v1/jobs").json()["jobs"] == []
