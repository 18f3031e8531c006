"""Common subexpression elimination across stages: a shared formula becomes a stage of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ..algebra.affine import affine, fresh, var
from ..algebra.scalar import IndexValue, Load, Scalar, Select, children, rewrite, substitute
from ..errors import ScheduleError
from ..workload.tensors import Axis, Stage, Tensor
from ..workload.workload import Workload
from .rewrite import Rewrite

MOST_SPELLED = 1024
"""Cache size in bodies: several times as many as a program has."""


@dataclass(frozen=True, slots=True)
class ExtractCommonStage(Rewrite):
    """Compute formula number `part` of `stage` (see `formulas`) in a stage of its own, and read
    that stage wherever a stage has the same formula over its own axes.

        S[i] += exp(A[i,k] - M[i]); Y[i,j] = exp(A[i,j] - M[i]) / S[i]
    ->  E[i,j] = exp(A[i,j] - M[i]); S[i] += E[i,k]; Y[i,j] = E[i,j] / S[i]

    No value changes. Legal for every formula of the list, if the workload may have a stage more.
    """

    label: ClassVar[str] = "cse"

    part: int

    def rewrite(self, workload: Workload) -> Workload:
        """The same computation with the formula in a stage, in normal form. ScheduleError: no such
        stage or formula, or too many stages."""
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
                stages.append(Stage(tensor, axes, wanted.node))  # before the first that reads it
            stages.append(reading)
        return replace(workload, stages=tuple(stages)).normalised()


@dataclass(frozen=True, slots=True)
class Formula:
    """Part of a stage's body over `axes` of the stage, in the order in which it has them; `text` is
    the same for the same formula of other axes with these extents."""

    node: Scalar
    axes: tuple[Axis, ...]
    text: str


def formulas(stage: Stage) -> tuple[Formula, ...]:
    """The subexpressions of a body that could be stages of their own, larger ones first. Those
    under a condition are left out: what they read exists only where it holds."""
    return _formulas(stage.body, stage.all_axes)


@lru_cache(maxsize=MOST_SPELLED)
def _formulas(body: Scalar, axes: tuple[Axis, ...]) -> tuple[Formula, ...]:
    """Cached, since printing takes longest, and every rewrite of a program asks for the formulas of
    all its stages, of which the previous rewrite left most unchanged."""
    every = {axis.name: axis for axis in axes}
    return tuple(_formula(node, every) for node in _unconditional(body) if _names(node))


def _unconditional(body: Scalar) -> list[Scalar]:
    """The operations that are always evaluated, larger ones first."""
    found: list[Scalar] = []
    pending = [body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, Select):
            continue
        inside = children(node)
        pending += inside
        if inside:
            found.append(node)
    return found


def _formula(node: Scalar, every: Mapping[str, Axis]) -> Formula:
    names = _names(node)
    axes = tuple(every[name] for name in names)
    renamed = {name: var(f"x{n}") for n, name in enumerate(names)}
    extents = [axis.extent for axis in axes]
    return Formula(node, axes, f"{extents} {substitute(node, renamed)!r}")


def _names(node: Scalar) -> list[str]:
    """The axes that `node` depends on, in the order in which its text has them."""
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
    return list(found)


def _order(workload: Workload, wanted: Formula) -> tuple[int, ...]:
    """The formula's axes in the order of the first stage whose result has them all, so that rows of
    one are rows of the other; else as the formula has them."""
    for stage in workload.stages:
        places = {axis.name: n for n, axis in enumerate(stage.axes)}
        for found in formulas(stage):
            if found.text == wanted.text and all(a.name in places for a in found.axes):
                names = [axis.name for axis in found.axes]
                by_place = sorted((places[name], n) for n, name in enumerate(names))
                return tuple(n for _, n in by_place)
    return tuple(range(len(wanted.axes)))


def _reading(stage: Stage, wanted: Formula, tensor: Tensor, order: tuple[int, ...]) -> Stage:
    """`stage` reading `tensor`, whose dimensions are the formula's axes in `order`, where it has
    the formula."""
    same = {f.node: f for f in formulas(stage) if f.text == wanted.text}
    if not same:
        return stage

    def read(node: Scalar) -> Scalar | None:
        if isinstance(node, Select):
            return node  # as in `formulas`: by where a part stands, not by what it is made of
        found = same.get(node)
        if found is None:
            return None
        axes = (found.axes[n] for n in order)
        index = tuple(var(a.name) if a.extent > 1 else affine(0) for a in axes)
        return Load(tensor.name, index, tensor.dtype)

    return replace(stage, body=rewrite(stage.body, read))
