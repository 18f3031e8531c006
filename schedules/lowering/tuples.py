"""Reductions of tuples in a nest: stores that combine each component with its element before.

    for i: for k: P[i] = combine1(state, value); M[i] = combine0(state, value)

where `state` are the elements of the components, or their identities in the first iteration of the
reduction. Stages that compute components of one reduction share its nest, and a component is stored
in the tensor of its stage, or in the workspace. It is stored after all others that need its old
element. If components need each other, some combinations are stored elsewhere first.

No statement is new to the primitives: the reduction loops carry the dependence of the components on
their old elements and keep their order, and all other loops are independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..algebra.affine import Index
from ..algebra.comparisons import Cond
from ..algebra.scalar import All, Components, Load, Scalar, Select, loads
from ..algebra.tuples import LEFT, combined, components_read
from ..nest.loop_ir import Buffer, BufferScope, StoreElement
from ..workload.tensors import Elementwise, Stage, TupleReduction
from ..workload.tuple_stages import needed_components


@dataclass(frozen=True, slots=True)
class TupleGroup:
    """The stages that compute components of one reduction of tuples."""

    whole: Stage
    """The stage that has all components."""
    tensors: Mapping[int, str]
    """The names of the tensors of components, by component, in program order."""

    @property
    def kind(self) -> TupleReduction:
        assert isinstance(self.whole.kind, TupleReduction)
        return self.whole.kind

    @property
    def first(self) -> str:
        """The stage in whose place the nest is."""
        return next(iter(self.tensors.values()))

    def buffer_of(self, component: int) -> str:
        return self.tensors.get(component, f"{self.whole.name}.c{component}")

    def new_buffer_of(self, component: int) -> str:
        """Return the name of the buffer of a combination that is computed before all stores."""
        return f"{self.whole.name}.new{component}"

    @property
    def private_buffers(self) -> tuple[Buffer, ...]:
        """The buffers in the workspace, each with one element for each element of the tensors."""
        hidden = (n for n in range(len(self.kind.combine)) if n not in self.tensors)
        names = [(self.buffer_of(n), n) for n in hidden]
        names += [(self.new_buffer_of(n), n) for n, is_early in self.order if is_early]
        shape, identities = self.whole.tensor.shape, self.kind.identities
        return tuple(
            Buffer(name, shape, identities[n].dtype, BufferScope.WORKSPACE) for name, n in names
        )

    @property
    def order(self) -> list[tuple[int, bool]]:
        """The components in the order in which they are stored, each with whether its combination
        is computed before all stores."""
        combine = self.kind.combine
        reads = [components_read(node, LEFT, len(combine)) for node in combine]
        early, order, left = set[int](), list[int](), list(range(len(combine)))
        while left:
            waiting = [m for m in left if m not in early]
            free = [n for n in left if not any(n in reads[m] for m in waiting if m != n)]
            if free:
                order.append(free[0])
                left.remove(free[0])
            else:
                early.add(waiting[0])
        return [(n, n in early) for n in order]

    def leaves(self, index: Index, value: Scalar, later: Cond) -> tuple[StoreElement, ...]:
        """Return the stores of one iteration. `value` is the body of `whole` with the names of
        loops. The condition `later` holds in all iterations but the first."""
        assert isinstance(value, Components)
        old = [
            Select(All((later,)), Load(self.buffer_of(n), index, identity.dtype), identity)
            for n, identity in enumerate(self.kind.identities)
        ]
        new, order = combined(self.kind.combine, old, value.values), self.order
        early = [n for n, is_early in order if is_early]
        stores = [StoreElement(self.new_buffer_of(n), index, new[n]) for n in early]
        for n, is_early in order:
            stored = Load(self.new_buffer_of(n), index, new[n].dtype) if is_early else new[n]
            stores.append(StoreElement(self.buffer_of(n), index, stored))
        return tuple(stores)


def tuple_groups(stages: Sequence[Stage]) -> dict[str, TupleGroup]:
    """Return the group of each stage of a program that computes a component of a reduction of
    tuples. Reductions with most components come first and take others in."""
    wholes = [stage for stage in stages if isinstance(stage.kind, TupleReduction)]
    wholes.sort(key=lambda stage: -_count(stage))
    groups: dict[str, TupleGroup] = {}
    for whole in wholes:
        if whole.name not in groups:
            found = _group(whole, [stage for stage in stages if stage.name not in groups], stages)
            groups |= dict.fromkeys(found.tensors.values(), found)
    return groups


def _count(stage: Stage) -> int:
    return len(stage.kind.combine) if isinstance(stage.kind, TupleReduction) else 0


def _group(whole: Stage, left: Sequence[Stage], stages: Sequence[Stage]) -> TupleGroup:
    kind = whole.kind
    assert isinstance(kind, TupleReduction)
    names = [stage.name for stage in stages]
    needed = {read.tensor for read in loads(whole.body)}
    ready = max((n for n, name in enumerate(names) if name in needed), default=-1)
    found = {whole.name: kind.position}
    parts = {
        n: needed_components(replace(whole, kind=replace(kind, position=n)))
        for n in range(_count(whole))
        if n != kind.position
    }
    for stage in left:
        is_part = stage is not whole and stage.reduce_axes and names.index(stage.name) > ready
        for number, part in parts.items() if is_part and stage.axes == whole.axes else ():
            same = (stage.kind, stage.body) == (part.kind, part.body)
            if same and not isinstance(part.kind, Elementwise) and number not in found.values():
                found[stage.name] = number
    ordered = sorted(found, key=names.index)
    return TupleGroup(whole, {found[name]: name for name in ordered})
