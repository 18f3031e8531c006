"""The plan of a sketch: which loops its settings stand for, and what each operand is read from.

A plan is one table for an array of settings. Its levels are the loops, outermost first: each walks
one axis in steps. How often a loop runs, what the loops below it touch, how much work threads
share and how a person reads the nest all follow from these steps; nothing of it is said twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .algebra.affine import Affine
from .arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Axis:
    """What loops walk along: `extent` steps of one."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Access:
    """How the inner computation touches one buffer, for footprints and traffic.

    `strides[d][a]` is the coefficient of axis `a` of the plan in the buffer's dimension `d`;
    `element_bytes` is the size of one element.
    """

    buffer: str
    element_bytes: int
    strides: tuple[tuple[int, ...], ...]
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """One loop: it walks along axis number `axis`, and each iteration covers `step` elements of it,
    (P,) or the same for all settings.

    Where knobs place a loop here or there it is a level in each place: one whose step is that of
    the level around it has one iteration. `is_shared`, (P,) or the same for all, says that threads
    divide its iterations among them; `note` is what people call it.
    """

    axis: int
    step: IntArray | int
    is_shared: BoolArray | bool = False
    note: str = ""


@dataclass(frozen=True)
class Outline:
    """What all plans of a sketch have in common: the axes, what the nest touches, and arithmetic
    operations of one iteration of all levels."""

    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    operations: int = 1


@dataclass(frozen=True)
class Plan:
    """The nests of P settings.

    `dense` (P,) has bit a set where access a is read through a private copy, or was asked for
    ahead: neither short rows nor rows in the same cache sets are met then. The innermost level is
    walked in vectors of `lanes`.
    """

    outline: Outline
    levels: tuple[Level, ...]
    settings: int
    dense: IntArray | int = 0
    lanes: int = 1

    @property
    def accesses(self) -> tuple[Access, ...]:
        return self.outline.accesses

    @property
    def loop_axes(self) -> tuple[int, ...]:
        """For each of the L levels, outer to inner, the axis it walks."""
        return tuple(level.axis for level in self.levels)

    @cached_property
    def trips(self) -> IntArray:
        """(P, L) iterations of each level, the last one of a range counted as a whole."""
        left: list[IntArray | int] = [axis.extent for axis in self.outline.axes]
        found = np.empty((len(self.levels), self.settings), np.int64)
        for row, level in zip(found, self.levels, strict=True):
            row[:] = -(-np.minimum(left[level.axis], self.outline.axes[level.axis].extent)
                       // level.step)  # fmt: skip
            left[level.axis] = level.step
        return found.T


def axes_of(names_and_extents: Iterable[tuple[str, int]]) -> tuple[Axis, ...]:
    return tuple(Axis(name, extent) for name, extent in names_and_extents)


def access_of(
    tensor: str, element_bytes: int, index: Sequence[Affine], axes: Sequence[str]
) -> Access:
    """A read at `index`, whose variables are names of `axes`; an axis that the index divides moves
    it by one."""
    strides = tuple(
        tuple((i.coefficient(name) or 1) if name in i.vars() else 0 for name in axes) for i in index
    )
    return Access(tensor, element_bytes, strides)
