"""Base classes of primitives: steps that preserve the semantics of a nest and report new loops."""

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
    """An encoding of a step as JSON: the name of the step and its fields. Fields that it omits have
    their default values."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a step: the nest, and the loops that the step created, in program order.

    `loops` maps each created loop to the loop from which it derives, or to the buffer that it
    fills. A created loop may have the name of a loop that the step removed.
    """

    nest: Nest
    loops: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Primitive(ABC):
    """A step of a schedule that transforms a loop nest.

    `apply` and `made` raise ScheduleError if the step is not legal. A step is legal if the
    conditions in its class docstring hold and the named loops and buffers exist. Primitives that
    create loops derive from `LoopMaker` and implement `made`; others implement `apply`. Fields are
    strings, integers, booleans and tuples of these types.
    """

    SPELLINGS: ClassVar[tuple[SerialisedForm, ...]] = ()
    """The encodings in stored traces, except the encoding by the class name and all fields."""

    @abstractmethod
    def apply(self, nest: Nest) -> Nest:
        """Return the nest after the step."""

    def made(self, nest: Nest) -> Made:
        """Return the result of `apply` with the names of the loops that the step creates."""
        return Made(self.apply(nest))

    def __str__(self) -> str:
        spelling = spelling_of(self)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in spelling.fields)
        return f"{spelling.name}({values})"


class Walk(StrEnum):
    """The iterations of a created loop, relative to the loop or buffer from which it derives."""

    PART = "part of the same iterations, or all of them elsewhere"
    FUSED = "the iterations of several loops"
    REST = "a copy of it for other iterations"
    ENDS = "its private buffer, to begin it or to write it back"
    FILL = "the buffer that is filled"


@dataclass(frozen=True, slots=True)
class LoopMaker(Primitive):
    WALK: ClassVar[Walk] = Walk.PART

    @abstractmethod
    def made(self, nest: Nest) -> Made: ...

    def apply(self, nest: Nest) -> Nest:
        return self.made(nest).nest


def spellings_of(kind: Any) -> tuple[SerialisedForm, ...]:
    """Return the encodings of steps of class `kind`. A step is written in the first encoding that
    has all its non-default fields."""
    return (*getattr(kind, "SPELLINGS", ()), _with_every_field(kind))


@cache
def _with_every_field(kind: Any) -> SerialisedForm:
    return SerialisedForm(kind.__name__, tuple(field.name for field in fields(kind)))


def spelling_of(step: Any) -> SerialisedForm:
    """Return the encoding of `step`, a primitive or a rewrite."""
    said = {field.name for field in fields(step) if getattr(step, field.name) != field.default}
    return next(way for way in spellings_of(step.__class__) if said.issubset(way.fields))
