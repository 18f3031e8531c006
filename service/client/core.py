"""Every call of the client, without input and output.

A call is a generator that a driver runs. If it yields a `Request`, `ReadChunk` or `Pause`, the
driver performs this and sends the reply. If it yields a `Result`, the driver passes it on to the
caller. `blocking.py` and `asynchronous.py` are the drivers; both have every method of `ClientCore`.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from tilewright.service import timeouts
from tilewright.service.client.messages import (
    ConnectionFailed,
    EventParser,
    Pause,
    ReadChunk,
    Request,
    Response,
    Result,
)
from tilewright.service.client.retries import RETRY_STATUSES, Outage, may_recover, pause_secs
from tilewright.service.client.values import Best, Event, Job
from tilewright.service.errors import Refused, Unreachable

T = TypeVar("T")
Exchange: TypeAlias = Generator[Request | ReadChunk | Pause, Any, T]
"""A part of a call; it returns T."""
Step: TypeAlias = Request | ReadChunk | Pause | Result[T]
Call: TypeAlias = Generator[Step[T], Any, None]
"""A call with one result."""
ResultStream: TypeAlias = Generator[Step[T], Any, None]
"""A call with any number of results."""

DEFAULT_URL = "http://127.0.0.1:8470"


@dataclass(frozen=True, slots=True)
class ClientCore:
    """The calls of the service at `url`. A call takes at most `timeout_secs`, including retries,
    plus the time for which it requested the service to wait."""

    url: str
    timeout_secs: float
    retries: int
    clock: Callable[[], float] = time.monotonic

    def submit(
        self,
        workload: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        *,
        target: str | Mapping[str, Any] = "native",
        threads: int | None = None,
        trials: int | None = None,
        seconds: float | None = None,
        strategy: str | None = None,
        seed: int | None = None,
        measurer: str | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        validate_only: bool = False,
    ) -> Call[Job]:
        """Submit a tuning job. The result is the job, or an open job with an equal request.

        A list of workloads, or of `{"workload": ..., "weight": 2, "name": "..."}`, makes one job
        that tunes all of them; `trials` then limits each. For an argument None, the service's
        default is used. With `validate_only`, no job is created, and the result has no id.
        """
        budget = {"trials": trials, "seconds": seconds}
        is_one = isinstance(workload, str | Mapping)
        body = {
            "workload" if is_one else "workloads": workload if is_one else list(workload),
            "target": target,
            "threads": threads,
            "budget": {name: value for name, value in budget.items() if value is not None},
            "strategy": strategy,
            "seed": seed,
            "measurer": measurer,
            "priority": priority,
        }
        request = Request(
            "POST",
            "/v1/jobs",
            body={name: value for name, value in body.items() if value not in (None, {})},
            params={"validate_only": "true"} if validate_only else {},
            headers={"Idempotency-Key": idempotency_key or str(uuid.uuid4())},
        )
        yield Result(Job.from_json((yield from self._document(request))))

    def status(self, job_id: str, *, wait_secs: float = 0.0) -> Call[Job]:
        """Request the current state of the job, or its final state if it finishes within
        `wait_secs`."""
        yield Result((yield from self._job(job_id, wait_secs)))

    def wait(self, job_id: str, *, timeout_secs: float | None = None) -> Call[Job]:
        """Wait for the end of the job, and return the job. Continue while the service restarts.
        Raise TimeoutError if the job is not finished after `timeout_secs`."""
        deadline = None if timeout_secs is None else self.clock() + timeout_secs
        outage = Outage(0, self.clock)
        wait_secs = 0.0  # the first request does not wait, to learn whether the service responds
        while True:
            try:
                job = yield from self._job(job_id, wait_secs)
            except (Unreachable, Refused) as error:
                late = deadline is not None and self.clock() >= deadline
                if late or not may_recover(error) or outage.lasts_too_long():
                    raise
                yield Pause(pause_secs(outage.failures))
                continue
            outage.end()
            if job.done:
                yield Result(job)
                return
            if deadline is not None and self.clock() >= deadline:
                raise TimeoutError(f"job {job_id} is {job.state} after {timeout_secs} s")
            wait_secs = timeouts.CLIENT_LONG_POLL_SECS
            if deadline is not None:
                wait_secs = min(deadline - self.clock(), wait_secs)

    def jobs(self, *, state: str | None = None, page_size: int = 100) -> ResultStream[Job]:
        """Request every job, newest first, page by page."""
        params = {"page_size": page_size, **({"state": state} if state else {})}
        return self._pages(Request("GET", "/v1/jobs", params=params), "jobs", Job.from_json)

    def cancel(self, job_id: str) -> Call[Job]:
        """Stop the job; its results are kept. If the job has other owners, it continues for them,
        and `sharing` reports that the owner of this key has withdrawn."""
        request = Request("POST", f"/v1/jobs/{_segment(job_id)}:cancel")
        yield Result(Job.from_json((yield from self._document(request))))

    def trials(self, job_id: str, *, task: str | None = None) -> ResultStream[dict[str, Any]]:
        """Request every trial of the job with status and samples, in order. Of a job of many
        workloads, `task` selects the trials of one by its name."""
        path = f"/v1/jobs/{_segment(job_id)}/trials"
        return self._pages(Request("GET", path, params=_of_task(task)), "trials", dict)

    def best(
        self, workload_key: str, target_key: str, *, min_grade: str = "exact", etag: str = ""
    ) -> Call[Best | None]:
        """Request the best known answer. The result is None if it still has `etag`. Raise Refused
        if there is no answer (code "no_answer")."""
        request = Request(
            "GET",
            f"/v1/best/{_segment(workload_key)}/{_segment(target_key)}",
            params={"min_grade": min_grade},
            headers={"If-None-Match": etag} if etag else {},
        )
        response = yield from self._response(request)
        if response.status_code == 304:
            yield Result(None)
            return
        yield Result(Best.from_json(response.document(self.url), response.headers))

    def lookup(
        self,
        workloads: Sequence[str | Mapping[str, Any]],
        *,
        target: str | Mapping[str, Any] = "native",
        threads: int | None = None,
        min_grade: str = "exact",
    ) -> Call[list[dict[str, Any]]]:
        """Look up workloads. The result has one item per workload, in order: `{"found": true,
        "answer": {...}}`, or `{"found": false, ...}` with a problem."""
        body: dict[str, Any] = {
            "workloads": list(workloads),
            "target": target,
            "min_grade": min_grade,
        }
        if threads is not None:
            body["threads"] = threads
        document = yield from self._document(Request("POST", "/v1/best:lookup", body=body))
        yield Result(document["items"])

    def build(self, asked: Mapping[str, Any]) -> Call[dict[str, Any]]:
        """Build a kernel's object. `asked` is the body of `POST /v1/builds`. The `kernel` of the
        result is an entry of a lock file; `blob` downloads its files."""
        request = Request("POST", "/v1/builds", body=dict(asked))
        yield Result((yield from self._document(request, timeouts.CLIENT_BUILD_SECS)))

    def check_pins(self, kernels: Sequence[Mapping[str, Any]]) -> Call[list[dict[str, Any]]]:
        """Request the entries of a lock file that must not be used any more. Their schedules failed
        a full check after they were pinned."""
        body = {"kernels": [dict(kernel) for kernel in kernels]}
        document = yield from self._document(Request("POST", "/v1/builds:check", body=body))
        yield Result(document["refused"])

    def publish(self, lines: str | bytes) -> Call[dict[str, Any]]:
        """Upload the output of `tilewright export`. The records are claims, which the service
        verifies on demand. The result has the numbers of `new` and `known` records, and each
        refused line."""
        content = lines.encode() if isinstance(lines, str) else lines
        headers = {"Content-Type": "application/x-ndjson"}
        request = Request("POST", "/v1/records", content=content, headers=headers)
        yield Result((yield from self._document(request)))

    def record(self, record_key: str) -> Call[dict[str, Any]]:
        """Request one stored record."""
        request = Request("GET", f"/v1/records/{_segment(record_key)}")
        yield Result((yield from self._document(request)))

    def blob(self, key: str) -> Call[bytes]:
        """Download the bytes with the name `sha256:HEX`, and check their hash."""
        response = yield from self._response(Request("GET", f"/v1/blobs/{_segment(key)}"))
        if hashlib.sha256(response.content).hexdigest() != key.removeprefix("sha256:"):
            raise Refused(502, {"code": "damaged", "detail": f"{key}: the bytes do not match"})
        yield Result(response.content)

    def events(
        self, job_id: str, *, after: str = "", task: str | None = None
    ) -> ResultStream[Event]:
        """Follow the job's events after event `after`, until the job is finished. If the connection
        breaks, continue after the last event. Of a job of many workloads, `task` selects one by its
        name: events of other tasks are left out."""
        request = Request(
            "GET",
            f"/v1/jobs/{_segment(job_id)}/events",
            params=_of_task(task),
            timeout_secs=timeouts.CLIENT_STREAM_SILENCE_SECS,
        )
        outage, last_id = Outage(self.retries, self.clock), after
        while True:
            retry_after = ""
            try:
                headers = {"Last-Event-ID": last_id} if last_id else {}
                head: Response = yield replace(request, headers=headers)
                if head.status_code in RETRY_STATUSES:
                    retry_after = head.headers.get("retry-after", "")
                    raise ConnectionFailed(str((yield from _whole(head)).refused()))
                if head.status_code != 200:
                    raise (yield from _whole(head)).refused()
                outage.end()
                parser = EventParser()
                while (chunk := (yield ReadChunk())) is not None:
                    for event in parser.feed(chunk):
                        last_id = event.id or last_id
                        yield Result(event)
                        if event.kind == "done":
                            return
            except ConnectionFailed as failure:
                if outage.lasts_too_long():
                    raise self._unreachable(failure, request.timeout_secs) from failure.__cause__
            yield Pause(pause_secs(outage.failures, retry_after))

    def _job(self, job_id: str, wait_secs: float) -> Exchange[Job]:
        wait_secs = max(wait_secs, 0.0)
        params = {"wait": f"{round(wait_secs * 1000)}ms"} if wait_secs else {}
        request = Request("GET", f"/v1/jobs/{_segment(job_id)}", params=params)
        return Job.from_json((yield from self._document(request, wait_secs)))

    def _pages(
        self, request: Request, member: str, made: Callable[[dict[str, Any]], T]
    ) -> ResultStream[T]:
        token = ""
        while True:
            params = {**request.params, **({"page_token": token} if token else {})}
            document = yield from self._document(replace(request, params=params))
            for item in document[member]:
                yield Result(made(item))
            token = document.get("next_page_token") or ""
            if not token:
                return

    def _document(self, request: Request, extra_secs: float = 0.0) -> Exchange[dict[str, Any]]:
        return (yield from self._response(request, extra_secs)).document(self.url)

    def _response(self, request: Request, extra_secs: float = 0.0) -> Exchange[Response]:
        """Return the response to a request. Retry if that may help, until the time is over: the
        timeout, plus `extra_secs` for which the service was requested to wait."""
        allowed_secs = self.timeout_secs + extra_secs
        deadline = self.clock() + allowed_secs
        attempt = 0
        while True:
            try:
                response = yield from self._once(request, deadline)
            except ConnectionFailed as failure:
                pause = pause_secs(attempt)
                late = self.clock() + pause >= deadline
                if attempt >= self.retries or failure.is_permanent or late:
                    raise self._unreachable(failure, allowed_secs) from failure.__cause__
            else:
                if response.is_final(request.method):
                    return response
                pause = pause_secs(attempt, response.headers.get("retry-after", ""))
                late = self.clock() + pause >= deadline
                again = response.status_code in RETRY_STATUSES and attempt < self.retries
                if late or not (again or response.is_pending(request.method)):
                    raise response.refused()
            yield Pause(pause)
            attempt += 1

    def _once(self, request: Request, deadline: float) -> Exchange[Response]:
        """Make one attempt. It ends at `deadline`, even if the body is still arriving."""
        timeout_secs = max(deadline - self.clock(), timeouts.CLIENT_LAST_TRY_SECS)
        head: Response = yield replace(request, timeout_secs=timeout_secs)
        return (yield from _whole(head, lambda: self.clock() > deadline))

    def _unreachable(self, failure: ConnectionFailed, secs: float) -> Unreachable:
        if failure.timed_out:
            return Unreachable(f"no service answers at {self.url}: no response within {secs:g} s")
        return Unreachable(f"no service answers at {self.url}: {failure}")


def resume(
    steps: ResultStream[T],
    reply: Response | bytes | None = None,
    failure: ConnectionFailed | None = None,
) -> Step[T] | None:
    """Resume a call with the reply or failure of its last step. Return its next step, or None if
    the call has ended."""
    try:
        return steps.send(reply) if failure is None else steps.throw(failure)
    except StopIteration:
        return None


def service_url(url: str | None) -> str:
    """Return `url`, or TILEWRIGHT_URL, or the URL of this machine's service."""
    return os.environ.get("TILEWRIGHT_URL") or DEFAULT_URL if url is None else url


def headers_for(api_key: str | None) -> dict[str, str]:
    """Return the headers of every request. If `api_key` is None, TILEWRIGHT_API_KEY is used."""
    key = os.environ.get("TILEWRIGHT_API_KEY") if api_key is None else api_key
    return {"Authorization": f"Bearer {key}"} if key else {}


def _whole(head: Response, is_late: Callable[[], bool] = lambda: False) -> Exchange[Response]:
    """Read the body, and return the complete response. Raise ConnectionFailed if `is_late` returns
    True."""
    chunks: list[bytes] = []
    while (chunk := (yield ReadChunk())) is not None:
        chunks.append(chunk)
        if is_late():
            raise ConnectionFailed("the response arrives too slowly", timed_out=True)
    return replace(head, content=b"".join(chunks))


def _of_task(name: str | None) -> dict[str, Any]:
    """Return the parameters that select a task of a job of many workloads."""
    return {} if name is None else {"task": name}


def _segment(text: str) -> str:
    return quote(text, safe=":")
