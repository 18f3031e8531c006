"""Compute the unit in which the error of a rewritten kernel is stated, for given inputs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..algebra.scalar import vars_of
from ..reference.evaluate import evaluate_stage, factor_over, load_inputs
from ..reference.math import Array
from ..reference.reads import full_box
from ..workload.workload import Workload
from . import Rewrite, Winograd
from .windows import WindowedSum, find_windows


def states_error(rewrites: Sequence[Rewrite]) -> bool:
    """Return whether one of `rewrites` has a nonzero `stated_error`."""
    return any(isinstance(step, Winograd) for step in rewrites)


def error_scale(workload: Workload, rewrites: Sequence[Rewrite], inputs: Sequence[Array]) -> float:
    """Return the unit of `Workload.allowed_error` for these inputs.

    It is max|data| times the largest sum of |weight| for one element. `data` and `weight` are the
    operands of the stage that the last rewrite with a stated error replaces.
    """
    stating = max(n for n, step in enumerate(rewrites) if states_error([step]))
    workload = workload.normalised()
    for step in rewrites[:stating]:
        workload = step.rewrite(workload)
    found = find_windows(workload.stage(rewrites[stating].stage), workload.tensors)
    assert isinstance(found, WindowedSum), "the rewrite was applied before"
    tensors = load_inputs(workload, inputs)
    for stage in workload.stages:
        if {found.data.tensor, found.weight.tensor} <= tensors.keys():
            break
        tensors[stage.name] = evaluate_stage(stage, tensors)
    with np.errstate(all="ignore"):
        return float(np.abs(tensors[found.data.tensor]).max()) * _weight_sum(found, tensors)


def _weight_sum(found: WindowedSum, tensors: dict[str, Array]) -> float:
    stage, used = found.stage, vars_of(found.weight)
    axes = [a for a in (*stage.reduce_axes, *stage.axes) if a.name in used]
    summed = tuple(n for n, a in enumerate(axes) if a in stage.reduce_axes)
    sizes = np.abs(factor_over(found.weight, full_box(axes), tensors).astype(np.float64))
    again = prod(a.extent for a in stage.reduce_axes if a.name not in used)
    return float(sizes.sum(axis=summed).max()) * again
