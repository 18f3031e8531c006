"""Rewrites that need nobody's leave: the form in which an expression is worth scheduling.

The same computation is written in many ways. Where one of them has fewer terms, or computes a
function once that another computes again, it is the form whose sketches come first.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from ...form import Form
from ...limits import MAX_STAGES
from ...rewrites import OverTaps, Share
from ...rewrites.share import formulas
from ...rewrites.taps import find_filter
from ...workload.workload import Workload
from ..analysis import math_calls
from .products import LEAST_GAIN, beforehand


def regrouped(workload: Workload) -> Form:
    """That form of `workload` (in normal form): with sums over taps, then shared formulas, then
    products in steps. It has no steps where nothing gains by it."""
    return beforehand(shared(over_taps(Form(workload))))


def over_taps(form: Form) -> Form:
    """Sums over elements of which a filter meets few are done over its taps, where these are fewer
    by as much as steps of a product must be cheaper."""
    while (step := _first_filter(form.workload)) is not None:
        form = form.after(step)
    return form


def _first_filter(workload: Workload) -> OverTaps | None:
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            found = find_filter(stage, axis.name, workload.tensors)
            if found is not None and found.most_met * LEAST_GAIN <= axis.extent:
                return OverTaps(stage.name, axis.name)
    return None


def shared(form: Form) -> Form:
    """Formulas with functions in them that more than one stage computes are computed once."""
    while len(form.workload.stages) < MAX_STAGES:
        step = _first_shared(form.workload)
        if step is None:
            break
        form = form.after(step)
    return form


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
