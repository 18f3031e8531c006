"""Limits on requests; `GET /limits` prints them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits in bytes, seconds and counts. Limits per owner apply if keys are used."""

    body_bytes: int = 1 << 20
    lookup_body_bytes: int = 8 << 20
    json_depth: int = 64
    json_nodes: int = 10_000
    lookup_json_nodes: int = 1_000_000
    lookup_items: int = 1_000
    job_workloads: int = 200
    default_secs: float = 10.0
    lookup_secs: float = 5.0
    preparations: int = 2_000
    owner_preparations: int = 200
    owner_prepared: int = 5_000
    ticket_jobs: int = 500
    page_size: int = 50
    page_size_max: int = 1_000
    wait_secs: float = 60.0
    trials_default: int = 64
    trials_max: int = 100_000
    seconds_max: float = 86_400.0
    open_jobs: int = 1_000
    event_streams: int = 64
    seed_max: int = 2**63 - 1
    body_secs: float = 30.0
    requests_per_sec: float = 2_000.0
    requests_burst: int = 4_000
    owner_open_jobs: int = 50
    owner_open_trials: int = 200_000
    owner_ticket_jobs: int = 250
    owner_event_streams: int = 20
    owner_requests: int = 100
    connections: int = 1_000
    header_secs: float = 10.0
    idle_secs: float = 30.0
    send_secs: float = 30.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
