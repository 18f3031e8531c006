"""The plan of a sketch: the loop nest of each setting and its memory accesses.

A plan represents P settings in one table. Its levels are loops, outermost first. Each level
iterates over one axis in steps. Trip counts, footprints, parallel tasks and the generated nest
follow from these steps. Arrays are (P,) unless stated otherwise.
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
    """An iteration space of `extent` elements."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Access:
    """The accesses of the nest to one buffer, for footprints and traffic."""

    buffer: str
    element_bytes: IntArray | int
    """(P,) or a scalar. It is 0 if the setting has no such buffer."""
    strides: tuple[tuple[int, ...], ...]
    """`strides[d][a]` is the coefficient of the plan's axis `a` in dimension `d` of the buffer."""
    is_output: bool = False
    private_levels: int = 0
    """Number of outermost levels whose iterations all use the same storage for different data."""


@dataclass(frozen=True, slots=True)
class Level:
    """A loop over axis number `axis` in steps of `step` elements. Arrays are (P,). Scalars hold for
    all settings."""

    axis: int
    step: IntArray | int
    is_parallel: BoolArray | bool = False
    """Whether threads divide the iterations."""
    role: str = ""
    """Name of the loop's purpose, for display."""
    kind: LoopKind = LoopKind.SERIAL
    """Whether the iterations are serial, unrolled or vectorised."""
    present: BoolArray | bool = True
    """Whether the setting has the level. If a knob selects the position of a loop, there is a level
    at each possible position, and one of them is present."""
    active_fraction: FloatArray | float = 1.0
    """Fraction of the iterations that conditions do not skip."""
    num_versions: FloatArray | IntArray | int = 1
    """Average number of loops that peeling generates."""
    shared_rows: float = 0.0
    """Number of output rows that several threads write if threads divide this level."""


class LoopLevel(NamedTuple):
    """A level of one setting. One iteration covers `step` iterations of the plain loop `loop`."""

    loop: str
    step: int = 1
    kind: LoopKind = LoopKind.SERIAL
    role: str = ""
    is_parallel: bool = False


@dataclass(frozen=True)
class Outline:
    """The axes and accesses, which all plans of a sketch have in common."""

    axes: tuple[LoopAxis, ...]
    accesses: tuple[Access, ...]


class _Walked(NamedTuple):
    """The L levels of one axis."""

    levels: list[int]
    """The numbers of the levels."""
    steps: IntArray
    """The extent of the axis, then the step of each level, shape (L + 1, P)."""
    is_sorted: bool
    """Whether no step exceeds the preceding one."""


@dataclass(frozen=True)
class Plan:
    """The loop nests of P settings."""

    outline: Outline
    levels: tuple[Level, ...]
    num_settings: int
    dense_mask: IntArray | int = 0
    """Bit a is set if access a reads a private copy or was prefetched, (P,). Short rows and cache
    set conflicts then cost nothing."""
    nontemporal: BoolArray | bool = False
    """Whether the output is written with non-temporal stores, (P,) or a scalar."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        return self.outline.accesses

    @cached_property
    def steps(self) -> tuple[IntArray, ...]:
        """Number of elements of the axis that one iteration of each level covers, each (P,). If a
        setting does not have a level, the step is the same as for the enclosing level."""
        left = [np.full(self.num_settings, axis.extent) for axis in self.outline.axes]
        found = []
        for level in self.levels:
            step = np.minimum(level.step, self.outline.axes[level.axis].extent)
            left[level.axis] = np.where(level.present, step, left[level.axis])
            found.append(left[level.axis])
        return tuple(found)

    @cached_property
    def _walks(self) -> list[_Walked]:
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
        """Trip count of each level for each setting, shape (P, L). A partial last iteration counts
        as one.

        If a level has a longer step than an enclosing level of the same axis, the levels are first
        sorted by decreasing step.
        """
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
        """Number of segments into which each level and its enclosing levels split the level's axis,
        each (P,). A partial segment at the end of the axis, or of an iteration of the axis's
        outermost level, counts as one."""
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
        """The innermost loop around the body of each level. Parallel levels are fused into one
        outermost loop. Unrolled and vectorised levels are not loops."""
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
        """Average trip count of each level, each (P,). It is the mean over full and partial
        segments, without the iterations that conditions skip."""
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
        """Return the number of copies, (P,), along each axis that has an unrolled level."""
        return {
            self.outline.axes[level.axis].name: self.trips[:, n]
            for n, level in enumerate(self.levels)
            if level.kind is LoopKind.UNROLLED
        }

    def region(self, access: Access, place: IntArray) -> tuple[Sequence[FloatArray], FloatArray]:
        """Return the size of the region that one iteration of level number `place` accesses, in
        elements per dimension. Also return the number of iterations of that level per call. All are
        (P,).

        Elements skipped by a stride do not count, and every iteration counts as a full one.
        """
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
        """Return the number of elements of `axis` that one iteration of level number `place`
        covers, (P,).

        This is the step of the innermost level of the axis that is not inside level `place`. If
        there is no such level, all iterations of the axis count.
        """
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
        """Return the levels of setting number `setting`, outermost first."""
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
    """Return the access of a read at `index`. The stride is 1 for an axis inside a division."""
    strides = tuple(
        tuple((i.coefficient(name) or 1) if name in i.vars() else 0 for name in axes) for i in index
    )
    return Access(tensor, element_bytes, strides)


def reached(
    strides: Sequence[int], reach: Sequence[npt.NDArray[Any]], *, walked: bool
) -> npt.NDArray[Any]:
    """Return the number of elements of one dimension that are accessed if `reach[a]` elements of
    axis a are covered. If `walked` is true, elements skipped by a stride do not count."""
    moving = [(reach[axis], abs(stride)) for axis, stride in enumerate(strides) if stride]
    if not moving:
        return np.ones_like(reach[0])
    apart = gcd(*(stride for _, stride in moving)) if walked else 1
    found: npt.NDArray[Any] = (
        reduce(np.add, [(size - 1) * (stride // apart) for size, stride in moving]) + 1
    )
    return np.minimum(found, reduce(np.multiply, [x for x, _ in moving])) if walked else found
