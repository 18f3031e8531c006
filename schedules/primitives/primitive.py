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
    """A serialised form of a step: its name and fields.

    Fields that are not in the form have their defaults.
    """

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a step: the nest, and the loops that the step created, in program order.

    Each loop is mapped to the loop from which it derives or to the buffer that it fills. A new loop
    may reuse the name of a loop that the step removed.
    """

    nest: Nest
    loops: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Primitive(ABC):
    """A step of a schedule.

    Steps that create loops derive from `LoopMaker` and implement `made`; others implement `apply`.
    Fields are strings, integers, booleans and tuples of these types, so that a trace can be
    serialised as JSON.
    """

    SPELLINGS: ClassVar[tuple[SerialisedForm, ...]] = ()
    """Serialised forms in stored traces other than the class name with all fields."""

    @abstractmethod
    def apply(self, nest: Nest) -> Nest:
        """Return the nest after the step. Raise ScheduleError if the step is not legal."""

    def made(self, nest: Nest) -> Made:
        """Return the result of `apply` with the names of the loops that the step creates."""
        return Made(self.apply(nest))

    def __str__(self) -> str:
        spelling = spelling_of(self)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in spelling.fields)
        return f"{spelling.name}({values})"


class Walk(StrEnum):
    """The iterations of the loops created by a step, relative to the loop or buffer they derive
    from."""

    PART = "part of the same iterations, or all of them elsewhere"
    FUSED = "the iterations of several loops"
    REST = "a copy of it for other iterations"
    ENDS = "its private buffer, to begin it or to write it back"
    FILL = "the buffer that is filled"


@dataclass(frozen=True, slots=True)
class LoopMaker(Primitive):
    """A primitive that creates loops."""

    WALK: ClassVar[Walk] = Walk.PART

    @abstractmethod
    def made(self, nest: Nest) -> Made: ...

    def apply(self, nest: Nest) -> Nest:
        """Return the nest of `made`; raises its errors."""
        return self.made(nest).nest


def spellings_of(kind: Any) -> tuple[SerialisedForm, ...]:
    """Return the serialised forms of steps of class `kind`.

    A step uses the first form that has all its non-default fields.
    """
    return (*getattr(kind, "SPELLINGS", ()), _with_every_field(kind))


@cache
def _with_every_field(kind: Any) -> SerialisedForm:
    return SerialisedForm(kind.__name__, tuple(field.name for field in fields(kind)))


def spelling_of(step: Any) -> SerialisedForm:
    """Return the serialised form of `step`, a primitive or a rewrite."""
    said = {field.name for field in fields(step) if getattr(step, field.name) != field.default}
    return next(way for way in spellings_of(step.__class__) if said.issubset(way.fields))
