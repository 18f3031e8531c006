"""What is not sent again: 304 for what the client has, gzip for what is long and not.

A strong ETag says that the bytes are the same, so an answer that has one is sent as it is.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

GZIP_BYTES = 4096  # a single answer is shorter, and costs more to pack than to send
GZIP_LEVEL = 1  # JSON shrinks to a fifth of its size; level 6 gains a tenth more in three times

KEPT_AT_304 = frozenset(
    {b"etag", b"cache-control", b"content-location", b"vary", b"expires", b"date", b"x-request-id"}
)


def names(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names `etag` (with its quotes), or anything at all; weak comparison
    (RFC 9110, section 13.1.2)."""
    if if_none_match is None:
        return False
    wanted = etag.removeprefix("W/")
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or wanted in tags


def for_asker_alone(send: Send) -> Send:
    """`send` for answers that a key opens: whatever they say of caching, no cache that others use
    keeps them (RFC 9111, section 5.2.2.7). Who asks by a cookie needs that to be said."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            told = [part.strip() for part in headers.get("cache-control", "").split(",")]
            kept = [part for part in told if part and part not in ("public", "private")]
            if "no-store" not in kept:
                headers["cache-control"] = ", ".join(["private", *kept])
        await send(message)

    return sent


class ConditionalResponses:
    """Answers 304, without a body, where the answer would be a 200 whose ETag the client names.

    Every route with an ETag has this. One that can tell before it reads anything may call `names`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("if-none-match")
        if asked is None:
            await self._app(scope, receive, send)
            return
        known = False

        async def shortened(message: Message) -> None:
            nonlocal known
            if message["type"] == "http.response.start" and message["status"] == 200:
                etag = Headers(raw=message["headers"]).get("etag")
                known = etag is not None and names(asked, etag)
                if known:
                    kept = [(k, v) for k, v in message["headers"] if k.lower() in KEPT_AT_304]
                    message = {**message, "status": 304, "headers": kept}
            elif known:
                message = {**message, "body": b""}
            await send(message)

        await self._app(scope, receive, shortened)


class GzipResponses:
    """gzip for long answers without an ETag, for those who accept it. Never for event streams."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._packing = GZipMiddleware(
            self._marked, minimum_size=GZIP_BYTES, compresslevel=GZIP_LEVEL
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            await self._app(scope, receive, send)
            return
        await self._packing(scope, receive, _unmarked(send))

    async def _marked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, its answers with an ETag marked as encoded already: those it leaves."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                if "etag" in headers and "content-encoding" not in headers:
                    headers["content-encoding"] = "identity"
            await send(message)

        await self._app(scope, receive, marked)


def _unmarked(send: Send) -> Send:
    async def unmarked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            if headers.get("content-encoding") == "identity":
                del headers["content-encoding"]
        await send(message)

    return unmarked
