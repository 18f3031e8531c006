"""Formulas that combine the results of several reductions over the same data, as most losses do.

If such a formula is a stage, it can be computed with its reductions, in one pass over their data. A
later reduction of the formula cannot: it needs the results of all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from ...algebra.scalar import Scalar, loads
from ...workload.tensors import Axis
from ...workload.workload import Workload
from .stages import SHORT_AXIS


def combines_reductions(body: Scalar, axes: Iterable[Axis], workload: Workload) -> bool:
    """Return whether `body` reads several reductions of one tensor, and is evaluated along `axes`
    much less often than that tensor has elements."""
    stages = {stage.name: stage for stage in workload.stages}
    reductions = [name for name in _sources(body, workload) if name in stages]
    bodies = (stages[name].body for name in reductions if stages[name].is_reduction)
    read = Counter(name for one in bodies for name in _sources(one, workload))
    least = SHORT_AXIS * prod(axis.extent for axis in axes)
    return any(n > 1 and workload.tensors[name].elements > least for name, n in read.items())


def _sources(body: Scalar, workload: Workload) -> frozenset[str]:
    """Return the tensors that `body` reads, with what elementwise stages read in place of their
    results."""
    stages = {stage.name: stage for stage in workload.stages if stage.is_elementwise}
    found, pending = set[str](), [body]
    while pending:
        for name in {load.tensor for load in loads(pending.pop())} - found:
            found.add(name)
            if name in stages:
                pending.append(stages[name].body)
    return frozenset(found - stages.keys())
