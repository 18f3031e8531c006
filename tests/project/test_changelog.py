"""Entries of the changelog are files that a release can put together."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from tests.support.paths import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
FRAGMENT = re.compile(r"(\d+|\+[\w-]+)\.([a-z]+)(\.\d+)?\.md")
"""`24.added.md` belongs to issue 24, `+probes.fixed.md` to none."""


def test_fragments_have_an_issue_and_a_known_kind() -> None:
    kinds = {kind["directory"] for kind in SETTINGS["type"]}
    for path in (ROOT / "changelog.d").iterdir():
        if path.name == "README.md":
            continue
        found = FRAGMENT.fullmatch(path.name)
        assert found, f"{path.name}: name it ISSUE.KIND.md or +WORDS.KIND.md"
        assert found[2] in kinds, f"{path.name}: the kind is one of {sorted(kinds)}"
        assert path.read_text(encoding="utf-8").strip(), path.name


def test_a_release_can_be_put_together() -> None:
    command = ["build", "--draft", "--version", "9.9.9", "--date", "2026-12-01"]
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "## [9.9.9] - 2026-12-01" in done.stdout
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.count(SETTINGS["start_string"]) == 1, "a release goes below this line"
