"""`/fleet`: the machines that measure, and the queue."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from tilewright.service.http.deps import Caller, State
from tilewright.service.http.pages.machines import joined_views, own_view
from tilewright.service.http.pages.open_jobs import active_jobs, job_counts
from tilewright.service.http.pages.render import page, wants_part
from tilewright.service.http.pages.views import ACTIVE
from tilewright.service.http.state import ServiceState

RUNNING = 50

router = APIRouter(include_in_schema=False)


@router.api_route("/fleet", methods=["GET", "HEAD"])
def fleet(request: Request, state: State, caller: Caller) -> HTMLResponse:
    """This machine, the machines of the fleet, and the queue."""
    owner = caller.visible_owner
    counts = job_counts(state, owner)
    rows = active_jobs(state, owner, counts, RUNNING)[:RUNNING]
    more = sum(counts[name] for name in ACTIVE) - len(rows)
    queue: dict[str, Any] = {"rows": rows, "more_active": more}
    if wants_part(request):
        return page(request, "_queue.html", **queue)
    return page(
        request, "fleet.html", machines=own_view(state.store), address=_address(state), **queue
    )


@router.get("/fleet/machines")
def machines(request: Request, state: State) -> HTMLResponse:
    """The machines of the fleet, from its scheduler, which may be slow to answer."""
    address = _address(state)
    return page(
        request,
        "_machines.html" if wants_part(request) else "fleet_machines.html",
        machines=joined_views(address) if address else [],
        address=address,
    )


def _address(state: ServiceState) -> str:
    return state.settings.fleet
