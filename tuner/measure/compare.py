"""The judge: inputs with what a kernel may answer to them, element by element.

Where results are exact, every element must be equal; elsewhere it must lie within the error
bound of a correct schedule. Nothing is ever averaged: one wrong element is a wrong kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.dtypes import DType
from schedules.error_bound import evaluate_with_bound
from schedules.errors import WorkloadError
from schedules.lower import start
from schedules.reference import evaluate
from schedules.reference_math import bf16_to_f32, cast
from schedules.rewrites import Rewrite
from schedules.rewrites.scale import error_scale, states_error
from schedules.scalar import Reducer
from schedules.trace import Trace
from schedules.workload import Tensor, Workload

from .inputs import InputKind, InputPlan, held_plan, make_inputs, plan_inputs

Array = npt.NDArray[Any]

HEAVY_POINTS = 1 << 31
"""Points of the iteration spaces above which a full check has three sets of inputs instead of
six: the reference takes up to a second for each."""
ENOUGH_JUDGED = 0.99
MOST_PEAKS = 8
CHEAP_POINTS = 1 << 20
"""Points that all cases with peaks but the first may have together."""
_CHUNK = 1 << 20
_INEXACT_KINDS = (InputKind.SPIKES, InputKind.INTEGERS, InputKind.UNIFORM, InputKind.NORMAL)


@dataclass(frozen=True, slots=True)
class Expected:
    """What one output may be: `low <= y <= high` element by element.

    `low` and `high` are in the output's own type (bf16: in f32); they and `values` are one array
    where the result is exact. `free` marks elements nothing can be said about, None for none.
    """

    tensor: Tensor
    values: Array
    low: Array
    high: Array
    free: npt.NDArray[np.bool_] | None

    def wrong(self, output: Array) -> str | None:
        """None if every element of `output` is right, else the first that is not, in a line."""
        if output.shape != self.tensor.shape or output.dtype != self.tensor.dtype.numpy:
            raise ValueError(
                f"output {self.tensor.name} must be {self.tensor.dtype.numpy} of shape "
                f"{self.tensor.shape}, got {output.dtype} of shape {output.shape}"
            )
        got = bf16_to_f32(output) if self.tensor.dtype is DType.BF16 else output
        right = got == self.low if self.low is self.high else (self.low <= got) & (got <= self.high)
        if right.all():
            return None
        right |= np.isnan(got) & np.isnan(self.values)
        if self.free is not None:
            right |= self.free
        return None if right.all() else self._describe(got, ~right)

    def largest_error(self, output: Array) -> float:
        """The largest distance of an element from the exact value, of those held to something."""
        got = bf16_to_f32(output) if self.tensor.dtype is DType.BF16 else output
        with np.errstate(all="ignore"):
            distance = np.abs(got.astype(np.float64) - self.values)
        return float(np.max(distance, where=np.isfinite(distance), initial=0.0))

    def _describe(self, got: Array, wrong: npt.NDArray[np.bool_]) -> str:
        where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        index = ", ".join(str(int(i)) for i in where)
        low, high = self.low[where], self.high[where]
        allowed = "exactly" if low == high else f"{_number(low)} to {_number(high)}"
        return (
            f"{self.tensor.name}[{index}] is {_number(got[where])}, expected "
            f"{_number(self.values[where])} ({allowed}); "
            f"{int(wrong.sum())} of {wrong.size} elements are wrong"
        )


def _number(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, np.floating) else str(int(value))


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs and what a kernel may answer. `exact`: only one answer is right.

    `scale` is what the error of a rewritten kernel is relative to; None where nothing is rewritten.
    """

    kind: InputKind
    seed: int
    exact: bool
    inputs: tuple[Array, ...]
    expected: tuple[Expected, ...]
    scale: float | None = None

    def check(self, outputs: Sequence[Array]) -> str | None:
        """None if `outputs`, in argument order and buffer types, are right; else why not."""
        if len(outputs) != len(self.expected):
            raise ValueError(f"{len(self.expected)} outputs are expected, got {len(outputs)}")
        for expected, output in zip(self.expected, outputs, strict=True):
            problem = expected.wrong(output)
            if problem is not None:
                return f"{problem}; inputs: {self.kind}, seed {self.seed}"
        return None

    def error(self, outputs: Sequence[Array]) -> float | None:
        """The largest error of `outputs` relative to `scale`; None where there is none."""
        if not self.scale:
            return None
        pairs = zip(self.expected, outputs, strict=True)
        return max(expected.largest_error(output) for expected, output in pairs) / self.scale

    @property
    def judged_fraction(self) -> float:
        """Elements held to something, of all elements of the output where they are fewest."""
        free = (0.0 if e.free is None else float(e.free.mean()) for e in self.expected)
        return 1.0 - max(free)


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
            yield self.case(kind, self.seed + number)
        if not self.plan.exact:
            yield from self._peaks(self.seed + len(kinds) + 1)
        yield from self._shifted()

    def _shifted(self) -> Iterator[Case]:
        """Cases that show what maxima and minima start from: of many numbers of both signs none
        is ever below zero."""
        reducers = {stage.reducer for stage in self.workload.stages}
        inputs = len(self.workload.inputs) if self._points <= HEAVY_POINTS else 1
        asked = ((Reducer.MAX, InputKind.SUNK), (Reducer.MIN, InputKind.RAISED))
        for reducer, kind in asked:
            if reducer not in reducers:
                continue
            for number in range(max(self._peaks_wanted, inputs)):  # each is the shifted one once
                case = self.case(kind, self.seed + number)
                if case.judged_fraction >= ENOUGH_JUDGED:  # as with peaks
                    yield case

    @property
    def _peaks_wanted(self) -> int:
        """So many cases that each place of a row has its turn, if they cost little."""
        rows = min((t.elements // t.shape[-1] for t in self.workload.inputs if t.shape), default=1)
        length = max((t.shape[-1] for t in self.workload.inputs if t.shape), default=1)
        return min(MOST_PEAKS, -(-length // rows), max(1, CHEAP_POINTS // self._points))

    def _peaks(self, seed: int) -> Iterator[Case]:
        """Cases with a peak in turn at each place of a row, as many as cost little."""
        for number in range(self._peaks_wanted):
            peaks = self.case(InputKind.PEAKS, seed + number)
            # A right kernel may overflow on them as well: a plain exponential does.
            if peaks.judged_fraction < ENOUGH_JUDGED:
                return
            yield peaks

    def case(self, kind: InputKind, seed: int) -> Case:
        """Inputs of `kind` and what a kernel may answer to them."""
        inputs = make_inputs(self.workload, kind, seed, self.plan)
        whole_numbers = kind in (InputKind.INTEGERS, InputKind.SPIKES)
        exact = self.held.exact if whole_numbers else self.held.exact_extremes
        results: Sequence[tuple[Array, Array | None]]
        if exact:
            results = [(values, None) for values in evaluate(self.workload, inputs)]
        else:
            results = self._bounded(inputs, whole_numbers)
        tensors = self.workload.output_tensors
        expected = tuple(
            expect(tensor, values, bound)
            for tensor, (values, bound) in zip(tensors, results, strict=True)
        )
        states = states_error(self.rewrites)
        scale = error_scale(self.workload, self.rewrites, inputs) if states else None
        return Case(kind, seed, exact, tuple(inputs), expected, scale)

    def _bounded(self, inputs: Sequence[Array], whole_numbers: bool) -> list[tuple[Array, Array]]:
        """Values and how far a right kernel may be from them. The values of a rewritten workload
        are those of the workload as it is: a mistake in a rewrite must not hide in both."""
        none = frozenset[str]()
        known = self.plan.exact_stages if whole_numbers else none
        own = evaluate_with_bound(self.workload, inputs, known)
        if not self.rewrites:
            return own
        known = self.held.exact_stages if whole_numbers else none
        other = evaluate_with_bound(self.rewritten, inputs, known)
        # The distance of the two forms' reference values is within the sum of their bounds.
        return [(values, a + b) for (values, a), (_, b) in zip(own, other, strict=True)]

    def _full_kinds(self) -> list[tuple[InputKind, int]]:
        if not any(t.dtype.is_float for t in self.workload.inputs):
            kinds = [InputKind.EXTREMES, InputKind.INTEGERS, InputKind.EXTREMES]
        elif self._points > HEAVY_POINTS:
            kinds = [InputKind.NORMAL, InputKind.SPECIAL]
        else:
            again = [InputKind.INTEGERS, InputKind.SPIKES]
            kinds = [*again, InputKind.NORMAL, InputKind.UNIFORM, InputKind.SPECIAL]
        return [(kind, number) for number, kind in enumerate(kinds, start=1)]

    @property
    def _points(self) -> int:
        return sum(prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in self.workload.stages)


def expect(tensor: Tensor, values: Array, bound: Array | None) -> Expected:
    """What `tensor` may hold: `values`, exactly or within `bound` (see `evaluate_with_bound`)."""
    with np.errstate(all="ignore"):
        if bound is None or not bound.any():
            exact = values.astype(_compared(tensor.dtype), copy=False)
            return Expected(tensor, exact, exact, exact, None)
        free = ~np.isfinite(bound)
        limits = _float_limits if tensor.dtype.is_float else _integer_limits
        low, high = (np.empty(tensor.shape, _compared(tensor.dtype)) for _ in range(2))
        flat = [a.reshape(-1) for a in (low, high, values, bound)]
        for at in range(0, tensor.elements, _CHUNK):  # or temporaries would be the largest part
            chunk = slice(at, at + _CHUNK)
            flat[0][chunk], flat[1][chunk] = limits(tensor.dtype, flat[2][chunk], flat[3][chunk])
        return Expected(tensor, values, low, high, free if free.any() else None)


def _compared(dtype: DType) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype is DType.BF16 else dtype.numpy


def _float_limits(dtype: DType, values: Array, bound: Array) -> tuple[Array, Array]:
    """The least and greatest number of `dtype` within `bound` of `values`."""
    least, greatest = values - bound, values + bound
    low, high = least.astype(_compared(dtype)), greatest.astype(_compared(dtype))
    low = np.where(low < least, np.nextafter(low, low.dtype.type(np.inf)), low)
    high = np.where(high > greatest, np.nextafter(high, high.dtype.type(-np.inf)), high)
    free = np.isinf(bound)
    return np.where(free, -np.inf, low), np.where(free, np.inf, high)


def _integer_limits(dtype: DType, values: Array, bound: Array) -> tuple[Array, Array]:
    # Through float64 only where there is a bound: it does not hold every 64-bit integer.
    room = np.floor(bound)
    low = np.where(room > 0, cast(values - room, dtype), values)
    high = np.where(room > 0, cast(values + room, dtype), values)
    return low, high
