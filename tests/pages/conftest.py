"""Fixtures of the dashboard's tests: the application in this process, and a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi.testclient import TestClient

from tests.support.browser import NO_BROWSER
from tests.support.own_store import cache_home, empty_file, own_folders, store
from tests.support.service.served import PATIENCE_SECS, serving
from tilewright.db import Store
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

REPLACED = ("htmx:afterRequest", "htmx:sendAbort")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


__all__ = ["cache_home", "empty_file", "own_folders", "store"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "fast.json").write_text('{"seed": 5}')
    return Settings(measurer_folder=tmp_path)


@pytest.fixture
def pages(store: Store, settings: Settings) -> Iterator[TestClient]:
    """A client that asks as a browser does."""
    with TestClient(create_app(settings, store), follow_redirects=False) as client:
        client.headers["accept"] = "text/html,application/xhtml+xml,*/*;q=0.8"
        yield client


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> Iterator[str]:
    """The URL of `tilewright serve` in a process of its own, with two mocked machines."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "fast.json").write_text('{"seed": 5, "failure_rates": {"run_timeout": 0.1}}')
    (folder / "slow.json").write_text('{"seed": 5, "latency_secs": 0.05}')
    db = folder / "served.sqlite"
    with serving(db, folder, XDG_CACHE_HOME=str(cache_home)) as (url, _):
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window; without it the tests that need it are skipped."""
    if CHROMIUM is None:
        pytest.skip(f"{NO_BROWSER}: no chromium on the PATH (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A sandbox needs rights that a container's root has not; it opens our own pages only.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    context.set_default_timeout(PATIENCE_SECS * 1e3)
    yield context
    context.close()


@pytest.fixture
def tab(context: BrowserContext, served: str) -> Iterator[Page]:
    """A tab of the browser. What its console or the content policy complains of fails the test."""
    page = context.new_page()
    complaints: list[str] = []

    def note(said: ConsoleMessage) -> None:
        # A question that a newer one replaces is no fault: the first was not answered in time.
        if said.type == "error" and not said.text.startswith(REPLACED):
            complaints.append(said.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert complaints == []
