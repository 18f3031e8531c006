"""The project's texts speak of what exists: links, commands, options, targets, files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from tests.support.paths import ROOT
from tests.support.project_texts import (
    MARKDOWN,
    SCRIPTS,
    anchors,
    commands,
    links,
    make_targets,
    named,
    script_commands,
)
from tilewright.schedules.primitives import PRIMITIVES
from tilewright.schedules.rewrites import REWRITES
from tilewright.service.cli.typer_app import build

# What Typer makes of the application: a tree of commands with their options.
_COMMANDS = typer.main.get_command(build()).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", MARKDOWN, ids=named)
def test_links_lead_somewhere(path: Path) -> None:
    for link in links(path.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{named(path)} links to {link}, which does not exist"
        if anchor:
            known = anchors(target.read_text(encoding="utf-8"))
            assert anchor in known, f"{named(path)}: {file} has no heading {anchor}"


def _check(words: list[str], where: str) -> None:
    """That the command, and every option given to it, exists."""
    commands_here = _COMMANDS
    command = None
    while words and words[0] in commands_here:
        command = commands_here[words[0]]
        words = words[1:]
        commands_here = getattr(command, "commands", {})
    if command is None:
        assert words[0] in ("--help", "--version"), f"{where}: there is no command {words[0]}"
        return
    known = {"--help", *(o for p in command.params for o in (*p.opts, *p.secondary_opts))}
    for word in words:
        option = word.partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option):
            assert option in known, f"{where}: {command.name} has no option {option}"


def test_commands_of_the_texts_exist() -> None:
    found = 0
    for path in MARKDOWN:
        for words in commands(path.read_text(encoding="utf-8"), "tilewright"):
            _check(words, named(path))
            found += 1
    assert found >= 10


def test_commands_of_the_examples_exist() -> None:
    found = 0
    for path in SCRIPTS:
        for words in script_commands(path.read_text(encoding="utf-8"), "tilewright"):
            _check(words, named(path))
            found += 1
    assert found >= 4


def test_every_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name in _COMMANDS if not re.search(rf"\b{name}\b", readme)]
    assert not missing


def test_make_targets_of_the_texts_exist() -> None:
    for path in MARKDOWN:
        for words in commands(path.read_text(encoding="utf-8"), "make"):
            assert words[0].partition("=")[0] in make_targets(), named(path)
    assert {"demo", "test", "lint", "bench", "clean", "lock"} <= make_targets()


def test_files_the_texts_name_exist() -> None:
    """`schedules/lowering/lower.py` in a text is a promise that there is such a file.

    The changelog and accepted decisions are not edited: they name what there was at their time.
    """
    pattern = r"`((?:schedules|costmodel|tuner|db|service|tests|benchmarks|docs)/[\w./-]*[\w/])`"
    for path in MARKDOWN:
        if path.name == "CHANGELOG.md" or re.match(r"\d{4}-", path.name):
            continue
        for name in re.findall(pattern, path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{named(path)} names {name}, which does not exist"


def test_every_sketch_file_rewrite_and_primitive_is_listed() -> None:
    """`docs/schedules.md` is the plan of the house: what it leaves out, nobody finds."""
    text = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    folders = (ROOT / "schedules" / "sketches", ROOT / "schedules" / "primitives")
    files = {
        str(path.relative_to(folder))
        for folder in folders
        for path in folder.rglob("*.py")
        if path.stat().st_size and path.name != "__init__.py"
    }
    listed = {name for name in re.findall(r"`([\w/]+\.py)`", text) if not (ROOT / name).exists()}
    assert listed - {"__init__.py"} == files
    kinds = [kind.__name__ for kind in (*PRIMITIVES, *REWRITES)]
    assert not [name for name in kinds if f"`{name}`" not in text]
