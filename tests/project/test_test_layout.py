"""The tests import helpers from `tests/support` and contracts, never from one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

NOT_TESTS = ("support", "contracts", "fuzz", "upgrades/dump_schema.py")
"""Where modules that hold no tests may lie: helpers, contracts to subclass, and two programs."""


def _imported(path: Path) -> Iterator[str]:
    """The modules that `path` imports, and what may be modules in them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


def test_no_test_module_is_imported() -> None:
    tests = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for pattern in ("test_*.py", "conftest.py")
        for path in (ROOT / "tests").rglob(pattern)
    }
    importers = (
        path
        for folder in ("tests", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
    )
    found = [f"{path}: {name}" for path in importers for name in _imported(path) if name in tests]
    assert not found, "move what they share to tests/support"


def test_helpers_lie_in_their_folder() -> None:
    modules = (path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py"))
    found = [
        str(path)
        for path in modules
        if not path.name.startswith("test_")
        and path.name != "conftest.py"
        and not str(path).startswith(NOT_TESTS)
    ]
    assert not found, "move these to tests/support"
