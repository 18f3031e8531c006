"""Rewrites that need nobody's leave: the form in which an expression is worth scheduling.

The same computation is written in many ways. Where one of them has fewer terms, or computes a
function once that another computes again, it is the form whose sketches come first.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from ...limits import MAX_STAGES
from ...rewrites import OverTaps, Rewrite, Share
from ...rewrites.share import formulas
from ...rewrites.taps import find_filter
from ...workload.workload import Workload
from ..analysis import math_calls
from .products import LEAST_GAIN, beforehand
from .rewriting import rewritten


def regrouped(workload: Workload) -> tuple[Rewrite, ...]:
    """The steps to that form, for `workload` in normal form: sums over taps, then shared formulas,
    then products in steps."""
    steps: tuple[Rewrite, ...] = over_taps(workload)
    steps += shared(rewritten(workload, steps))
    return steps + beforehand(rewritten(workload, steps))


def over_taps(workload: Workload) -> tuple[OverTaps, ...]:
    """Sums over elements of which a filter meets few, to be done over its taps, where these are
    fewer by as much as steps of a product must be cheaper."""
    steps: list[OverTaps] = []
    while True:
        step = _first_filter(workload)
        if step is None:
            return tuple(steps)
        steps.append(step)
        workload = step.rewrite(workload)


def _first_filter(workload: Workload) -> OverTaps | None:
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            found = find_filter(stage, axis.name, workload.tensors)
            if found is not None and found.most_met * LEAST_GAIN <= axis.extent:
                return OverTaps(stage.name, axis.name)
    return None


def shared(workload: Workload) -> tuple[Share, ...]:
    """Formulas with functions in them that more than one stage computes, to be computed once."""
    steps: list[Share] = []
    while len(workload.stages) < MAX_STAGES:
        step = _first_shared(workload)
        if step is None:
            break
        steps.append(step)
        workload = step.rewrite(workload)
    return tuple(steps)


def _first_shared(workload: Workload) -> Share | None:
    """The first stage's largest formula that a later one has as well, if it is no larger than the
    tensors there are: writing and reading it costs less than a function."""
    found = [(stage, formulas(stage)) for stage in workload.stages]
    used = Counter(text for _, each in found for text in {f.text for f in each})
    most = max(tensor.elements for tensor in workload.tensors.values())
    for stage, each in found:
        for part, formula in enumerate(each):
            if used[formula.text] < 2 or not math_calls(formula.node):
                continue
            if formula.node == stage.body and stage.reducer is None:
                continue  # a stage of its own already: the normal form merges those
            if prod(axis.extent for axis in formula.axes) <= most:
                return Share(stage.name, part)
    return None
