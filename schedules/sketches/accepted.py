"""The default of a program: the default of each part, or a nearby setting if primitives refuse it.

`feasible` rules out most illegal settings, but primitives decide. A refused default must not cost a
program all schedules of a structure: settings are tried in order of their distance from the
default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, islice

import numpy as np

from ..arrays import IntArray
from ..errors import ScheduleError
from ..primitives import Inline
from ..space import Knob
from ..workload.workload import Workload
from .knobs import PartSketch
from .writer import TraceWriter

MOST_TRIED = 64
"""Settings of a part that are written before the part is given up; each takes a few milliseconds.
"""

MOST_CHANGED = 2
"""Knobs in which a tried setting may differ from the default."""


def accepted_settings(
    workload: Workload,
    inlined: Sequence[str],
    parts: Sequence[PartSketch],
    check: Callable[[], None] = lambda: None,
) -> tuple[tuple[int, ...], ...]:
    """The first setting of each part with which the trace of all parts so far is legal. `check` is
    called before each step. ScheduleError: the error of the default of a part that has no such
    setting."""
    refusal = partial(_refusal, workload, inlined, parts, check)
    chosen: list[tuple[int, ...]] = []
    for part in parts:
        default = part.default()
        reason = refusal([*chosen, default])
        if reason is not None:
            others = islice(nearby(part, default), MOST_TRIED)
            tried = (x for x in others if not refusal([*chosen, x]))
            default = next(tried, ())
            if not default:
                raise reason
        chosen.append(default)
    return tuple(chosen)


def _refusal(
    workload: Workload,
    inlined: Sequence[str],
    parts: Sequence[PartSketch],
    check: Callable[[], None],
    chosen: Sequence[tuple[int, ...]],
) -> ScheduleError | None:
    """The error of the trace of the first parts with the settings `chosen`; None if it is legal."""
    try:
        write_parts(workload, inlined, parts[: len(chosen)], chosen, check)
    except ScheduleError as error:
        return error
    return None


def write_parts(
    workload: Workload,
    inlined: Sequence[str],
    parts: Sequence[PartSketch],
    settings: Sequence[Sequence[int]],
    check: Callable[[], None] = lambda: None,
) -> TraceWriter:
    """Write the steps of `parts` in order; `check` is called before each. ScheduleError where a
    primitive refuses a step."""
    writer = TraceWriter(workload, check)
    writer.do(*(Inline(name) for name in inlined))
    for part, setting in zip(parts, settings, strict=True):
        part.write(writer, tuple(int(i) for i in setting))
    return writer


def nearby(part: PartSketch, default: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The feasible settings that differ from `default` in one or two knobs, the nearest first."""
    settings = np.concatenate([_changed(part.knobs, default, n + 1) for n in range(MOST_CHANGED)])
    settings = settings[part.feasible(settings)] if len(settings) else settings
    steps = np.abs(settings - np.asarray(default)).sum(axis=1)
    for row in settings[np.argsort(steps, kind="stable")]:
        yield tuple(int(i) for i in row)


def _changed(knobs: Sequence[Knob], default: Sequence[int], count: int) -> IntArray:
    """(P, J) all settings that differ from `default` in `count` knobs, by one or two places or by
    moving a knob to either end of its values."""
    found: list[list[int]] = []
    for places in combinations(range(len(knobs)), count):
        choices = [_other_places(knobs[n], default[n]) for n in places]
        grid = np.stack(np.meshgrid(*choices, indexing="ij"), axis=-1).reshape(-1, count)
        for row in grid.tolist():
            setting = list(default)
            for n, place in zip(places, row, strict=True):
                setting[n] = int(place)
            found.append(setting)
    return np.asarray(found, np.int64).reshape(-1, len(default))


def _other_places(knob: Knob, place: int) -> list[int]:
    near = {place - 2, place - 1, place + 1, place + 2, 0, len(knob.values) - 1}
    return sorted(n for n in near - {place} if 0 <= n < len(knob.values))
