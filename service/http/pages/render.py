"""Templates, and the headers of every page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tilewright.service import units
from tilewright.service.http.pages.assets import asset_url

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Forbids inline scripts and other sources, so that no text of a workload can be executed."""

HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    # "no-referrer" would make forms send `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept, HX-Request",
}

CLIENT_SETTINGS = {
    "allowEval": False,
    "allowScriptTags": False,
    "includeIndicatorStyles": False,
    "selfRequestsOnly": True,
    "historyCacheSize": 0,
}
"""Settings of htmx for the content policy: no `eval`, no inserted style element."""


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Render a template as a page, or as a part of one."""
    text = environment().get_template(template).render(
        path=request.url.path, client_settings=CLIENT_SETTINGS, **values
    )  # fmt: skip
    return HTMLResponse(text, status_code=status, headers={**HEADERS, **(headers or {})})


def wants_part(request: Request) -> bool:
    """Return whether htmx sent the request, to replace a part of a page."""
    return request.headers.get("hx-request") == "true"


@cache
def environment() -> Environment:
    """Return the template environment. All values are escaped; an undefined name is an error."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["asset"] = asset_url
    made.filters.update(
        duration=units.duration,
        clock=units.clock,
        bytes=units.byte_size,
        quantity=units.quantity,
        percent=units.percent,
        speed=lambda secs, flops: units.speed(float(flops or 0), secs),
        short_key=short_key,
        moment=moment,
        minute=minute,
    )
    return made


def short_key(key: str | None) -> str:
    return (key or "").removeprefix("sha256:")[:10]


def moment(at: datetime | str | None) -> str:
    """Format a time as RFC 3339 in UTC, in whole seconds, for `<time datetime>`."""
    found = _moment(at)
    return found.strftime("%Y-%m-%dT%H:%M:%SZ") if found else ""


def minute(at: datetime | str | None) -> str:
    """Format a time as `2026-11-22 22:10 UTC`; scripts convert it to the reader's time zone."""
    found = _moment(at)
    return found.strftime("%Y-%m-%d %H:%M UTC") if found else "-"


def _moment(at: datetime | str | None) -> datetime | None:
    if not at:
        return None
    if isinstance(at, datetime):
        return at.astimezone(UTC)
    try:
        return datetime.fromisoformat(at).astimezone(UTC)
    except ValueError:  # imported text may have any format
        return None
