"""The async client: the blocking one's methods as coroutines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tilewright.service.client import wire
from tilewright.service.client.values import Best, Event, Job
from tilewright.service.client.wire import Request
from tilewright.service.errors import Refused, Unreachable

if TYPE_CHECKING:
    import httpx2


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
        import asyncio

        import httpx2

        self.url = wire.service_url(url)
        try:
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                headers=wire.headers_for(api_key),
                transport=transport,
                trust_env=transport is None,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise Unreachable(f"{self.url!r} is not a URL: {error}") from error
        self._timeout_secs = timeout_secs
        self._retries = retries
        self._sleep = sleep or asyncio.sleep
        self._clock = clock

    async def submit(
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
        priority: int | None = None,
        idempotency_key: str | None = None,
        validate_only: bool = False,
    ) -> Job:
        """Ask for a tuning job; the job, or the one already in flight for the same work.

        What is None takes the service's default. With `validate_only` nothing is queued and the
        job has no id.
        """
        call = wire.submit(
            workload,
            target=target,
            threads=threads,
            trials=trials,
            seconds=seconds,
            strategy=strategy,
            seed=seed,
            measurer=measurer,
            priority=priority,
            idempotency_key=idempotency_key,
            validate_only=validate_only,
        )
        return Job.from_json(await self._json(call))

    async def status(self, job_id: str, *, wait_secs: float = 0.0) -> Job:
        """The job now, or as soon as it changes to done within `wait_secs`."""
        return Job.from_json(await self._json(wire.status(job_id, wait_secs)))

    async def wait(self, job_id: str, *, timeout_secs: float | None = None) -> Job:
        """The finished job. TimeoutError if it is not done after `timeout_secs`. A service that
        starts again meanwhile is waited for."""
        deadline = None if timeout_secs is None else self._clock() + timeout_secs
        outage = wire.Outage(0, self._clock)
        left = 0.0  # at first, so that a service that is there is known to be
        while True:
            try:
                job = await self.status(job_id, wait_secs=left)
            except (Unreachable, Refused) as error:
                late = deadline is not None and self._clock() >= deadline
                if late or not wire.may_come_back(error) or outage.lasts_too_long():
                    raise
                await self._sleep(wire.pause_secs(outage.failures))
                continue
            outage.is_over()
            if job.done:
                return job
            if deadline is not None and self._clock() >= deadline:
                raise TimeoutError(f"job {job_id} is {job.state} after {timeout_secs} s")
            left = wire.POLL_SECS
            if deadline is not None:
                left = min(deadline - self._clock(), left)

    async def jobs(self, *, state: str | None = None, page_size: int = 100) -> AsyncIterator[Job]:
        """Every job, newest first, page by page."""
        async for item in self._pages(wire.jobs(state, page_size), "jobs"):
            yield Job.from_json(item)

    async def cancel(self, job_id: str) -> Job:
        """As `Client.cancel`."""
        return Job.from_json(await self._json(wire.cancel(job_id)))

    async def trials(self, job_id: str) -> AsyncIterator[dict[str, Any]]:
        """Every trial of the job with status and samples, in order."""
        async for item in self._pages(wire.trials(job_id), "trials"):
            yield item

    async def best(
        self, workload_key: str, target_key: str, *, min_grade: str = "exact", etag: str = ""
    ) -> Best | None:
        """The best known answer; None if it is still the one `etag` names. Refused if there is
        none (code "no_answer")."""
        answer = await self._call(wire.best(workload_key, target_key, min_grade, etag))
        if answer.status_code == 304:
            return None
        return Best.from_json(wire.document(self.url, answer), answer.headers)

    async def lookup(
        self,
        workloads: Sequence[str | Mapping[str, Any]],
        *,
        target: str | Mapping[str, Any] = "native",
        threads: int | None = None,
        min_grade: str = "exact",
    ) -> list[dict[str, Any]]:
        """One item a workload, in order: `{"found": true, "answer": {...}}` or a miss."""
        document = await self._json(wire.lookup(workloads, target, threads, min_grade))
        items: list[dict[str, Any]] = document["items"]
        return items

    async def build(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Have a kernel's object made for a build: `asked` is the body of `POST /v1/builds`; the
        answer's `kernel` is an entry of a lock file, whose files `blob` gives."""
        document: dict[str, Any] = await self._json(wire.build(asked))
        return document

    async def check_pins(self, kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Of entries of a lock file those that are to be used no more: their schedules failed a
        full check since they were pinned."""
        document = await self._json(wire.check_pins(kernels))
        refused: list[dict[str, Any]] = document["refused"]
        return refused

    async def publish(self, lines: str | bytes) -> dict[str, Any]:
        """Have the service keep what `tilewright export` wrote, as claims that it verifies when
        they are asked for: how many records are `new` and `known`, and each refused line."""
        document: dict[str, Any] = await self._json(wire.publish(lines))
        return document

    async def record(self, record_key: str) -> dict[str, Any]:
        """One stored measurement."""
        document: dict[str, Any] = await self._json(wire.record(record_key))
        return document

    async def blob(self, key: str) -> bytes:
        """The bytes named `sha256:HEX`, checked against their name."""
        return wire.checked_blob(key, (await self._call(wire.blob(key))).content)

    async def events(self, job_id: str, *, after: str = "") -> AsyncIterator[Event]:
        """The job's events from after event `after`, live, until the job is done.

        A broken connection is taken up again where it broke.
        """
        import httpx2

        outage, last = wire.Outage(self._retries, self._clock), after
        while True:
            pause = ""
            try:
                async with self._http.stream(
                    "GET",
                    wire.events_path(job_id),
                    headers={"Last-Event-ID": last} if last else {},
                    timeout=self._timeout(wire.SILENCE_SECS),
                ) as answer:
                    if answer.status_code in wire.RETRY_STATUSES:
                        pause = answer.headers.get("retry-after", "")
                        raise httpx2.ConnectError(str(wire.refused(await _whole(answer))))
                    if answer.status_code != 200:
                        raise wire.refused(await _whole(answer))
                    outage.is_over()
                    parser = wire.EventParser()
                    async for line in answer.aiter_lines():
                        event = parser.feed(line)
                        if event is None:
                            continue
                        last = event.id or last
                        yield event
                        if event.kind == "done":
                            return
            except httpx2.TransportError as error:
                if outage.lasts_too_long():
                    raise wire.unreachable(self.url, error, wire.SILENCE_SECS) from error
            await self._sleep(wire.pause_secs(outage.failures, pause))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _pages(self, call: Request, member: str) -> AsyncIterator[dict[str, Any]]:
        token = ""
        while True:
            page = {**call.params, **({"page_token": token} if token else {})}
            document = await self._json(replace(call, params=page))
            for item in document[member]:
                yield item
            token = document.get("next_page_token") or ""
            if not token:
                return

    def _timeout(self, secs: float) -> httpx2.Timeout:
        import httpx2

        return httpx2.Timeout(secs, connect=min(secs, wire.CONNECT_SECS))

    async def _json(self, call: Request) -> dict[str, Any]:
        return wire.document(self.url, await self._call(call))

    async def _call(self, call: Request) -> wire.Response:
        """One request, tried again where that may help, until its time is over."""
        import httpx2

        allowed = self._timeout_secs + call.extra_secs
        deadline = self._clock() + allowed
        attempt = 0
        while True:
            try:
                answer = await self._once(call, deadline)
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                hopeless = isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL))
                pause = wire.pause_secs(attempt)
                late = self._clock() + pause >= deadline
                if attempt >= self._retries or hopeless or late:
                    raise wire.unreachable(self.url, error, allowed) from error
            else:
                if wire.is_done(call, answer):
                    return answer
                preparing = wire.is_preparing(call, answer)
                pause = wire.pause_secs(attempt, answer.headers.get("retry-after", ""))
                late = self._clock() + pause >= deadline
                again = answer.status_code in wire.RETRY_STATUSES and attempt < self._retries
                if late or not (again or preparing):
                    raise wire.refused(answer)
            await self._sleep(pause)
            attempt += 1

    async def _once(self, call: Request, deadline: float) -> wire.Response:
        """One try. A body that comes in drops is not waited for beyond `deadline`."""
        import httpx2

        async with self._http.stream(
            call.method,
            call.path,
            json=call.body,
            content=call.content,
            params=dict(call.params),
            headers=dict(call.headers),
            timeout=self._timeout(max(deadline - self._clock(), 0.05)),
        ) as answer:
            chunks: list[bytes] = []
            async for chunk in answer.aiter_bytes():
                chunks.append(chunk)
                if self._clock() > deadline:
                    raise httpx2.ReadTimeout("the answer comes too slowly")
            return wire.Response(answer.status_code, answer.headers, b"".join(chunks))


async def _whole(answer: httpx2.Response) -> wire.Response:
    return wire.Response(answer.status_code, answer.headers, await answer.aread())
