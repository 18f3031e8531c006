"""Choose the forms of a workload. The regrouped form is always permitted. The other forms are
permitted if the workload allows their rounding error.

A form with fewer terms, or one that computes a shared function only once, is searched first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from math import prod

from ...algebra.scalar import Select
from ...dtypes import DType
from ...form import Form
from ...rewrites import ExtractCommonStage, GatherOverTaps, Winograd
from ...rewrites.common_stage import formulas
from ...rewrites.cook_toom import POINTS, has_filter
from ...rewrites.gather_over_taps import find_filter
from ...rewrites.windows import WindowedSum, find_windows
from ...workload.workload import Workload
from ..analysis.combined import combines_reductions
from ..analysis.stages import math_calls
from .canonical import (
    compact,
    forwards,
    gather_selected,
    index_tests,
    read_through,
    scan_prefixes,
    select_outputs,
)
from .products import precompute_factors


def canonical(workload: Workload) -> Form:
    """Return the form in which equal computations are written alike: tests of indices are
    conditions, sums read tensors themselves, reductions of selected terms are reads or scans,
    outputs without terms are left out, and windows go forwards. `workload` is in normal form."""
    return (
        Form(workload)
        .apply_until_fixpoint(index_tests)
        .apply_until_fixpoint(read_through)
        .apply_until_fixpoint(gather_selected)
        .apply_until_fixpoint(select_outputs)
        .apply_until_fixpoint(scan_prefixes)
        .apply_until_fixpoint(compact)
        .apply_until_fixpoint(forwards)
    )


def regrouped(workload: Workload) -> Form:
    """Return the canonical form of `workload` after all profitable rewrites of four kinds: sums
    over taps, then common formulas, then formulas of several reductions, then precomputed products.
    `workload` is in normal form."""
    gathered = (
        canonical(workload)
        .apply_until_fixpoint(gather_over_taps)
        .apply_until_fixpoint(compact)
        .apply_until_fixpoint(common_formulas)
        .apply_until_fixpoint(combined_reductions)
    )
    return precompute_factors(gathered).apply_until_fixpoint(forwards)


def gather_over_taps(workload: Workload) -> Iterator[GatherOverTaps]:
    """Yield the rewrites that replace a sum over input elements by a sum over the taps of a filter.

    A reduction axis is skipped if it has no more elements than the taps that contribute to one
    output.
    """
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            found = find_filter(stage, axis.name, workload.tensors)
            if found is not None and found.most_met < axis.extent:
                yield GatherOverTaps(stage.name, axis.name)


def common_formulas(workload: Workload) -> Iterator[ExtractCommonStage]:
    """Yield rewrites that extract formulas with math functions that several stages compute, the
    largest first. A formula may not have more values than the largest tensor; storing and reading
    it then costs less than the functions."""
    found = [(stage, formulas(stage)) for stage in workload.stages]
    used = Counter(text for _, each in found for text in {f.text for f in each})
    most = max(tensor.elements for tensor in workload.tensors.values())
    for stage, each in found:
        for part, formula in enumerate(each):
            if used[formula.text] < 2 or not math_calls(formula.node):
                continue
            if isinstance(formula.node, Select):
                continue  # a choice between formulas is cheaper where it is
            if formula.node == stage.body and stage.is_elementwise:
                continue  # a separate stage already; the normal form merges duplicates
            if prod(axis.extent for axis in formula.axes) <= most:
                yield ExtractCommonStage(stage.name, part)


def combined_reductions(workload: Workload) -> Iterator[ExtractCommonStage]:
    """Yield rewrites that extract formulas of several reductions over the same data from a later
    reduction: of each, the largest one with the fewest values."""
    for stage in workload.stages:
        if not stage.is_reduction or not combines_reductions(stage.body, (), workload):
            continue  # formulas are many
        found = [
            (prod(axis.extent for axis in formula.axes), part)
            for part, formula in enumerate(formulas(stage))
            if formula.node.dtype is not DType.BOOL
            and combines_reductions(formula.node, formula.axes, workload)
        ]
        if found:
            yield ExtractCommonStage(stage.name, min(found)[1])


def rewrites_for(workload: Workload) -> tuple[Form, ...]:
    """Return the forms of `workload` (in normal form) that change its rounding error.

    There is at most one form per number of products of a fast filter, the largest first. It
    rewrites all matching stages, along all windows that have such a filter. Return () if the
    workload allows no error.
    """
    if workload.allowed_error is None:
        return ()
    base = canonical(workload)
    found = (
        base.apply_until_fixpoint(partial(_fast_filters, products))
        for products in sorted(POINTS, reverse=True)
    )
    return tuple({form.steps: form for form in found if form.steps != base.steps}.values())


def _fast_filters(products: int, workload: Workload) -> Iterator[Winograd]:
    for stage in workload.stages:
        found = find_windows(stage, workload.tensors)
        if isinstance(found, WindowedSum):
            yield Winograd(stage.name, _tiles(found, products))


def _tiles(found: WindowedSum, products: int) -> tuple[tuple[int, int], ...]:
    """Return (dimension, outputs per tile) for all windows with a filter of `products` products."""
    sizes = ((w, products - w.tap.extent + 1) for w in found.windows)
    return tuple(
        (w.dim, size)
        for w, size in sizes
        if w.walk.extent >= size and has_filter(size, w.tap.extent)
    )
