"""What pages ask of the API: the same rules, whoever asks. The one place that knows how its routes
are called."""

from __future__ import annotations

import json
from typing import Any

from anyio.to_thread import run_sync
from fastapi import Response

from service.http.routes import jobs as api
from service.http.state import ServiceState


async def submit(
    state: ServiceState, document: dict[str, Any], *, validate_only: bool = False
) -> dict[str, Any]:
    """The job of `POST /v1/jobs` with this body."""
    body = json.dumps(document).encode()
    return await run_sync(lambda: api.submit(state, body, Response(), validate_only))


async def cancel(state: ServiceState, job_id: str) -> dict[str, Any]:
    """The job of `POST /v1/jobs/{id}:cancel`."""
    return await run_sync(api.cancel, state, job_id)
