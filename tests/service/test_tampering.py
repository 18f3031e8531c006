"""Rows and blobs changed behind our back: none is served, each is reported."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.records import HOST, MATMUL, keep_best
from tests.support.times import TIMES
from tilewright.db import open_store
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.workload.workload import Workload
from tilewright.service.http.app import create_app
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings

TAMPERED = 40 * TIMES  # TIMES=5: 200
OBJECT = b"\x7fELF" + bytes(range(256)) * 4
COLUMNS = {
    "record": ("key", "status", "estimate_secs", "llvm", "seed", "trial", "verified_level",
               "created_at", "document", "row_sha256"),
    "blob": ("data", "sha256"),
    "artefact": ("name", "sha256", "bytes", "kind", "row_sha256"),
    "workload": ("name", "flops", "document", "row_sha256"),
    "target": ("document", "row_sha256"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "store.sqlite"
    with open_store(str(path)) as store:
        record = keep_best(store, workloads.workload_of(MATMUL))
        store.add_artefacts(
            record.key, [ArtefactFile("object", "m.o", "application/x-object", OBJECT)]
        )
    return path


def changed(chance: random.Random, value: Any) -> Any:
    """Something like `value`, but not it."""
    if isinstance(value, bytes):
        at = chance.randrange(len(value))
        return value[:at] + bytes([value[at] ^ chance.randrange(1, 256)]) + value[at + 1 :]
    if isinstance(value, str):
        at = chance.randrange(len(value))
        other = chance.choice([c for c in '0123456789abcdefxyz{}"' if c != value[at]])
        return value[:at] + other + value[at + 1 :]
    if isinstance(value, float):
        return value * chance.choice((0.1, 0.5, 0.999, 2.0))
    return value + chance.choice((1, 2, 1000))


def tamper(path: Path, chance: random.Random) -> str:
    """Change one field of one row; which."""
    table = chance.choice(list(COLUMNS))
    column = chance.choice(COLUMNS[table])
    connection = sqlite3.connect(path)
    row, value = connection.execute(
        f"SELECT rowid, {column} FROM {table} LIMIT 1"  # names of ours
    ).fetchone()
    connection.execute("PRAGMA ignore_check_constraints=ON")
    connection.execute(
        f"UPDATE {table} SET {column} = ? WHERE rowid = ?",
        (changed(chance, value), row),
    )
    connection.commit()
    connection.close()
    return f"{table}.{column}"


def answers(
    api: TestClient, workload: Workload, names: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Everything that is served of the record, as (path, what); only answers of 200."""
    for path in (
        f"/v1/best/{workload.key}/{HOST.key}",
        f"/v1/records/{names['record']}",
        f"/v1/blobs/{names['blob']}",
    ):
        answer = api.get(path)
        assert answer.status_code in (200, 404, 422, 503), answer.text
        if answer.status_code == 200:
            yield path, answer.content if "/blobs/" in path else answer.json()
    body = {"workloads": [workload.key, MATMUL], "target": HOST.to_json()}
    answer = api.post("/v1/best:lookup", json=body)
    assert answer.status_code in (200, 503), answer.text
    for item in answer.json().get("items", []):
        if item["found"]:
            yield "lookup", item["answer"]


def of_the_record(said: Any) -> Any:
    """What an answer says of the measurement. Its files, and the name and size of a workload or
    target whose row is damaged, may be left out."""
    if not isinstance(said, dict):
        return said
    left_out = ("artefacts", "workload", "target", "gflops")
    return {name: part for name, part in said.items() if name not in left_out}


def test_what_was_tampered_with_is_never_served(
    sound: Path, workload: Workload, tmp_path: Path
) -> None:
    chance = random.Random(20261122)
    with open_store(str(sound)) as store, TestClient(create_app(Settings(), store)) as api:
        best = store.best(workload.key, HOST.key)
        assert best is not None
        names = {"record": best.key, "blob": store.artefacts(best.key)[0].sha256}
        right = list(answers(api, workload, names))
        assert len(right) == 5
    for _ in range(TAMPERED):
        path = tmp_path / "x.sqlite"
        for leftover in tmp_path.glob("x.sqlite*"):
            leftover.unlink()
        shutil.copy(sound, path)
        what = tamper(path, chance)
        with open_store(str(path)) as store, TestClient(create_app(Settings(), store)) as api:
            for where, said in answers(api, workload, names):
                expected = next(shown for at, shown in right if at == where)
                assert of_the_record(said) == of_the_record(expected), f"{what}: {where}"
                if isinstance(said, dict):
                    assert said["artefacts"] in ({}, expected["artefacts"]), f"{what}: {where}"
            assert store.check(), f"{what} is not reported"
