"""The typed client: what it sends, what it makes of answers, how it tries again."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tilewright.service.client import AsyncClient, Client, Event
from tilewright.service.errors import ExitCode, Refused, Unreachable
from tilewright.service.problems import problem_of

JOB = {
    "id": "j1",
    "state": "QUEUED",
    "done": False,
    "workload": {"name": "w", "flops": 10},
    "target": {"key": "t"},
    "progress": {},
    "best": None,
    "error": None,
}


def client(handler: Callable[[httpx2.Request], httpx2.Response], **more: Any) -> Client:
    slept: list[float] = more.pop("slept", [])
    return Client(
        "http://service", transport=httpx2.MockTransport(handler), sleep=slept.append, **more
    )


def test_an_export_is_sent_as_it_is() -> None:
    told = {"new": 1, "known": 0, "refused": 0, "refusals": []}
    sent: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json=told)

    async def publish() -> dict[str, Any]:
        transport = httpx2.MockTransport(handler)
        async with AsyncClient("http://service", transport=transport) as client:
            return await client.publish(b"{}\n")

    with Client("http://service", transport=httpx2.MockTransport(handler)) as client:
        assert client.publish("{}\n") == told == asyncio.run(publish())
    for request in sent:
        assert (request.method, request.url.path) == ("POST", "/v1/records")
        assert request.headers["content-type"] == "application/x-ndjson"
        assert request.content == b"{}\n"


def test_submit_sends_only_what_was_given() -> None:
    sent: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(202, json=JOB)

    with client(handler, api_key="secret") as c:
        job = c.submit("matmul:M=8,N=8,K=8", trials=5, seed=3)
    assert job.id == "j1"
    assert not job.done
    assert json.loads(sent[0].content) == {
        "workload": "matmul:M=8,N=8,K=8",
        "target": "native",
        "budget": {"trials": 5},
        "seed": 3,
    }
    assert sent[0].headers["authorization"] == "Bearer secret"
    assert sent[0].headers["idempotency-key"]


def test_a_busy_service_is_asked_again_after_the_time_it_named() -> None:
    keys: list[str] = []
    slept: list[float] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            return httpx2.Response(429, headers={"Retry-After": "2"}, json={})
        return httpx2.Response(202, json=JOB)

    with client(handler, slept=slept) as c:
        assert c.submit("w").id == "j1"
    assert len(set(keys)) == 1
    assert [2.0 <= secs <= 2.3 for secs in slept] == [True, True]


def test_an_answer_that_is_being_prepared_is_asked_for_again() -> None:
    slept: list[float] = []
    told = {"pending": True, "detail": "being built", "ticket": None, "retry_after_secs": 2}

    def handler(request: httpx2.Request) -> httpx2.Response:
        if len(slept) < 4:
            return httpx2.Response(202, headers={"Retry-After": "2"}, json=told)
        best: dict[str, Any] = {
            "grade": "default",
            "record_key": None,
            "run_secs": None,
            "trace": [],
        }
        return httpx2.Response(200, json=best, headers={"ETag": '"e"'})

    with client(handler, slept=slept) as c:
        found = c.best("w", "t", min_grade="default")
    assert found is not None
    assert found.grade == "default"
    assert [2.0 <= secs <= 2.3 for secs in slept] == [True] * 4


def test_a_refused_connection_is_tried_again_and_then_told() -> None:
    tried: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        tried.append(request.url.path)
        raise httpx2.ConnectError("refused")

    with (
        client(handler, retries=2) as c,
        pytest.raises(Unreachable, match="no service answers at http://service: refused"),
    ):
        c.status("j1")
    assert len(tried) == 3


@pytest.mark.parametrize("url", ["not a url", "http://[", "ftp://x", ""])
def test_what_is_no_url_is_unreachable(url: str) -> None:
    with pytest.raises(Unreachable):
        Client(url, sleep=lambda _secs: None).status("j1")


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (422, "bad_workload", ExitCode.USAGE),
        (404, "no_answer", ExitCode.NO_ANSWER),
        (404, "not_found", ExitCode.FAILED),
        (413, "too_large", ExitCode.USAGE),
        (503, "database_held", ExitCode.UNREACHABLE),
        (500, "", ExitCode.FAILED),
    ],
)
def test_a_refusal_keeps_the_services_words_and_has_an_exit_code(
    status: int, code: str, exit_code: ExitCode
) -> None:
    problem = {"detail": "because", "code": code, "errors": [{"pointer": "/workload"}]}

    def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, json=problem)

    with client(handler, retries=0) as c, pytest.raises(Refused, match="because") as caught:
        c.status("j1")
    assert caught.value.status == status
    told = problem_of(caught.value)
    assert told.exit_code is exit_code
    assert told.pointer == "/workload"


def test_a_refusal_that_is_no_problem_document_is_told_all_the_same() -> None:
    with (
        client(lambda _: httpx2.Response(502, text="<html>bad gateway"), retries=0) as c,
        pytest.raises(Refused, match="HTTP status 502"),
    ):
        c.status("j1")


def test_best_is_none_when_nothing_changed() -> None:
    answer = {"grade": "exact", "record_key": "sha256:1", "run_secs": 1e-3, "trace": []}

    def handler(request: httpx2.Request) -> httpx2.Response:
        if request.headers.get("if-none-match") == '"e"':
            return httpx2.Response(304)
        return httpx2.Response(200, json=answer, headers={"ETag": '"e"'})

    with client(handler) as c:
        best = c.best("w", "t")
        assert best is not None
        assert best.grade == "exact"
        assert c.best("w", "t", etag=best.etag) is None


def test_pages_are_followed_to_their_end() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        page = int(request.url.params.get("page_token", "0"))
        token = str(page + 1) if page < 2 else None
        return httpx2.Response(200, json={"trials": [{"trial": page}], "next_page_token": token})

    with client(handler) as c:
        assert [t["trial"] for t in c.trials("j1")] == [0, 1, 2]


def test_waiting_asks_until_the_job_is_done() -> None:
    answers = [JOB, JOB, {**JOB, "state": "SUCCEEDED", "done": True}]
    waits: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        waits.append(request.url.params.get("wait", ""))
        return httpx2.Response(200, json=answers.pop(0))

    with client(handler) as c:
        assert c.wait("j1").state == "SUCCEEDED"
    assert waits == ["", "30000ms", "30000ms"], "at once first, to know that it is there"


def test_waiting_ends_with_its_time() -> None:
    with (
        client(lambda _: httpx2.Response(200, json=JOB)) as c,
        pytest.raises(TimeoutError, match=r"QUEUED after 0\.01 s"),
    ):
        c.wait("j1", timeout_secs=0.01)


def test_a_broken_stream_is_taken_up_where_it_broke() -> None:
    asked: list[str] = []
    first = b'retry: 1000\n\nid: 1\nevent: state\ndata: {"a":1}\n\n: still here\n\nid: 2\nev'
    rest = b'id: 2\nevent: trial\ndata: {"b":2}\n\nevent: done\ndata: {}\n\n'

    def handler(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("last-event-id", ""))
        return httpx2.Response(200, content=first if len(asked) == 1 else rest)

    with client(handler) as c:
        events = list(c.events("j1"))
    assert events == [
        Event("1", "state", {"a": 1}),
        Event("2", "trial", {"b": 2}),
        Event("2", "done", {}),
    ]
    assert asked == ["", "1"]


def test_a_blob_is_checked_against_its_name() -> None:
    data = b"object"
    with client(lambda _: httpx2.Response(200, content=data)) as c:
        assert c.blob("sha256:" + hashlib.sha256(data).hexdigest()) == data
        with pytest.raises(Refused, match="do not match"):
            c.blob("sha256:" + "0" * 64)


def test_a_call_ends_with_its_time_however_often_it_could_be_tried_again() -> None:
    tried: list[float] = []
    now = [0.0]

    def handler(request: httpx2.Request) -> httpx2.Response:
        tried.append(now[0])
        now[0] += 4.0
        raise httpx2.ConnectError("refused")

    with (
        client(handler, timeout_secs=10.0, retries=100, clock=lambda: now[0]) as c,
        pytest.raises(Unreachable),
    ):
        c.status("j1")
    assert len(tried) == 3


def test_a_service_that_wants_more_time_than_there_is_is_not_waited_for() -> None:
    slept: list[float] = []
    answer = httpx2.Response(503, headers={"Retry-After": "60"}, json={"detail": "no disk"})
    with (
        client(lambda _: answer, slept=slept, timeout_secs=5.0) as c,
        pytest.raises(Refused, match="no disk"),
    ):
        c.status("j1")
    assert slept == []


def test_a_time_of_day_is_understood_as_when_to_come_back() -> None:
    slept: list[float] = []
    answers = [
        httpx2.Response(503, headers={"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}, json={}),
        httpx2.Response(200, json=JOB),
    ]
    with client(lambda _: answers.pop(0), slept=slept) as c:
        assert c.status("j1").id == "j1"
    assert slept == [0.0]


@pytest.mark.parametrize("secs", [31, 0.25, 1 / 3])
def test_any_time_may_be_waited(secs: float) -> None:
    waits: list[str] = []
    now = [0.0]

    def handler(request: httpx2.Request) -> httpx2.Response:
        waits.append(request.url.params.get("wait", "0ms"))
        now[0] += int(waits[-1].removesuffix("ms")) / 1000 + 1e-3
        return httpx2.Response(200, json=JOB)

    with client(handler, clock=lambda: now[0]) as c, pytest.raises(TimeoutError):
        c.wait("j1", timeout_secs=secs)
    assert all(wait.removesuffix("ms").isdigit() for wait in waits)


def test_a_port_that_says_nothing_is_given_up_in_the_time_allowed() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with (
            Client(url, timeout_secs=0.3) as c,
            pytest.raises(Unreachable, match=r"no response within 0\.3 s"),
        ):
            c.status("j1")
        assert time.monotonic() - start < 60


def test_an_answer_that_comes_in_drops_is_given_up_in_the_time_allowed() -> None:
    now = [0.0]

    class Drops(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                now[0] += 1.0
                yield b" "

    with (
        client(
            lambda _: httpx2.Response(200, stream=Drops()),
            timeout_secs=5.0,
            retries=100,
            clock=lambda: now[0],
        ) as c,
        pytest.raises(Unreachable, match="within 5 s"),
    ):
        c.status("j1")
    assert now[0] <= 6.0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx2.Response(200, html="<p>log in"), "not a Tilewright service: it sent text/html"),
        (httpx2.Response(200, json=[1]), "not a JSON object"),
        (httpx2.Response(200, content=b""), "not a Tilewright service"),
        (httpx2.Response(301, headers={"Location": "https://s/"}), "redirects to https://s/"),
        (httpx2.Response(304), "not a Tilewright service"),
    ],
)
def test_something_else_at_the_address_is_told_as_that(answer: httpx2.Response, words: str) -> None:
    with client(lambda _: answer) as c:
        for call in (lambda: c.status("j1"), lambda: c.submit("w"), lambda: list(c.jobs())):
            with pytest.raises(Refused, match=words) as caught:
                call()
            assert problem_of(caught.value).exit_code is ExitCode.UNREACHABLE


def test_a_proxy_whose_service_starts_again_is_asked_again() -> None:
    answers = [httpx2.Response(s, text="<html>") for s in (502, 503, 504)]
    answers.append(httpx2.Response(200, json=JOB))
    with client(lambda _: answers.pop(0)) as c:
        assert c.status("j1").id == "j1"


def test_whoever_waits_for_a_job_bears_with_a_service_that_starts_again() -> None:
    now, asked = [0.0], [0]

    def sleep(secs: float) -> None:
        now[0] += secs

    def handler(_: httpx2.Request) -> httpx2.Response:
        asked[0] += 1
        if asked[0] == 1:
            return httpx2.Response(200, json=JOB)
        if now[0] < away_secs:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(200, json={**JOB, "state": "SUCCEEDED", "done": True})

    def waiting() -> Client:
        now[0], asked[0] = 0.0, 0
        return Client(
            "http://service",
            transport=httpx2.MockTransport(handler),
            sleep=sleep,
            clock=lambda: now[0],
        )

    away_secs = 60.0
    with waiting() as c:
        assert c.wait("j1").state == "SUCCEEDED"
    away_secs = 1000.0
    with waiting() as c, pytest.raises(Unreachable):
        c.wait("j1")
    assert 100 < now[0] < 200
    with waiting() as c, pytest.raises((Unreachable, TimeoutError)):
        c.wait("j1", timeout_secs=20)
    assert now[0] < 45


def test_who_follows_a_job_bears_with_a_service_that_starts_again() -> None:
    now, asked = [0.0], [0]

    def sleep(secs: float) -> None:
        now[0] += secs

    def handler(_: httpx2.Request) -> httpx2.Response:
        asked[0] += 1
        if asked[0] == 1:
            return httpx2.Response(200, content=b'id: 1\nevent: state\ndata: {"a":1}\n\n')
        if now[0] < 60:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(200, content=b"event: done\ndata: {}\n\n")

    with Client(
        "http://service",
        transport=httpx2.MockTransport(handler),
        sleep=sleep,
        clock=lambda: now[0],
    ) as c:
        assert [event.kind for event in c.events("j1")] == ["state", "done"]


def test_keys_and_urls_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_API_KEY", "from the environment")
    monkeypatch.setenv("TILEWRIGHT_URL", "http://elsewhere:1")
    sent: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json=JOB)

    with Client(transport=httpx2.MockTransport(handler)) as c:
        c.status("j1")
    assert sent[0].headers["authorization"] == "Bearer from the environment"
    assert sent[0].url.host == "elsewhere"


def test_the_async_client_does_what_the_other_does() -> None:
    stream = b'id: 1\nevent: state\ndata: {"a":1}\n\nevent: done\ndata: {}\n\n'
    asked: list[str] = []
    data = b"object"

    def handler(request: httpx2.Request) -> httpx2.Response:
        asked.append(f"{request.method} {request.url.path}")
        match request.url.path.rpartition("/")[2]:
            case "events":
                return httpx2.Response(200, content=stream)
            case "trials":
                token = None if "page_token" in request.url.params else "1"
                return httpx2.Response(200, json={"trials": [{}], "next_page_token": token})
            case "j9":
                return httpx2.Response(404, json={"detail": "no such job", "code": "not_found"})
            case name if name.startswith("sha256:"):
                return httpx2.Response(200, content=data)
        if len(asked) == 1:
            return httpx2.Response(503, headers={"Retry-After": "0"}, json={})
        return httpx2.Response(200, json={**JOB, "done": True})

    async def use() -> None:
        transport = httpx2.MockTransport(handler)
        async with AsyncClient("http://service", transport=transport) as c:
            job = await c.submit("w")
            assert (await c.wait(job.id)).done
            assert [event.kind async for event in c.events(job.id)] == ["state", "done"]
            assert len([trial async for trial in c.trials(job.id)]) == 2
            assert await c.blob("sha256:" + hashlib.sha256(data).hexdigest()) == data
            with pytest.raises(Refused, match="no such job"):
                await c.status("j9")

    asyncio.run(use())
    assert asked[:2] == ["POST /v1/jobs"] * 2, "tried again"


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(cls: type) -> dict[str, list[str]]:
        public = [name for name in vars(cls) if not name.startswith("_")]
        return {name: list(inspect.signature(getattr(cls, name)).parameters) for name in public}

    assert methods(Client) == methods(AsyncClient)


def test_importing_the_client_loads_no_http_library() -> None:
    code = (
        "import sys, tilewright.service.client;"
        " print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"httpx2", "asyncio", "pydantic", "numpy", "sqlalchemy", "rich", "typer", "anyio"}
    assert slow & set(said.stdout.split()) == set()
