"""What each route answers to each kind of key. A new route is added here, on one line.

`ok` is the status for a key with the scope that the route asks for, on the database of
`test_route_matrix.py`, where `JOB`, `RECORD`, ... stand for what is stored; `scope` "" is a route
open to anybody. With `job` the answer to another owner's key is 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.service.records import HOST, MATMUL


@dataclass(frozen=True, slots=True)
class Case:
    """One route: how it is called and what it then answers."""

    method: str
    route: str
    path: str
    ok: int
    scope: str = "read"
    job: bool = False
    body: Any = None
    form: dict[str, str] | None = None
    lines: str = ""


WORK = {"workload": "matmul:M=8,N=8,K=16", "target": HOST.to_json()}
BUILD = {"workload": "matmul:M=8,N=8,K=16", "name": "mm", "min_grade": "default"}
PINS = {"kernels": [{
    "name": "mm", "workload": MATMUL, "workload_key": "0" * 64, "threads": 1, "grade": "default",
    "target_key": "0" * 64, "record_key": None, "run_secs": None, "links": [],
    "toolchain": {"codegen": 1, "emit": 1, "llvmlite": "0.50.0", "llvm": "22.1.0"},
    "object": {"sha256": "0" * 64, "bytes": 1}, "header": {"sha256": "0" * 64, "bytes": 1},
}]}  # fmt: skip
FORM = {"workload": "matmul:M=8,N=8,K=16", "trials": "4"}
EXPORT = '{"format": "tilewright-records", "version": 1}'
LOOKUP = {"workloads": [MATMUL], "target": HOST.to_json()}

MATRIX = (
    Case("GET", "/healthz", "/healthz", 200, scope=""),
    Case("GET", "/readyz", "/readyz", 200, scope=""),
    Case("GET", "/limits", "/limits", 200, scope=""),
    Case("GET", "/openapi.json", "/openapi.json", 200, scope=""),
    Case("GET", "/docs", "/docs", 200, scope=""),
    Case("GET", "/metrics", "/metrics", 200),
    Case("POST", "/v1/jobs", "/v1/jobs?validate_only=true", 200, scope="submit", body=WORK),
    Case("GET", "/v1/jobs", "/v1/jobs", 200),
    Case("GET", "/v1/jobs/{job_id}", "/v1/jobs/JOB", 200, job=True),
    Case("POST", "/v1/jobs/{job_id}:cancel", "/v1/jobs/JOB:cancel", 200, scope="submit", job=True),
    Case("GET", "/v1/jobs/{job_id}/events", "/v1/jobs/JOB/events", 200, job=True),
    Case("GET", "/v1/jobs/{job_id}/trials", "/v1/jobs/JOB/trials", 200, job=True),
    Case("GET", "/v1/best/{workload_key}/{target_key}", "/v1/best/WORKLOAD/TARGET", 200),
    Case("POST", "/v1/best:lookup", "/v1/best:lookup", 200, body=LOOKUP),
    Case("POST", "/v1/records", "/v1/records", 200, scope="publish", lines=EXPORT),
    Case("GET", "/v1/records/{key}", "/v1/records/RECORD", 200),
    Case("GET", "/v1/blobs/{key}", "/v1/blobs/BLOB", 200),
    Case("POST", "/v1/builds", "/v1/builds", 200, scope="submit", body=BUILD),
    Case("POST", "/v1/builds:check", "/v1/builds:check", 200, body=PINS),
    Case("GET", "/static/{name}", "/static/tilewright.css", 200, scope=""),
    Case("GET", "/login", "/login", 200, scope=""),
    Case("POST", "/login", "/login", 303, scope="", form={"key": "tw_x_y"}),
    Case("POST", "/logout", "/logout", 303, scope="", form={}),
    Case("GET", "/", "/", 200),
    Case("GET", "/jobs/list", "/jobs/list", 200),
    Case("GET", "/jobs/new", "/jobs/new", 200),
    Case("POST", "/jobs", "/jobs", 303, scope="submit", form=FORM),
    Case("POST", "/jobs/check", "/jobs/check", 200, scope="submit", form=FORM),
    Case("GET", "/jobs/{job_id}", "/jobs/JOB", 200, job=True),
    Case("GET", "/jobs/{job_id}/facts", "/jobs/JOB/facts", 200, job=True),
    Case("GET", "/jobs/{job_id}/result", "/jobs/JOB/result", 303, job=True),
    Case("GET", "/jobs/{job_id}/trials", "/jobs/JOB/trials", 200, job=True),
    Case("GET", "/jobs/{job_id}/trials.json", "/jobs/JOB/trials.json", 200, job=True),
    Case("GET", "/jobs/{job_id}/trials.csv", "/jobs/JOB/trials.csv", 200, job=True),
    Case("GET", "/jobs/{job_id}/importance", "/jobs/JOB/importance", 200, job=True),
    Case("GET", "/jobs/{job_id}/compare", "/jobs/JOB/compare?b=JOB", 303, job=True),
    Case("GET", "/jobs/compare", "/jobs/compare?a=JOB&b=JOB", 422),
    Case("POST", "/jobs/{job_id}/cancel", "/jobs/JOB/cancel", 303, "submit", job=True, form={}),
    Case("GET", "/records/{key}", "/records/RECORD", 200),
    Case("GET", "/records/{key}/nests", "/records/RECORD/nests", 200),
    Case("GET", "/records/{key}/assembly", "/records/RECORD/assembly", 200),
    Case("GET", "/records/{key}/roofline", "/records/RECORD/roofline", 200),
    Case("GET", "/compare", "/compare?a=RECORD&b=RECORD", 200),
    Case("GET", "/workloads", "/workloads", 200),
    Case("GET", "/v1/fleet", "/v1/fleet", 200),
    Case("GET", "/fleet", "/fleet", 200),
    Case("GET", "/fleet/machines", "/fleet/machines", 200),
)
