"""What a workload's kernels are held against: which inputs, and what is right for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from schedules.algebra.scalar import Reducer, loads
from schedules.errors import WorkloadError
from schedules.lowering.lower import start
from schedules.reference.error_bound import bounded_outputs
from schedules.reference.error_special import joint
from schedules.reference.evaluate import evaluate
from schedules.rewrites import Rewrite
from schedules.rewrites.scale import error_scale, states_error
from schedules.trace import Trace
from schedules.workload.workload import Workload

from ..arrays import Array
from .compare import Case, expect
from .input_plan import (
    CONTINUOUS,
    WIDE_EXPONENT,
    InputKind,
    InputPlan,
    held_plan,
    plan_inputs,
)
from .inputs import make_inputs
from .telling_inputs import places_that_tell, subtracts_sums, sums_of_vanishing

HEAVY_POINTS = 1 << 31
"""Points of the iteration spaces above which a full check has three sets of inputs instead of
six: the reference takes up to a second for each."""
ENOUGH_JUDGED = 0.99
MOST_PEAKS = 8
MOST_PLACES = 32
"""Cases of one kind with something at one place of each row."""
CHEAP_POINTS = 1 << 25
"""Points that all cases of one kind with something at one place of each row may have together."""
LARGE_ELEMENTS = 1 << 22
"""Elements of all tensors above which a full check has one set of inputs of a kind: so many
elements hold more chances than several sets of smaller ones."""
MOST_FACTORS = 4
LITTLE_JUDGED = 0.2
_INEXACT_KINDS = (InputKind.SPIKES, InputKind.INTEGERS, InputKind.UNIFORM, InputKind.NORMAL)


@dataclass(frozen=True)
class Oracle:
    """Everything one workload is judged by. `seed` fixes all inputs.

    With `rewrites`, what kernels whose traces begin with these are judged by: the same inputs and
    the same exact values, which come from the workload as it is. Where the rewritten form is
    exact on integers a kernel must be so too; elsewhere it may be as far off as the error analysis
    of the rewritten form says.

    `quick` is the case every candidate must pass before its time counts, built on first use and
    kept. `full` is what a candidate must pass before it is best.
    """

    workload: Workload
    seed: int = 0
    rewrites: tuple[Rewrite, ...] = ()

    @cached_property
    def plan(self) -> InputPlan:
        """What inputs there are, and what is exact of the workload as it is."""
        return plan_inputs(self.workload)

    @cached_property
    def rewritten(self) -> Workload:
        return start(self.workload, Trace(self.rewrites))[0]

    @cached_property
    def held(self) -> InputPlan:
        """`plan` with what a kernel must give exactly."""
        return held_plan(self.plan, self.rewritten) if self.rewrites else self.plan

    @cached_property
    def quick(self) -> Case:
        """Exact integers where the workload allows them, few large terms where it does not.

        Where those overflow, or meet roots of negative numbers, other kinds are tried.
        WorkloadError if no kind of inputs has a result that a kernel could be held to.
        """
        if self.plan.exact:
            return self.case(InputKind.INTEGERS, self.seed)
        best: Case | None = None
        for kind in _INEXACT_KINDS:
            case = self.case(kind, self.seed)
            if case.judged_fraction >= ENOUGH_JUDGED:
                return case
            if best is None or case.judged_fraction > best.judged_fraction:
                best = case
        if best is None or best.judged_fraction == 0.0:
            raise WorkloadError(
                f"{self.workload.name or 'the workload'} cannot be verified: for every kind of"
                " inputs tried, an output overflows or has no value, or may for a correct kernel;"
                " scale its values",
                code="not_verifiable",
            )
        return best

    def check(self, outputs: Sequence[Array]) -> str | None:
        """`quick.check(outputs)`: None, or the first wrong element and how many there are."""
        return self.quick.check(outputs)

    def full(self) -> Iterator[Case]:
        """The cases of a full check, `quick` first, each built when it is asked for.

        They are not kept: together they can be many times the size of the workload.
        """
        yield self.quick
        kinds = self._full_kinds()
        for kind, number in kinds:
            wide = kind is InputKind.SPECIAL and self.plan.large_exponent < WIDE_EXPONENT
            if wide and not self.plan.positive and _floats(self.workload):
                yield from self._wide_or_special(self.seed + number)
            else:
                yield self.case(kind, self.seed + number)
        yield from self._counted(self.seed + len(kinds) + 1)
        extremes = any(s.reducer in (Reducer.MAX, Reducer.MIN) for s in self.workload.stages)
        if not self.plan.exact and not (self._is_large and extremes):  # lone ones are enough there
            yield from self._peaks(self.seed + len(kinds) + 1)
        yield from self._shifted()
        yield from self._single()
        yield from self._signed()

    def _wide_or_special(self, seed: int) -> Iterator[Case]:
        """Large values overflow, by the ranges of values; those of middling size only perhaps."""
        wide = list(self._judged(InputKind.WIDE, seed))
        yield from wide or [self.case(InputKind.SPECIAL, seed)]

    def _judged(self, kind: InputKind, seed: int, share: float = ENOUGH_JUDGED) -> Iterator[Case]:
        """The case, unless a right kernel may overflow or have no value on too much of it."""
        case = self.case(kind, seed)
        if case.judged_fraction >= share:
            yield case

    def _counted(self, seed: int) -> Iterator[Case]:
        """Cases that make inexact operations exact: nothing is gained where all are already."""
        if self.plan.exact or not _floats(self.workload):
            return
        sums = any(s.reducer is Reducer.SUM for s in self.workload.stages)
        if not (self._is_large and sums):
            yield from self._judged(InputKind.ANCHORS, seed)
        if sums:
            below = list(self._judged(InputKind.BELOW, seed))
            yield from below or self._judged(InputKind.ABOVE, seed)
        if sums_of_vanishing(self.workload) and not (self.plan.positive or self._is_large):
            yield from self._judged(InputKind.FEW, seed)
        if subtracts_sums(self.workload):
            yield from self._judged(InputKind.BALANCED, seed)

    def _single(self) -> Iterator[Case]:
        """Cases of sums with one term: of products, each factor in turn with full significands."""
        floats = sum(t.dtype.is_float for t in self.workload.inputs)
        products = (
            len({r.tensor for r in loads(s.body)}) > 1
            for s in self.workload.stages
            if s.reducer is Reducer.SUM
        )
        if floats < 2 or not any(products):
            return
        for number in range(min(floats, MOST_FACTORS)):
            yield from self._judged(InputKind.SINGLE, self.seed + number)

    def _signed(self) -> Iterator[Case]:
        """Cases of both signs where inputs are positive for the sake of a root, log or division:
        what has no value is not judged. All inputs at once, or one by one where that leaves little.
        """
        if not self.plan.positive:
            return
        inputs = len(self.workload.inputs)
        first = -self.seed % (inputs + 1)  # the one for which all inputs are signed
        for number in range(inputs + 1):
            case = self.case(InputKind.SIGNED, self.seed + first + number)
            if case.judged_fraction >= LITTLE_JUDGED:
                yield case
            if number == 0 and case.judged_fraction >= ENOUGH_JUDGED:
                return

    def _shifted(self) -> Iterator[Case]:
        """Cases that show what maxima and minima start from, and whether they miss a place: of many
        numbers of both signs none is ever below zero, and most are never the greatest."""
        reducers = {stage.reducer for stage in self.workload.stages}
        inputs = len(self.workload.inputs) if self._points <= HEAVY_POINTS else 1
        asked = (
            (Reducer.MAX, InputKind.SUNK, InputKind.LONE_TOP),
            (Reducer.MIN, InputKind.RAISED, InputKind.LONE_BOTTOM),
        )
        for reducer, sunk, lone in asked:
            if reducer not in reducers:
                continue
            for number in range(max(min(self._peaks_wanted, MOST_PEAKS), inputs)):
                yield from self._judged(sunk, self.seed + number)  # each is shifted once
            for number in range(min(self._peaks_wanted * inputs, MOST_PLACES)):
                yield from self._judged(lone, self.seed + number)

    @property
    def _peaks_wanted(self) -> int:
        """So many cases that each place that tells has its turn, if they cost little."""
        wanted = 1
        for tensor in self.workload.inputs:
            dims = self.plan.dims[tensor.name]
            lines = tensor.elements // prod(tensor.shape[d] for d in dims)
            places = max((places_that_tell(tensor.shape[d]) for d in dims), default=1)
            wanted = max(wanted, -(-places // lines))
        return min(wanted, MOST_PLACES, max(1, CHEAP_POINTS // self._points))

    def _peaks(self, seed: int) -> Iterator[Case]:
        """Cases with a peak in turn at places of a row, as many as cost little."""
        for number in range(min(self._peaks_wanted, MOST_PEAKS)):
            peaks = list(self._judged(InputKind.PEAKS, seed + number))
            if not peaks:  # a right kernel may overflow as well: a plain exponential does
                return
            yield from peaks

    def case(self, kind: InputKind, seed: int) -> Case:
        """Inputs of `kind` and what a kernel may answer to them."""
        inputs = make_inputs(self.workload, kind, seed, self.plan)
        whole_numbers = kind in (InputKind.INTEGERS, InputKind.SPIKES)
        continuous = kind in CONTINUOUS
        exact = self.held.exact if whole_numbers else self.held.exact_extremes
        results: Sequence[tuple[Array, Array | None]]
        if exact:
            results = [(values, None) for values in evaluate(self.workload, inputs)]
        else:
            results = self._bounded(inputs, whole_numbers, continuous)
        tensors = self.workload.output_tensors
        expected = tuple(
            expect(tensor, values, bound)
            for tensor, (values, bound) in zip(tensors, results, strict=True)
        )
        states = states_error(self.rewrites)
        scale = error_scale(self.workload, self.rewrites, inputs) if states else None
        return Case(kind, seed, exact, tuple(inputs), expected, scale)

    def _bounded(
        self, inputs: Sequence[Array], whole_numbers: bool, continuous: bool
    ) -> list[tuple[Array, Array | None]]:
        """Values and how far a right kernel may be from them. The values of a rewritten workload
        are those of the workload as it is: a mistake in a rewrite must not hide in both."""
        none = frozenset[str]()
        known = self.plan.exact_stages if whole_numbers else none
        own = bounded_outputs(self.workload, inputs, known, continuous=continuous)
        if not self.rewrites:
            return own
        known = self.held.exact_stages if whole_numbers else none
        other = bounded_outputs(self.rewritten, inputs, known, continuous=continuous)
        return joint(own, other)

    def _full_kinds(self) -> list[tuple[InputKind, int]]:
        if not _floats(self.workload):
            kinds = [InputKind.EXTREMES, InputKind.INTEGERS, InputKind.EXTREMES]
        elif self._points > HEAVY_POINTS:
            kinds = [InputKind.NORMAL, InputKind.SPECIAL]
        elif self._is_large:
            reduced = any(s.reduce_axes for s in self.workload.stages)
            kinds = [InputKind.NORMAL, InputKind.SPECIAL] if reduced else [InputKind.SPECIAL]
        else:
            again = [InputKind.INTEGERS, InputKind.SPIKES]
            kinds = [*again, InputKind.NORMAL, InputKind.UNIFORM, InputKind.SPECIAL]
        return [(kind, number) for number, kind in enumerate(kinds, start=1)]

    @property
    def _points(self) -> int:
        return sum(prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in self.workload.stages)

    @property
    def _is_large(self) -> bool:
        """Whether inputs, stages and outputs are so many that every set of them takes long."""
        tensors = (*self.workload.inputs, *(s.tensor for s in self.workload.stages))
        return sum(t.elements for t in tensors) > LARGE_ELEMENTS


def _floats(workload: Workload) -> bool:
    return any(t.dtype.is_float for t in workload.inputs)
