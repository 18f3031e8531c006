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
from .algebra.gathers import unlimited
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
    windows: tuple[int, ...] = ()
    """`windows[d]` is the number of neighbouring elements of dimension `d` that one iteration
    accesses. If empty, it is 1 for all dimensions."""

    def reached(
        self, dim: int, reach: Sequence[npt.NDArray[Any]], *, walked: bool
    ) -> npt.NDArray[Any]:
        """Return `reached` for dimension number `dim`."""
        window = self.windows[dim] if self.windows else 1
        return reached(self.strides[dim], reach, walked=walked, window=window)


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
    def steps(self) -> IntArray:
        """Number of elements of the axis that one iteration of each level covers, shape (L, P). If
        a setting does not have a level, the step is the same as for the enclosing level."""
        left = [np.full(self.num_settings, axis.extent) for axis in self.outline.axes]
        found = np.empty((len(self.levels), self.num_settings), np.int64)
        for n, level in enumerate(self.levels):
            step = np.minimum(level.step, self.outline.axes[level.axis].extent)
            found[n] = left[level.axis] = np.where(level.present, step, left[level.axis])
        return found

    @cached_property
    def _outside(self) -> list[int]:
        """The number of the next level of the same axis outside each level, or -1."""
        last: dict[int, int] = {}
        found = []
        for n, level in enumerate(self.levels):
            found.append(last.get(level.axis, -1))
            last[level.axis] = n
        return found

    @cached_property
    def _longer_steps(self) -> IntArray:
        """The step of the level `_outside` each level, or the extent of the axis, shape (L, P)."""
        extents = np.array([self.outline.axes[level.axis].extent for level in self.levels])
        is_first = np.array(self._outside) < 0
        found = self.steps[self._outside]
        found[is_first] = extents[is_first, None]
        return found

    @cached_property
    def _unsorted_axes(self) -> set[int]:
        """Axes with a level that has a longer step than an enclosing level of the axis."""
        longer = (self.steps > self._longer_steps).any(axis=1)
        return {self.levels[n].axis for n in np.flatnonzero(longer)}

    @cached_property
    def trips(self) -> IntArray:
        """Trip count of each level for each setting, shape (P, L). A partial last iteration counts
        as one.

        If a level has a longer step than an enclosing level of the same axis, the levels are first
        sorted by decreasing step.
        """
        found = -(-self._longer_steps // self.steps)
        for axis in self._unsorted_axes:
            own = [n for n, level in enumerate(self.levels) if level.axis == axis]
            extent = np.full(self.num_settings, self.outline.axes[axis].extent)
            walked = np.vstack([extent, self.steps[own]])
            order = np.argsort(-walked, axis=0, kind="stable")
            steps = np.take_along_axis(walked, order, axis=0)
            trips = np.empty_like(steps)
            np.put_along_axis(trips, order[1:] - 1, -(-steps[:-1] // steps[1:]), axis=0)
            found[own] = trips[:-1]
        return found.T

    @cached_property
    def segments(self) -> IntArray:
        """Number of segments into which each level and its enclosing levels split the level's axis,
        shape (L, P). A partial segment at the end of the axis, or of an iteration of the axis's
        outermost level, counts as one."""
        outermost: dict[int, int] = {}
        for n, level in enumerate(self.levels):
            outermost.setdefault(level.axis, n)
        extents = [self.outline.axes[axis].extent for axis in outermost]
        number = {axis: n for n, axis in enumerate(outermost)}
        at = [number[level.axis] for level in self.levels]
        outer = self.steps[list(outermost.values())]
        whole, rest = np.divmod(np.array(extents)[:, None], outer)
        return np.asarray(whole[at] * -(-outer[at] // self.steps) + -(-rest[at] // self.steps))

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
            if level.kind is LoopKind.SERIAL:
                turns = self.mean_trips[n]
                if level.is_parallel is not False:
                    turns = np.where(level.is_parallel, 1, turns)
                if np.any(turns != 1):
                    loop = LeafLoop(names[n], turns, loop, num_versions=level.num_versions)
            found.append(loop)
        return tuple(found)

    @cached_property
    def mean_trips(self) -> FloatArray:
        """Average trip count of each level, shape (L, P). It is the mean over full and partial
        segments, without the iterations that conditions skip."""
        is_first = np.array(self._outside) < 0
        pieces = self.segments[self._outside]
        pieces[is_first] = 1
        found = self.segments / pieces
        for n, level in enumerate(self.levels):
            if level.axis in self._unsorted_axes:
                parts = -(-self._longer_steps[n] // self.steps[n])
                found[n] = self.trips[:, n] / parts * self.segments[n] / pieces[n]
            if not isinstance(level.active_fraction, float) or level.active_fraction != 1.0:
                found[n] *= level.active_fraction
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
        sides = [access.reached(dim, reach, walked=True) for dim in range(len(access.strides))]
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
    tensor: str,
    element_bytes: int,
    index: Sequence[Affine],
    axes: Sequence[str],
    windows: tuple[int, ...] = (),
) -> Access:
    """Return the access of a read at `index`. The stride is 1 for an axis inside a division or
    data, except that the limits of an index value do not change its stride."""
    index = [unlimited(i) for i in index]
    strides = tuple(
        tuple((i.coefficient(name) or 1) if name in i.vars() else 0 for name in axes) for i in index
    )
    return Access(tensor, element_bytes, strides, windows=windows)


def reached(
    strides: Sequence[int], reach: Sequence[npt.NDArray[Any]], *, walked: bool, window: int = 1
) -> npt.NDArray[Any]:
    """Return the number of elements of one dimension that are accessed if `reach[a]` elements of
    axis a are covered. If `walked` is true, elements skipped by a stride do not count. Each
    iteration accesses a `window` of elements; those that it shares with the next count once."""
    moving = [(reach[axis], abs(stride)) for axis, stride in enumerate(strides) if stride]
    if not moving:
        return np.ones_like(reach[0])
    new = min(window, gcd(*(stride for _, stride in moving)))
    if new > 1:
        moving.append((np.full_like(reach[0], new), 1))
    apart = gcd(*(stride for _, stride in moving)) if walked else 1
    found: npt.NDArray[Any] = (
        reduce(np.add, [(size - 1) * (stride // apart) for size, stride in moving]) + 1
    )
    return np.minimum(found, reduce(np.multiply, [x for x, _ in moving])) if walked else found
