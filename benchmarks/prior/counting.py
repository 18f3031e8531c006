"""Numbers in sketches, cost model and primitives: those that somebody chose, and all others.

Every number of these packages is looked at but for 0, 1, 2, a half and their negatives in a
function, which say that something is squared, halved, paired or counted from the end. A name in
capitals (module or class), and a field or argument with a default, is one constant however many
numbers its value has; there 2 and a half, and 1.0 alone, count too. Each is of one kind:

- `chosen`: somebody set it by hand, by taste or by measuring. These are to become few.
- `fact`: its docstring says `Published:` and where. Another value would be wrong, not worse.
- `default`: its docstring says `Published default:` and where. Taken over as it stands, never tuned
  here; another value would do, and is not looked for.
- `place`: a place or a length of places in an array or a sequence: in a subscript, in `range`,
  `reshape`, an enumeration (`A, B, C = range(3)`, `A, B, C = 0, 1, 2`).
- `unit`: 1e9, and a number beside a name that ends in `bits`; without a name of its own.
- `floor`: at most 1e-4, without a name: it keeps logarithms and quotients finite.
- `version`: of a stored format.

The listing has a line for each of every kind, so that nothing is left out unseen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
WHERE = ("schedules/sketches", "schedules/hardware.py", "costmodel", "schedules/primitives")
Kind = Literal["chosen", "fact", "default", "place", "unit", "floor", "version"]
KINDS: tuple[Kind, ...] = ("fact", "default", "place", "unit", "floor", "version", "chosen")
PLAIN = frozenset({0, 0.5, 1, 2})
GIGA = 1e9
LARGEST_FLOOR = 1e-4
KINDS_BY_WORD: dict[str, Kind] = {"Published default:": "default", "Published:": "fact"}


@dataclass(frozen=True)
class Constant:
    """One of them: where it is, what it is called ("" in an expression), its text and kind."""

    file: str
    line: int
    name: str
    text: str
    kind: Kind


def constants() -> list[Constant]:
    """All that somebody chose, by file and line."""
    return [constant for constant in numbers() if constant.kind == "chosen"]


def numbers() -> list[Constant]:
    """All of every kind, by file and line."""
    files = [
        file for where in WHERE for file in sorted((ROOT / where).rglob("*.py")) or [ROOT / where]
    ]
    return [
        found
        for file in files
        for found in numbers_of(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
    ]


def listing() -> str:
    """A line each by kind, those that were chosen last, and how many."""
    found, lines = numbers(), list[str]()
    for kind in KINDS:
        of_kind = [c for c in found if c.kind == kind]
        lines += [f"{kind:8}{c.file}:{c.line}: {c.name or '(no name)'} {c.text}" for c in of_kind]
    chosen = constants()
    others = ", ".join(f"{sum(c.kind == k for c in found)} {k}s" for k in KINDS if k != "chosen")
    named = sum(bool(c.name) for c in chosen)
    total = f"{len(chosen)} hand-set constants: {named} with a name, {len(chosen) - named} without"
    return "\n".join([*lines, f"{total} (beside these: {others})"])


Found = tuple[int, str, Kind]
"""Line, name and kind."""


def numbers_of(text: str, file: str) -> Iterator[Constant]:
    """Those of one file with this text."""
    lines = text.splitlines()
    for line, called, kind in dict.fromkeys(_in_body(ast.parse(text).body)):
        yield Constant(file, line, called, lines[line - 1].strip(), kind)


def _in_body(body: Sequence[ast.stmt]) -> Iterator[Found]:
    """What the statements of a module or of a class set."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.Assign(targets=[target], value=value):
                yield from _assigned(target, value, _kind_by(after))
            case ast.AnnAssign(target=target, value=value) if value is not None:
                yield from _assigned(target, value, _kind_by(after))
            case ast.ClassDef():
                yield from _in_body(statement.body)
            case ast.FunctionDef():
                yield from _in_function(statement)


def _kind_by(after: ast.stmt | None) -> Kind:
    """The kind of a name by its docstring, the statement after it."""
    match after:
        case ast.Expr(value=ast.Constant(value=str(text))):
            said = " ".join(text.split())
            return next((kind for word, kind in KINDS_BY_WORD.items() if word in said), "chosen")
    return "chosen"


def _assigned(target: ast.expr, value: ast.expr, kind: Kind) -> Iterator[Found]:
    """What an assignment sets: one name, or several at once."""
    if isinstance(target, ast.Tuple) and _enumerates(value, len(target.elts)):
        yield target.lineno, ", ".join(map(ast.unparse, target.elts)), "place"
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, part, kind)
    elif isinstance(target, ast.Name) and _is_set(value):
        yield target.lineno, target.id, "version" if target.id.endswith("_VERSION") else kind


def _enumerates(value: ast.expr, count: int) -> bool:
    """Whether a value is 0, 1, 2, ..., written out or as a range."""
    if isinstance(value, ast.Tuple):
        return [_number(part) for part in value.elts] == list(range(count))
    return _called(value) == "range" and list(_all_numbers(value)) == [count]


def _is_set(value: ast.expr) -> bool:
    """Whether a value holds a number that says something; 1.0 alone does, 1 does not."""
    alone = isinstance(value, ast.Constant) and value.value == 1 and isinstance(value.value, float)
    return alone or any(number not in (0, 1) for number in _all_numbers(value))


def _in_function(function: ast.FunctionDef) -> Iterator[Found]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args][::-1]
    defaults = [*zip(named, arguments.defaults[::-1], strict=False)]
    defaults += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                 if d is not None]  # fmt: skip
    for argument, default in defaults:
        if _is_set(default) and _number(default) != 1:  # as often as once is no choice
            yield argument.lineno, argument.arg, "chosen"
    for statement in function.body:
        yield from _in_statement(statement)


def _in_statement(node: ast.AST) -> Iterator[Found]:
    """Numbers in what a function does."""
    if isinstance(node, ast.FunctionDef):
        yield from _in_function(node)
        return
    number = _number(node)
    if number is not None and number not in PLAIN and isinstance(node, ast.Constant):
        small: Kind = "floor" if abs(number) <= LARGEST_FLOOR else "chosen"
        yield node.lineno, "", "unit" if number == GIGA else small
    for child in ast.iter_child_nodes(node):
        found = _in_statement(child)
        if _counts_places(node, child):
            found = ((line, name, "place") for line, name, _ in found)
        elif _number(child) is not None and _is_of_bits(node):
            found = ((line, name, "unit") for line, name, _ in found)
        yield from found


def _is_of_bits(node: ast.AST) -> bool:
    """Whether a node calculates with bits, or compares them."""
    if not isinstance(node, ast.BinOp | ast.Compare):
        return False
    names = (getattr(c, "attr", getattr(c, "id", "")) for c in ast.iter_child_nodes(node))
    return any(str(name).endswith("bits") for name in names)


def _counts_places(node: ast.AST, child: ast.AST) -> bool:
    """Whether numbers in `child` of `node` are places in a sequence."""
    if isinstance(node, ast.Subscript):
        return child is node.slice
    return _called(node) in ("range", "reshape") and child is not getattr(node, "func", None)


def _called(node: ast.AST) -> str:
    """The name of the function or method that a node calls, else ""."""
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "id", getattr(function, "attr", "")))


def _number(node: ast.AST) -> float | None:
    """The number that a node is, if it is one."""
    is_number = isinstance(node, ast.Constant) and not isinstance(node.value, bool)
    value = node.value if is_number and isinstance(node, ast.Constant) else None
    return value if isinstance(value, int | float) else None


def _all_numbers(node: ast.AST) -> Iterator[float]:
    """Numbers in the value of a name, but for places in a sequence."""
    if (number := _number(node)) is not None:
        yield number
    for child in ast.iter_child_nodes(node):
        if not _counts_places(node, child) or _called(node) == "range":
            yield from _all_numbers(child)
