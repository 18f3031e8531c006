"""Canaries: a key or a password, wherever it was sent, is in no log, answer, file or process."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import bearer, make_key
from tests.support.service.served import service
from tilewright.db import Store
from tilewright.service.client import Client
from tilewright.service.errors import Refused
from tilewright.service.http.app import create_app
from tilewright.service.logs import configure, redacted
from tilewright.service.settings import Settings

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

CANARY = "tw_canarycana_" + "q" * 52
SECRET = CANARY.rpartition("_")[2]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nothing here", "nothing here"),
        (f"key {CANARY}!", "key tw_canarycana_[hidden]!"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer [hidden]"),
        ("postgresql+psycopg://me:pa55@host/db", "postgresql+psycopg://me:[hidden]@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("http://127.0.0.1:8470/v1/jobs", "http://127.0.0.1:8470/v1/jobs"),
    ],
)
def test_what_is_taken_out_of_a_text(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the log of a service says meanwhile."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure(as_json=True)
    stream = io.StringIO()
    [handler] = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    root.handlers, root.level = handlers, level


def test_no_answer_and_no_line_of_the_log_tells_a_key(
    store: Store, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_key(store)
    answers = []
    with TestClient(create_app(Settings(), store), raise_server_exceptions=False) as api:
        for headers in (bearer(CANARY), bearer(own), {"Authorization": f"Basic {CANARY}"},
                        {"Cookie": f"tilewright_key={CANARY}"}, {"Host": CANARY},
                        {"Origin": f"https://{CANARY}"}, {"Idempotency-Key": CANARY},
                        {"Last-Event-ID": CANARY}, {"If-None-Match": CANARY}):  # fmt: skip
            for path in ("/v1/jobs", f"/v1/jobs/{CANARY}", f"/v1/blobs/{CANARY}", f"/{CANARY}",
                         f"/v1/jobs?page_token={CANARY}", f"/v1/jobs?state={CANARY}",
                         f"/v1/jobs/{'0' * 26}?wait={CANARY}", "/metrics"):  # fmt: skip
                both = {**bearer(own), **headers}
                answers += [api.get(path, headers=both), api.get(path, headers=headers)]
            for body in ({"workload": CANARY}, {CANARY: 1}, {"workload": "x", "measurer": CANARY}):
                answers += [api.post("/v1/jobs", json=body, headers={**bearer(own), **headers})]

        def broken() -> None:
            raise RuntimeError(f"Bearer {CANARY} at postgresql://me:{SECRET}@host")

        monkeypatch.setattr(store, "counts", broken)
        answers.append(api.get("/readyz"))
    logging.getLogger("uvicorn.error").error("it failed", exc_info=RuntimeError(CANARY))
    assert {answer.status_code for answer in answers} >= {200, 400, 401, 404, 422, 500}
    told = "".join(answer.text + str(answer.headers) for answer in answers)
    for secret in (SECRET, own.rpartition("_")[2]):
        assert secret not in told
        assert secret not in logged.getvalue()
    assert "tw_canarycana_[hidden]" in logged.getvalue()


def carries(child: psutil.Process, looks: int = 50) -> bool:
    """Whether the secret stays on the command line or in the environment of `child`. Until it runs
    its own program, a new process has the memory of the one that starts it."""
    with suppress(psutil.Error):
        for _ in range(looks):
            if SECRET not in " ".join(child.cmdline()) + str(child.environ()):
                return False
            time.sleep(0.01)
        return True
    return False


def test_no_process_of_a_service_carries_a_clients_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_API_KEY", CANARY)
    with service(tmp_path, str(tmp_path / "x.sqlite")) as (client, process):
        client.submit("matmul:M=8,N=8,K=8", trials=1, measurer="local")
        found = psutil.Process(process.pid).children(recursive=True)
        assert found, "the worker is up"
        assert not any(carries(child) for child in found)


def test_no_process_of_a_service_carries_the_databases_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer
) -> None:
    """In its environment or on its command line: others may read both, and kernels run there."""
    url = f"{postgres_server.fresh()}&password={SECRET}"
    monkeypatch.setenv("TILEWRIGHT_DB", url)
    with service(tmp_path, url) as (client, process):
        job = client.submit("matmul:M=8,N=8,K=8", trials=1, measurer="local")
        seen: set[str] = set()
        while not client.status(job.id).done and len(seen) < 3:  # a worker, and what it starts
            for child in psutil.Process(process.pid).children(recursive=True):
                assert not carries(child)
                with suppress(psutil.Error):
                    seen.add(" ".join(child.cmdline()))
            time.sleep(0.05)  # to look costs as much as what is looked at


def test_a_client_does_not_show_its_key() -> None:
    client = Client("http://127.0.0.1:1", CANARY, retries=0)
    assert SECRET not in repr(client) + str(vars(client))
    assert SECRET not in str(Refused(401, {"detail": "no", "code": "bad_key"}))


def test_a_key_goes_by_the_environment(tmp_path: Path) -> None:
    """`TILEWRIGHT_API_KEY` reaches the service; it is on no command line."""
    code = "import sys; from tilewright.service.cli import run; raise SystemExit(run(sys.argv[1:]))"
    told = subprocess.run(
        [sys.executable, "-c", code, "status", "--url", "http://127.0.0.1:9", "--json"],
        env={**os.environ, "TILEWRIGHT_API_KEY": CANARY},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 5
    assert SECRET not in told.stdout + told.stderr
