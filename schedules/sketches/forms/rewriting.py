"""Rewritten forms of a workload that merit schedules: the regrouped form, which is always
permitted, and forms whose rounding error the workload must allow.

A computation can be written in many ways. A form with fewer terms, or one that computes a shared
function only once, is searched first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from math import prod

from ...form import Form
from ...rewrites import ExtractCommonStage, GatherOverTaps, Winograd
from ...rewrites.common_stage import formulas
from ...rewrites.cook_toom import POINTS, has_filter
from ...rewrites.gather_over_taps import find_filter
from ...rewrites.windows import WindowedSum, find_windows
from ...workload.workload import Workload
from ..analysis.stages import math_calls
from .products import precompute_factors


def regrouped(workload: Workload) -> Form:
    """Return the regrouped form of `workload` (in normal form): sums over taps, then extraction of
    common formulas, then precomputed products. The form has no steps if none is profitable."""
    return precompute_factors(
        Form(workload).apply_until_fixpoint(gather_over_taps).apply_until_fixpoint(common_formulas)
    )


def gather_over_taps(workload: Workload) -> Iterator[GatherOverTaps]:
    """Yield rewrites of sums over elements, of which a filter uses only a few, into sums over the
    filter's taps, if there are fewer taps."""
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            found = find_filter(stage, axis.name, workload.tensors)
            if found is not None and found.most_met < axis.extent:
                yield GatherOverTaps(stage.name, axis.name)


def common_formulas(workload: Workload) -> Iterator[ExtractCommonStage]:
    """Yield rewrites that compute a formula with math functions once if several stages compute it,
    the largest formula first. The formula must not be larger than the largest tensor, because then
    writing and reading it costs less than evaluating the function."""
    found = [(stage, formulas(stage)) for stage in workload.stages]
    used = Counter(text for _, each in found for text in {f.text for f in each})
    most = max(tensor.elements for tensor in workload.tensors.values())
    for stage, each in found:
        for part, formula in enumerate(each):
            if used[formula.text] < 2 or not math_calls(formula.node):
                continue
            if formula.node == stage.body and stage.is_elementwise:
                continue  # already a separate stage: the normal form merges duplicate stages
            if prod(axis.extent for axis in formula.axes) <= most:
                yield ExtractCommonStage(stage.name, part)


def rewrites_for(workload: Workload) -> tuple[Form, ...]:
    """Return the forms of `workload` (in normal form) that change its rounding error.

    For each number of products of a fast filter, largest first, all matching stages are rewritten,
    along all windows with such a filter. Return () without `Workload.allowed_error`.
    """
    if workload.allowed_error is None:
        return ()
    found = (
        Form(workload).apply_until_fixpoint(partial(_fast_filters, products))
        for products in sorted(POINTS, reverse=True)
    )
    return tuple({form.steps: form for form in found if form.steps}.values())


def _fast_filters(products: int, workload: Workload) -> Iterator[Winograd]:
    for stage in workload.stages:
        found = find_windows(stage, workload.tensors)
        if isinstance(found, WindowedSum):
            yield Winograd(stage.name, _tiles(found, products))


def _tiles(found: WindowedSum, products: int) -> tuple[tuple[int, int], ...]:
    """Return the dimensions whose windows have a filter with `products` products, and the outputs
    per tile."""
    sizes = ((w, products - w.tap.extent + 1) for w in found.windows)
    return tuple(
        (w.dim, size)
        for w, size in sizes
        if w.walk.extent >= size and has_filter(size, w.tap.extent)
    )
