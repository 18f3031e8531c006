"""Rewrites worth trying for a workload: those that fit by structure and whose error it allows."""

from __future__ import annotations

from ...errors import ScheduleError
from ...rewrites import Rewrite, Winograd
from ...rewrites.cook_toom import has_filter
from ...rewrites.windows import WindowedSum, find_windows
from ...workload.workload import Workload

TILES = (4, 2)
"""Outputs of a tile along one dimension, most products saved first."""


def rewrites_for(workload: Workload) -> tuple[tuple[Rewrite, ...], ...]:
    """Sequences of rewrites of `workload` (in normal form), each to be the beginning of traces.

    For each size of tile all stages that fit are rewritten, along all windows of three taps or
    more. Nothing without `Workload.allowed_error`.
    """
    if workload.allowed_error is None:
        return ()
    found = (_all_stages(workload, size) for size in TILES)
    return tuple(dict.fromkeys(steps for steps in found if steps))


def rewritten(workload: Workload, steps: tuple[Rewrite, ...]) -> Workload:
    """`workload` after `steps`. ScheduleError as for `Rewrite.rewrite`."""
    for step in steps:
        workload = step.rewrite(workload)
    return workload


def _all_stages(workload: Workload, size: int) -> tuple[Rewrite, ...]:
    steps: list[Rewrite] = []
    while True:
        step = _first_fitting(workload, size)
        if step is None:
            return tuple(steps)
        steps.append(step)
        workload = step.rewrite(workload)


def _first_fitting(workload: Workload, size: int) -> Rewrite | None:
    for stage in workload.stages:
        found = find_windows(stage, workload.tensors)
        if isinstance(found, str):
            continue
        step = Winograd(stage.name, _tiles(found, size))
        try:
            step.rewrite(workload)
        except ScheduleError:
            continue
        return step
    return None


def _tiles(found: WindowedSum, size: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (w.dim, size)
        for w in found.windows
        if w.tap.extent >= 3 and w.walk.extent >= size and has_filter(size, w.tap.extent)
    )
