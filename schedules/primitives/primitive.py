"""What a primitive is: a step that keeps the meaning of a nest, and says which loops it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar

from ..nest.loop_ir import Nest


@dataclass(frozen=True, slots=True)
class SerialisedForm:
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

    SPELLINGS: ClassVar[tuple[SerialisedForm, ...]] = ()
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


class Walk(StrEnum):
    """What the loops that a step makes walk, of what they are made from."""

    PART = "part of the same iterations, or all of them elsewhere"
    FUSED = "the iterations of several loops"
    REST = "a copy of it for other iterations"
    ENDS = "its private buffer, to begin it or to write it back"
    FILL = "the buffer that is filled"


@dataclass(frozen=True, slots=True)
class LoopMaker(Primitive):
    """A primitive after which there are loops that were not there before."""

    WALK: ClassVar[Walk] = Walk.PART

    @abstractmethod
    def made(self, nest: Nest) -> Made: ...

    def apply(self, nest: Nest) -> Nest:
        """The nest of `made`, with its errors."""
        return self.made(nest).nest


def spellings_of(kind: Any) -> tuple[SerialisedForm, ...]:
    """How steps of the class `kind` are written: each by the first of these that can say it."""
    return (*getattr(kind, "SPELLINGS", ()), _with_every_field(kind))


@cache
def _with_every_field(kind: Any) -> SerialisedForm:
    return SerialisedForm(kind.__name__, tuple(field.name for field in fields(kind)))


def spelling_of(step: Any) -> SerialisedForm:
    """How `step`, a primitive or a rewrite, is written."""
    said = {field.name for field in fields(step) if getattr(step, field.name) != field.default}
    return next(way for way in spellings_of(step.__class__) if said.issubset(way.fields))
