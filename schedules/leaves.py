"""What a nest is: statements in loops, said for P settings at once.

A *loop* runs; what is unrolled or in lanes is no loop but copies of a *leaf*, a statement in a
loop. All numbers are for P settings at once, (P,) or one for all: a loop of one iteration is none,
and what settings lack runs zero times. Leaves stand in the order of the program, and have loops
around them in common by naming the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy.typing as npt

Number: TypeAlias = npt.NDArray[Any] | float
Truth: TypeAlias = npt.NDArray[Any] | bool
"""Of P settings, (P,), or the same for all."""


@dataclass(frozen=True, eq=False)
class Loop:
    """Walks `axes`, all as one, in `steps`. `is_shared` says that threads divide the iterations
    among them; a last one that is shorter counts as the part it is in `tasks`, if they are given.
    """

    axes: frozenset[str]
    steps: Number
    around: Loop | None = None
    is_shared: Truth = False
    tasks: Number | None = None


@dataclass(frozen=True)
class Operations:
    """Of one evaluation, for each setting of `axes`: instructions but math functions, arithmetic
    operations, and evaluations of math functions."""

    axes: frozenset[str]
    instructions: Number
    flops: Number
    math: Number = 0


@dataclass(frozen=True)
class Place:
    """Where something is read or written: `steps` are elements between neighbours along the axes
    that move it, and `key` is the same for the same elements."""

    tensor: str
    key: tuple[object, ...]
    steps: Mapping[str, int]


@dataclass(frozen=True)
class Statement:
    """What one evaluation does; `over` are the axes that it adds up along."""

    operations: tuple[Operations, ...] = ()
    reads: tuple[Place, ...] = ()
    writes: Place | None = None
    over: frozenset[str] = frozenset()
    is_tested: bool = False


@dataclass(frozen=True, eq=False)
class Leaf:
    """A statement in a loop: so many `copies` along axes, and `lanes` along one. It runs `times` an
    iteration; the share `filled` of the copies has an element. `sums` are the registers that it
    adds to, `registers` others that it needs beside what it loads; it `is_tested` where a condition
    is left that is no mask of lanes; `is_unrolled` says that steps of a reduction are among the
    copies. `piece` is which part of an axis it is for, and of which of the rows at work. What
    follows waits for so many operations of it that are done one after the other (`waits`)."""

    loop: Loop
    does: Statement
    copies: Mapping[str, Number] = field(default_factory=dict)
    along: str = ""
    lanes: Number = 1
    times: Number = 1
    filled: Number = 1
    is_tested: Truth = False
    sums: Number = 0
    registers: Number = 0
    is_unrolled: Truth = False
    piece: tuple[int, int] = (0, 0)
    waits: Number = 0

    def reach(self, axes: Collection[str]) -> Number:
        """Copies that differ where `axes` do."""
        return prod((n for axis, n in self.copies.items() if axis in axes), start=1)

    @cached_property
    def all_copies(self) -> Number:
        return prod(self.copies.values(), start=1)
