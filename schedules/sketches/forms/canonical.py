"""Write equal computations in one form: sums read tensors themselves, reductions whose terms a
comparison selects are scans or reads, and windows go forwards.

A transposed convolution may be written by a condition on divisibility, as a scatter, or as a
convolution over a copy with inserted zeros. A window may go through its taps from the first or from
the last. A running sum may be a scan, or a sum of the terms up to a position. The rows of a table
at given indices may be read, or be a product with one-hot vectors. The keys of these notations
differ, but their canonical forms are equal, and so are the schedules that are searched.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...algebra.affine import Affine, FloorDiv, Mod, Var
from ...algebra.congruence import congruence_of
from ...algebra.index_tests import has_index_test
from ...algebra.scalar import index_conds, loads
from ...rewrites import (
    CompactOutputs,
    GatherSelected,
    IndexTestsFirst,
    ReadThrough,
    ReverseAxis,
    ScanPrefixes,
    SelectOutputs,
)
from ...rewrites.compact_outputs import spaced_axes
from ...rewrites.gather_selected import selection_of
from ...rewrites.read_through import is_copy_with_zeros
from ...rewrites.scan_prefixes import prefixes_of
from ...rewrites.select_outputs import selected_body
from ...workload.tensors import Axis, Stage
from ...workload.workload import Workload


def index_tests(workload: Workload) -> Iterator[IndexTestsFirst]:
    """Yield the rewrites, legal or not, that make tests of indices conditions of selects. Without a
    reduction there are no loops that such conditions limit."""
    reduces = any(stage.is_reduction for stage in workload.stages)
    if reduces and any(has_index_test(stage.body) for stage in workload.stages):
        yield from (IndexTestsFirst(stage.name) for stage in workload.stages)


def read_through(workload: Workload) -> Iterator[ReadThrough]:
    """Yield the rewrites, legal or not, that let sums read a tensor instead of a copy of it."""
    for stage in workload.stages:
        if is_copy_with_zeros(stage, workload):
            yield ReadThrough(stage.name)


def gather_selected(workload: Workload) -> Iterator[GatherSelected]:
    """Yield the rewrites, legal or not, that read the one term of a reduction that data select."""
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            if selection_of(stage, axis.name, workload) is not None:
                yield GatherSelected(stage.name, axis.name)


def select_outputs(workload: Workload) -> Iterator[SelectOutputs]:
    """Yield the rewrites that choose the terms of outputs that masks select."""
    for stage in workload.stages:
        if selected_body(stage, workload) is not None:
            yield SelectOutputs(stage.name)


def scan_prefixes(workload: Workload) -> Iterator[ScanPrefixes]:
    """Yield the rewrites that reduce prefixes by a scan, where that is less work and where no
    intermediate result is larger than the largest tensor."""
    most = max(tensor.elements for tensor in workload.tensors.values())
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            found = prefixes_of(stage, axis.name)
            if found is not None and found.scanned_elements <= most and found.saves_work:
                yield ScanPrefixes(stage.name, axis.name)


def compact(workload: Workload) -> Iterator[CompactOutputs]:
    """Yield the rewrites that compute no output whose terms are all zero by a congruence."""
    for stage in workload.stages:
        if spaced_axes(stage):
            yield CompactOutputs(stage.name)


def forwards(workload: Workload) -> Iterator[ReverseAxis]:
    """Yield the rewrites that reverse a reduction axis along which reads go backwards."""
    for stage in workload.stages:
        for axis in stage.reduce_axes:
            if _goes_backwards(stage, axis):
                yield ReverseAxis(stage.name, axis.name)


def _goes_backwards(stage: Stage, axis: Axis) -> bool:
    """Return whether `axis` is subtracted in all indices that decide its direction, and whether
    there is such an index.

    These are the indices that share it with an output axis (windows). If only some of its values
    contribute to an output, by a congruence, `Solve` makes a remainder of it, and the indices
    decide in which it is alone (taps): a remainder that is added is shorter than one subtracted.
    """
    moved = {other.name for other in stage.axes}
    congruences = (congruence_of(cond) for cond in index_conds(stage.body))
    phased = any(c is not None and c.modulus and c.index.mentions(axis.name) for c in congruences)
    steps = [
        step
        for load in loads(stage.body)
        for index in load.index
        if index.mentions(axis.name) and index.vars().isdisjoint(moved) == phased
        for step in _steps(index, axis.name)
    ]
    return bool(steps) and all(step < 0 for step in steps)


def _steps(index: Affine, name: str) -> Iterator[int]:
    """Yield the coefficients of the variable `name` in `index` and in its quotients."""
    for atom, c in index.terms:
        if isinstance(atom, Var):
            if atom.name == name:
                yield c
        elif isinstance(atom, FloorDiv):
            yield from (c * step for step in _steps(atom.numerator, name))
        elif isinstance(atom, Mod) and atom.numerator.mentions(name):
            yield 0
