"""Authentication, authorisation and rate limits, before a request is routed."""

from __future__ import annotations

from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewright.db.errors import StoreError
from tilewright.schedules.errors import TilewrightError
from tilewright.service.access.keyring import Keyring
from tilewright.service.access.keys import Principal
from tilewright.service.access.rates import OwnerConcurrencyLimits, RateLimiter, retry_after_secs
from tilewright.service.errors import (
    MethodNotAllowed,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    TooBusy,
    TooLarge,
    TooSlow,
)
from tilewright.service.http.caching import private_responses
from tilewright.service.http.error_handlers import refusal
from tilewright.service.http.pages.session import COOKIE
from tilewright.service.http.route_rules import RULES, RouteMatch, Rule, Rules
from tilewright.service.limits import RequestLimits

if TYPE_CHECKING:
    from tilewright.db import Store


NOBODY = Principal(None, "", frozenset())
"""The caller of a public route."""


class Guard:
    """Admits or refuses a request. It sets `request.state.principal`, and
    `request.state.still_admitted` for long responses.

    Every decision is made here, by the table in `route_rules.py`. Routes have no checks, so none
    can be forgotten.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keyring: Keyring,
        store: Store,
        limits: RequestLimits,
        rules: dict[tuple[str, str], Rule] | None = None,
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._store = store
        self._limits = limits
        self._rules = Rules(RULES if rules is None else rules)
        self._rates = RateLimiter(limits.requests_per_sec, limits.requests_burst)
        self._streams = OwnerConcurrencyLimits(limits.owner_event_streams)
        self._requests = OwnerConcurrencyLimits(limits.owner_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = self._rules.find(scope["method"], _path(scope))
        if scope["method"] == "OPTIONS" and found.methods:
            # Not secret: /openapi.json lists the methods.
            await Response(status_code=204, headers={"Allow": ", ".join(found.methods)})(
                scope, receive, send
            )
            return
        text = key_text(Headers(scope=scope))
        try:
            principal = await self._admitted(scope, found, text)
        except TilewrightError as error:
            await refusal(error, Request(scope))(scope, receive, send)
            return
        kept = scope.setdefault("state", {})
        kept["principal"] = principal
        kept["still_admitted"] = partial(self._still_admitted, text)
        if scope["method"] not in ("GET", "HEAD"):
            receive = _Body(receive, self._limits)
        if principal.owner is None:
            await self._app(scope, receive, send)
            return
        send = private_responses(send)
        streams = found.rule is not None and found.rule.streams
        gates = self._streams if streams else self._requests
        with gates.admitted(principal.owner) as enters:
            if enters:
                await self._app(scope, receive, send)
                return
        what = "event streams" if streams else "requests"
        full = TooBusy(f"{gates.limit} {what} of {principal.owner} are open already")
        await refusal(full, Request(scope))(scope, receive, send)

    async def _still_admitted(self, text: str | None) -> bool:
        """Return whether the key is still valid, during a long response."""
        try:
            await self._keyring.principal(text)
        except NotAuthenticated:
            return False
        except StoreError:
            return True  # the key was valid when it was last read
        return True

    async def _admitted(self, scope: Scope, found: RouteMatch, text: str | None) -> Principal:
        if found.rule is not None and found.rule.scope is None:
            return NOBODY
        principal = await self._keyring.principal(text)
        if principal.owner is None:
            return principal
        wait_secs = self._rates.take(principal.owner)
        if wait_secs:
            raise TooBusy(
                f"more than {self._limits.requests_per_sec:g} requests a second of "
                f"{principal.owner}",
                retry_after_secs=retry_after_secs(wait_secs),
                code="too_many_requests",
            )
        await self._check(principal, scope, found)
        return principal

    async def _check(self, principal: Principal, scope: Scope, found: RouteMatch) -> None:
        """Raise NotAllowed, NotFound or MethodNotAllowed if the key does not permit the request."""
        everything = principal.visible_owner is None
        if found.rule is None:
            if everything:
                return
            path = scope["path"][:200]
            if found.methods:
                raise MethodNotAllowed(f"{path} has no {scope['method'][:20]}", allow=found.methods)
            raise NotFound(
                f"there is nothing at {path}", advice="`/openapi.json` lists every route."
            )
        assert found.rule.scope is not None
        if not principal.may(found.rule.scope):
            raise NotAllowed(
                f"key {principal.key_id} lacks the scope {found.rule.scope}", code="low_scope"
            )
        job_id = found.parameters.get("job_id")
        if job_id is not None and not everything and principal.owner is not None:
            owner = principal.owner
            if not await run_sync(self._store.job_is_seen_by, job_id[:64], owner):
                raise NotFound(f"job {job_id[:60]!r}: no such job")


class _Body:
    """The incoming body: at most the bytes that any route accepts, within `body_secs`."""

    def __init__(self, receive: Receive, limits: RequestLimits) -> None:
        self._receive = receive
        self._limit = max(limits.body_bytes, limits.lookup_body_bytes)
        self._secs = limits.body_secs
        self._bytes = 0
        self._deadline: float | None = None
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # only a disconnect can follow
            return await self._receive()
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._secs
        try:
            with anyio.fail_after(max(0.0, self._deadline - anyio.current_time())):
                message = await self._receive()
        except TimeoutError as error:
            self._complete = True
            raise TooSlow(f"the body took longer than {self._secs:g} s") from error
        self._bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._bytes > self._limit:
            self._complete = True
            raise TooLarge(f"the body is larger than {self._limit} bytes")
        return message


def _path(scope: Scope) -> str:
    """Return the path without the prefix of a proxy."""
    path: str = scope["path"]
    root = scope.get("root_path") or ""
    return path.removeprefix(root) if root and path.startswith(root + "/") else path


def key_text(headers: Headers) -> str | None:
    """Return the key of a request, from `Authorization: Bearer KEY` or the browser's cookie. Return
    None if there is neither, "" if it is malformed."""
    stated = headers.get("authorization")
    if stated is not None:
        scheme, _, text = stated.partition(" ")
        return text.strip() if scheme.lower() == "bearer" else ""
    cookies = headers.get("cookie")
    if cookies is None or COOKIE not in cookies:
        return None
    try:
        kept = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return None if kept is None else kept.value
