"""The axes of a scatter: a reduction in which data select the output of each term."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...algebra.neutral import neutral_conditions
from ...algebra.scalar import Components, Reducer, Scalar
from ...algebra.selection import selections
from ..analysis.stages import StageLoop, StageView


@dataclass(frozen=True)
class ScatterRoles:
    """The loops of a reduction, in the order of its nest: `outer`, `steps`, `inner_steps`,
    `selected`, `summed`, `inner`."""

    selected: tuple[StageLoop, ...]
    """The output loops of which data select one iteration."""
    places: tuple[Scalar, ...]
    """The integers that select the iterations."""
    value: Scalar
    """The value of a term, in the selected iterations."""
    reducer: Reducer
    outer: tuple[StageLoop, ...]
    """The output loops before the selected ones."""
    steps: tuple[StageLoop, ...]
    """The reduction loops on which the integers depend."""
    inner_steps: tuple[StageLoop, ...]
    """The output loops after the selected ones on which the integers depend."""
    summed: tuple[StageLoop, ...]
    """The other reduction loops."""
    inner: tuple[StageLoop, ...]
    """The other output loops."""

    @property
    def order(self) -> tuple[StageLoop, ...]:
        return (
            *self.outer, *self.steps, *self.inner_steps, *self.selected, *self.summed, *self.inner
        )  # fmt: skip

    @property
    def has_guards(self) -> bool:
        """Whether terms are left out by conditions on the loops outside the selected ones. The
        integers are then read under these conditions only."""
        outside = {loop.name for loop in (*self.outer, *self.steps, *self.inner_steps)}
        conds = neutral_conditions(self.value, self.reducer)
        return any(cond.index.vars() <= outside for cond in conds)

    @cached_property
    def computed(self) -> Components:
        """What one term computes."""
        return Components((self.value, *self.places))

    @property
    def terms(self) -> int:
        """Number of terms that are combined."""
        found = (loop for loop in self.order if loop not in self.selected)
        return prod(loop.extent for loop in found)


def scatter_roles(view: StageView) -> ScatterRoles | None:
    """Return the roles of the loops of a reduction, or None if data do not select its outputs."""
    if view.reducer is None or view.phase_steps or view.axis_splits or view.guards:
        return None
    long = [loop.name for loop in view.spatial if loop.extent > 1]
    found = selections(view.value, long, view.reducer)
    places = found.places
    # Indices are simplified, so they may depend on loops of one iteration.
    uses = found.used | {loop.name for loop in (*view.spatial, *view.reduce) if loop.extent == 1}
    if found.used.isdisjoint(loop.name for loop in view.reduce):
        return None
    selected = tuple(loop for loop in view.spatial if loop.name in places)
    first = view.spatial.index(selected[0])
    others = [loop for loop in view.spatial if loop not in selected]
    after = [loop for loop in others if loop in view.spatial[first:]]
    return ScatterRoles(
        selected,
        tuple(places[loop.name] for loop in selected),
        found.value,
        view.reducer,
        tuple(loop for loop in others if loop not in after),
        tuple(loop for loop in view.reduce if loop.name in uses),
        tuple(loop for loop in after if loop.name in uses),
        tuple(loop for loop in view.reduce if loop.name not in uses),
        tuple(loop for loop in after if loop.name not in uses),
    )
