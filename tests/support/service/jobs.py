"""Jobs that wait in a store, for tests of who works on them."""

from __future__ import annotations

from typing import Any

from tests.support.paths import ROOT
from tests.support.service.records import HOST, MATMUL
from tilewright.db import Store
from tilewright.db.values.jobs import StoredJob
from tilewright.service.jobs.request import read_job
from tilewright.service.settings import Settings

MACHINE = ROOT / "examples" / "machine.json"


SETTINGS = Settings(measurer_folder=MACHINE.parent)


def queued(store: Store, **fields: Any) -> StoredJob:
    request = read_job({"workload": MATMUL, "target": HOST.to_json(), **fields}, SETTINGS)
    job, created = store.create_job(request.to_json(), body_hash="x", flight_key=request.flight_key)
    assert created
    return job


def read(store: Store, job: StoredJob) -> StoredJob:
    found = store.get_job(job.id)
    assert found is not None
    return found
