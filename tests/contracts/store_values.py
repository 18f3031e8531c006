"""Workloads, targets, records and a clock for tests of stores."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tilewright.db import Store
from tilewright.db.core.engine import Database
from tilewright.db.core.sqlite import SqliteDatabase
from tilewright.db.values.answers import Demand, PreparationState
from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import ApiKey, StoredJob
from tilewright.db.values.records import ArtefactFile
from tilewright.db.values.whole import FORMAT, FORMAT_VERSION
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.workload.workload import Workload

TARGET = Target(
    triple="x86_64-unknown-linux-gnu",
    cpu="znver3",
    features=("avx2", "fma"),
    vector_bits=256,
    vector_registers=16,
    caches=(Cache(32768, 8),),
    cores=2,
)
OTHER_TARGET = replace(TARGET, cpu="znver5", vector_bits=512, vector_registers=32)
FILES = [
    ArtefactFile("object", "neg.o", "application/x-object", b"\x7fELF"),
    ArtefactFile("header", "neg.h", "text/x-c", b"int neg"),
]


def a_workload(extent: int) -> Workload:
    """`B[i] = -A[i]` over `extent` elements."""
    shape = {"dtype": "f32", "shape": [extent]}
    body = {"op": "neg", "x": {"op": "load", "tensor": "A", "index": ["i"]}}
    stage = {"name": "B", "dtype": "f32", "axes": [["i", extent]], "body": body}
    document = {"inputs": [{"name": "A", **shape}], "stages": [stage], "outputs": ["B"]}
    return Workload.from_json(document).named(f"neg:{extent}")


WORKLOADS = {made.key: made for made in map(a_workload, range(1, 8))}
WORKLOAD, OTHER_WORKLOAD, *_ = WORKLOADS
TOOLCHAIN = Toolchain(codegen_version=1, llvmlite="0.50.0", llvm="22.1.0")
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class ChangeRefused(Exception):  # noqa: N818  # the name says the condition
    """The database itself refuses a change of a row: a constraint, a wrong type."""


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, secs: float) -> None:
        self.now += timedelta(seconds=secs)


def a_record(trial: int = 1, secs: float | None = 1e-3, **changes: Any) -> TuningRecord:
    """An OK record that takes `secs`, or one that crashed if that is None."""
    if secs is None:
        result = MeasureResult(MeasureStatus.RUN_CRASH, detail="SIGSEGV")
    else:
        result = MeasureResult(MeasureStatus.OK, (secs, secs * 1.1), secs)
    record = TuningRecord(
        workload_key=WORKLOAD,
        target_key=TARGET.key,
        threads=1,
        trace=[{"split": "i", "factor": 8, "at": trial}],
        result=result,
        toolchain=TOOLCHAIN,
        seed=0,
        trial=trial,
    )
    return replace(record, **changes)


def full(trial: int, secs: float, **changes: Any) -> TuningRecord:
    """A record verified in full."""
    return a_record(trial, secs, verified_level="full", **changes)


def register(store: Store, workload: str = WORKLOAD, target: Target = TARGET) -> None:
    made = WORKLOADS[workload]
    store.register(workload, made.to_json(), made.name, 1024, target.key, target.to_json())


def a_demand(
    workload: str = WORKLOAD, job: tuple[dict[str, Any], str, str] | None = None, **more: Any
) -> Demand:
    """A demand for a workload on TARGET; `job` as `create_job` takes it."""
    made = WORKLOADS[workload]
    return Demand(
        workload, made.to_json(), made.name, 1024, TARGET.key, TARGET.to_json(), job, **more
    )


def database_of(store: Store) -> Database:
    """The database of a store, for tests that look behind its calls."""
    return store._database


def sqlite_of(store: Store) -> SqliteDatabase:
    """The SQLite database of a store."""
    database = database_of(store)
    assert isinstance(database, SqliteDatabase)
    return database


def all_records(store: Store) -> list[TuningRecord]:
    """Every intact record, in the order of arrival."""
    text = io.StringIO()
    store.export(text)
    entries = [json.loads(line) for line in text.getvalue().splitlines()]
    return [TuningRecord.from_json(e["record"]) for e in entries if e.get("kind") == "record"]


def end_leases(store: Store, *, blameless: bool = False) -> None:
    """End every lease of a job, as a new coordinator does."""
    store._end_leases(blameless=blameless)


def note_event(store: Store, job_id: str, epoch: int, kind: str, data: dict[str, Any]) -> int:
    """Report one event of a job; its id."""
    [number] = store.report_job(job_id, epoch, events=[(kind, data)])
    return number


def probes_of(store: Store) -> dict[str, list[float]]:
    document = store.target(TARGET.key)
    assert document is not None
    target = Target.from_json(document)
    assert target == TARGET
    return target.probes.peak_gflops


def promoted(store: Store, record: TuningRecord) -> bool:
    store.add([record])
    return store.promote(record)


def exported(workload: str, records: list[TuningRecord]) -> list[str]:
    """An export as another machine would have written it."""
    made = WORKLOADS[workload]
    named = {"key": workload, "name": made.name, "flops": 1024, "document": made.to_json()}
    lines = [
        {"format": FORMAT, "version": FORMAT_VERSION},
        {"kind": "workload", **named},
        {"kind": "target", "key": TARGET.key, "document": TARGET.to_json()},
        *({"kind": "record", "key": r.key, "record": r.to_json()} for r in records),
    ]
    return [json.dumps(line) for line in lines]


def submit(store: Store, number: int = 0, **changes: Any) -> tuple[StoredJob, bool]:
    arguments: dict[str, Any] = {"body_hash": f"body{number}", "flight_key": f"flight{number}"}
    return store.create_job({"workload": number}, **(arguments | changes))


def every_write(store: Store) -> None:
    """One of everything that changes a store, with what makes each possible."""
    register(store)
    store.add([a_record(1), a_record(2, None)])
    assert promoted(store, full(3, 1e-3))
    assert promoted(store, full(4, 1e-4))
    store.withdraw(full(4, 1e-4).key, "wrong")
    store.put_blob(b"object", "application/x-object")
    store.add_artefacts(full(3, 1e-3).key, [ArtefactFile("object", "neg.o", "x/o", b"object")])
    store.add_model(TARGET.key, "", {"share": 0.5}, {"samples": 200})
    job, _ = submit(store, idempotency_key="k", owner="ci")
    store.lease_job("worker", 30)
    store.report_job(job.id, 1, progress={"trials": 2})
    store.report_job(job.id, 1, events=[("trial", {"trial": 1})])
    store.report_job(job.id, 1, trials=[(1, a_record(1).key)])
    store.finish_job(job.id, 1, JobState.SUCCEEDED, result={})
    old = ApiKey("aaaaaaaaaa", "ci", "builds", ("read", "submit"), "0" * 64, START)
    store.add_key(old)
    store.replace_key(old.id, replace(old, id="bbbbbbbbbb"), START + timedelta(days=7))
    store.revoke_key(old.id)
    store.demand([a_demand()], "codegen 1", most_waiting=9, most_jobs=9)
    prepared = store.claim_preparation("codegen 1", "preparer")
    assert prepared is not None
    file = ArtefactFile("object", "neg.o", "x/o", b"object")
    store.settle_preparation(
        prepared.key, "preparer", PreparationState.READY, {"trace": []}, [file]
    )
