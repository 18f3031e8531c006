"""What `docs/adding.md` adds works: it is put into a copy of the sources, and used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("schedules", "costmodel", "tuner")


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of one language in a section, moved to the left."""
    section = (ROOT / "docs" / "adding.md").read_text().split(f"## {heading}\n")[1]
    section = section.split("\n## ")[0]
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", section, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for _, text in found]


def insert(root: Path, change: str) -> None:
    """Lines with a + after the lines with a blank before them, which are in the file once; where
    there are none, a new file."""
    first, *lines = change.splitlines()
    path = root / first.removeprefix("+++ ")
    known = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
    added = "".join(line[1:] + "\n" for line in lines if line.startswith("+"))
    if not known:
        assert not path.exists(), f"{first}: is there already"
        path.write_text(added)
        return
    text = path.read_text()
    assert text.count(known) == 1, f"{first}: {known}"
    path.write_text(text.replace(known, known + added))


@pytest.mark.parametrize(
    ("heading", "files"),
    [
        ("An operator", 1),
        ("A scalar function", 2),
        ("An element type", 1),
        ("A knob", 2),
        ("A search strategy", 1),
    ],
)
def test_nothing_more_is_asked_for(heading: str, files: int, tmp_path: Path) -> None:
    for package in PACKAGES:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=skip)
    shutil.copytree(ROOT / "tilewright", tmp_path / "tilewright", symlinks=True, ignore=skip)
    changes = blocks(heading, "diff")
    for change in changes:
        insert(tmp_path, change)
    assert len({change.splitlines()[0] for change in changes}) == files
    (program,) = blocks(heading, "python")
    places = {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=os.environ | places,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
