"""The messages between `ClientCore` and a driver, and the interpretation of responses. A call is a
generator that yields these messages (see `core.py`). This module has no input or output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from tilewright.service import timeouts
from tilewright.service.client.values import Event
from tilewright.service.errors import Refused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; the reply is a `Response` without its body. `body` is sent as JSON,
    `content` unchanged. At most `timeout_secs` may pass without a byte."""

    method: str
    path: str
    body: Any = None
    content: bytes | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_secs: float = 0.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the HTTP library's `stream`."""
        secs = self.timeout_secs
        return {
            "method": self.method,
            "url": self.path,
            "json": self.body,
            "content": self.content,
            "params": dict(self.params),
            "headers": dict(self.headers),
            "timeout": (min(secs, timeouts.CLIENT_CONNECT_SECS), secs, secs, secs),
        }


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Reads the next part of the response. The reply is bytes, or None at the end."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Closes the response and waits."""

    secs: float


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """A result of a call. The driver passes it on to the caller."""

    value: T


class ConnectionFailed(Exception):  # noqa: N818  # the name is the condition
    """A request could not be sent, or its response could not be read. The driver raises it in the
    call, which decides whether to retry. `is_permanent`: the URL is wrong."""

    def __init__(
        self, message: str, *, timed_out: bool = False, is_permanent: bool = False
    ) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.is_permanent = is_permanent

    @classmethod
    def because(cls, error: Exception) -> Self:
        name = type(error).__name__
        failure = cls(
            str(error) or name,
            timed_out=name.endswith("Timeout"),
            is_permanent=name in ("InvalidURL", "UnsupportedProtocol"),
        )
        failure.__cause__ = error
        return failure


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `content` is empty until its chunks are read."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes = b""

    def is_final(self, method: str) -> bool:
        """Return whether this is a result: a document, bytes, or "not modified"."""
        return self.status_code == 304 or (
            200 <= self.status_code < 300 and not self.is_pending(method)
        )

    def is_pending(self, method: str) -> bool:
        """Return whether the service is still preparing the answer."""
        return method == "GET" and self.status_code == 202

    def document(self, url: str) -> dict[str, Any]:
        """Return the JSON object in the body. Raise Refused if it was not sent by this service."""
        found = self._json()
        if isinstance(found, dict):
            return found
        kind = self.headers.get("content-type", "").partition(";")[0] or "something"
        text = f"the server at {url} is not a Tilewright service: it sent {kind}, not a JSON object"
        raise Refused(self.status_code, {"code": "not_a_service", "detail": text})

    def refused(self) -> Refused:
        """Return the error of a response that is not final."""
        if 300 <= self.status_code < 400:
            where = self.headers.get("location", "elsewhere")
            text = f"the service redirects to {where}; use that URL"
            return Refused(self.status_code, {"code": "redirected", "detail": text})
        found = self._json()
        problem = found if isinstance(found, dict) else {}
        if self.status_code == 202:
            problem = {"code": "pending", **problem}
        return Refused(self.status_code, problem)

    def _json(self) -> Any:
        try:
            return json.loads(self.content)
        except ValueError:
            return None


class EventParser:
    """Parses server-sent events from the chunks of a stream. Comments (heartbeats) are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._kind, self._identity = "message", ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        found = (self._feed_line(line.removesuffix(b"\r").decode()) for line in lines)
        return [event for event in found if event is not None]

    def _feed_line(self, line: str) -> Event | None:
        if not line:
            found = None
            if self._data:
                found = Event(self._identity, self._kind, json.loads("\n".join(self._data)))
            self._kind, self._data = "message", []
            return found
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._kind = value
            case "id":
                self._identity = value
            case "data":
                self._data.append(value)
        return None
