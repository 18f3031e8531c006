"""Streams of events in tests: something happens when a reader has been told so much, not later."""

from __future__ import annotations

from collections.abc import Callable

from anyio.to_thread import run_sync
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def once_told(app: ASGIApp, words: bytes, then: Callable[[], object]) -> ASGIApp:
    """`app`, which goes on only after `then` has been done when it first sends `words`."""
    is_done = False

    async def told_app(scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            nonlocal is_done
            await send(message)
            if words in message.get("body", b"") and not is_done:
                is_done = True
                await run_sync(then)

        await app(scope, receive, told)

    return told_app
