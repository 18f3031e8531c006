"""There are no import cycles, and every import in a function saves start-up time."""

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
"""A module that may import only pytest at the top, even if this saves little time (checked by
`test_imports`)."""

LEAST_SAVED = 5
"""An import in a function must avoid loading at least this many modules of this project, or a
library."""


def test_no_file_leads_back_to_itself() -> None:
    """Imports in functions and imports for types count too, because they only hide a cycle."""
    assert not circles(lambda name: name)


def test_no_part_of_a_package_leads_back_to_itself() -> None:
    packages = {name.rpartition(".")[0] for name in modules()} - {""}
    assert not [package for package in packages if circles(partial(_part_of, package))]


def _part_of(package: str, name: str) -> str | None:
    """Return the file or folder of `package` that contains module `name`, or None."""
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
    """Return whether an adjacent import in a function loads the same module and saves time."""
    beside = [
        i
        for i in modules()[found.importer].imports
        if i.where is Where.FUNCTION and abs(i.line - found.line) <= 1 and i is not found
    ]
    return any(found.module in loaded_with(i.module) and _saves(i) for i in beside)


def test_an_import_for_types_alone_saves_start_up_time() -> None:
    """A module that is loaded in any case need not be imported under `TYPE_CHECKING`."""
    loaded = [i for i in _late_imports(Where.TYPES) if i.module in loaded_with(i.importer)]
    assert not loaded, "import these at the top of their files"


def test_a_comment_says_what_a_late_import_saves() -> None:
    """The comment `# Start-up: reason` is next to the import, above it, or once in the file without
    indentation."""
    bare = [
        i
        for i in _late_imports(Where.FUNCTION)
        if not any(line.startswith("# Start-up: ") for line in modules()[i.importer].lines)
        and not _has_comment(modules()[i.importer].lines, i.line - 1)
    ]
    assert not bare, "say `# Start-up: why` beside or above these"


_SAYS_SO = re.compile(r"#.*\bstart-up\b", re.IGNORECASE)


def _has_comment(lines: tuple[str, ...], at: int) -> bool:
    """Return whether line `at`, or the comment above it or above the imports before it, contains
    `start-up`."""
    if _SAYS_SO.search(lines[at]):
        return True
    above = takewhile(
        lambda line: not line or line.startswith(("#", "from ", "import ")),
        (line.strip() for line in reversed(lines[:at])),
    )
    return any(map(_SAYS_SO.match, above))
