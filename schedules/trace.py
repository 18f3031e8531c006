"""Trace: a schedule as a tuple of steps that can be printed, hashed, compared and stored as JSON.

Rewrites of the expression come first, then primitives, which transform its loop nest. Names in a
trace are the names of the workload's normal form. A trace therefore replays to the same program for
every notation of the computation, in any process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias, get_type_hints

from .algebra.affine import atoms_in
from .errors import ScheduleError, require
from .limits import MAX_ATOMS, MAX_NESTING, MAX_STATEMENTS, MAX_STEP_INTEGER, MAX_STEP_TEXT
from .nest.finding import accesses_of
from .nest.loop_ir import Leaf, Nest, leaves, levels
from .primitives import PRIMITIVES, Primitive
from .primitives.primitive import spelling_of, spellings_of
from .primitives.scatters import check_selected
from .primitives.tensorize import check_instructions
from .rewrites import REWRITES, Rewrite
from .trace_document import current_steps
from .workload.checks import shorten

MAX_STEPS = 4000
"""Most steps of a trace. A row sum takes 16 and a matrix product 11. A workload has up to 64
stages."""

Step: TypeAlias = Rewrite | Primitive

_KINDS: tuple[type[Step], ...] = (*PRIMITIVES, *REWRITES)
_HINTS: dict[type[Step], dict[str, Any]] = {kind: get_type_hints(kind) for kind in _KINDS}
_BY_NAME: dict[str, list[tuple[type[Step], frozenset[str]]]] = {}
"""Map from the serialised name of a step to its class and each accepted set of fields."""

for _kind in _KINDS:
    for _spelling in spellings_of(_kind):
        _BY_NAME.setdefault(_spelling.name, []).append((_kind, frozenset(_spelling.fields)))


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps in the order in which they are applied."""

    steps: tuple[Step, ...] = ()

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The steps before the first primitive, which change the expression."""
        found: list[Rewrite] = []
        for step in self.steps:
            if not isinstance(step, Rewrite):
                break
            found.append(step)
        return tuple(found)

    def apply(self, nest: Nest) -> Nest:
        """Return `nest` after every step.

        Raise ScheduleError if a step is not legal, makes the nest too large, or is a rewrite.
        (`lowering.lower.start` applies the rewrites at the start of a trace.)
        """
        known: dict[int, tuple[Leaf, int]] = {}
        for step in self.steps:
            if isinstance(step, Rewrite):
                raise ScheduleError(step, "rewrites must precede all primitives")
            nest = step.apply(nest)
            _require_room(nest, step, known)
            check_instructions(nest, step)
            check_selected(nest, step)
        return nest

    def to_json(self) -> list[Any]:
        """Return JSON data with one object per step. Equal traces give equal data."""
        return [_document(step) for step in self.steps]

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Return the trace of data that `to_json` of this version or an earlier one returned.

        Raise ScheduleError with the step and the mistake if the data is not valid.
        """
        if not isinstance(document, list) or len(document) > MAX_STEPS:
            raise ScheduleError("trace", f"a trace is a list of at most {MAX_STEPS} steps")
        steps = enumerate(current_steps(document))
        return cls(tuple(_step(number, entry) for number, entry in steps))

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def _require_room(nest: Nest, step: Step, known: dict[int, tuple[Leaf, int]]) -> None:
    """Raise ScheduleError if the nest is too large after `step`. `known` has the atoms of leaves of
    earlier nests by identity, because most steps change few leaves."""
    size, deepest = 0, 0
    for level, stmts in enumerate(levels(nest.body)):
        size, deepest = size + len(stmts), level
    problem = f"the nest would have {size} statements, at most {MAX_STATEMENTS} are allowed"
    require(size <= MAX_STATEMENTS, step, problem)
    problem = f"statements would be nested {deepest} deep, at most {MAX_NESTING} are allowed"
    require(deepest <= MAX_NESTING, step, problem)
    most = 0
    for leaf in leaves(nest.body):
        found = known.get(id(leaf))
        if found is None:
            found = known[id(leaf)] = (leaf, _most_atoms(leaf))
        most = max(most, found[1])
    problem = f"an index would have {most} variables and divisions, at most {MAX_ATOMS} are allowed"
    require(most <= MAX_ATOMS, step, problem)


def _most_atoms(leaf: Leaf) -> int:
    indices = (i for _, index in accesses_of(leaf) for i in index)
    return max(map(atoms_in, indices), default=0)


def _document(step: Step) -> dict[str, Any]:
    spelling = spelling_of(step)
    values = {name: _plain(getattr(step, name)) for name in spelling.fields}
    return {"do": spelling.name, **values}


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _step(number: int, entry: object) -> Step:
    where = f"step {number}"
    name = entry.get("do") if isinstance(entry, dict) else entry
    if not isinstance(entry, dict) or not isinstance(name, str) or name not in _BY_NAME:
        found = _shown(name)
        raise ScheduleError(where, f'"do" must be one of {", ".join(_BY_NAME)}; found {found}')
    given = {k: v for k, v in entry.items() if k != "do"}
    kind = next((kind for kind, names in _BY_NAME[name] if names == given.keys()), None)
    if kind is None:
        _, wanted = _BY_NAME[name][0]
        found = shorten(str(sorted(given)))
        raise ScheduleError(where, f"{name} takes {sorted(wanted)}, found {found}")
    hints = _HINTS[kind]
    step = kind(**{k: _checked(v, hints[k], f"{where}, {name}.{k}") for k, v in given.items()})
    if spelling_of(step).name != name:
        raise ScheduleError(where, f"{name} needs all of {sorted(given)}, found {given}")
    return step


def _checked(value: object, hint: Any, where: str) -> Any:
    """Return `value` converted to the field's type and checked against the size limits.

    The type is str, int, bool, or a tuple of names, integers or pairs of integers.
    """
    if hint in (str, int, bool):
        if type(value) is not hint:
            raise ScheduleError(where, f"must be {hint.__name__}, found {_shown(value)}")
        if isinstance(value, int) and abs(value) > MAX_STEP_INTEGER:
            most = f"{-MAX_STEP_INTEGER}..{MAX_STEP_INTEGER}"
            raise ScheduleError(where, f"must be in {most}, found one of {value.bit_length()} bits")
        if isinstance(value, str) and len(value) > MAX_STEP_TEXT:
            problem = f"a name has at most {MAX_STEP_TEXT} characters, found {len(value)}"
            raise ScheduleError(where, problem)
        return value
    if not isinstance(value, list):
        raise ScheduleError(where, f"must be a list, found {_shown(value)}")
    if len(value) > MAX_STATEMENTS:
        raise ScheduleError(where, f"has at most {MAX_STATEMENTS} entries, found {len(value)}")
    if hint == tuple[str, ...]:
        return tuple(_checked(v, str, where) for v in value)
    if hint == tuple[int, ...]:
        return tuple(_checked(v, int, where) for v in value)
    pairs = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            problem = f"must be a list of pairs of integers, found {_shown(pair)}"
            raise ScheduleError(where, problem)
        pairs.append((_checked(pair[0], int, where), _checked(pair[1], int, where)))
    return tuple(pairs)


def _shown(value: object) -> str:
    short = isinstance(value, bool | float | None)
    if short or (isinstance(value, int) and abs(value) <= MAX_STEP_INTEGER):
        return repr(value)
    return repr(value[:60]) if isinstance(value, str) else f"a value of type {type(value).__name__}"
