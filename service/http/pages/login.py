"""`/login` and `/logout`: store an API key in a browser, or delete it there."""

from __future__ import annotations

from string import ascii_letters, digits
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tilewright.service.errors import InvalidField
from tilewright.service.http.pages.forms import Form
from tilewright.service.http.pages.render import page
from tilewright.service.http.pages.session import (
    MAX_KEY_CHARACTERS,
    forget_key,
    is_signed_in,
    keep_key,
)
from tilewright.service.http.route_rules import RULES, Rules

KEY_CHARACTERS = frozenset(ascii_letters + digits + "-._~+/=")
"""Characters of a bearer token (RFC 6750)."""

HOME = "/"
MOST_PATH_CHARACTERS = 2000
_RULES = Rules(RULES)

router = APIRouter(include_in_schema=False)


@router.api_route("/login", methods=["GET", "HEAD"])
def login_page(request: Request, next: str = "") -> HTMLResponse:
    """The form for a key. `next` is the path that is opened after the sign-in."""
    return page(request, "login.html", signed_in=is_signed_in(request), next_path=path_here(next))


@router.post("/login")
def login(request: Request, fields: Form) -> Response:
    """Store the key and redirect to `next`, which checks the key."""
    key = fields.get("key", "")
    if not (0 < len(key) <= MAX_KEY_CHARACTERS and set(key) <= KEY_CHARACTERS):
        raise InvalidField("key: this is not an API key", pointer="/key")
    response = RedirectResponse(path_here(fields.get("next", "")), status_code=303)
    keep_key(response, request, key)
    return response


@router.post("/logout")
def logout(fields: Form) -> Response:
    """Delete the key."""
    response = RedirectResponse("/login", status_code=303)
    forget_key(response)
    return response


def path_here(text: str) -> str:
    """Return `text` if it is a path of this service that may need a key, with or without a query;
    else `/`. A link on another site may contain `text`, so a text that a browser could interpret as
    another host is rejected."""
    if len(text) > MOST_PATH_CHARACTERS or not text.isascii() or not text.isprintable():
        return HOME
    if not text.startswith("/") or text.startswith("//") or "\\" in text or " " in text:
        return HOME
    found = _RULES.find("GET", urlsplit(text).path)
    return text if found.rule is not None and found.rule.scope is not None else HOME
