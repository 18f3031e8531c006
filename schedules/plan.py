"""The plan of a sketch: the loop nest of each setting, and what its accesses touch.

A plan is one table for an array of settings. Its levels are the loops, outermost first; each walks
one axis in steps. Trip counts, footprints, the threads' tasks and the nest that is written all
follow from these steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import gcd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .algebra.affine import Affine
from .arrays import BoolArray, FloatArray, IntArray
from .leaves import LeafLoop
from .nest.loop_ir import LoopKind


@dataclass(frozen=True, slots=True)
class LoopAxis:
    """An iteration space of `extent` elements that loops walk."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Access:
    """How the nest touches one buffer, for footprints and traffic.

    `strides[d][a]` is the coefficient of the plan's axis `a` in the buffer's dimension `d`;
    `element_bytes` is an array (P,) or the same for all, 0 where a setting has no such buffer. The
    iterations of the `private_levels` outermost levels all use the same storage for values of their
    own."""

    buffer: str
    element_bytes: IntArray | int
    strides: tuple[tuple[int, ...], ...]
    is_output: bool = False
    private_levels: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """One loop, along axis number `axis` in steps of `step` elements. Arrays are (P,); scalars hold
    for all settings.

    A loop whose place depends on knobs is a level at each place, `present` at one of them.
    `is_parallel`: threads divide its iterations. `role` is its name for people, `kind` how its
    iterations are executed. Conditions leave the `active_fraction` of its iterations, and peeling
    makes `num_versions` loops of it, on average.
    """

    axis: int
    step: IntArray | int
    is_parallel: BoolArray | bool = False
    role: str = ""
    kind: LoopKind = LoopKind.SERIAL
    present: BoolArray | bool = True
    active_fraction: FloatArray | float = 1.0
    num_versions: FloatArray | IntArray | int = 1
    shared_rows: float = 0.0
    """Rows of the output that several threads store parts of, if they divide this level."""


class LoopLevel(NamedTuple):
    """A level of one setting: a loop to be made, whose iteration covers `step` iterations of the
    plain loop `loop`."""

    loop: str
    step: int = 1
    kind: LoopKind = LoopKind.SERIAL
    role: str = ""
    is_parallel: bool = False


@dataclass(frozen=True)
class Outline:
    """The axes and accesses that all plans of a sketch share."""

    axes: tuple[LoopAxis, ...]
    accesses: tuple[Access, ...]


class _Walked(NamedTuple):
    """The levels of one axis by number, its extent and their steps (L + 1, P), and whether no step
    is longer than the one around it."""

    levels: list[int]
    steps: IntArray
    is_sorted: bool


@dataclass(frozen=True)
class Plan:
    """The nests of P settings.

    `dense_mask` (P,) has bit a set where access a reads a private copy, or was prefetched: then
    neither short rows nor cache set conflicts cost anything. `nontemporal`, (P,) or the same for
    all: the output is stored past the caches."""

    outline: Outline
    levels: tuple[Level, ...]
    num_settings: int
    dense_mask: IntArray | int = 0
    nontemporal: BoolArray | bool = False

    @property
    def accesses(self) -> tuple[Access, ...]:
        return self.outline.accesses

    @cached_property
    def steps(self) -> tuple[IntArray, ...]:
        """For each level (P,) the elements of its axis that an iteration covers; those of the level
        around it if it is absent."""
        left = [np.full(self.num_settings, axis.extent) for axis in self.outline.axes]
        found = []
        for level in self.levels:
            step = np.minimum(level.step, self.outline.axes[level.axis].extent)
            left[level.axis] = np.where(level.present, step, left[level.axis])
            found.append(left[level.axis])
        return tuple(found)

    @cached_property
    def _walks(self) -> list[_Walked]:
        """See `_Walked`; one for each axis."""
        found = []
        for number, axis in enumerate(self.outline.axes):
            own = [n for n, level in enumerate(self.levels) if level.axis == number]
            steps = np.stack(
                [np.full(self.num_settings, axis.extent), *(self.steps[n] for n in own)]
            )
            found.append(_Walked(own, steps, not (steps[1:] > steps[:-1]).any()))
        return found

    @cached_property
    def trips(self) -> IntArray:
        """(P, L) iterations of each level, the last one of a range counted as a whole. Where a
        longer step stands inside of a shorter one, the loop around goes over what is inside it."""
        found = np.empty((len(self.levels), self.num_settings), np.int64)
        for own, walked, is_sorted in self._walks:
            steps = walked
            if not is_sorted:
                order = np.argsort(-walked, axis=0, kind="stable")
                steps = np.take_along_axis(walked, order, axis=0)
                trips = np.empty_like(steps)
                np.put_along_axis(trips, order[1:] - 1, -(-steps[:-1] // steps[1:]), axis=0)
                found[own] = trips[:-1]
            else:
                found[own] = -(-steps[:-1] // steps[1:])
        return found.T

    @cached_property
    def segments(self) -> tuple[IntArray, ...]:
        """For each level (P,) the parts that its axis is cut into from there outward: whole ones,
        and the shorter ones at the ends of the outermost level's last iteration and of all others.
        """
        outermost: dict[int, tuple[IntArray, IntArray, IntArray]] = {}
        found = []
        for level, step in zip(self.levels, self.steps, strict=True):
            if level.axis not in outermost:
                outermost[level.axis] = step, *np.divmod(self.outline.axes[level.axis].extent, step)
            outer, whole, rest = outermost[level.axis]
            found.append(whole * -(-outer // step) + -(-rest // step))
        return tuple(found)

    @cached_property
    def leaf_loops(self) -> tuple[LeafLoop, ...]:
        """The loop of each level's body. Parallel levels, outside of all others, are fused into
        one; unrolled or vectorised levels belong to the loop around them."""
        names = [frozenset({self.outline.axes[level.axis].name}) for level in self.levels]
        serial = [n for n, level in enumerate(self.levels) if level.kind is LoopKind.SERIAL]
        last = {self.levels[n].axis: n for n in serial}
        axes, steps, tasks = (
            frozenset[str](),
            np.ones(self.num_settings),
            np.ones(self.num_settings),
        )
        for n in serial:
            level = self.levels[n]
            if np.any(level.is_parallel):
                inner = last[level.axis]
                part = self.segments[inner] / -(-self.steps[n] // self.steps[inner])
                steps = steps * np.where(level.is_parallel, self.mean_trips[n], 1)
                tasks = tasks * np.where(level.is_parallel, part * level.active_fraction, 1)
                axes |= names[n]
        loop = LeafLoop(axes, steps, None, tasks > 1, tasks)
        found = []
        for n, level in enumerate(self.levels):
            turns = np.where(level.is_parallel, 1, self.mean_trips[n])
            if level.kind is LoopKind.SERIAL and np.any(turns != 1):
                loop = LeafLoop(names[n], turns, loop, num_versions=level.num_versions)
            found.append(loop)
        return tuple(found)

    @cached_property
    def mean_trips(self) -> list[FloatArray]:
        """For each level (P,) its average trip count: shorter segments have fewer iterations, and
        conditions leave a fraction."""
        around: dict[int, tuple[IntArray | int, IntArray | int]] = {
            number: (axis.extent, 1) for number, axis in enumerate(self.outline.axes)
        }
        found = []
        for n, level in enumerate(self.levels):
            longer, pieces = around[level.axis]
            around[level.axis] = self.steps[n], self.segments[n]
            turns = self.segments[n] / pieces
            if not self._walks[level.axis].is_sorted:
                turns = self.trips[:, n] / -(-longer // self.steps[n]) * self.segments[n] / pieces
            found.append(turns * level.active_fraction)
        return found

    def unroll_factors(self) -> dict[str, IntArray]:
        """For each axis, (P,) the unrolled copies along it."""
        return {
            self.outline.axes[level.axis].name: self.trips[:, n]
            for n, level in enumerate(self.levels)
            if level.kind is LoopKind.UNROLLED
        }

    def region(self, access: Access, place: IntArray) -> tuple[Sequence[FloatArray], FloatArray]:
        """What each iteration of the level at `place` (P,) reads of an access: for each dimension
        (P,) elements, without those that a stride skips; and (P,) how often that level runs. Every
        iteration counts as a whole one."""
        reach = [
            self._below(axis, place)
            if any(strides[axis] for strides in access.strides)
            else np.ones(self.num_settings)
            for axis in range(len(self.outline.axes))
        ]
        sides = [reached(strides, reach, walked=True) for strides in access.strides]
        outside = np.arange(len(self.levels)) <= place[:, None]
        return sides, np.where(outside, self.trips, 1).prod(axis=1).astype(np.float64)

    def _below(self, axis: int, place: IntArray) -> FloatArray:
        """(P,) how far `axis` runs in an iteration of the level at `place` (P,): a step of the last
        level from there outward, or all iterations of the first one inside."""
        own = [n for n, level in enumerate(self.levels) if level.axis == axis]
        outside = np.zeros(self.num_settings)
        inside = np.full(self.num_settings, self.outline.axes[axis].extent)
        for n in own:
            level = self.levels[n]
            outside = np.where(level.present & (place >= n), level.step, outside)
        if (outside == 0).any():
            for n in reversed(own):
                level = self.levels[n]
                inside = np.where(level.present, self.trips[:, n] * level.step, inside)
        return np.asarray(np.where(outside > 0, outside, inside), np.float64)

    def loops(self, setting: int = 0) -> list[LoopLevel]:
        """The levels of one setting that are there, outermost first."""
        return [
            LoopLevel(
                self.outline.axes[level.axis].name,
                int(np.broadcast_to(level.step, self.num_settings)[setting]),
                level.kind,
                level.role,
                bool(np.broadcast_to(level.is_parallel, self.num_settings)[setting]),
            )
            for level in self.levels
            if np.broadcast_to(level.present, self.num_settings)[setting]
        ]


def axes_of(names_and_extents: Iterable[tuple[str, int]]) -> tuple[LoopAxis, ...]:
    return tuple(LoopAxis(name, extent) for name, extent in names_and_extents)


def access_of(
    tensor: str, element_bytes: int, index: Sequence[Affine], axes: Sequence[str]
) -> Access:
    """A read at `index`, whose variables are names of `axes`. An axis that the index divides has
    stride 1."""
    strides = tuple(
        tuple((i.coefficient(name) or 1) if name in i.vars() else 0 for name in axes) for i in index
    )
    return Access(tensor, element_bytes, strides)


def reached(
    strides: Sequence[int], reach: Sequence[npt.NDArray[Any]], *, walked: bool
) -> npt.NDArray[Any]:
    """The extent of one dimension that is touched, or the number of elements `walked`: without
    those that a stride skips."""
    moving = [(reach[axis], abs(stride)) for axis, stride in enumerate(strides) if stride]
    if not moving:
        return np.ones_like(reach[0])
    apart = gcd(*(stride for _, stride in moving)) if walked else 1
    found: npt.NDArray[Any] = (
        reduce(np.add, [(size - 1) * (stride // apart) for size, stride in moving]) + 1
    )
    return np.minimum(found, reduce(np.multiply, [x for x, _ in moving])) if walked else found
