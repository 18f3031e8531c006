"""Fusion groups, the results of rules, and the conditions for adding an earlier stage to a group.

In Halide and TVM, `compute_at` specifies where a single stage is computed. A group specifies this
for all stages that share axes with the last one. The sketches of rows, of blocks of columns and of
transforms share different axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TypeAlias

from ..algebra.affine import Affine, Index, Interval, affine, var
from ..errors import ScheduleError
from ..primitives.boxes import region_of
from ..target import Target
from ..workload.workload import Workload
from .analysis.stages import StageLoop, StageView, view_stage, view_stages
from .knobs import Arrays, Ints, Knobbed, PartSketch, nontemporal_values

TASKS_PER_THREAD = 4
"""Tasks per thread into which loops are divided if they have too few or uneven iterations."""


@dataclass(frozen=True)
class FusionGroup:
    """Stages that are computed together."""

    last: StageView
    """The stage that provides the outer loops."""
    producers: tuple[StageView, ...] = ()
    """The other stages, in program order. They are computed inside the outer loops."""
    shared_axes: int = 0
    """The number of leading axes of `last` that are axes of all stages."""
    more_results: tuple[str, ...] = ()
    """The names of the producers that are stored, as `last` is. The iterations of the outer loops
    divide their elements."""

    @property
    def stages(self) -> tuple[StageView, ...]:
        return (*self.producers, self.last)

    @cached_property
    def nest_order(self) -> tuple[StageView, ...]:
        """The stages in the order of their loops. The writers apply ComputeAt to the producers from
        the last to the first, and it inserts each directly before its first reader."""
        order = [self.last]
        for view in reversed(self.producers):
            reads = (any(read.tensor == view.name for read in other.reads) for other in order)
            order.insert(next((n for n, found in enumerate(reads) if found), len(order)), view)
        return tuple(order)

    @property
    def results(self) -> tuple[StageView, ...]:
        """The stages that are stored, in program order."""
        return tuple(view for view in self.stages if self.is_result(view))

    @property
    def intermediates(self) -> tuple[StageView, ...]:
        """The other stages, in program order."""
        return tuple(view for view in self.stages if not self.is_result(view))

    def is_result(self, view: StageView) -> bool:
        return view.name == self.last.name or view.name in self.more_results

    @property
    def producer_names(self) -> tuple[str, ...]:
        return tuple(view.name for view in self.producers)

    @property
    def repeats(self) -> int:
        """Iterations of the shared axes."""
        return prod(loop.extent for loop in self.last.spatial[: self.shared_axes])


@dataclass(frozen=True)
class GroupSketch(Knobbed[Arrays, Ints]):
    """A sketch of the stages of a group."""

    workload: Workload
    group: FusionGroup
    target: Target

    @property
    def stages(self) -> tuple[StageView, ...]:
        return self.group.stages

    @property
    def lanes(self) -> int:
        """Elements of a vector of the stage with the most iterations, the last one of several."""
        longest = max(reversed(self.group.stages), key=lambda view: view.points)
        return self.target.lanes(longest.dtype)

    @cached_property
    def nontemporal_choices(self) -> tuple[int, ...]:
        """The values of the knob `nontemporal_stores`, which holds for all results."""
        results = (view.name for view in self.group.results)
        return min(nontemporal_values(self.workload, name, self.target) for name in results)


@dataclass(frozen=True)
class Stages:
    """Input of the rules: the stages of a program and their readers."""

    workload: Workload
    views: Mapping[str, StageView]
    target: Target
    readers: Mapping[str, tuple[StageView, ...]]
    left: tuple[str, ...]
    """The names of the stages that are earlier than the examined stage and not yet in a group."""

    def before(self, left: Sequence[str]) -> Stages:
        return replace(self, left=tuple(left))

    @cached_property
    def inlined(self) -> tuple[str, ...]:
        """The names of the stages that are inlined into others."""
        return tuple(x.name for x in self.workload.stages if x.name not in self.views)

    def unsplit(self, view: StageView) -> StageView:
        """Return `view` without splits of output axes."""
        if not view.axis_splits:
            return view
        axes = len(self.workload.stage(view.name).axes)
        return view_stage(self.workload, view.name, self.inlined, unsplit=axes)

    def only_needed_by(self, name: str, members: set[str]) -> bool:
        """Return whether stage `name` is not an output and only stages in `members` read it."""
        readers = self.readers[name]
        hidden = name not in self.workload.outputs
        return hidden and bool(readers) and all(reader.name in members for reader in readers)


def stages_of(workload: Workload, inlined: tuple[str, ...], target: Target) -> Stages:
    """Return all stages of a program except the inlined ones."""
    views = view_stages(workload, inlined)
    readers: dict[str, list[StageView]] = {name: [] for name in views}
    for view in views.values():
        for name in {read.tensor for read in view.reads} & readers.keys():
            readers[name].append(view)
    fixed = {name: tuple(found) for name, found in readers.items()}
    return Stages(workload, views, target, fixed, tuple(views))


@dataclass(frozen=True, slots=True)
class Alternative:
    """The reason why stages may be faster without the fusion that a rule matched."""

    reason: str
    fallback_rule: Rule | None = None
    """A rule for a stage without the fusion. If it matches, no other rule is used for that
    stage."""


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """The sketches with which a rule matches a stage."""

    parts: tuple[PartSketch, ...]
    """The sketches, the most promising first."""
    fused_stages: tuple[str, ...] = ()
    """The earlier stages that the sketches compute together with the stage."""
    alternative: Alternative | None = None


Rule: TypeAlias = Callable[[StageView, Stages], RuleMatch | None]
"""Function that matches a stage and earlier stages by structure, or returns None."""


def absorb_producers(
    stages: Stages,
    alone: FusionGroup,
    common: Callable[[StageView, StageView], int],
    least: int,
    fits: Callable[[FusionGroup], bool] = lambda group: True,
) -> FusionGroup:
    """Return the group `alone` of one stage, extended by earlier stages.

    A stage is added if (1) only members of the group read it, (2) it shares at least `least` axes
    with all its readers, and (3) the extended group `fits`. `common(stage, reader)` returns the
    number of leading axes that both share, or -1 if they cannot be fused.
    """
    group, members = alone, {alone.last.name}
    for name in reversed(stages.left):
        if not stages.only_needed_by(name, members):
            continue
        view = stages.views[name]
        shared = min(group.shared_axes, *(common(view, reader) for reader in stages.readers[name]))
        more = FusionGroup(alone.last, (view, *group.producers), shared)
        if shared >= least and fits(more):
            group = more
            members.add(name)
    return group


def reads_boxes(
    group: FusionGroup, outer: Callable[[StageView], Sequence[StageLoop]] | None = None
) -> bool:
    """Return whether one iteration of the `outer` loops reads a box of each producer, as ComputeAt
    requires.

    The default of `outer` is the shared axes. Outer loops of different stages at the same position
    count as the same loop.
    """
    spans, fixed = dict[str, Interval](), dict[str, Interval]()
    indices: dict[str, list[Index]] = {name: [] for name in group.producer_names}
    for view in group.stages:
        around = outer(view) if outer else view.spatial[: group.shared_axes]
        one = {loop.name: var(f"#{n}") for n, loop in enumerate(around)}
        fixed |= {f"#{n}": Interval(0, loop.extent - 1) for n, loop in enumerate(around)}
        inner = (loop for loop in (*view.spatial, *view.reduce) if loop.name not in one)
        spans |= {loop.name: Interval(0, loop.extent - 1) for loop in inner}
        for read in (read for read in view.reads if read.tensor in indices):
            indices[read.tensor].append(tuple(i.substitute(one) for i in read.index))
    try:
        for name, found in indices.items():
            region_of(found, spans, fixed, name)
    except ScheduleError:
        return False
    return True


def leading_axes(tensor: str, reader: StageView) -> int:
    """Return the number of leading axes of `reader` that are the leading indices of all its reads
    of `tensor`."""
    reads = (read.index for read in reader.reads if read.tensor == tensor)
    return min((_same(index, reader.spatial) for index in reads), default=len(reader.spatial))


def _same(index: Sequence[Affine], loops: Sequence[StageLoop]) -> int:
    """Return the number of leading indices that are exactly their loops."""
    pairs = zip(index, loops, strict=False)
    differ = (n for n, (i, loop) in enumerate(pairs) if not is_loop(i, loop))
    return next(differ, min(len(index), len(loops)))


def is_loop(index: Affine, loop: StageLoop) -> bool:
    """Return whether `index` is exactly `loop`. The index of a loop of one iteration is 0."""
    return index == (var(loop.name) if loop.extent > 1 else affine(0))


def merged(
    group: FusionGroup, walk: Callable[[StageView], Sequence[StageLoop] | None]
) -> dict[str, str]:
    """Find reductions that can share a loop with the elementwise stage directly before them. Return
    the name of that stage by the name of the reduction.

    A reduction must read the values in the order in which the stage computes them.
    `walk(reduction)` returns the loops of the reduction in this order, or None to exclude the
    reduction.
    """
    found = {}
    for view, reduced in pairwise(group.nest_order):
        loops = walk(reduced) if reduced.is_reduction and not view.is_reduction else None
        if loops is None or any(v.phase_steps or v.axis_splits for v in (view, reduced)):
            continue
        reads = [read for read in reduced.reads if read.tensor == view.name]
        in_order = (not r.conditional and _same(r.index, loops) == len(r.index) for r in reads)
        alike = [loop.extent for loop in loops] == [loop.extent for loop in view.spatial]
        if alike and reads and all(in_order):
            found[reduced.name] = view.name
    return found
