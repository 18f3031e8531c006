"""The oracle of a workload: test inputs, and the correct outputs for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

from tilewright.schedules.algebra.scalar import Reducer, loads
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.lowering.lower import start
from tilewright.schedules.reference.cost import handling_secs, kernel_secs, points
from tilewright.schedules.reference.error_bound import bounded_outputs
from tilewright.schedules.reference.error_special import joint
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.sample import Sample
from tilewright.schedules.rewrites import Rewrite, changing_operations
from tilewright.schedules.rewrites.scale import error_scale, states_error
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..arrays import Array
from .compare import Case, expect
from .discriminating_inputs import (
    combiners_of,
    discriminating_place_count,
    size_dependent_inputs,
    subtracts_sums,
    sums_of_vanishing,
)
from .input_plan import (
    CONTINUOUS,
    WIDE_EXPONENT,
    InputKind,
    InputPlan,
    plan_for_rewritten,
    plan_inputs,
)
from .inputs import make_inputs
from .sampling import EVERYTHING, Extent, affordable

HEAVY_POINTS = 1 << 31
"""If a workload has more iteration points, a full check has three sets of inputs instead of six,
because the reference takes up to a second for each."""
MIN_JUDGED = 0.99
MAX_PEAK_CASES = 8
MAX_PLACE_CASES = 32
"""The largest number of cases of one kind whose inputs have a value at one position of each row."""
MAX_PLACE_POINTS = 1 << 25
"""The largest number of iteration points of all these cases together."""
LARGE_ELEMENTS = 1 << 22
"""If all tensors together have more elements, a full check has one set of inputs per kind. So many
elements detect more mistakes than several sets of smaller tensors."""
MANY_ELEMENTS = 1 << 18
"""If a workload has no reduction and more elements, a full check has one set of inputs per kind.
Each element is an independent test, and integers detect no more mistakes than other numbers."""
MAX_FACTORS = 4
MIN_JUDGED_SIGNED = 0.2
MIN_JUDGED_SWEPT = 0.02
SWEPT_LEVELS, MAX_SWEEPS = 1 << 10, 4
"""The number of magnitudes of a swept input in all its cases together, and the largest number of
these cases."""
MAX_SWEEP_POINTS = 1 << 20
"""The largest number of iteration points of all cases of one swept input together."""
_INEXACT_KINDS = (InputKind.SPIKES, InputKind.INTEGERS, InputKind.UNIFORM, InputKind.NORMAL)
_QUICK_SHARE = 0.25
"""The fraction of the reference's time budget that the quick case may use."""
_SAMPLE_SHARE = 0.2
"""The fraction of the remaining time for which samples of the other cases are made. The rest is for
workloads whose smallest samples take longer."""
_MIN_CASES = 4
"""The least number of cases in addition to the quick case, even if the kernel is slow."""
_RUNS_PER_CASE = 3
"""The approximate number of kernel runs per case."""
_WHOLE_NUMBERS = (InputKind.INTEGERS, InputKind.SPIKES)
_PRIORITY = (
    InputKind.NORMAL,
    InputKind.LONE_TOP,
    InputKind.LONE_BOTTOM,
    InputKind.SPECIAL,
    InputKind.BELOW,
    InputKind.SUNK,
    InputKind.RAISED,
    InputKind.PEAKS,
    InputKind.SWEPT,
)
"""The most important kinds of inputs, most important first. A check that has time for only a few
cases uses these."""


@dataclass(frozen=True, slots=True)
class _CasePlan:
    """A case to be built. It has the first of `kinds` for which at least the fraction `share` of
    the elements is compared with a number."""

    kinds: tuple[InputKind, ...]
    seed: int
    share: float = MIN_JUDGED


@dataclass(frozen=True)
class Oracle:
    """The cases that kernels of one workload must pass. `seed` determines all inputs.

    With `rewrites`, the cases apply to kernels whose traces begin with these rewrites. The last
    ones that keep all operations are ignored: they do not change the allowed error. Inputs and
    exact values come from the original workload. If the rewritten form is exact on integers, a
    kernel must be exact too. Otherwise the error analysis of the rewritten form bounds the kernel's
    error.

    `check_secs` limits the predicted time of the reference in a full check. The quick case may take
    a quarter of that. If all outputs would take longer, only a sample of the outputs is compared
    (`sampling`). Cases whose smallest sample takes longer are omitted.
    """

    workload: Workload
    seed: int = 0
    rewrites: tuple[Rewrite, ...] = ()
    check_secs: float = inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "rewrites", changing_operations(self.rewrites))

    @cached_property
    def plan(self) -> InputPlan:
        """The input values and the exactness of the original workload."""
        return plan_inputs(self.workload)

    @cached_property
    def rewritten(self) -> Workload:
        return start(self.workload, Trace(self.rewrites))[0]

    @cached_property
    def kernel_plan(self) -> InputPlan:
        """The input values, and the exactness of the form that kernels compute."""
        return plan_for_rewritten(self.plan, self.rewritten) if self.rewrites else self.plan

    @cached_property
    def quick(self) -> Case:
        """The quick case: exact integers if the workload permits them, otherwise `spikes`.

        If these overflow or give no number, other kinds are tried. Raise WorkloadError if, for
        every kind, some output has no element that is compared with a number.
        """
        return self._first_case().with_spans()

    def _first_case(self) -> Case:
        extent = self._quick_extent
        if self.plan.exact:
            return self.case(InputKind.INTEGERS, self.seed, extent)
        best: Case | None = None
        for kind in _INEXACT_KINDS:
            case = self.case(kind, self.seed, extent)
            if case.judged_fraction >= MIN_JUDGED:
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
        """Return one line about the first wrong element of the outputs of the quick case, or
        None."""
        return self.quick.check(outputs)

    def full(self) -> Iterator[Case]:
        """Yield the cases of a full check, `quick` first. Each is built when it is requested.

        The cases are not cached, because together they can be many times the size of the workload.
        """
        yield self.quick
        done = set[InputKind]()
        left_secs = self.check_secs - self._quick_extent.secs
        for attempt in self._attempts:
            if attempt.kinds[0] in done:
                continue
            found = False
            for kind in attempt.kinds:
                extent = self._extent(kind)
                if extent.secs > max(left_secs, 0.0):
                    break
                left_secs -= extent.secs
                case = self.case(kind, attempt.seed, extent)
                if case.judged_fraction >= attempt.share:
                    yield case
                    found = True
                    if kind is InputKind.SIGNED and case.judged_fraction >= MIN_JUDGED:
                        done.add(kind)
                    break
            if not found and attempt.kinds == (InputKind.PEAKS,):
                # A correct kernel may overflow, for example if it computes an exponential without
                # subtracting the maximum.
                done.add(InputKind.PEAKS)

    @property
    def least_secs(self) -> float:
        """The predicted seconds of the reference for the quick case."""
        return self._quick_extent.secs

    @property
    def planned(self) -> int:
        """The largest number of cases that `full` yields.

        Cases are omitted if too few of their elements are compared with a number, or if they do not
        fit into the time budget.
        """
        return 1 + len(self._attempts)

    @cached_property
    def case_secs(self) -> float:
        """The seconds of the reference for which samples are made for each case after the quick
        one. The cases with special values count as one."""
        left_secs = max(self.check_secs - self._quick_extent.secs, 0.0)
        return _SAMPLE_SHARE * left_secs / (len(self._attempts) + 1)

    @cached_property
    def _attempts(self) -> list[_CasePlan]:
        """The cases of a full check after `quick`. If kernels are slow, only the most important
        ones."""
        number = len(self._full_kinds()) + 1
        every = [
            *self._drawn(),
            *self._counted(self.seed + number),
            *self._peaks(self.seed + number),
            *self._shifted(),
            *self._single(),
            *self._signed(),
            *self._swept(),
        ]
        case_secs = _RUNS_PER_CASE * kernel_secs(self.workload) + handling_secs(self.workload)
        if self.check_secs >= len(every) * case_secs:
            return every
        seen = Counter[InputKind]()
        turns = []
        for attempt in every:
            kind = attempt.kinds[-1]
            turns.append(
                (seen[kind], _PRIORITY.index(kind) if kind in _PRIORITY else len(_PRIORITY))
            )
            seen[kind] += 1
        order = sorted(range(len(every)), key=lambda n: (turns[n], n))
        most = max(int(self.check_secs / case_secs), _MIN_CASES)
        return [every[n] for n in sorted(order[:most])]

    def _drawn(self) -> Iterator[_CasePlan]:
        """Yield cases of random values. If large values overflow, moderate values are tried
        first."""
        middling = self.plan.large_exponent < WIDE_EXPONENT and not self.plan.positive
        for kind, number in self._full_kinds():
            kinds: tuple[InputKind, ...] = (kind,)
            if kind is InputKind.SPECIAL and middling and _floats(self.workload):
                kinds = (InputKind.WIDE, kind)
            share = 0.0 if len(kinds) == 1 else MIN_JUDGED
            yield _CasePlan(kinds, self.seed + number, share)

    def _counted(self, seed: int) -> Iterator[_CasePlan]:
        """Yield cases for which inexact operations are exact. Yield nothing if all operations are
        exact."""
        if self.plan.exact or not _floats(self.workload):
            return
        sums = any(Reducer.SUM in combiners_of(s) for s in self.workload.stages)
        if not (self._is_large and sums):
            yield _CasePlan((InputKind.ANCHORS,), seed)
        if sums:
            yield _CasePlan((InputKind.BELOW, InputKind.ABOVE), seed)
        if sums_of_vanishing(self.workload) and not (self.plan.positive or self._is_large):
            yield _CasePlan((InputKind.FEW,), seed)
        if subtracts_sums(self.workload):
            yield _CasePlan((InputKind.BALANCED,), seed)

    def _peaks(self, seed: int) -> Iterator[_CasePlan]:
        """Yield cases with a peak at one position of each row. The number of cases is limited by
        their cost."""
        extremes = any(combiners_of(s) & {Reducer.MAX, Reducer.MIN} for s in self.workload.stages)
        # the kinds `lone_top` and `lone_bottom` suffice
        if self.plan.exact or (self._is_large and extremes):
            return
        for number in range(min(self._peaks_wanted, MAX_PEAK_CASES)):
            yield _CasePlan((InputKind.PEAKS,), seed + number)

    def _single(self) -> Iterator[_CasePlan]:
        """Yield cases in which sums of products have one term. In each case, another factor has
        full significands."""
        floats = sum(t.dtype.is_float for t in self.workload.inputs)
        products = (
            len({r.tensor for r in loads(s.body)}) > 1
            for s in self.workload.stages
            if Reducer.SUM in combiners_of(s)
        )
        if floats < 2 or not any(products):
            return
        for number in range(min(floats, MAX_FACTORS)):
            yield _CasePlan((InputKind.SINGLE,), self.seed + number)

    def _signed(self) -> Iterator[_CasePlan]:
        """Yield cases with inputs of both signs, for workloads that otherwise need positive inputs.

        Elements without a value are not compared. In the first case, all inputs have both signs. In
        each further case, one input has both signs, because the first may compare too few elements.
        """
        if not self.plan.positive:
            return
        inputs = len(self.workload.inputs)
        first = -self.seed % (inputs + 1)  # the case in which all inputs are signed
        for number in range(inputs + 1):
            yield _CasePlan((InputKind.SIGNED,), self.seed + first + number, MIN_JUDGED_SIGNED)

    def _swept(self) -> Iterator[_CasePlan]:
        """Yield cases with all magnitudes of one input, for each input on whose magnitude code
        depends.

        An input with few lines gets more cases. Elements that overflow are not compared.
        """
        floats = [n for n, t in enumerate(self.workload.inputs) if t.dtype.is_float]
        dims = self.plan.dims if self.plan.terms > 1 else {}
        for number in size_dependent_inputs(self.workload)[:MAX_FACTORS]:
            tensor = self.workload.inputs[number]
            levels = tensor.elements // prod(tensor.shape[d] for d in dims.get(tensor.name, ()))
            cheap = max(1, MAX_SWEEP_POINTS // self._points)
            # with this seed, this input is swept
            first = floats.index(number) - self.seed % len(floats)
            for turn in range(min(-(-SWEPT_LEVELS // levels), MAX_SWEEPS, cheap)):
                seed = self.seed + first % len(floats) + turn * len(floats)
                yield _CasePlan((InputKind.SWEPT,), seed, MIN_JUDGED_SWEPT)

    def _shifted(self) -> Iterator[_CasePlan]:
        """Yield cases that detect a maximum or minimum with a wrong start value or without some
        position.

        A maximum of many numbers of both signs is never below zero, and it is rarely at a given
        position. So other inputs do not detect these mistakes.
        """
        reducers = {reducer for stage in self.workload.stages for reducer in combiners_of(stage)}
        inputs = len(self.workload.inputs) if self._points <= HEAVY_POINTS else 1
        wanted = (
            (Reducer.MAX, InputKind.SUNK, InputKind.LONE_TOP),
            (Reducer.MIN, InputKind.RAISED, InputKind.LONE_BOTTOM),
        )
        for reducer, sunk, lone in wanted:
            if reducer not in reducers:
                continue
            for number in range(max(min(self._peaks_wanted, MAX_PEAK_CASES), inputs)):
                yield _CasePlan((sunk,), self.seed + number)  # each input is shifted once
            for number in range(min(self._peaks_wanted * inputs, MAX_PLACE_CASES)):
                yield _CasePlan((lone,), self.seed + number)

    @property
    def _peaks_wanted(self) -> int:
        """The number of cases that use every discriminating position. It is smaller if these cost
        too much."""
        wanted = 1
        for tensor in self.workload.inputs:
            dims = self.plan.dims[tensor.name]
            lines = tensor.elements // prod(tensor.shape[d] for d in dims)
            places = max((discriminating_place_count(tensor.shape[d]) for d in dims), default=1)
            wanted = max(wanted, -(-places // lines))
        return min(wanted, MAX_PLACE_CASES, max(1, MAX_PLACE_POINTS // self._points))

    @cached_property
    def _quick_extent(self) -> Extent:
        kind = InputKind.INTEGERS if self.plan.exact else InputKind.SPIKES
        return self._affordable(kind, _QUICK_SHARE * self.check_secs)

    def _extent(self, kind: InputKind) -> Extent:
        """Return the size of the sample of a case other than the quick one."""
        bounded = not self._is_exact(kind)
        if bounded not in self._extents:
            self._extents[bounded] = self._affordable(kind, self.case_secs)
        return self._extents[bounded]

    @cached_property
    def _extents(self) -> dict[bool, Extent]:
        return {}

    def _affordable(self, kind: InputKind, secs: float) -> Extent:
        bounded = not self._is_exact(kind)
        forms = self._forms if bounded else self._forms[:1]
        return affordable(forms, secs, bounded=bounded, most_secs=self.check_secs)

    @property
    def _forms(self) -> list[Workload]:
        """The forms that the reference evaluates if outputs have an error bound."""
        return [self.workload, self.rewritten] if self.rewrites else [self.workload]

    def _is_exact(self, kind: InputKind) -> bool:
        return self.kernel_plan.exact if kind in _WHOLE_NUMBERS else self.kernel_plan.exact_extremes

    def case(self, kind: InputKind, seed: int, extent: Extent | None = None) -> Case:
        """Return inputs of `kind` with their expected outputs. `extent` is the size of the sample
        of the outputs."""
        inputs = make_inputs(self.workload, kind, seed, self.plan)
        extent = EVERYTHING if extent is None else extent
        exact = self._is_exact(kind)
        samples = extent.samples(self._forms, seed)
        results: Sequence[tuple[Array, Array | None]]
        if exact:
            results = [(v, None) for v in evaluate(self.workload, inputs, samples[0])]
        else:
            results = self._bounded(inputs, kind, samples)
        expected = tuple(
            expect(tensor, values, bound, (samples[0] or {}).get(tensor.name, ()))
            for tensor, (values, bound) in zip(self.workload.output_tensors, results, strict=True)
        )
        states = states_error(self.rewrites)
        scale = error_scale(self.workload, self.rewrites, inputs) if states else None
        return Case(kind, seed, exact, tuple(inputs), expected, scale)

    def _bounded(
        self, inputs: Sequence[Array], kind: InputKind, samples: Sequence[Sample | None]
    ) -> list[tuple[Array, Array | None]]:
        """Return the value and the error bound of each output.

        The values come from the original workload, so that the kernel and the reference cannot have
        the same mistake of a rewrite.
        """
        plans = (self.plan, self.kernel_plan)
        found = [
            bounded_outputs(
                form,
                inputs,
                plan.exact_stages if kind in _WHOLE_NUMBERS else frozenset(),
                continuous=kind in CONTINUOUS,
                sample=sample,
            )
            for form, plan, sample in zip(self._forms, plans, samples, strict=False)
        ]
        return found[0] if len(found) == 1 else joint(*found)

    def _full_kinds(self) -> list[tuple[InputKind, int]]:
        if not _floats(self.workload):
            kinds = [InputKind.EXTREMES, InputKind.INTEGERS, InputKind.EXTREMES]
        elif self._points > HEAVY_POINTS:
            kinds = [InputKind.NORMAL, InputKind.SPECIAL]
        elif self._is_large:
            kinds = [InputKind.NORMAL, InputKind.SPECIAL] if self._reduces else [InputKind.SPECIAL]
        elif not self._reduces and self._elements > MANY_ELEMENTS:
            kinds = [InputKind.NORMAL, InputKind.SPECIAL]
        else:
            again = [InputKind.INTEGERS, InputKind.SPIKES]
            kinds = [*again, InputKind.NORMAL, InputKind.UNIFORM, InputKind.SPECIAL]
        return [(kind, number) for number, kind in enumerate(kinds, start=1)]

    @property
    def _points(self) -> int:
        return points(self.workload)

    @property
    def _is_large(self) -> bool:
        """Return whether the tensors are so large that every set of inputs takes long."""
        return self._elements > LARGE_ELEMENTS

    @property
    def _elements(self) -> int:
        tensors = (*self.workload.inputs, *(s.tensor for s in self.workload.stages))
        return sum(t.elements for t in tensors)

    @property
    def _reduces(self) -> bool:
        return any(combiners_of(s) for s in self.workload.stages)


def _floats(workload: Workload) -> bool:
    return any(t.dtype.is_float for t in workload.inputs)
