"""What the project's own texts say: Markdown files, commands in them, the Makefile."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

MARKDOWN = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in ROOT.glob(pattern)
)
SCRIPTS = sorted(ROOT.glob("examples/**/*.sh"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    """`path` as a test calls it."""
    return str(path.relative_to(ROOT))


def links(text: str) -> list[str]:
    """Targets of the links and pictures of a Markdown text, code left out."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [link or picture for link, picture in _LINK.findall(prose)]


def anchors(text: str) -> set[str]:
    """What headings are called in links."""
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def commands(text: str, program: str) -> Iterator[list[str]]:
    """The words of every `$ program ...` line of the console blocks of a Markdown text."""
    for language, block in _FENCE.findall(text):
        if language != "console":
            continue
        for line in re.sub(r"\\\n", " ", block).splitlines():
            if line.startswith(f"$ {program} "):
                yield _words(line[2:])


def script_commands(text: str, program: str) -> Iterator[list[str]]:
    """The words of every line of a shell script that starts with `program`."""
    joined = re.sub(r"\\\n", " ", text)
    joined = re.sub(r"'[^']*'", lambda quoted: quoted.group().replace("\n", " "), joined)
    for line in joined.splitlines():
        if line.startswith(f"{program} "):
            yield _words(line)


def _words(line: str) -> list[str]:
    """Up to the first pipe, redirection or comment; without the program."""
    words = shlex.split(line, comments=True)
    ends = [n for n, word in enumerate(words) if re.fullmatch(r"\d?[|<>&].*|;", word)]
    return words[1 : ends[0] if ends else None]


def make_targets() -> set[str]:
    """The targets the Makefile offers."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
