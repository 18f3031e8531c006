"""Answers that are served from memory: read again after each commit, and never served once the
rows or files behind them are damaged."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.asking import NINE, ask, get
from tests.support.service.preparing import Counted, prepare_all
from tests.support.service.records import HOST, MATMUL, keep_best, make_record
from tilewright.db import Store, open_store
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.workload.workload import Workload


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE record SET document = replace(document, '[]', '[1]')",
        "UPDATE record SET estimate_secs = estimate_secs / 2",
        "UPDATE record SET row_sha256 = 'x'",
        "UPDATE workload SET flops = 1",
        "UPDATE target SET document = replace(document, 'znver3', 'znver5')",
        "UPDATE best SET record_key = NULL",
        "DELETE FROM best",
    ],
)
def test_an_answer_that_was_given_is_not_given_again_once_its_rows_are_damaged(
    change: str, api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload)
    for _ in range(2):
        assert get(api, workload, HOST, "exact").status_code == 200
    connection = sqlite3.connect(str(store.path))
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute(change)
    connection.commit()
    connection.close()
    assert get(api, workload, HOST, "exact").status_code == 404
    (item,) = ask(api, MATMUL, target=HOST.to_json(), grade="exact")
    assert not item["found"]


def test_files_that_are_damaged_are_not_named(
    api: TestClient, store: Store, workload: Workload
) -> None:
    ask(api, MATMUL)
    prepare_all(store, Counted())
    assert len(ask(api, MATMUL)[0]["answer"]["artefacts"]) == 3
    connection = sqlite3.connect(str(store.path))
    connection.execute("UPDATE prepared_file SET bytes = 1 WHERE kind = 'object'")
    connection.commit()
    connection.close()
    assert set(ask(api, MATMUL)[0]["answer"]["artefacts"]) == {"header", "llvm"}


def test_answers_are_given_again_without_asking_the_database(
    api: TestClient, store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_best(store, workload)
    first = get(api, workload, HOST, "exact")
    asked: list[object] = []
    real = store.evidence

    def counted(works: Any, **more: Any) -> Any:
        asked.append(works)
        return real(works, **more)

    monkeypatch.setattr(store, "evidence", counted)
    assert get(api, workload, HOST, "exact").content == first.content
    assert asked == []
    store.put_blob(b"news", "x/y")
    assert get(api, workload, HOST, "exact").content == first.content
    assert len(asked) == 1, "after a commit the rows are read again"
    keep_best(store, workload, secs=1e-6, trial=5)
    assert get(api, workload, HOST, "exact").json()["run_secs"] == 1e-6


def test_what_others_commit_is_seen_at_once(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload)
    for trial in range(2, 6):
        assert get(api, workload, HOST, "exact").status_code == 200
        with open_store(str(store.path)) as other:
            better = keep_best(other, workload, secs=1e-3 / trial, trial=trial)
        assert get(api, workload, HOST, "exact").json()["record_key"] == better.key


TAMPERED = [
    (table, column)
    for table, columns in {
        "record": (
            "workload_key", "target_key", "threads", "status", "estimate_secs", "codegen_version",
            "llvmlite", "llvm", "seed", "trial", "verified_level", "created_at", "document",
            "row_sha256",
        ),
        "workload": ("name", "flops", "document", "row_sha256"),
        "target": ("document", "row_sha256"),
        "artefact": ("name", "sha256", "bytes", "row_sha256"),
        "preparation": ("toolchain", "state", "document", "row_sha256"),
        "prepared_file": ("name", "sha256", "bytes", "row_sha256"),
        "blob": ("data",),
    }.items()
    for column in columns
]  # fmt: skip


def test_whatever_is_tampered_with_is_not_served_and_reported(
    api: TestClient, store: Store, workload: Workload
) -> None:
    """Each column of each row that answers are made of, after the answer was given from memory."""
    keep_best(store, workload)
    record = make_record(workload)
    store.add_artefacts(record.key, [ArtefactFile("object", "k.o", "x/o", b"object")])
    ask(api, NINE)
    prepare_all(store, Counted())

    def served() -> list[Any]:
        tuned = ask(api, workload.key, target=HOST.to_json(), grade="exact")
        items = [*tuned, *ask(api, NINE)]
        files = [
            api.get(file["url"]).content
            for item in items
            for file in (item["answer"] or {"artefacts": {}})["artefacts"].values()
        ]
        return [[{**item, "problem": None} for item in items], files]

    sound = served()
    file = str(store.path)
    for table, column in TAMPERED:
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            connection.execute("PRAGMA ignore_check_constraints=ON")
            before = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            other = b"evil" if column == "data" else _changed(before[0][1])
            connection.execute(f"UPDATE {table} SET {column} = ?", (other,))
        connection.close()
        assert store.check() != [], (table, column)
        items, files = served()
        for item, whole in zip(items, sound[0], strict=True):
            answer, was = item["answer"], whole["answer"]
            if answer is not None and answer["artefacts"]:
                assert answer["trace"] == was["trace"], (table, column)
                assert answer["run_secs"] == was["run_secs"], (table, column)
                assert answer["artefacts"].items() <= was["artefacts"].items(), (table, column)
        assert not any(b"evil" in data for data in files), (table, column)
        with sqlite3.connect(file) as connection:
            back = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            connection.executemany(back, [(value, rowid) for rowid, value in before])
        connection.close()
        prepare_all(store, Counted())  # what was damaged is found anew
    assert served() == sound


def _changed(value: object) -> object:
    """Another value of the same kind."""
    if isinstance(value, int | float):
        return value + 1
    return f"evil{value}"
