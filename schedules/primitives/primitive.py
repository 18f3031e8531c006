"""What a primitive is: a step that keeps the meaning of a nest, and says which loops it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from ..nest.loop_ir import Nest


@dataclass(frozen=True, slots=True)
class Spelling:
    """A way to write a step down: its name there and the fields it has there. Fields that it lacks
    have their defaults."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """What a step gives: the nest, and the loops in it that the step made, in program order, each
    with the loop it was made from or the buffer that it fills.

    A name among them may have been that of a loop which the step took away.
    """

    nest: Nest
    loops: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Primitive(ABC):
    """A step of a schedule. A step that makes loops is a `LoopMaker` and has `made`; others have
    `apply`. Fields are strings, integers, booleans and tuples of them: a trace is JSON."""

    SPELLINGS: ClassVar[tuple[Spelling, ...]] = ()
    """How stored traces write it, where that is not its own name with all its fields."""

    @abstractmethod
    def apply(self, nest: Nest) -> Nest:
        """The nest after the step; ScheduleError if the step is not legal."""

    def made(self, nest: Nest) -> Made:
        """As `apply`, with the names of the loops that the step makes."""
        return Made(self.apply(nest))

    def __str__(self) -> str:
        spelling = spelling_of(self)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in spelling.fields)
        return f"{spelling.name}({values})"


@dataclass(frozen=True, slots=True)
class LoopMaker(Primitive):
    """A primitive after which there are loops that were not there before."""

    @abstractmethod
    def made(self, nest: Nest) -> Made: ...

    def apply(self, nest: Nest) -> Nest:
        """The nest of `made`, with its errors."""
        return self.made(nest).nest


def spellings_of(kind: type[Any]) -> tuple[Spelling, ...]:
    """How steps of the class `kind` are written: each by the first of these that can say it."""
    own = Spelling(kind.__name__, tuple(field.name for field in fields(kind)))
    return (*getattr(kind, "SPELLINGS", ()), own)


def spelling_of(step: Any) -> Spelling:
    """How `step`, a primitive or a rewrite, is written."""
    kind = type(step)
    if kind not in _WAYS:
        _WAYS[kind] = [(spelling, _left_out(kind, spelling)) for spelling in spellings_of(kind)]
    for spelling, left_out in _WAYS[kind]:
        if all(getattr(step, name) == default for name, default in left_out):
            return spelling
    raise AssertionError("the last one has every field")


_WAYS: dict[type[Any], list[tuple[Spelling, list[tuple[str, Any]]]]] = {}
"""Of each class seen, its spellings with the fields that they lack and the defaults of these."""


def _left_out(kind: type[Any], spelling: Spelling) -> list[tuple[str, Any]]:
    lacking = [(f.name, f.default) for f in fields(kind) if f.name not in spelling.fields]
    assert MISSING not in (default for _, default in lacking), f"{spelling} has too few fields"
    return lacking
