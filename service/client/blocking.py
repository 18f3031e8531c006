"""The blocking client: a blocking driver of `ClientCore`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

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
) -> Callable[Concatenate[Client, P], T]:
    """Convert a method of the core to a method that returns its only result."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        (result,) = self._drive(method(self._core, *args, **kwargs))
        return result

    return call


def _many(
    method: Callable[Concatenate[ClientCore, P], ResultStream[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Convert a method of the core to a method that returns an iterator over its results."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._drive(method(self._core, *args, **kwargs))

    return call


class Client:
    """A client of one service, at `url`. The default is TILEWRIGHT_URL or, if that is not set, this
    machine. Use it as a context manager, or call `close`. If `api_key` is None, TILEWRIGHT_API_KEY
    is used.

    A call takes at most `timeout_secs`, including retries, plus the time for which it requested the
    service to wait. Calls raise `Unreachable` if no service responds, `Refused` if the service
    responds with an error. `transport`, `sleep` and `clock` are for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_secs: float = 30.0,
        retries: int = 4,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import httpx2  # Start-up: importing the client loads no HTTP library

        self.url = core.service_url(url)
        self._core = ClientCore(self.url, timeout_secs, retries, clock)
        self._sleep = sleep
        try:
            self._http = httpx2.Client(
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

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drive(self, steps: ResultStream[T]) -> Iterator[T]:
        """Perform the steps of a call; yield its results as they arrive."""
        import httpx2  # Start-up: importing the client loads no HTTP library

        with ExitStack() as response:
            chunks: Iterator[bytes]
            step = core.resume(steps)
            while step is not None:
                reply: Response | bytes | None = None
                failure: ConnectionFailed | None = None
                try:
                    match step:
                        case Result(value):
                            yield value
                        case Pause(secs):
                            response.close()
                            self._sleep(secs)
                        case Request():
                            response.close()
                            opened = self._http.stream(**step.arguments())
                            answer = response.enter_context(opened)
                            chunks = answer.iter_bytes()
                            reply = Response(answer.status_code, answer.headers)
                        case ReadChunk():
                            reply = next(chunks, None)
                except (httpx2.TransportError, httpx2.InvalidURL) as error:
                    failure = ConnectionFailed.because(error)
                step = core.resume(steps, reply, failure)
