"""What pages ask of the API: the same rules, whoever asks. The one place that knows how its routes
are called."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response

from tilewright.service.access.keys import Principal
from tilewright.service.http.routes import jobs as api
from tilewright.service.http.state import ServiceState


async def submit(
    state: ServiceState, asking: Principal, document: dict[str, Any], *, validate_only: bool = False
) -> dict[str, Any]:
    """The job of `POST /v1/jobs` with this body."""
    body = json.dumps(document).encode()
    return await api.submit(state, asking, body, Response(), validate_only)


async def cancel(state: ServiceState, asking: Principal, job_id: str) -> dict[str, Any]:
    """The job of `POST /v1/jobs/{id}:cancel`."""
    return await api.cancel(state, asking, job_id)
