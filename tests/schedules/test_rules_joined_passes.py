"""Reductions of the same elements share their pass over a row."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.nest.loop_ir import LoopKind, Nest, loops
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload

RANGE = "M[i] max= X[i,k]; N[i] min= X[i,k]; Y[i] = M[i] - N[i]"
MOMENTS = "S[i] += X[i,k]; Q[i] += X[i,k] * X[i,k]; M[i] max= X[i,k]; Y[i] = S[i] * M[i] - Q[i]"
NORM = "S[i] += X[i,k]; Q[i] += X[i,k] * X[i,k]; Y[i,k] = X[i,k] * Q[i] - S[i]"
PAIR = "S[i] += X[i,k] * W[i,k]; Q[i] += X[i,k]; Y[i] = S[i] - Q[i]"
CHAIN = "S[i] += X[i,k]; Q[i] += (X[i,k] - S[i]) * X[i,k]; Y[i] = Q[i] - S[i]"


def of_rows(text: str, rows: int, columns: int, dtype: str = "f32") -> Workload:
    shape = f"{dtype}[{rows},{columns}]"
    operands = {name: shape for name in "XW" if f"{name}[" in text}
    return notation(text, None, **operands).normalised()


def passes(nest: Nest) -> int:
    """Return the number of loops over most of a row."""
    return sum(
        loop.reduce and loop.kind is LoopKind.SERIAL and loop.extent > 2
        for loop in loops(nest.body)
    )


@pytest.mark.parametrize(("text", "expected"), [(RANGE, 1), (MOMENTS, 1), (PAIR, 2), (CHAIN, 2)])
def test_reductions_of_the_same_elements_have_one_pass(text: str, expected: int) -> None:
    sketch = space_for(of_rows(text, 7, 2048), this_machine()).sketches[0]
    setting = list(sketch.default())
    names = [knob.name for knob in sketch.knobs]
    setting[names.index("software_pipelining")] = 0
    _, nest = sketch.lowered(setting)
    assert passes(nest) == expected


@pytest.mark.parametrize("text", [RANGE, MOMENTS, NORM, PAIR, CHAIN])
@pytest.mark.parametrize(("rows", "columns"), [(6, 40), (3, 129), (16, 64)])
def test_every_setting_is_legal_and_right(text: str, rows: int, columns: int) -> None:
    workload = of_rows(text, rows, columns)
    space, rng = space_for(workload, this_machine()), random.Random(0)
    assert not space.dropped
    for sketch in space.sketches:
        for _ in range(8):
            setting = tuple(rng.randrange(len(knob.values)) for knob in sketch.knobs)
            if sketch.feasible(np.asarray([setting]))[0]:
                check_meaning(workload, sketch.lowered(setting)[1])
