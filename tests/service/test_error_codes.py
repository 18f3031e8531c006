"""Every error class has the code, the HTTP status, the exit code and the advice it always had."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.golden_text import Golden
from tests.support.paths import ROOT
from tilewright.peers.bench import BenchError
from tilewright.schedules.errors import TilewrightError, WorkloadError
from tilewright.service.errors import BadRequest, InvalidField, Located, Refused, TooLarge
from tilewright.service.http.app import create_app
from tilewright.service.problems import documented_classes, problem_of, status_of
from tilewright.tuner.backend.cpu.loading.loader import MissingLibraryError
from tilewright.tuner.kernel import CallError
from tilewright.tuner.machine.probe_merging import ProbingLateError
from tilewright.tuner.measure.fleet.address import FleetError

DEFINED_ELSEWHERE = (
    create_app,
    BenchError,
    CallError,
    FleetError,
    MissingLibraryError,
    ProbingLateError,
)
"""With these, every module that defines an error is loaded."""

OF_AN_INSTANCE = (Located, Refused)
"""Classes whose status belongs to each instance: other tests cover them."""


def error_classes(base: type[TilewrightError] = TilewrightError) -> Iterator[type[TilewrightError]]:
    """`base` and all its public subclasses of the product."""
    if base.__module__.startswith("tilewright.") and not base.__name__.startswith("_"):
        yield base
    for child in base.__subclasses__():
        yield from error_classes(child)


def test_every_class_is_answered_as_it_was(golden: Golden) -> None:
    rows = []
    for cls in sorted(set(error_classes()) - set(OF_AN_INSTANCE), key=lambda cls: cls.__name__):
        found = problem_of(cls.__new__(cls))
        rows.append(
            f"{cls.__name__}: {found.code} {found.status} {found.exit_code.name}\n"
            f"    {found.title}\n    {found.advice}"
        )
    assert "\n".join(rows) == golden


def test_some_codes_have_a_status_and_advice_of_their_own(golden: Golden) -> None:
    rows = []
    for code in ("bad_json", "malformed_json", "not_verifiable", "too_large"):
        for cls in (WorkloadError, InvalidField, BadRequest, TooLarge):
            found = problem_of(cls("it is so", code=code))
            rows.append(
                f"{code}, {cls.__name__}: {found.status} {found.exit_code.name}\n    {found.advice}"
            )
    assert "\n".join(rows) == golden


def test_advice_of_an_instance_replaces_that_of_its_class_and_code() -> None:
    assert problem_of(TooLarge("it is so", advice="Send less.")).advice == "Send less."


def test_the_documentation_lists_every_code() -> None:
    rows = [
        f"| `{cls.code}` | {status_of(cls)[0]} | {status_of(cls)[1].value} | {cls.title} |"
        for cls in documented_classes()
    ]
    text = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in text, "\n".join(["docs/http.md does not have these rows:", *rows])
