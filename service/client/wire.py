"""What goes over the wire, without a wire: calls, when to try again, events from lines. Pure."""

from __future__ import annotations

import hashlib
import json
import os
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from tilewright.service.client.values import Event
from tilewright.service.errors import Refused, Unreachable

DEFAULT_URL = "http://127.0.0.1:8470"
RETRY_STATUSES = frozenset({429, 502, 503, 504})
"""Told to come back, or a proxy that finds no service behind it, as while one starts again. Every
call may be made twice: submissions carry a key, the others change nothing or are done once."""
OUTAGE_SECS = 120.0
"""How long whoever waits for a job bears with a service that is away, as while it starts again."""
MAX_PAUSE_SECS = 10.0
POLL_SECS = 30.0
CONNECT_SECS = 5.0
SILENCE_SECS = 60.0
"""Of an event stream, whose heartbeats come several times as often."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `body` is sent as JSON, `content` as it is. `extra_secs` is what the service was
    asked to wait, beyond the timeout."""

    method: str
    path: str
    body: Any = None
    content: bytes | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_secs: float = 0.0


BUILD_SECS = 120.0
"""Compiling, and verifying in full, may take that long beyond what an answer takes."""


def service_url(url: str | None) -> str:
    """`url`, else TILEWRIGHT_URL, else this machine's service."""
    return os.environ.get("TILEWRIGHT_URL") or DEFAULT_URL if url is None else url


def headers_for(api_key: str | None) -> dict[str, str]:
    """What every request carries. `api_key` None: TILEWRIGHT_API_KEY."""
    key = os.environ.get("TILEWRIGHT_API_KEY") if api_key is None else api_key
    return {"Authorization": f"Bearer {key}"} if key else {}


# -- calls


def submit(
    workload: str | Mapping[str, Any],
    *,
    target: str | Mapping[str, Any],
    threads: int | None,
    trials: int | None,
    seconds: float | None,
    strategy: str | None,
    seed: int | None,
    measurer: str | None,
    priority: int | None,
    idempotency_key: str | None,
    validate_only: bool,
) -> Request:
    budget = {"trials": trials, "seconds": seconds}
    body = {
        "workload": workload,
        "target": target,
        "threads": threads,
        "budget": {name: value for name, value in budget.items() if value is not None},
        "strategy": strategy,
        "seed": seed,
        "measurer": measurer,
        "priority": priority,
    }
    return Request(
        "POST",
        "/v1/jobs",
        body={name: value for name, value in body.items() if value not in (None, {})},
        params={"validate_only": "true"} if validate_only else {},
        headers={"Idempotency-Key": idempotency_key or str(uuid.uuid4())},
    )


def status(job_id: str, wait_secs: float) -> Request:
    wait_secs = max(wait_secs, 0.0)
    params = {"wait": f"{round(wait_secs * 1000)}ms"} if wait_secs else {}
    return Request("GET", f"/v1/jobs/{segment(job_id)}", params=params, extra_secs=wait_secs)


def jobs(state: str | None, page_size: int) -> Request:
    params: dict[str, Any] = {"page_size": page_size}
    if state:
        params["state"] = state
    return Request("GET", "/v1/jobs", params=params)


def cancel(job_id: str) -> Request:
    return Request("POST", f"/v1/jobs/{segment(job_id)}:cancel")


def trials(job_id: str) -> Request:
    return Request("GET", f"/v1/jobs/{segment(job_id)}/trials")


def events_path(job_id: str) -> str:
    return f"/v1/jobs/{segment(job_id)}/events"


def best(workload_key: str, target_key: str, min_grade: str, etag: str) -> Request:
    path = f"/v1/best/{segment(workload_key)}/{segment(target_key)}"
    headers = {"If-None-Match": etag} if etag else {}
    return Request("GET", path, params={"min_grade": min_grade}, headers=headers)


def lookup(
    workloads: Sequence[str | Mapping[str, Any]],
    target: str | Mapping[str, Any],
    threads: int | None,
    min_grade: str,
) -> Request:
    body: dict[str, Any] = {"workloads": list(workloads), "target": target, "min_grade": min_grade}
    if threads is not None:
        body["threads"] = threads
    return Request("POST", "/v1/best:lookup", body=body)


def build(asked: Mapping[str, Any]) -> Request:
    return Request("POST", "/v1/builds", body=dict(asked), extra_secs=BUILD_SECS)


def check_pins(kernels: Sequence[Mapping[str, Any]]) -> Request:
    return Request("POST", "/v1/builds:check", body={"kernels": [dict(one) for one in kernels]})


def publish(lines: str | bytes) -> Request:
    content = lines.encode() if isinstance(lines, str) else lines
    headers = {"Content-Type": "application/x-ndjson"}
    return Request("POST", "/v1/records", content=content, headers=headers)


def record(record_key: str) -> Request:
    return Request("GET", f"/v1/records/{segment(record_key)}")


def blob(key: str) -> Request:
    return Request("GET", f"/v1/blobs/{segment(key)}")


def checked_blob(key: str, data: bytes) -> bytes:
    """`data` if it is what `key` names; Refused if not."""
    if hashlib.sha256(data).hexdigest() != key.removeprefix("sha256:"):
        raise Refused(502, {"code": "damaged", "detail": f"{key}: the bytes do not match"})
    return data


def segment(text: str) -> str:
    return quote(text, safe=":")


# -- answers


def is_preparing(call: Request, answer: Response) -> bool:
    """Whether a question has no answer yet, but will have one."""
    return call.method == "GET" and answer.status_code == 202


@dataclass(frozen=True, slots=True)
class Response:
    """What was answered, all of it."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """The document. ValueError if it is none."""
        return json.loads(self.content)


def document(url: str, answer: Response) -> dict[str, Any]:
    """The JSON object of an answer; Refused for what something else than a service says there."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    kind = answer.headers.get("content-type", "").partition(";")[0] or "something"
    text = f"what answers at {url} is no Tilewright service: it sent {kind}, not a JSON object"
    raise Refused(answer.status_code, {"code": "not_a_service", "detail": text})


def is_done(call: Request, answer: Response) -> bool:
    """Whether this is what was asked for: a document, bytes, or that nothing changed."""
    return answer.status_code == 304 or (
        200 <= answer.status_code < 300 and not is_preparing(call, answer)
    )


def refused(answer: Response) -> Refused:
    """The error of an answer that says no, or not yet, or asks to go elsewhere."""
    if 300 <= answer.status_code < 400:
        where = answer.headers.get("location", "elsewhere")
        text = f"the service redirects to {where}: name that as its URL"
        return Refused(answer.status_code, {"code": "redirected", "detail": text})
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    if answer.status_code == 202 and isinstance(problem, dict):
        problem = {"code": "pending", **problem}
    return Refused(answer.status_code, problem if isinstance(problem, dict) else {})


def may_come_back(error: Unreachable | Refused) -> bool:
    """Whether this is how a service looks that is about to start again."""
    return isinstance(error, Unreachable) or error.status in RETRY_STATUSES


def unreachable(url: str, error: Exception, secs: float) -> Unreachable:
    """The error where nobody answers."""
    if type(error).__name__.endswith("Timeout"):
        return Unreachable(f"no service answers at {url}: nothing was said within {secs:g} s")
    return Unreachable(f"no service answers at {url}: {error or type(error).__name__}")


def pause_secs(attempt: int, retry_after: str = "") -> float:
    """`Retry-After` where given, else doubling from 0.2 s; chance spreads a herd."""
    asked = _retry_after_secs(retry_after)
    if asked is not None:
        return asked * (1 + 0.1 * random.random())
    return min(0.2 * 2.0**attempt, MAX_PAUSE_SECS) * (0.5 + random.random())


def _retry_after_secs(text: str) -> float | None:
    """Seconds, or the time to a date; None for neither."""
    if text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


class Outage:
    """How long a service may be away: for a few tries where it never was there, for `OUTAGE_SECS`
    where it was, since it may be starting again."""

    def __init__(self, tries: int, clock: Callable[[], float]) -> None:
        self._tries = tries
        self._clock = clock
        self._was_there = False
        self._since: float | None = None
        self.failures = 0

    def is_over(self) -> None:
        """It answers."""
        self._was_there, self._since, self.failures = True, None, 0

    def lasts_too_long(self) -> bool:
        """It did not answer once more: whether to give up."""
        self.failures += 1
        if not self._was_there:
            return self.failures > self._tries
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since > OUTAGE_SECS


class EventParser:
    """Server-sent events from the lines of a stream; comments (heartbeats) are skipped."""

    def __init__(self) -> None:
        self._kind, self._identity = "message", ""
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        """The event that `line` completes, if it does."""
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
            case _:
                pass
        return None
