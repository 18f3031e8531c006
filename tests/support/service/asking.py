"""Questions to the service for the best schedules of workloads."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

NINE = "matmul:M=9,N=9,K=9"


def ask(api: TestClient, *asked: Any, target: Any = "native", grade: str = "default") -> Any:
    body = {"workloads": list(asked), "target": target, "min_grade": grade}
    answer = api.post("/v1/best:lookup", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def get(api: TestClient, workload: Workload, target: Target, grade: str = "default") -> Any:
    return api.get(f"/v1/best/{workload.key}/{target.key}", params={"min_grade": grade})
