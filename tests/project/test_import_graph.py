"""No part of the house leads back to itself, and imports in functions save start-up time."""

from __future__ import annotations

import re
from functools import partial
from itertools import takewhile

from tests.support.import_graph import (
    LAZY,
    Import,
    Where,
    all_imports,
    circles,
    libraries_of,
    loaded_with,
    modules,
)

PLUGIN = "tilewright.pytest_plugin"
"""It imports nothing but pytest, however little that saves: `test_imports` holds that."""

LEAST_SAVED = 5
"""An import in a function saves this many modules of ours, or a library; else it is at the top."""


def test_no_file_leads_back_to_itself() -> None:
    """Imports in functions and for types alone count: they hide a circle, they do not open it."""
    assert not circles(lambda name: name)


def test_no_part_of_a_package_leads_back_to_itself() -> None:
    packages = {name.rpartition(".")[0] for name in modules()} - {""}
    assert not [package for package in packages if circles(partial(_part_of, package))]


def _part_of(package: str, name: str) -> str | None:
    """The file or folder of `package` that `name` belongs to."""
    inside = name.removeprefix(f"{package}.")
    return None if inside == name else inside.partition(".")[0]


def _late_imports(where: Where) -> list[Import]:
    found = (i for i in all_imports() if i.where is where)
    return [i for i in found if i.module not in LAZY and i.importer not in {*LAZY, PLUGIN}]


def _saves(found: Import) -> bool:
    before = loaded_with(found.importer)
    more = loaded_with(found.module) - before
    libraries = libraries_of(more) - libraries_of(before)
    return len(more) >= LEAST_SAVED or bool(libraries)


def test_an_import_in_a_function_saves_start_up_time() -> None:
    wrong = [i for i in _late_imports(Where.FUNCTION) if not _saves(i) and not _one_of_many(i)]
    assert not wrong, "import these at the top of their files"


def _one_of_many(found: Import) -> bool:
    """Whether others that the same statement or the one before it imports save what this saves."""
    beside = [
        i
        for i in modules()[found.importer].imports
        if i.where is Where.FUNCTION and abs(i.line - found.line) <= 1 and i is not found
    ]
    return any(found.module in loaded_with(i.module) and _saves(i) for i in beside)


def test_an_import_for_types_alone_saves_start_up_time() -> None:
    """What is loaded anyway need not be hidden from the interpreter."""
    loaded = [i for i in _late_imports(Where.TYPES) if i.module in loaded_with(i.importer)]
    assert not loaded, "import these at the top of their files"


def test_a_comment_says_what_a_late_import_saves() -> None:
    """`# Start-up: why` beside the import or above it, or once in the file, not indented."""
    bare = [
        i
        for i in _late_imports(Where.FUNCTION)
        if not any(line.startswith("# Start-up: ") for line in modules()[i.importer].lines)
        and not _has_comment(modules()[i.importer].lines, i.line - 1)
    ]
    assert not bare, "say `# Start-up: why` beside or above these"


_SAYS_SO = re.compile(r"#.*\bstart-up\b", re.IGNORECASE)


def _has_comment(lines: tuple[str, ...], at: int) -> bool:
    """Whether line `at`, or the comment above it and imports around it, says `start-up`."""
    if _SAYS_SO.search(lines[at]):
        return True
    above = takewhile(
        lambda line: not line or line.startswith(("#", "from ", "import ")),
        (line.strip() for line in reversed(lines[:at])),
    )
    return any(map(_SAYS_SO.match, above))
