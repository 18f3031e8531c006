"""Cases with a few NaN, infinities and zeros of both signs, and their correct outputs.

`docs/math.md`, "Special values", states the guarantees. The bound of the reference
(`tilewright.schedules.reference.error_special`) propagates every permitted deviation of a correct
kernel through all stages: a NaN that a maximum lost, a product with padding that was omitted, a
value that is zero by rounding. All other elements must have the right class (number, infinity or
NaN) and value, and so must comparisons, selects and conversions of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.reference.error_bound import bounded_outputs
from tilewright.schedules.reference.error_special import Bounded, joint, stage_keeps_zero_sign
from tilewright.schedules.reference.evaluate import (
    evaluate,
    evaluate_stage,
    load_inputs,
    stored_sample,
    values_in,
)
from tilewright.schedules.reference.reads import Stored
from tilewright.schedules.reference.sample import Sample, grid_of
from tilewright.schedules.workload.workload import Workload

from .compare import Expected, expect
from .sampling import affordable
from .special_inputs import DRAWS, SpecialDraw, special_inputs

Array = npt.NDArray[Any]
MANY_NANS = 0.5
"""If a larger fraction of an output is NaN, other inputs are drawn."""


@dataclass(frozen=True, slots=True)
class SpecialCase:
    """Inputs with special values and their expected outputs. It implements `cases.CheckCase`."""

    seed: int
    inputs: tuple[Array, ...]
    expected: tuple[Expected, ...]
    signs: tuple[npt.NDArray[np.int8] | None, ...]
    """For each output, -1 or 1 for an element that must be a zero of that sign, and 0 for other
    elements. None if no sign is promised for the output."""
    exact: bool = False

    def check(self, outputs: Sequence[Array]) -> str | None:
        for expected, signs, output in zip(self.expected, self.signs, outputs, strict=True):
            problem = expected.wrong(output)
            if problem is None and signs is not None:
                problem = expected.wrong_zeros(output, signs)
            if problem is not None:
                return f"{problem}; inputs: NaN, infinities and zeros, seed {self.seed}"
        return None

    def error(self, outputs: Sequence[Array]) -> float | None:
        """Return None, because this case measures no error."""
        return None

    @property
    def sampled_fraction(self) -> float:
        return min((e.sampled_fraction for e in self.expected), default=1.0)

    @property
    def judged_fraction(self) -> float:
        """The fraction of compared elements that are numbers, in the output with the lowest
        fraction."""
        return min(expected.judged_fraction for expected in self.expected)


def special_case(
    workload: Workload,
    rewritten: Workload | None,
    *,
    positive: bool,
    seed: int,
    secs: float = inf,
    draws: Sequence[SpecialDraw] = DRAWS,
) -> SpecialCase | None:
    """Return the case for kernels of `workload`. If `rewritten` is not None, the kernels compute
    that form of it.

    Return None if (1) no input is a float, (2) special values leave every output element undefined,
    or (3) the predicted time of the reference exceeds `secs` even for the smallest sample. If
    `positive`, all values except special values must be positive.
    """
    if not any(t.dtype.is_float for t in workload.inputs):
        return None
    forms = [workload] if rewritten is None else [workload, rewritten]
    extent = affordable(forms, secs, bounded=True, finite=False)
    if extent.secs > secs:
        return None
    samples = extent.samples(forms, seed)
    inputs, results = _drawn(workload, draws, positive, seed, samples[0])
    if rewritten is not None:
        results = joint(results, bounded_outputs(rewritten, inputs, sample=samples[1]))
    tensors = workload.output_tensors
    expected = tuple(
        expect(tensor, values, errors, (samples[0] or {}).get(tensor.name, ()))
        for tensor, (values, errors) in zip(tensors, results, strict=True)
    )
    if all(each.free is not None and each.free.all() for each in expected):
        return None
    signs = zero_signs(workload, inputs, samples[0])
    return SpecialCase(seed, tuple(inputs), expected, tuple(signs.get(t.name) for t in tensors))


def _drawn(
    workload: Workload,
    draws: Sequence[SpecialDraw],
    positive: bool,
    seed: int,
    sample: Sample | None,
) -> tuple[list[Array], list[Bounded]]:
    """Return the inputs and bounds of the first of `draws` whose outputs have few NaN. If there is
    none, return those of the draw with the fewest NaN."""

    def drawn(draw: SpecialDraw) -> list[Array]:
        rng = np.random.Generator(np.random.PCG64(seed))
        return special_inputs(workload, draw, positive, rng)

    found: list[tuple[float, list[Array]]] = []
    for draw in draws:
        inputs = drawn(draw)
        if len(draws) == 1:
            found.append((0.0, inputs))
            break
        outputs = evaluate(workload, inputs, sample)  # takes a fraction of the time of the bounds
        share = max(float(np.isnan(values).mean()) for values in outputs)
        found.append((share, inputs))
        if share <= MANY_NANS:
            break
    _, inputs = min(found, key=lambda each: each[0])
    return inputs, bounded_outputs(workload, inputs, sample=sample)


def zero_signs(
    workload: Workload, inputs: Sequence[Array], sample: Sample | None = None
) -> dict[str, npt.NDArray[np.int8]]:
    """Return the signs of zeros, for outputs that are computed without sum, maximum or
    reduction."""
    keeping = frozenset(t.name for t in workload.inputs if t.dtype.is_float)
    tensors: dict[str, Stored] = {**load_inputs(workload, inputs)}
    with np.errstate(all="ignore"):
        for stage in workload.stages:
            if stage_keeps_zero_sign(stage, keeping):
                grid = grid_of(sample, stage)
                tensors[stage.name] = stored_sample(
                    evaluate_stage(stage, tensors, grid), stage, grid
                )
                keeping |= {stage.name}
    signs = {}
    for tensor in workload.output_tensors:
        if tensor.name in keeping:
            values = values_in(tensors[tensor.name])
            sign = np.where(np.signbit(values), -1, 1).astype(np.int8)
            signs[tensor.name] = np.where(values == 0, sign, np.int8(0))
    return signs
