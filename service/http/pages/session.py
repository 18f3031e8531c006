"""The API key that a browser stores after `/login`; `guard.key_text` reads it.

The key is a cookie. Scripts cannot read it (HttpOnly), and pages of other origins cannot send it
(SameSite=Strict). It is not validated here.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from tilewright.service import timeouts

COOKIE = "tilewright_key"
MAX_KEY_CHARACTERS = 512


def is_signed_in(request: Request) -> bool:
    """Return whether the browser stores a key, valid or not."""
    return bool(request.cookies.get(COOKIE))


def keep_key(response: Response, request: Request, key: str) -> None:
    """Make the browser send `key` with later requests, over HTTPS only if this request used
    HTTPS."""
    response.set_cookie(
        COOKIE,
        key,
        max_age=timeouts.SESSION_COOKIE_SECS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def forget_key(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
