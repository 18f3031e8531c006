"""Forms of a workload that are worth scheduling: an exact one, and those whose error the workload
allows.

The same computation can be written in many ways. If one of them has fewer terms, or computes a
function once that another recomputes, its sketches come first.
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
    """The exact form of `workload` (in normal form): with gathers over taps, then common stages,
    then factored products. It has no steps if nothing gains."""
    return precompute_factors(
        Form(workload).apply_until_fixpoint(gather_over_taps).apply_until_fixpoint(common_formulas)
    )


def gather_over_taps(workload: Workload) -> Iterator[GatherOverTaps]:
    """Reductions over elements of which a filter meets few become reductions over its taps, if
    these are fewer."""
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            found = find_filter(stage, axis.name, workload.tensors)
            if found is not None and found.most_met < axis.extent:
                yield GatherOverTaps(stage.name, axis.name)


def common_formulas(workload: Workload) -> Iterator[ExtractCommonStage]:
    """Formulas with math functions that several stages compute become a stage: the largest first,
    if they are no larger than existing tensors, since storing and loading one costs less than a
    function."""
    found = [(stage, formulas(stage)) for stage in workload.stages]
    used = Counter(text for _, each in found for text in {f.text for f in each})
    most = max(tensor.elements for tensor in workload.tensors.values())
    for stage, each in found:
        for part, formula in enumerate(each):
            if used[formula.text] < 2 or not math_calls(formula.node):
                continue
            if formula.node == stage.body and stage.is_elementwise:
                continue  # a stage of its own already: the normal form merges those
            if prod(axis.extent for axis in formula.axes) <= most:
                yield ExtractCommonStage(stage.name, part)


def rewrites_for(workload: Workload) -> tuple[Form, ...]:
    """Forms of `workload` (in normal form) with an error of their own.

    For each number of products of a fast filter, the most first, all matching stages are rewritten
    along all windows that have such a filter. None without `Workload.allowed_error`.
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
    """Window dimensions that have a filter of so many products, and the outputs of its tiles."""
    sizes = ((w, products - w.tap.extent + 1) for w in found.windows)
    return tuple(
        (w.dim, size)
        for w, size in sizes
        if w.walk.extent >= size and has_filter(size, w.tap.extent)
    )
