"""A typed client of the service: submit, wait, best, look up, follow events.

    with Client("http://127.0.0.1:8470") as client:
        job = client.submit("matmul:M=512,N=512,K=512", trials=64)
        job = client.wait(job.id)
        print(job.best)

Connection failures, 429 and 503 are tried again after `Retry-After` (or a growing pause); every
POST carries an `Idempotency-Key`, so trying again never makes a second job.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx2

from service.errors import Refused, Unreachable

RETRY_STATUSES = frozenset({429, 503})
MAX_PAUSE_SECS = 10.0
POLL_SECS = 30


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the service last told it. `best` is None until one is known."""

    id: str
    state: str
    done: bool
    workload: dict[str, Any]
    target: dict[str, Any] | None
    progress: dict[str, Any]
    best: dict[str, Any] | None
    error: dict[str, Any] | None
    document: dict[str, Any] = field(compare=False, repr=False)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The job of an answer; unknown fields stay in `document`."""
        return cls(
            id=str(document["id"]),
            state=str(document["state"]),
            done=bool(document["done"]),
            workload=document["workload"],
            target=document.get("target"),
            progress=document.get("progress") or {},
            best=document.get("best"),
            error=document.get("error"),
            document=document,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job's stream. `id` resumes the stream after this event."""

    id: str
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Best:
    """The best known answer. `etag` makes the next question cheap; `artefacts["object"]["key"]`
    names the object file for `Client.blob`."""

    grade: str
    record_key: str | None
    run_secs: float | None
    trace: list[Any]
    artefacts: dict[str, dict[str, Any]]
    etag: str
    document: dict[str, Any] = field(compare=False, repr=False)


class Client:
    """Talks to one service at `url`. Use it as a context manager, or call `close`.

    Raises `Unreachable` when nobody answers, `Refused` when the service says no.
    `transport`, `sleep` are for tests.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout_secs: float = 30.0,
        retries: int = 4,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = httpx2.Client(
                base_url=url,
                headers=headers,
                timeout=httpx2.Timeout(timeout_secs, connect=5.0),
                transport=transport,
                trust_env=transport is None,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise Unreachable(f"{url!r} is not a URL: {error}") from error
        self._url = url
        self._retries = retries
        self._sleep = sleep

    def submit(
        self,
        workload: str | Mapping[str, Any],
        *,
        target: str | Mapping[str, Any] = "native",
        threads: int | None = None,
        trials: int | None = None,
        seconds: float | None = None,
        strategy: str | None = None,
        seed: int | None = None,
        measurer: str | None = None,
        idempotency_key: str | None = None,
        validate_only: bool = False,
    ) -> Job:
        """Ask for a tuning job; the job, or the one already in flight for the same work.

        What is None takes the service's default. With `validate_only` nothing is queued and the
        job has no id.
        """
        budget = {"trials": trials, "seconds": seconds}
        body = {
            "workload": workload,
            "target": target,
            "threads": threads,
            "budget": {k: v for k, v in budget.items() if v is not None},
            "strategy": strategy,
            "seed": seed,
            "measurer": measurer,
        }
        answer = self._call(
            "POST",
            "/v1/jobs",
            json={k: v for k, v in body.items() if v not in (None, {})},
            params={"validate_only": "true"} if validate_only else {},
            headers={"Idempotency-Key": idempotency_key or str(uuid.uuid4())},
        )
        return Job.from_json(answer.json())

    def status(self, job_id: str, *, wait_secs: float = 0.0) -> Job:
        """The job now, or as soon as it changes to done within `wait_secs`."""
        params = {"wait": f"{wait_secs:g}s"} if wait_secs else {}
        answer = self._call(
            "GET", f"/v1/jobs/{_segment(job_id)}", params=params, extra_secs=wait_secs
        )
        return Job.from_json(answer.json())

    def wait(self, job_id: str, *, timeout_secs: float | None = None) -> Job:
        """The finished job. TimeoutError if it is not done after `timeout_secs`."""
        deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
        while True:
            left = POLL_SECS if deadline is None else min(deadline - time.monotonic(), POLL_SECS)
            job = self.status(job_id, wait_secs=max(left, 0.0))
            if job.done:
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {job_id} is {job.state} after {timeout_secs} s")

    def jobs(self, *, state: str | None = None, page_size: int = 100) -> Iterator[Job]:
        """Every job, newest first, page by page."""
        params: dict[str, Any] = {"page_size": page_size}
        if state:
            params["state"] = state
        for item in self._pages("/v1/jobs", "jobs", params):
            yield Job.from_json(item)

    def cancel(self, job_id: str) -> Job:
        """Ask for the job to stop; what it found is kept."""
        return Job.from_json(self._call("POST", f"/v1/jobs/{_segment(job_id)}:cancel").json())

    def trials(self, job_id: str) -> Iterator[dict[str, Any]]:
        """Every trial of the job with status and samples, in order."""
        yield from self._pages(f"/v1/jobs/{_segment(job_id)}/trials", "trials", {})

    def best(
        self, workload_key: str, target_key: str, *, min_grade: str = "exact", etag: str = ""
    ) -> Best | None:
        """The best known answer; None if it is still the one `etag` names. Refused if there is
        none (code "no_answer")."""
        path = f"/v1/best/{_segment(workload_key)}/{_segment(target_key)}"
        headers = {"If-None-Match": etag} if etag else {}
        answer = self._call("GET", path, params={"min_grade": min_grade}, headers=headers)
        if answer.status_code == 304:
            return None
        document = answer.json()
        return Best(
            grade=str(document["grade"]),
            record_key=document["record_key"],
            run_secs=document["run_secs"],
            trace=document["trace"],
            artefacts=document.get("artefacts") or {},
            etag=answer.headers.get("etag", ""),
            document=document,
        )

    def lookup(
        self,
        workloads: Sequence[str | Mapping[str, Any]],
        *,
        target: str | Mapping[str, Any] = "native",
        threads: int | None = None,
        min_grade: str = "exact",
    ) -> list[dict[str, Any]]:
        """One item a workload, in order: `{"found": true, "answer": {...}}` or a miss."""
        body: dict[str, Any] = {
            "workloads": list(workloads),
            "target": target,
            "min_grade": min_grade,
        }
        if threads is not None:
            body["threads"] = threads
        answer = self._call("POST", "/v1/best:lookup", json=body)
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def build(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Have a kernel's object made for a build: `asked` is the body of `POST /v1/builds`; the
        answer's `kernel` is an entry of a lock file, whose files `blob` gives."""
        document: dict[str, Any] = self._call("POST", "/v1/builds", json=dict(asked)).json()
        return document

    def record(self, record_key: str) -> dict[str, Any]:
        """One stored measurement."""
        document: dict[str, Any] = self._call("GET", f"/v1/records/{_segment(record_key)}").json()
        return document

    def blob(self, key: str) -> bytes:
        """The bytes named `sha256:HEX`, checked against their name."""
        import hashlib

        data = self._call("GET", f"/v1/blobs/{_segment(key)}").content
        if hashlib.sha256(data).hexdigest() != key.removeprefix("sha256:"):
            raise Refused(502, {"code": "damaged", "detail": f"{key}: the bytes do not match"})
        return data

    def events(self, job_id: str, *, after: str = "") -> Iterator[Event]:
        """The job's events from after event `after`, live, until the job is done.

        A broken connection is taken up again where it broke.
        """
        failures = 0
        last = after
        path = f"/v1/jobs/{_segment(job_id)}/events"
        while True:
            try:
                headers = {"Last-Event-ID": last} if last else {}
                with self._http.stream("GET", path, headers=headers) as answer:
                    if answer.status_code in RETRY_STATUSES:
                        raise httpx2.ConnectError(f"HTTP status {answer.status_code}")
                    if answer.status_code >= 400:
                        answer.read()
                        raise _refused(answer)
                    for event in _parse_events(answer.iter_lines()):
                        failures = 0
                        last = event.id or last
                        yield event
                        if event.kind == "done":
                            return
            except httpx2.TransportError as error:
                failures += 1
                if failures > self._retries:
                    raise self._unreachable(error) from error
            self._sleep(min(2.0**failures / 4, MAX_PAUSE_SECS))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _pages(self, path: str, member: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            page = {**params, **({"page_token": token} if token else {})}
            document = self._call("GET", path, params=page).json()
            yield from document[member]
            token = document.get("next_page_token") or ""
            if not token:
                return

    def _call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        extra_secs: float = 0.0,
    ) -> httpx2.Response:
        """One request, tried again where that may help."""
        for attempt in range(self._retries + 1):
            try:
                answer = self._http.request(
                    method,
                    path,
                    json=json,
                    params=dict(params or {}),
                    headers=dict(headers or {}),
                    timeout=httpx2.Timeout(30.0 + extra_secs, connect=5.0),
                )
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                if attempt == self._retries or isinstance(
                    error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)
                ):
                    raise self._unreachable(error) from error
                self._sleep(_pause_secs(attempt, ""))
                continue
            if answer.status_code in RETRY_STATUSES and attempt < self._retries:
                self._sleep(_pause_secs(attempt, answer.headers.get("retry-after", "")))
                continue
            if answer.status_code >= 400:
                raise _refused(answer)
            return answer
        raise AssertionError("unreachable")

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"no service answers at {self._url}: {error or type(error).__name__}")


def _segment(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe=":")


def _pause_secs(attempt: int, retry_after: str) -> float:
    """`Retry-After` where given, else doubling from 0.2 s; a little chance spreads a herd."""
    asked = float(retry_after) if retry_after.isdigit() else 0.2 * 2**attempt
    return min(asked, MAX_PAUSE_SECS) * (1 + 0.1 * random.random())


def _refused(answer: httpx2.Response) -> Refused:
    try:
        problem = answer.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    return Refused(answer.status_code, problem)


def _parse_events(lines: Iterator[str]) -> Iterator[Event]:
    """Server-sent events from the lines of a stream; comments (heartbeats) are skipped."""
    kind, identity = "message", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield Event(identity, kind, json.loads("\n".join(data)))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                kind = value
            case "id":
                identity = value
            case "data":
                data.append(value)
            case _:
                pass
