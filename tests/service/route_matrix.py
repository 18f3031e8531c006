"""What each route answers to each kind of key. A new route is added here, on one line.

`ok` is the status for a key with the scope that the route asks for, on the database of
`test_route_matrix.py`, where `JOB`, `RECORD`, ... stand for what is stored; `scope` "" is a route
open to anybody. With `job` the answer to another owner's key is 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.service.service_cases import HOST, MATMUL


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


WORK = {"workload": "matmul:M=8,N=8,K=16", "target": HOST.to_json()}
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
    Case("GET", "/v1/records/{key}", "/v1/records/RECORD", 200),
    Case("GET", "/v1/blobs/{key}", "/v1/blobs/BLOB", 200),
)
