"""The core of the client: what a call yields and what it makes of replies, without connections."""

from __future__ import annotations

import json

import pytest

from tilewright.service.client.core import ClientCore, resume
from tilewright.service.client.messages import (
    ConnectionFailed,
    EventParser,
    Pause,
    ReadChunk,
    Request,
    Response,
    Result,
)
from tilewright.service.client.values import Event
from tilewright.service.errors import Unreachable

CORE = ClientCore("http://service", timeout_secs=30.0, retries=1, clock=lambda: 0.0)


def test_a_call_is_a_sequence_of_requests_reads_and_pauses() -> None:
    call = CORE.record("sha256:1")
    request = resume(call)
    assert isinstance(request, Request)
    assert (request.method, request.path) == ("GET", "/v1/records/sha256:1")
    assert resume(call, Response(503, {"retry-after": "2"})) == ReadChunk()
    pause = resume(call)
    assert isinstance(pause, Pause)
    assert 2.0 <= pause.secs <= 2.2
    assert resume(call) == request
    assert resume(call, Response(200, {})) == ReadChunk()
    assert resume(call, json.dumps({"a": 1}).encode()) == ReadChunk()
    assert resume(call) == Result({"a": 1})
    assert resume(call) is None


def test_a_wrong_url_is_not_tried_again() -> None:
    call = CORE.status("j1")
    resume(call)
    with pytest.raises(Unreachable, match="no service answers at http://service: bad"):
        resume(call, failure=ConnectionFailed("bad", is_permanent=True))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_do_not_depend_on_how_a_stream_is_cut(size: int) -> None:
    stream = (
        'id: 1\r\nevent: trial\r\ndata: {"µ":1}\r\n\r\n: heartbeat\n\ndata: {}\n\nid: 2'.encode()
    )
    parser = EventParser()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    found = [event for piece in pieces for event in parser.feed(piece)]
    assert found == [Event("1", "trial", {"µ": 1}), Event("1", "message", {})]
