"""What an older commit tuned is read, served, verified and queried: `tuned_da398bc.sql.gz`.

It is the database of that commit (code generator 6, before the sketches were parted) after five
runs of `tune` with 4 trials each, one of them on a simulated machine, and one job of its service:

    tune matmul:M=37,N=48,K=29 --threads 1
    tune softmax_mn:M=8,N=100 --threads 2
    tune conv2d_nhwc:H=10,W=10,CI=8,CO=16,K=3,pad=1,epilogue=bias+relu --threads 1
    tune --expr 'D[i,j] += (A[i,k] - B[j,k]) * (A[i,k] - B[j,k])' --tensor ... --threads 1
    tune matmul:M=64,N=64,K=64 --threads 1 --measurer simulated:examples/machine.json
    submit colsum_mn:M=16,N=200 --threads 1
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.contracts.store_values import all_records
from tilewright.db import Store, open_store
from tilewright.schedules import operators
from tilewright.schedules.errors import TargetError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import stored
from tilewright.service.answers.verification import verify_stored
from tilewright.service.cli import run
from tilewright.service.http.app import create_app
from tilewright.service.limits import RequestLimits
from tilewright.service.settings import Settings
from tilewright.tuner.backend.registry import backend_for

DUMP = Path(__file__).parent / "tuned_da398bc.sql.gz"
PRODUCT = "matmul:M=37,N=48,K=29"
MOCKED = "matmul:M=64,N=64,K=64"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "old.sqlite"
    connection = sqlite3.connect(found)
    connection.executescript(gzip.decompress(DUMP.read_bytes()).decode())
    connection.close()
    return found


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(str(path)) as store:
        yield store


def target_of(store: Store, threads: int) -> Target:
    documents = (store.target(record.target_key) for record in all_records(store))
    targets = [Target.from_json(document) for document in documents if document is not None]
    return next(target for target in targets if target.threads == threads)


def test_every_row_is_sound_and_every_trace_still_makes_its_loops(store: Store) -> None:
    assert store.check() == []
    records = all_records(store)
    assert len(records) == 30
    for record in records:
        entry = store.workload(record.workload_key)
        assert entry is not None
        workload = Workload.from_json(entry.document)
        assert workload.key == record.workload_key
        trace = Trace.from_json(record.trace)
        assert trace.to_json() == record.trace
        assert lower(workload, trace).body


@pytest.mark.parametrize(
    ("spelled", "threads", "grade", "note"),
    [
        (PRODUCT, 1, "compatible", "made by code generator 6"),
        ("softmax_mn:M=8,N=100", 2, "compatible", "made by code generator 6"),
        ("colsum_mn:M=16,N=200", 1, "compatible", "made by code generator 6"),
        (MOCKED, 1, "exact", "timings are mocked"),
    ],
)
def test_it_is_answered_with_what_is_true_of_it(
    path: Path,
    store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spelled: str,
    threads: int,
    grade: str,
    note: str,
) -> None:
    target = tmp_path / "target.json"
    target.write_text(json.dumps(target_of(store, threads).to_json()))
    words = ["best", spelled, "--target", str(target), "--db", str(path), "--json"]
    assert run([*words, "--min-grade", "compatible"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["grade"] == grade
    assert answer["note"].startswith(note)
    assert run(words) == (0 if grade == "exact" else 3)


def test_it_is_served_over_http(store: Store) -> None:
    target, workload = target_of(store, 1), operators.matmul(M=37, N=48, K=29)
    nobody_prepares = Settings(preparers=0, limits=RequestLimits(default_secs=0.0, lookup_secs=0.0))
    with TestClient(create_app(nobody_prepares, store)) as client:
        (job,) = client.get("/v1/jobs").json()["jobs"]
        assert (job["state"], job["workload"]["name"]) == ("SUCCEEDED", "colsum_mn:M=16,N=200")
        trials = client.get(f"/v1/jobs/{job['id']}/trials").json()["trials"]
        assert [trial["status"] for trial in trials] == ["ok"] * 4
        events = client.get(f"/v1/jobs/{job['id']}/events").text
        assert '"SUCCEEDED"' in events
        url = f"/v1/best/{workload.key}/{target.key}"
        assert client.get(url).status_code == 202, "to be verified first"
        answer = client.get(url, params={"min_grade": "compatible"}).json()
        assert client.get(f"/v1/records/{answer['record_key']}").status_code == 200
        for artefact in answer["artefacts"].values():
            assert client.get(artefact["url"]).status_code == 200


def test_it_is_verified_and_an_exact_answer_then(store: Store, path: Path) -> None:
    target, workload = target_of(store, 1), operators.matmul(M=37, N=48, K=29)
    try:
        backend_for(target).refuse_foreign(target)
    except TargetError as error:
        pytest.skip(str(error))
    old = stored.answer(str(path), workload, target, "exact", any_toolchain=True)
    verification = verify_stored(
        str(path), workload, target, str(old.record_key), old.trace, seed=0
    )
    assert verification.result.ok
    assert stored.answer(str(path), workload, target, "exact").record_key != old.record_key
