"""Every decision record has a date and a status, and is in the index once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.project_texts import links, named

FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
STATUS = re.compile(r"\d{4}-\d\d-\d\d\. Status: (accepted|superseded by|withdrawn by)\b.*\.")


@pytest.mark.parametrize("path", RECORDS, ids=named)
def test_a_decision_has_a_number_a_date_and_a_status(path: Path) -> None:
    title, empty, status = path.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith(f"# {int(path.name[:4])}. ")
    assert empty == ""
    found = STATUS.fullmatch(status)
    assert found, f"line 3 is to be like `2026-11-26. Status: accepted.`, not {status!r}"
    if found[1] != "accepted":
        assert links(status), f"the status names no decision that replaced {path.name}"


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_the_index_lists_every_decision_once() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = sorted(link for link in links(index) if re.match(r"\d{4}-", link))
    assert listed == [path.name for path in RECORDS]


def test_decisions_do_not_grow_in_their_middle() -> None:
    """What came after acceptance is a note at the end: nothing but notes follows a note."""
    for path in RECORDS:
        parts = re.findall(r"^\*\*(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        kinds = [part for part in parts if part in {"Context", "Decision", "Consequences", "Note"}]
        if "Note" in kinds:
            behind = kinds[kinds.index("Note") :]
            assert set(behind) == {"Note"}, f"{path.name} goes on behind a note"
