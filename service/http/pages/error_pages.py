"""Errors as HTML pages."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse

from tilewright.service.http.pages.render import page, wants_part
from tilewright.service.http.pages.session import is_signed_in
from tilewright.service.problems import ProblemDetails

UNAUTHORISED = 401


def wants_page(request: Request) -> bool:
    """Return whether the client accepts `text/html` and prefers it to JSON. Browsers do, programs
    do not."""
    if wants_part(request):
        return True
    weights = dict(_accepted(request.headers.get("accept", "")))
    html = weights.get("text/html", 0.0)
    json = max(weights.get("application/json", 0.0), weights.get("application/problem+json", 0.0))
    return html > 0 and html >= json


def problem_page(
    problem: ProblemDetails, request: Request, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """Render the page of a problem; for htmx, only a part of a page."""
    return page(
        request,
        "_problem.html" if wants_part(request) else "problem.html",
        status=problem.status,
        headers={**(headers or {}), "Cache-Control": "no-store"},
        problem=problem,
        request_id=str(getattr(request.state, "request_id", "")),
        sign_in=problem.status == UNAUTHORISED,
        signed_in=is_signed_in(request),
        next_path=_path_of(request),
    )


def _path_of(request: Request) -> str:
    """Return the requested path, for a second request after the sign-in, or "" if the request has a
    body."""
    if request.method not in ("GET", "HEAD"):
        return ""
    query = request.url.query
    return quote(request.scope["path"]) + (f"?{query}" if query else "")


def _accepted(text: str) -> list[tuple[str, float]]:
    found = []
    for part in text.split(",")[:40]:
        media, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        found.append((media.lower(), weight))
    return found
