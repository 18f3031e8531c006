"""Choose the default setting of a program: the default of each part, or a nearby setting if it is
not feasible or primitives reject it. A part is the sketch of one fusion group.

Feasibility predicts most rejections, but primitives make the final decision on legality. A rejected
default must not remove a whole sketch from the space. Therefore further settings are tried, in
order of their distance from the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, product

import numpy as np

from ..arrays import IntArray
from ..errors import ScheduleError
from ..primitives import Inline
from ..space import Knob
from ..workload.workload import Workload
from .knobs import PartSketch
from .writer import TraceWriter

MOST_TRIED = 64
"""Largest number of settings of one part that are tried before the sketch is dropped. Emitting one
trace takes some milliseconds."""

MOST_CHANGED = 2
"""Largest number of knobs by which a tried setting differs from the default."""


def accepted_settings(
    workload: Workload,
    inlined: Sequence[str],
    parts: Sequence[PartSketch],
    check: Callable[[], None] = lambda: None,
) -> tuple[tuple[int, ...], ...]:
    """Return one setting per part: its default if that is feasible and primitives accept it in a
    trace with the earlier parts, otherwise the nearest such setting.

    `check` is called before each step. Raise the ScheduleError of the default if no setting of a
    part is accepted.
    """
    writer = write_parts(workload, inlined, (), (), check)
    chosen: list[tuple[int, ...]] = []
    for part in parts:
        default = part.default()
        is_feasible = bool(np.all(part.feasible(np.asarray([default]))))
        found = _written(writer, part, default)
        if isinstance(found, ScheduleError) or not is_feasible:
            for other in islice(nearby(part, default), MOST_TRIED):
                after = _written(writer, part, other)
                if isinstance(after, TraceWriter):
                    default, found = other, after
                    break
        if isinstance(found, ScheduleError):
            raise found
        writer = found
        chosen.append(default)
    return tuple(chosen)


def _written(
    before: TraceWriter, part: PartSketch, setting: tuple[int, ...]
) -> TraceWriter | ScheduleError:
    """Return a writer that contains the steps of `before` and of one part, or the error that
    emitting the part raises."""
    writer = before.copy()
    try:
        part.write(writer, setting)
    except ScheduleError as error:
        return error
    return writer


def write_parts(
    workload: Workload,
    inlined: Sequence[str],
    parts: Sequence[PartSketch],
    settings: Sequence[Sequence[int]],
    check: Callable[[], None] = lambda: None,
) -> TraceWriter:
    """Return a writer that contains the steps of all parts. `check` is called before each step.
    Raise ScheduleError if a primitive rejects a step."""
    writer = TraceWriter(workload, check)
    writer.do(*(Inline(name) for name in inlined))
    for part, setting in zip(parts, settings, strict=True):
        part.write(writer, tuple(int(i) for i in setting))
    return writer


def nearby(part: PartSketch, default: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the feasible settings that differ from `default` in at most `MOST_CHANGED` knobs. The
    nearest settings are first."""
    settings = np.concatenate([_changed(part.knobs, default, n + 1) for n in range(MOST_CHANGED)])
    settings = settings[part.feasible(settings)] if len(settings) else settings
    steps = np.abs(settings - np.asarray(default)).sum(axis=1)
    for row in settings[np.argsort(steps, kind="stable")]:
        yield tuple(int(i) for i in row)


def _changed(knobs: Sequence[Knob], default: Sequence[int], count: int) -> IntArray:
    """Return all settings that differ from `default` in `count` knobs, shape (P, J). The index of a
    changed knob changes by one or two, or becomes the first or last one."""
    found: list[list[int]] = []
    for places in combinations(range(len(knobs)), count):
        for row in product(*(_other_places(knobs[n], default[n]) for n in places)):
            changed = dict(zip(places, row, strict=True))
            found.append([changed.get(n, place) for n, place in enumerate(default)])
    return np.asarray(found, np.int64).reshape(-1, len(default))


def _other_places(knob: Knob, place: int) -> list[int]:
    near = {place - 2, place - 1, place + 1, place + 2, 0, len(knob.values) - 1}
    return sorted(n for n in near - {place} if 0 <= n < len(knob.values))
