"""The client for asyncio: an asynchronous driver of `ClientCore`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from tilewright.service.client import core
from tilewright.service.client.core import Call, ClientCore, ResultStream
from tilewright.service.client.messages import (
    ConnectionFailed,
    Pause,
    ReadChunk,
    Request,
    Response,
    Result,
)
from tilewright.service.errors import Unreachable

if TYPE_CHECKING:
    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


def _one(
    method: Callable[Concatenate[ClientCore, P], Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Convert a method of the core to a coroutine that returns its only result."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps = method(self._core, *args, **kwargs)
        (result,) = [result async for result in self._drive(steps)]
        return result

    return call


def _many(
    method: Callable[Concatenate[ClientCore, P], ResultStream[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """Convert a method of the core to a method that returns an iterator over its results."""

    @wraps(method)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._drive(method(self._core, *args, **kwargs))

    return call


class AsyncClient:
    """`Client` for asyncio: `async with AsyncClient() as client: await client.submit(...)`."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_secs: float = 30.0,
        retries: int = 4,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import asyncio  # Start-up: importing the client does not load it

        import httpx2  # Start-up: importing the client loads no HTTP library

        self.url = core.service_url(url)
        self._core = ClientCore(self.url, timeout_secs, retries, clock)
        self._sleep = sleep or asyncio.sleep
        try:
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                headers=core.headers_for(api_key),
                transport=transport,
                trust_env=transport is None,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise Unreachable(f"{self.url!r} is not a URL: {error}") from error

    submit = _one(ClientCore.submit)
    status = _one(ClientCore.status)
    wait = _one(ClientCore.wait)
    jobs = _many(ClientCore.jobs)
    cancel = _one(ClientCore.cancel)
    trials = _many(ClientCore.trials)
    events = _many(ClientCore.events)
    best = _one(ClientCore.best)
    lookup = _one(ClientCore.lookup)
    build = _one(ClientCore.build)
    check_pins = _one(ClientCore.check_pins)
    publish = _one(ClientCore.publish)
    record = _one(ClientCore.record)
    blob = _one(ClientCore.blob)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _drive(self, steps: ResultStream[T]) -> AsyncIterator[T]:
        """Perform the steps of a call; yield its results as they arrive."""
        import httpx2  # Start-up: importing the client loads no HTTP library

        async with AsyncExitStack() as response:
            chunks: AsyncIterator[bytes]
            step = core.resume(steps)
            while step is not None:
                reply: Response | bytes | None = None
                failure: ConnectionFailed | None = None
                try:
                    match step:
                        case Result(value):
                            yield value
                        case Pause(secs):
                            await response.aclose()
                            await self._sleep(secs)
                        case Request():
                            await response.aclose()
                            opened = self._http.stream(**step.arguments())
                            answer = await response.enter_async_context(opened)
                            chunks = answer.aiter_bytes()
                            reply = Response(answer.status_code, answer.headers)
                        case ReadChunk():
                            reply = await anext(chunks, None)
                except (httpx2.TransportError, httpx2.InvalidURL) as error:
                    failure = ConnectionFailed.because(error)
                step = core.resume(steps, reply, failure)
