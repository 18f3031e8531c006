"""Clients that connect and say nothing, say it slowly, or do not listen: none stops the service."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tilewright.service.http import connections
from tilewright.service.http.connections import (
    ConnectionPool,
    Listener,
    ThrottledWarning,
    connection_limit,
)
from tilewright.service.limits import RequestLimits
from tilewright.service.settings import Settings

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATIENCE_SECS = 60.0


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says hello; at /long it goes on until the client leaves."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/long":
        left = asyncio.ensure_future(receive())
        while not left.done():
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def serving(**limits: Any) -> Iterator[int]:
    """A server with these limits, in a thread; its port."""
    with serving_in_sight(**limits) as (port, _):
        yield port


@contextmanager
def serving_in_sight(**limits: Any) -> Iterator[tuple[int, ConnectionPool]]:
    """The same, with its connections as it counts them."""
    settings = Settings(limits=replace(RequestLimits(), **limits))
    options = connections.options(settings)
    listener = Listener(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1], options["http"].pool
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECS)
        assert not thread.is_alive()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECS)


def answered(port: int) -> bool:
    with connected(port) as client:
        client.sendall(REQUEST)
        return client.recv(1000).startswith(b"HTTP/1.1 200")


def still_answers(port: int) -> bool:
    """Whether it answers who asks in time: on a busy machine a client may miss a short one."""
    end = time.monotonic() + PATIENCE_SECS
    while time.monotonic() < end:
        with suppress(ConnectionError):
            if answered(port):
                return True
    return False


def ended(client: socket.socket) -> bool:
    """Whether the service has closed the connection, waiting for it."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_half_open_connections_make_room_for_new_ones(caplog: pytest.LogCaptureFixture) -> None:
    with serving(connections=20, header_secs=1000.0) as port, ExitStack() as stack:
        silent = [stack.enter_context(connected(port)) for _ in range(100)]
        for client in silent[::2]:
            client.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        for _ in range(5):
            assert answered(port)
        assert all(ended(client) for client in silent[:70]), "those that waited longest had to go"
    said = [record for record in caplog.records if record.name.startswith("tilewright")]
    assert len(said) == 1
    assert "20 connections are open" in said[0].getMessage()


def test_a_request_under_way_is_never_the_one_that_goes() -> None:
    with serving(connections=5, send_secs=1000.0) as port, ExitStack() as stack:
        busy = [stack.enter_context(connected(port)) for _ in range(5)]
        for client in busy:
            client.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(10)
        with connected(port) as late:
            assert ended(late), "there is no room, and that is said at once"
        assert all(client.recv(100) for client in busy)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST + b"GET", REQUEST])
def test_a_silent_client_is_left_in_time(sent: bytes) -> None:
    with serving(header_secs=0.1, idle_secs=0.2) as port, connected(port) as client:
        client.sendall(sent)
        assert ended(client)
        assert still_answers(port)


def test_a_head_that_drips_in_is_left_in_time() -> None:
    with serving(header_secs=0.3) as port, connected(port) as client:
        sent = 0
        with suppress(ConnectionError):
            while sent < 6000:
                sent += client.send(b"X")
                time.sleep(0.01)
        assert sent < 6000
        assert still_answers(port)


def test_who_does_not_read_is_left_in_time() -> None:
    with serving_in_sight(send_secs=0.2) as (port, pool), connected(port) as client:
        client.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(10)
        end = time.monotonic() + PATIENCE_SECS
        while pool.all:  # it reads nothing: the buffers fill up, then the clock runs
            assert time.monotonic() < end
            time.sleep(0.01)
        assert ended(client)


def test_a_connection_is_kept_for_the_next_request() -> None:
    with serving_in_sight(idle_secs=60.0) as (port, pool), connected(port) as client:
        for _ in range(3):
            client.sendall(REQUEST * 2)  # the second one comes early
            got = b""
            while got.count(b"hello") < 2:
                got += client.recv(1000)
            pool.limits = replace(pool.limits, header_secs=0.1)
            time.sleep(0.15)  # longer than a head may take


def test_no_descriptor_left_is_said_once_and_turns_the_client_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        real, left = socket.socket.accept, [0]

        def accept(self: socket.socket) -> Any:
            left[0] ^= 1
            if left[0]:
                raise OSError(errno.EMFILE, "Too many open files")
            return real(self)

        monkeypatch.setattr(socket.socket, "accept", accept)
        for _ in range(50):
            with connected(listener.getsockname()[1]) as client:
                with pytest.raises(BlockingIOError):
                    listener.accept()
                assert client.recv(1) == b"", "closed, not left waiting"
    assert [record.getMessage() for record in caplog.records] == [
        "a connection is rejected: Too many open files"
    ]


def test_malformed_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    connections.THROTTLED_LOGGER._throttled_warning = ThrottledWarning()
    with serving() as port:
        for _ in range(20):
            with connected(port) as client:
                client.sendall(b"\x16\x03\x01 not HTTP\r\n\r\n")
                assert b"400" in client.recv(100)
        assert answered(port)
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1


def test_what_is_left_unsaid_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    moment = 0.0
    said = ThrottledWarning(clock=lambda: moment)
    for _ in range(1000):
        said("full")
        moment += 0.1
    assert [record.getMessage() for record in caplog.records] == [
        "full",
        "full (599 more since the last message)",
    ]


def test_the_limit_leaves_descriptors_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(soft: int, hard: int) -> int:
        raised: list[tuple[int, int]] = []
        monkeypatch.setattr("resource.getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr("resource.setrlimit", lambda _, value: raised.append(value))
        return connection_limit(1000)

    assert limited(20_000, 20_000) == 1000
    assert limited(1024, 20_000) == 1000
    assert limited(1024, 1024) == 824
    assert limited(100, 100) == 50
