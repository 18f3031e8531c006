"""Records travel as JSON lines; what arrives is a claim until it was verified here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.store_values import (
    OTHER_WORKLOAD,
    TARGET,
    WORKLOAD,
    WORKLOADS,
    a_record,
    full,
    probes_of,
    promoted,
    register,
)
from tilewright.db import Store, open_store
from tilewright.db.errors import InvalidRecord


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "ours.sqlite")) as store:
        yield store


@pytest.fixture
def exported(tmp_path: Path) -> list[str]:
    """The export of another store: a crash, a quick check and a best."""
    with open_store(str(tmp_path / "theirs.sqlite")) as store:
        register(store)
        store.add([a_record(1, None), a_record(2)])
        assert promoted(store, full(3, 1e-4))
        out = io.StringIO()
        assert store.export(out) == 3
    return out.getvalue().splitlines(keepends=True)


def test_an_import_stores_claims_that_are_never_best(ours: Store, exported: list[str]) -> None:
    report = ours.import_(exported)
    assert (report.added, report.known, report.bad) == (3, 0, ())
    assert ours.records(WORKLOAD, TARGET.key) == []
    claims = ours.records(WORKLOAD, TARGET.key, include_imported=True)
    assert [r.trial for r in claims] == [1, 2, 3]
    assert {r.verified_level for r in claims} == {"imported"}
    assert ours.best(WORKLOAD, TARGET.key) is None
    assert not any(ours.promote(r) for r in claims)
    workload = ours.workload(WORKLOAD)
    assert workload is not None
    assert workload.name == "neg:1"
    assert ours.check() == []


def test_importing_again_adds_nothing(ours: Store, exported: list[str]) -> None:
    ours.import_(exported)
    again = ours.import_(exported)
    assert (again.added, again.known, again.bad) == (0, 3, ())
    own = io.StringIO()
    ours.export(own)
    back = ours.import_(own.getvalue().splitlines())
    assert (back.added, back.known) == (0, 3)


def test_own_records_are_recognised(ours: Store, exported: list[str]) -> None:
    register(ours)
    ours.add([a_record(2)])
    report = ours.import_(exported)
    assert (report.added, report.known) == (2, 1)


def test_exporting_twice_gives_the_same_bytes(ours: Store, exported: list[str]) -> None:
    ours.import_(exported)
    first, second = io.StringIO(), io.StringIO()
    ours.export(first)
    ours.export(second)
    assert first.getvalue() == second.getvalue()


def test_probes_of_a_stranger_do_not_replace_ours(ours: Store, exported: list[str]) -> None:
    probed = TARGET.to_json() | {"probes": {"peak_gflops": {"f32": [100.0]}}}
    ours.register(WORKLOAD, WORKLOADS[WORKLOAD].to_json(), "mine", 1, TARGET.key, probed)
    ours.import_(exported[:1] + exported[2:3])
    assert probes_of(ours) == {"f32": [100.0]}


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("", "line 1: must be the header of an export"),
        ("[]", "a line is a JSON object, got list"),
        (
            '{"format": "tilewright-records", "version": 99}',
            "found 'tilewright-records' version 99",
        ),
        ('{"a": 1}', "found None version None"),
    ],
)
def test_something_that_is_no_export(ours: Store, first: str, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        ours.import_([first, '{"kind": "target"}'])


def edited(kind: str, change: Callable[[dict[str, Any]], None]) -> Callable[[list[str]], str]:
    def line(lines: list[str]) -> str:
        entry = next(e for e in map(json.loads, lines) if e.get("kind") == kind)
        change(entry)
        return json.dumps(entry)

    return line


BAD_LINES: dict[str, tuple[Callable[[list[str]], str], str]] = {
    "not json": (lambda _: "{", "not JSON: Expecting property name"),
    "nan": (lambda _: '{"kind": NaN}', "NaN is not a number"),
    "infinite": (lambda _: '{"kind": 1e400}', "1e400 is beyond the range"),
    "doubled": (lambda _: '{"kind": "record", "kind": "record"}', "is given twice"),
    "deep": (lambda _: "[" * 100_000, "64 levels deep"),
    "digits": (lambda _: '{"kind": ' + "9" * 5000 + "}", "5000 characters, at most 40"),
    "array": (lambda _: "[]", "a line is a JSON object, got list"),
    "long": (lambda _: '{"x": "' + "x" * 2**22 + '"}', "at most 4194304 are allowed"),
    "kind": (lambda _: '{"kind": "job"}', "kind: must be workload, target or record, got 'job'"),
    "no key": (lambda _: '{"kind": "record", "record": {}}', "not a record: KeyError 'result'"),
    "no record": (lambda _: '{"kind": "record"}', "the field 'record' is missing"),
    "surrogate": (
        edited("workload", lambda e: e.update(key="w", document={"x": "\ud800"})),
        "half a surrogate pair",
    ),
    "flops": (edited("workload", lambda e: e.update(flops=1.5)), "flops: must be a whole number"),
    "name": (edited("workload", lambda e: e.update(name=3)), "name: must be text, got int"),
    "document": (
        edited("workload", lambda e: e.update(document=[])),
        "must be an object, got list",
    ),
    "other meaning": (
        edited("workload", lambda e: e.update(document=WORKLOADS[OTHER_WORKLOAD].to_json())),
        f"key: this document has the key {OTHER_WORKLOAD}",
    ),
    "workload": (edited("workload", lambda e: e.update(document={"x": 1})), "unknown field 'x'"),
    "target": (edited("target", lambda e: e.update(document={})), "not a target description"),
    "target key": (edited("target", lambda e: e.update(key="x")), "this description has the key"),
    "record": (edited("record", lambda e: e.update(record=[])), "a record is an object, got list"),
    "error found": (
        edited("record", lambda e: e["record"]["result"].update(error_found=-1.0)),
        "result.error_found: must be finite and 0 or more, got -1.0",
    ),
    "nothing compared": (
        edited(
            "record",
            lambda e: e["record"]["result"].update(evidence={"cases": 3, "sampled_fraction": 0.0}),
        ),
        "result.evidence.sampled_fraction: must be in 0..1, got 0.0",
    ),
    "record fields": (edited("record", lambda e: e["record"].pop("seed")), "not a record"),
    "status": (
        edited("record", lambda e: e["record"]["result"].update(status="fine")),
        "'fine' is not a valid MeasureStatus",
    ),
    "time": (
        edited("record", lambda e: e["record"]["result"].update(run_secs_estimate=1.0)),
        "must carry no time",
    ),
    "record key": (edited("record", lambda e: e["record"].update(seed=5)), "record has the key"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_and_the_others_kept(
    ours: Store, exported: list[str], name: str
) -> None:
    make, message = BAD_LINES[name]
    lines = [*exported[:3], make(exported), "\n", *exported[3:]]
    report = ours.import_(lines)
    assert report.added == 3
    (bad,) = report.bad
    assert bad.line == 4
    assert message in bad.reason


@pytest.mark.parametrize("missing", ["workload", "target"])
def test_a_record_needs_its_work_first(ours: Store, exported: list[str], missing: str) -> None:
    report = ours.import_(line for line in exported if f'"kind":"{missing}"' not in line)
    assert report.added == 0
    assert [bad.line for bad in report.bad] == [3, 4, 5]
    assert all(f"{missing}_key: no earlier line has" in bad.reason for bad in report.bad)


def test_a_damaged_record_stays_behind(tmp_path: Path, exported: list[str]) -> None:
    import sqlite3

    with open_store(str(tmp_path / "theirs.sqlite")) as store:
        connection = sqlite3.connect(str(store.path), isolation_level=None)
        connection.execute("UPDATE record SET trial = 9 WHERE trial = 2")
        connection.execute("UPDATE target SET document = '{}'")
        connection.close()
        assert store.export(io.StringIO()) == 0
        register(store)
        assert store.export(io.StringIO()) == 2


def test_a_large_import_is_committed_in_parts(
    ours: Store, exported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.db.whole.transfer.LINES_PER_COMMIT", 50)
    register(ours)
    source = [
        {"kind": "record", "key": r.key, "record": r.to_json()}
        for r in (replace(a_record(), trial=trial) for trial in range(120))
    ]

    def lines() -> Iterator[str]:
        yield exported[0]
        yield from map(json.dumps, source)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ours.import_(lines())
    assert ours.counts().records == 99, "whole parts of 50 lines stay"
    report = ours.import_([exported[0], *map(json.dumps, source)])
    assert (report.added, report.known) == (21, 99)
