"""Who imports whom in Tilewright, wherever the import stands: at the top of a file, in a
function, or for types alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("schedules", "costmodel", "tuner", "db", "service", "peers")
LAZY = frozenset({"tilewright", *(f"tilewright.{name}" for name in ("schedules", "tuner", "db"))})
"""Packages whose names are loaded when they are first used: importing one costs nothing."""


class Where(Enum):
    """Where an import stands."""

    TOP = "top"
    FUNCTION = "function"
    TYPES = "types"


@dataclass(frozen=True, slots=True)
class Import:
    """`importer` imports `module`, one of ours, at `line`."""

    importer: str
    module: str
    where: Where
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its imports of ours, and the libraries that its top level loads."""

    name: str
    path: Path
    lines: tuple[str, ...]
    imports: tuple[Import, ...]
    libraries: frozenset[str]


@cache
def modules() -> Mapping[str, Module]:
    """Every module of Tilewright, by its name."""
    paths = {_name(path): path for path in sorted((ROOT / "tilewright").glob("*.py"))}
    for package in PACKAGES:  # through the links, which `rglob` does not follow on its own
        folder = ROOT / "tilewright" / package
        paths |= {_name(path): path for path in sorted(folder.rglob("*.py"))}
    known = frozenset(paths)
    return {name: _read(name, path, known) for name, path in paths.items()}


def all_imports() -> Iterator[Import]:
    for module in modules().values():
        yield from module.imports


@cache
def loaded_with(name: str) -> frozenset[str]:
    """The modules of ours that are there once `name` is imported, itself included."""
    found: set[str] = set()
    pending = [name]
    while pending:
        module = pending.pop()
        if module in found:
            continue
        found.add(module)
        at_top = (i.module for i in modules()[module].imports if i.where is Where.TOP)
        pending += [*at_top, *_packages_of(module)]
    return frozenset(found)


def libraries_of(names: Iterable[str]) -> set[str]:
    """The libraries that these modules load."""
    return set[str]().union(*(modules()[name].libraries for name in names))


def circles(place: Callable[[str], str | None]) -> list[list[str]]:
    """Places that import each other, with what is between them; modules with the same place are
    one, those with None are left out."""
    graph: dict[str, set[str]] = {}
    for found in all_imports():
        importer, module = place(found.importer), place(found.module)
        if importer is not None and module is not None and importer != module:
            graph.setdefault(importer, set()).add(module)
    return [sorted(part) for part in _strongly_connected(graph) if len(part) > 1]


def _strongly_connected(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Source: Tarjan, SIAM Journal on Computing 1 (1972), 146-160."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in number:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def _packages_of(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, path: Path, known: frozenset[str]) -> Module:
    text = path.read_text()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports: list[Import] = []
    libraries: set[str] = set()
    for node, where in _import_statements(ast.parse(text), Where.TOP):
        for module in _named(node, package, known):
            if module.partition(".")[0] == "tilewright":
                imports.append(Import(name, module, where, node.lineno))
            elif where is Where.TOP and module.partition(".")[0] not in _CHEAP:
                libraries.add(module.partition(".")[0])
    return Module(name, path, tuple(text.splitlines()), tuple(imports), frozenset(libraries))


_COSTLY = {
    "asyncio",
    "http",
    "inspect",
    "multiprocessing",
    "sqlite3",
    "subprocess",
    "urllib",
    "zipfile",
}
"""Of the standard library: each takes some milliseconds to load."""

_CHEAP = (sys.stdlib_module_names - _COSTLY) | {"__future__"}


def _import_statements(
    node: ast.AST, where: Where
) -> Iterator[tuple[ast.Import | ast.ImportFrom, Where]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, where
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield from _in_all(node.body, Where.TYPES)
        yield from _in_all(node.orelse, where)
    elif isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _in_all(ast.iter_child_nodes(node), Where.FUNCTION if inner else where)


def _in_all(
    nodes: Iterable[ast.AST], where: Where
) -> Iterator[tuple[ast.Import | ast.ImportFrom, Where]]:
    for node in nodes:
        yield from _import_statements(node, where)


def _named(node: ast.Import | ast.ImportFrom, package: str, known: frozenset[str]) -> set[str]:
    """The modules that a statement names: `from a import b` is a.b where that is a module."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        above = package.split(".")
        above = above[: len(above) - node.level + 1]
        base = ".".join([*above, *([node.module] if node.module else [])])
    return {full if (full := f"{base}.{a.name}") in known else base for a in node.names}
