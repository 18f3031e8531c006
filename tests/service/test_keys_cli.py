"""`tilewright keys`: a secret shown once, and a service that follows."""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import bearer, keyring_of, make_key
from tilewright.db import Store, open_store
from tilewright.service.access.exposure import check_exposure
from tilewright.service.access.keys import KeyScope, expiry_of, scopes_of
from tilewright.service.cli import run
from tilewright.service.errors import CannotServe, InvalidField
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings

KEY = re.compile(r"tw_[a-z2-7]{10}_[a-z2-7]{52}")


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "keys.sqlite")


def said(capsys: pytest.CaptureFixture[str], words: list[str]) -> Any:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_key_is_shown_once_and_kept_nowhere(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "create", "--scopes", "read", "--note", "CI", "--db", db]) == 0
    told = capsys.readouterr()
    text = told.out.strip()
    assert KEY.fullmatch(text)
    assert text not in told.err
    [listed] = said(capsys, ["keys", "list", "--db", db])["keys"]
    assert listed["id"] == text.split("_")[1]
    assert (listed["scopes"], listed["state"], listed["note"]) == (["read"], "valid", "CI")
    assert run(["keys", "list", "--db", db]) == 0
    assert text not in capsys.readouterr().out
    secret = text.rpartition("_")[2].encode()
    for file in Path(db).parent.iterdir():
        if file.is_file():
            assert secret not in file.read_bytes()


def test_a_replaced_key_and_its_successor_are_both_valid(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["keys", "create", "--owner", "ci", "--expires", "90d", "--db", db]
    old = said(capsys, words)
    new = said(capsys, ["keys", "rotate", old["id"], "--keep", "2d", "--db", db])
    assert (new["owner"], new["scopes"]) == ("ci", old["scopes"])
    with (
        open_store(db) as store,
        TestClient(create_app(Settings(limits=Settings().limits), store)) as api,
    ):
        for key in (old, new):
            assert api.get("/v1/jobs", headers=bearer(key["key"])).status_code == 200
    first, second = said(capsys, ["keys", "list", "--db", db])["keys"]
    assert first["expires_at"] < old["expires_at"]
    assert second["expires_at"] is None
    assert said(capsys, ["keys", "revoke", old["id"], "--db", db])["state"] == "revoked"


@pytest.mark.parametrize(
    "words",
    [
        ["create", "--scopes", "root"],
        ["create", "--scopes", ""],
        ["create", "--expires", "soon"],
        ["create", "--expires", "99999y"],
        ["create", "--owner", "a b"],
        ["create", "--note", "a\nb"],
    ],
)
def test_what_makes_no_key_is_a_usage_error(db: str, words: list[str]) -> None:
    assert run(["keys", *words, "--db", db]) == 2


@pytest.mark.parametrize("verb", ["revoke", "rotate"])
def test_an_unknown_key_is_said_to_be_one(db: str, verb: str) -> None:
    assert run(["keys", verb, "nothing", "--db", db]) == 1


def test_lengths_of_time_and_scopes() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    assert expiry_of("12h", now) == now + timedelta(hours=12)
    assert expiry_of("2w", now) == now + timedelta(days=14)
    assert scopes_of("read, submit,read") == (KeyScope.READ, KeyScope.SUBMIT)
    with pytest.raises(InvalidField, match="one or more of submit, read, publish, admin"):
        scopes_of("read,root")


def test_a_running_service_follows_within_a_second(store: Store) -> None:
    moment = 0.0
    settings = Settings()
    app = create_app(settings, store)
    with TestClient(app) as api:
        keyring = keyring_of(app)
        keyring._clock = lambda: moment
        assert api.get("/v1/jobs").status_code == 200, "no key there, none asked for"
        moment += 2
        text = make_key(store)
        assert api.get("/v1/jobs").status_code == 401
        assert api.get("/v1/jobs", headers=bearer(text)).status_code == 200
        store.revoke_key(text.split("_")[1])
        moment += 2
        assert api.get("/v1/jobs", headers=bearer(text)).json()["code"] == "revoked_key"
        assert api.get("/v1/jobs").status_code == 401, "what was once closed stays closed"


@pytest.mark.parametrize(
    "change",
    [
        "scopes = 'admin read submit'",
        "owner = 'other'",
        "expires_at = NULL",
        "revoked_at = NULL",
        "secret_sha256 = '{other}'",
        "created_at = 'yesterday'",
        "scopes = x'ff'",
    ],
)
def test_a_key_that_was_tampered_with_opens_nothing(
    store: Store, change: str, tmp_path: Path
) -> None:
    text = make_key(
        store,
        owner="mine",
        scopes=(KeyScope.READ,),
        expires_at=datetime.now(UTC) + timedelta(days=1),
    )
    store.revoke_key(text.split("_")[1]) if "revoked" in change else None
    connection = sqlite3.connect(str(store.path))
    connection.execute("UPDATE api_key SET " + change.format(other="1" * 64))
    connection.commit()
    connection.close()
    with TestClient(create_app(Settings(), store)) as api:
        for headers in ({}, bearer(text)):
            answer = api.get("/v1/jobs", headers=headers)
            assert answer.status_code in (401, 503), "damage closes a service, it does not open it"
    assert [problem.kind for problem in store.check()] in (["key"], ["file"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_of_others_needs_a_key(store: Store, host: str) -> None:
    settings = Settings(host=host)
    with pytest.raises(CannotServe, match="there is no key yet"):
        check_exposure(settings, store)
    check_exposure(Settings(host=host, allow_unauthenticated=True), store)
    text = make_key(store)
    check_exposure(settings, store)
    with pytest.raises(CannotServe, match="anybody could submit"):
        check_exposure(Settings(host=host, require_keys=False), store)
    with TestClient(create_app(settings, store)) as api:
        assert api.get("/v1/jobs").status_code == 401
        assert api.get("/v1/jobs", headers=bearer(text)).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_alone_needs_none_unless_told_to(store: Store, host: str) -> None:
    check_exposure(Settings(host=host), store)
    with TestClient(create_app(Settings(host=host, require_keys=True), store)) as api:
        assert api.get("/v1/jobs").status_code == 401
        assert api.get("/healthz").status_code == 200
    with TestClient(create_app(Settings(host=host), store)) as api:
        assert api.get("/v1/jobs").status_code == 200
        assert api.get("/v1/jobs", headers=bearer("of elsewhere")).status_code == 200
    make_key(store)
    with TestClient(create_app(Settings(host=host, require_keys=False), store)) as api:
        assert api.get("/v1/jobs").status_code == 200


def test_serve_refuses_before_it_listens(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--host", "0.0.0.0", "--port", "0", "--db", db]) == 1
    assert "tilewright keys create" in capsys.readouterr().err


@pytest.mark.parametrize("given", [{"allow_origin": ("*",)}, {"allow_origin": ("https://a/b",)},
                                   {"trusted_proxy": ("proxy.example",)}])  # fmt: skip
def test_names_that_are_none_are_refused(store: Store, given: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(CannotServe, match="--"):
        check_exposure(Settings.model_validate(given), store)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_ALLOW_HOST", "a.example, b.example")
    monkeypatch.setenv("TILEWRIGHT_REQUIRE_KEYS", "1")
    settings = Settings()
    assert settings.allow_host == ("a.example", "b.example")
    assert settings.require_keys is True
