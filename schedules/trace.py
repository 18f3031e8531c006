"""Trace: a schedule as a tuple of steps. It prints, hashes, compares, goes to JSON and back.

First come rewrites of the expression, if any, then primitives, which change its loops.

A trace speaks of a workload in normal form, so it replays to the same program for everybody who
wrote the same computation, in any process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias, get_type_hints

from .errors import ScheduleError
from .nest.loop_ir import Nest
from .primitives import PRIMITIVES, Primitive
from .primitives.primitive import spelling_of, spellings_of
from .rewrites import REWRITES, Rewrite

TRACE_VERSION = 1
"""Part of what a record depends on: raised when a primitive changes its meaning."""

MAX_STEPS = 4000
"""Row sums take 16 steps each, products 11; a program has up to 64 stages."""

Step: TypeAlias = Rewrite | Primitive

_KINDS: tuple[type[Step], ...] = (*PRIMITIVES, *REWRITES)
_HINTS: dict[type[Step], dict[str, Any]] = {kind: get_type_hints(kind) for kind in _KINDS}
_BY_NAME: dict[str, list[tuple[type[Step], frozenset[str]]]] = {}
"""What a step of that name is, and the fields it is written with, in each way it may be."""

for _kind in _KINDS:
    for _spelling in spellings_of(_kind):
        _BY_NAME.setdefault(_spelling.name, []).append((_kind, frozenset(_spelling.fields)))


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps in the order in which they are applied."""

    steps: tuple[Step, ...] = ()

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The steps that change the expression: those before the first primitive."""
        found: list[Rewrite] = []
        for step in self.steps:
            if not isinstance(step, Rewrite):
                break
            found.append(step)
        return tuple(found)

    def apply(self, nest: Nest) -> Nest:
        """`nest` after every step. ScheduleError from the first step that is not legal, and from
        a rewrite: `schedules.lowering.lower.start` does those that stand first."""
        for step in self.steps:
            if isinstance(step, Rewrite):
                raise ScheduleError(step, "a rewrite stands before every primitive")
            nest = step.apply(nest)
        return nest

    def to_json(self) -> list[Any]:
        """JSON data, one object a step; equal traces give equal data."""
        return [_document(step) for step in self.steps]

    @classmethod
    def from_json(cls, document: object) -> Self:
        """The trace of data made by `to_json`; ScheduleError says which step is wrong and why."""
        if not isinstance(document, list) or len(document) > MAX_STEPS:
            raise ScheduleError("trace", f"a trace is a list of at most {MAX_STEPS} steps")
        return cls(tuple(_step(number, entry) for number, entry in enumerate(document)))

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


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
        found = repr(name)[:80]
        raise ScheduleError(where, f'"do" must be one of {", ".join(_BY_NAME)}; found {found}')
    given = {k: v for k, v in entry.items() if k != "do"}
    kind = next((kind for kind, names in _BY_NAME[name] if names == given.keys()), None)
    if kind is None:
        _, wanted = _BY_NAME[name][0]
        raise ScheduleError(where, f"{name} takes {sorted(wanted)}, found {sorted(given)}")
    hints = _HINTS[kind]
    step = kind(**{k: _checked(v, hints[k], f"{where}, {name}.{k}") for k, v in given.items()})
    if spelling_of(step).name != name:
        raise ScheduleError(where, f"{name} needs all of {sorted(given)}, found {given}")
    return step


def _checked(value: object, hint: Any, where: str) -> Any:
    """`value` as the field's type: str, int, bool, a tuple of names, of integers or of pairs of
    integers."""
    if hint in (str, int, bool):
        if type(value) is not hint:
            raise ScheduleError(where, f"must be {hint.__name__}, found {value!r}")
        return value
    if not isinstance(value, list):
        raise ScheduleError(where, f"must be a list, found {value!r}")
    if hint == tuple[str, ...]:
        return tuple(_checked(v, str, where) for v in value)
    if hint == tuple[int, ...]:
        return tuple(_checked(v, int, where) for v in value)
    pairs = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ScheduleError(where, f"must be a list of pairs of integers, found {pair!r}")
        pairs.append((_checked(pair[0], int, where), _checked(pair[1], int, where)))
    return tuple(pairs)
