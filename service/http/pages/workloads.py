"""`/workloads`: the best records, by workload and machine."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from tilewright.service.http.deps import State
from tilewright.service.http.pages.render import page
from tilewright.service.http.pages.views import best_row
from tilewright.service.resolve import toolchains

PAGE = 50

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=200)]


@router.api_route("/workloads", methods=["GET", "HEAD"])
def workloads(
    request: Request,
    state: State,
    q: Text = "",
    cpu: Text = "",
    after: Annotated[str | None, Query(max_length=200)] = None,
) -> HTMLResponse:
    """The best record of every workload on every machine, newest first."""
    found = state.store.catalogue.bests(q, cpu, after, PAGE)
    parameters = {name: value for name, value in (("q", q), ("cpu", cpu)) if value}
    here = toolchains.toolchain()
    return page(
        request,
        "_best_list.html" if request.headers.get("hx-target") == "bests" else "workloads.html",
        rows=[best_row(best, here) for best in found.items],
        q=q,
        cpu=cpu,
        after=after or "",
        first_query=urlencode(parameters),
        next_query=urlencode({**parameters, "after": found.next_token}) if found.next_token else "",
    )
