"""Fixtures of every test: golden texts, repeatable chance, settings of Hypothesis."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser import NO_BROWSER
from tests.support.golden_text import Golden, golden_path

# Starlette's test client calls every service by this name; none outside the tests answers to it.
os.environ["TILEWRIGHT_ALLOW_HOST"] = "testserver"
if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


def folder_in_memory() -> str | None:
    """Where temporary files need no disk, if there is room for them and programs may be run there.
    Databases sync each commit: no test cuts the power, so what a killed process left is there."""
    try:
        found = os.statvfs(folder := "/dev/shm")
    except OSError:
        return None
    fits = found.f_bavail * found.f_frsize >= 4 << 30
    return folder if fits and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) else None


if in_memory := folder_in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", in_memory)

# The same examples in every run, so that a red suite is red for everyone; `deep` looks for new
# ones: pytest --hypothesis-profile deep.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile("ci")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it in a line of its own: skipped tests are easily overlooked."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NO_BROWSER in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{NO_BROWSER}: {count} of the dashboard; install chromium")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the texts in tests/golden/ with what the tests found",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden text of this test: `assert to_text(nest) == golden`."""
    path = golden_path(Path(__file__).parent / "golden", request.path, request.node.name)
    return Golden(path, update=request.config.getoption("--update-golden"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of random numbers, the same in every run."""
    return np.random.default_rng(20261121)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command that sets up the log of its process, as `serve` does, does so for its test alone:
    the stream it writes to is closed when that test is over."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this session's own, started when a test first asks for it."""
    pytest.importorskip("psycopg")
    from tests.support.postgres import running_server

    with running_server() as server:
        yield server


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    if op == "==" and isinstance(left, str) and isinstance(right, Golden):
        return right.explain(left)
    return None
