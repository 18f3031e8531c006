"""Bodies of requests, and lookups of workloads that nobody tuned."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from tests.support.service.records import HOST

LOOKUP_LIMITS: dict[str, Any] = {"default_secs": 0.0, "lookup_secs": 0.0}
"""No request waits for what it asked for."""


def job(number: int, trials: int = 4) -> dict[str, Any]:
    return {
        "workload": f"matmul:M=8,N=8,K={number}",
        "target": HOST.to_json(),
        "budget": {"trials": trials},
    }


def look_up(api: TestClient, key: dict[str, str], *numbers: int) -> list[str | None]:
    """The tickets of workloads that nobody tuned."""
    body = {
        "workloads": [f"matmul:M=8,N=8,K={n}" for n in numbers],
        "target": "native",
        "min_grade": "default",
    }
    answer = api.post("/v1/best:lookup", json=body, headers=key)
    assert answer.status_code == 200, answer.text
    return [item["ticket"] for item in answer.json()["items"]]
