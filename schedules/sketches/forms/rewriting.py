"""Rewrites worth trying for a workload: those that fit by structure and whose error it allows."""

from __future__ import annotations

from ...errors import ScheduleError
from ...form import Form
from ...rewrites import Winograd
from ...rewrites.cook_toom import has_filter
from ...rewrites.windows import WindowedSum, find_windows
from ...workload.workload import Workload

TILES = (4, 2)
"""Outputs of a tile along one dimension, most products saved first."""


def rewrites_for(workload: Workload) -> tuple[Form, ...]:
    """Forms of `workload` (in normal form) with an error of their own.

    For each size of tile all stages that fit are rewritten, along all windows of three taps or
    more. Nothing without `Workload.allowed_error`.
    """
    if workload.allowed_error is None:
        return ()
    found = (_all_stages(Form(workload), size) for size in TILES)
    return tuple({form.steps: form for form in found if form.steps}.values())


def _all_stages(form: Form, size: int) -> Form:
    while (found := _first_fitting(form, size)) is not None:
        form = found
    return form


def _first_fitting(form: Form, size: int) -> Form | None:
    for stage in form.workload.stages:
        found = find_windows(stage, form.workload.tensors)
        if isinstance(found, str):
            continue
        try:
            return form.after(Winograd(stage.name, _tiles(found, size)))
        except ScheduleError:
            continue
    return None


def _tiles(found: WindowedSum, size: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (w.dim, size)
        for w in found.windows
        if w.tap.extent >= 3 and w.walk.extent >= size and has_filter(size, w.tap.extent)
    )
