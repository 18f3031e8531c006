"""`/fleet`: the machines that measure, and what waits for them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.http.deps import Asking, State
from service.http.pages.machines import joined_views, own_view
from service.http.pages.render import page, wants_part
from service.http.pages.views import STATES, job_row
from service.http.state import ServiceState

RUNNING = 50

router = APIRouter(include_in_schema=False)


@router.api_route("/fleet", methods=["GET", "HEAD"])
def fleet(request: Request, state: State, asking: Asking) -> HTMLResponse:
    """This machine, those that joined, and the queue."""
    from db.job_states import JobState

    catalogue, owner = state.store.catalogue, asking.jobs_of
    counts = {str(s): count for s, count in catalogue.job_counts(owner).items()}
    active = [
        job_row(line)
        for only in (JobState.RUNNING, JobState.CANCELLING, JobState.QUEUED)
        if counts[only]
        for line in catalogue.jobs("", only, None, RUNNING, owner).items
    ]
    queue: dict[str, Any] = {"counts": counts, "states": STATES, "rows": active[:RUNNING]}
    if wants_part(request):
        return page(request, "_queue.html", **queue)
    return page(request, "fleet.html", machines=own_view(), address=_address(state), **queue)


@router.get("/fleet/machines")
def machines(request: Request, state: State) -> HTMLResponse:
    """Those that joined: asked of the fleet's scheduler, which may be slow to answer."""
    address = _address(state)
    return page(
        request,
        "_machines.html" if wants_part(request) else "fleet_machines.html",
        machines=joined_views(address) if address else [],
        address=address,
    )


def _address(state: ServiceState) -> str:
    """The fleet's scheduler, "" for a service that has none."""
    return state.settings.fleet
