"""Common subexpression elimination across stages: a shared formula becomes a separate stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import (
    Components,
    IndexValue,
    Load,
    Scalar,
    Select,
    children,
    index_conds,
    rewrite,
    substitute,
)
from ..dtypes import DType
from ..errors import ScheduleError
from ..workload.tensors import Axis, Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite

MOST_SPELLED = 1024
"""Size of the cache of `_formulas`: several times the number of stages of a program."""


@dataclass(frozen=True, slots=True)
class ExtractCommonStage(Rewrite):
    """Compute formula number `part` of `stage` (see `formulas`) in a separate stage.

    Every stage that contains the same formula then reads the new stage.

        S[i] += exp(A[i,k] - M[i]); Y[i,j] = exp(A[i,j] - M[i]) / S[i]
    ->  E[i,j] = exp(A[i,j] - M[i]); S[i] += E[i,k]; Y[i,j] = E[i,j] / S[i]

    No value changes. The rewrite is legal for every formula of `stage` if the workload has fewer
    than `MAX_STAGES` stages.
    """

    label: ClassVar[str] = "cse"

    part: int

    def rewrite(self, workload: Workload) -> Workload:
        """Return the workload with the formula in a separate stage, in normal form.

        Raise ScheduleError if there is no such stage or formula, or if there are too many stages.
        """
        stage = self.stage_of(workload)
        found = formulas(stage)
        if not 0 <= self.part < len(found):
            raise ScheduleError(self, f"{self.stage!r} has {len(found)} formulas of its axes")
        self.require_room(workload)
        wanted = found[self.part]
        order = _order(workload, wanted)
        axes = tuple(wanted.axes[n] for n in order)
        name = fresh("common", set(workload.tensors))
        tensor = Tensor(name, tuple(axis.extent for axis in axes), wanted.node.dtype)
        stages: list[Stage] = []
        for old in workload.stages:
            reading = _reading(old, wanted, tensor, order)
            if reading is not old and tensor not in (made.tensor for made in stages):
                stages.append(Stage(tensor, axes, wanted.node))  # before its first reader
            stages.append(reading)
        return replace(workload, stages=tuple(stages)).normalised()


@dataclass(frozen=True, slots=True)
class Formula:
    """A subexpression of a stage's body."""

    node: Scalar
    axes: tuple[Axis, ...]
    """The axes of the subexpression, in order of occurrence."""
    text: str
    """The printed subexpression with numbered axes. Formulas with the same text differ at most in
    the names of their axes."""


def formulas(stage: Stage) -> tuple[Formula, ...]:
    """Return the subexpressions of the body that can become separate stages, outer ones first.
    Those in the condition of a Select follow, except the conditions themselves. A body that is a
    Select is last.

    Other subexpressions of a Select are omitted: if its condition is false, the elements that they
    read may not exist.
    """
    return _formulas(stage.body, stage.all_axes)


@lru_cache(maxsize=MOST_SPELLED)
def _formulas(body: Scalar, axes: tuple[Axis, ...]) -> tuple[Formula, ...]:
    """Return `formulas`. The cache helps because a rewrite leaves most stages unchanged, and
    printing the formulas of a stage is slow."""
    every = {axis.name: axis for axis in axes}
    nodes = [*_unconditional(body), *([body] if isinstance(body, Select) else [])]
    return tuple(_formula(node, every) for node in nodes if _names(node))


def _unconditional(body: Scalar) -> list[Scalar]:
    """Return the operations of `body` that are evaluated at all points, outer ones first: those
    outside Selects, then those in conditions of Selects whose results are numbers."""
    found: list[Scalar] = []
    conditions: list[Scalar] = []
    pending = [body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, Select):
            conditions.append(node.cond)
            continue
        inside = children(node)
        pending += inside
        if inside and not isinstance(node, Components):
            found.append(node)
    inner = (node for cond in conditions for node in _unconditional(cond))
    return [*found, *(node for node in inner if node.dtype is not DType.BOOL)]


def _formula(node: Scalar, every: Mapping[str, Axis]) -> Formula:
    names = _names(node)
    axes = tuple(every[name] for name in names)
    renamed = {name: var(f"x{n}") for n, name in enumerate(names)}
    extents = [axis.extent for axis in axes]
    return Formula(node, axes, f"{extents} {substitute(node, renamed)!r}")


def _names(node: Scalar) -> list[str]:
    """Return the names of the axes in `node`: those of its reads and index values in the order of
    their occurrence, then those that occur in conditions only."""
    found: dict[str, None] = {}

    def visit(part: Scalar) -> None:
        indices = part.index if isinstance(part, Load) else ()
        if isinstance(part, IndexValue):
            indices = (part.index,)
        for index in indices:
            found.update(dict.fromkeys(sorted(index.vars())))
        for child in children(part):
            visit(child)

    visit(node)
    for cond in index_conds(node):
        found.update(dict.fromkeys(sorted(cond.index.vars())))
    return list(found)


def _order(workload: Workload, wanted: Formula) -> tuple[int, ...]:
    """Return the numbers of the formula's axes in the order of the new stage.

    This is their order in the result of the first stage that contains the formula and whose result
    has all these axes. The two tensors then have the same layout. Without such a stage, it is the
    order in the formula.
    """
    for stage in workload.stages:
        places = {axis.name: n for n, axis in enumerate(stage.axes)}
        for found in formulas(stage):
            if found.text == wanted.text and all(a.name in places for a in found.axes):
                names = [axis.name for axis in found.axes]
                by_place = sorted((places[name], n) for n, name in enumerate(names))
                return tuple(n for _, n in by_place)
    return tuple(range(len(wanted.axes)))


def _reading(stage: Stage, wanted: Formula, tensor: Tensor, order: tuple[int, ...]) -> Stage:
    """Return `stage` with each occurrence of the formula replaced by a read of `tensor`.

    The dimensions of `tensor` are the formula's axes in `order`. A formula that is evaluated at all
    points is read under conditions, too: what is compared there must be what is compared elsewhere.
    """
    same = {f.node: f for f in formulas(stage) if f.text == wanted.text}
    if not same:
        return stage

    def read(node: Scalar) -> Scalar | None:
        found = same.get(node)
        if found is None:
            return None
        axes = (found.axes[n] for n in order)
        index = tuple(var(a.name) if a.extent > 1 else affine(0) for a in axes)
        return Load(tensor.name, index, tensor.dtype)

    return replace(stage, body=rewrite(stage.body, read))
