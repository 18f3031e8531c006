"""`/login` and `/logout`: a browser keeps an API key, or forgets it."""

from __future__ import annotations

from string import ascii_letters, digits

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from service.errors import InvalidField
from service.http.pages.forms import Form
from service.http.pages.render import page
from service.http.pages.session import MAX_KEY_CHARACTERS, forget_key, is_signed_in, keep_key

KEY_CHARACTERS = frozenset(ascii_letters + digits + "-._~+/=")
"""Those of a bearer token (RFC 6750)."""

router = APIRouter(include_in_schema=False)


@router.api_route("/login", methods=["GET", "HEAD"])
def login_page(request: Request) -> HTMLResponse:
    """Where a key is typed in."""
    return page(request, "login.html", signed_in=is_signed_in(request))


@router.post("/login")
def login(request: Request, fields: Form) -> Response:
    """Keep the key. Whether it is good, the next page says."""
    key = fields.get("key", "")
    if not (0 < len(key) <= MAX_KEY_CHARACTERS and set(key) <= KEY_CHARACTERS):
        raise InvalidField("key: this is no API key", pointer="/key")
    response = RedirectResponse("/", status_code=303)
    keep_key(response, request, key)
    return response


@router.post("/logout")
def logout(fields: Form) -> Response:
    """Forget the key."""
    response = RedirectResponse("/login", status_code=303)
    forget_key(response)
    return response
