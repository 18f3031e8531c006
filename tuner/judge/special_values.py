"""Inputs with a few NaN, infinities and zeros of both signs, and what a kernel must make of them.

What is promised is in `docs/math.md`, "Special values". The reference says what IEEE arithmetic
gives; what a right kernel may do otherwise is put into further readings of the same workload, and
an element is judged where all of them agree on its class: NaN, an infinity of either sign, finite.

- A maximum or minimum of two computed values may lose a NaN: what such a stage makes a NaN is one
  number in the second reading and another one in the third.
- Products with zeros nobody stored may be left out: they are, in both.
- What is zero by rounding or cancellation, or too small for the type, may be something else in
  another order: all finite inputs are changed a little in both, and the smallest values are zero.
- A rewritten kernel keeps what its form keeps: that form is one more reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.workload.workload import Workload

from .classes import NOT_A_NUMBER, NOT_PROMISED, Classes, Promised
from .readings import has_one_reading, reading, swallows_what_may_be_lost, zero_signs
from .special_inputs import DRAWS, changed, special_inputs

Array = npt.NDArray[Any]
MAX_POINTS = 1 << 31
"""Of the iteration spaces; beyond, each reading takes seconds."""
_LOST = (1.0, -np.inf)  # what may be left of a NaN in a maximum


@dataclass(frozen=True, slots=True)
class SpecialCase:
    """Inputs with special values and what a kernel may answer, as the runner asks for it.

    Rounding is no business of this case, so runs that round differently are not compared.
    """

    seed: int
    inputs: tuple[Array, ...]
    promised: tuple[Promised | None, ...]
    exact: bool = False

    def check(self, outputs: Sequence[Array]) -> str | None:
        """None if `outputs` are as promised; else what is not."""
        for promised, output in zip(self.promised, outputs, strict=True):
            problem = None if promised is None else promised.wrong(output)
            if problem is not None:
                return f"{problem}; inputs: NaN, infinities and zeros, seed {self.seed}"
        return None

    def error(self, outputs: Sequence[Array]) -> float | None:
        """None: this case measures no error."""
        return None

    @property
    def judged_fraction(self) -> float:
        """Elements held to something, of the output where they are fewest."""
        return min(
            (float((p.classes != NOT_PROMISED).mean()) for p in self.promised if p is not None),
            default=0.0,
        )


def special_case(
    workload: Workload, rewritten: Workload | None, *, positive: bool, seed: int
) -> SpecialCase | None:
    """The case for kernels of `workload`, computed as `rewritten` if that is not None; None where
    nothing can be promised: no floats, or values that leave the range of the type by themselves.
    None, too, beyond `MAX_POINTS`.

    `positive`: other inputs than special ones must be.
    """
    floats = [t for t in workload.inputs if t.dtype.is_float]
    if not floats or not any(t.dtype.is_float for t in workload.output_tensors):
        return None
    if sum(prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in workload.stages) > MAX_POINTS:
        return None
    if any(swallows_what_may_be_lost(stage) for stage in workload.stages):
        return None
    found: tuple[list[Array], list[Classes | None]] | None = None
    for draw in DRAWS:
        inputs = special_inputs(
            workload, draw, positive, np.random.Generator(np.random.PCG64(seed))
        )
        classes = reading(workload, inputs)
        if classes is None:
            return None
        better = found is None or _nan_share(classes) < _nan_share(found[1])
        found = (inputs, classes) if found is None or better else found
        if _nan_share(found[1]) <= 0.5:
            break
    assert found is not None
    inputs, classes = found
    for number, form in _further_readings(workload, rewritten):
        moved = changed(workload, inputs, seed + number)
        others = reading(form, moved, _LOST[number % len(_LOST)])
        if others is None:
            return None
        for known, other in zip(classes, others, strict=True):
            if known is not None and other is not None:
                np.copyto(known, np.uint8(NOT_PROMISED), where=known != other)
    signs = zero_signs(workload, inputs)
    promised = tuple(
        None if known is None else Promised(tensor, known, signs.get(tensor.name))
        for tensor, known in zip(workload.output_tensors, classes, strict=True)
    )
    return SpecialCase(seed, tuple(inputs), promised)


def _further_readings(
    workload: Workload, rewritten: Workload | None
) -> Iterator[tuple[int, Workload]]:
    """Numbers and forms of the readings after the first."""
    if not has_one_reading(workload):
        yield 0, workload
        yield 1, workload
    if rewritten is not None:
        yield 2, rewritten
        yield 3, rewritten


def _nan_share(classes: Sequence[Classes | None]) -> float:
    return max(float((c == NOT_A_NUMBER).mean()) for c in classes if c is not None)
