"""Random programs of arrays compute what NumPy computes, by the interpreter and by kernels."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.support.schedule_fuzz.check import CACHES, random_setting, this_machine
from tests.support.schedules.array_programs import (
    OPERATIONS,
    ArrayProgram,
    array_program,
    quotient_program,
    row_program,
)
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.reference.evaluate import evaluate

SEEDS, ROW_SEEDS, QUOTIENT_SEEDS = 60, 15, 40


def drawn(
    seed: int, program: Callable[[random.Random], ArrayProgram] = array_program
) -> ArrayProgram:
    rng = random.Random(seed)
    while True:
        try:
            return program(rng)
        except WorkloadError:  # an operation that is refused, such as a gather from a gather
            continue


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_program_computes_what_numpy_does(seed: int) -> None:
    check(drawn(seed), seed)


@pytest.mark.parametrize("seed", range(ROW_SEEDS))
def test_a_program_of_long_rows_computes_what_numpy_does(seed: int) -> None:
    check(drawn(seed, row_program), seed)


@pytest.mark.parametrize("seed", range(QUOTIENT_SEEDS))
def test_positions_of_rounded_quotients_are_those_of_numpy(seed: int) -> None:
    check(drawn(seed, quotient_program), seed)


def check(program: ArrayProgram, seed: int) -> None:
    document = tw.Workload.from_json(program.workload.to_json())
    assert document.key == program.workload.key, program.steps
    arrays = [np.asarray(x) for x in program.inputs]
    for found, expected in zip(evaluate(program.workload, arrays), program.outputs, strict=True):
        # An array without dimensions is stored as one element.
        assert np.array_equal(found.reshape(expected.shape), expected), program.steps
    target = this_machine(1 + seed % 2, caches=CACHES[seed // 2 % 2])
    some = random_setting(random.Random(seed), program.workload, target)
    for trace in (None, some):
        called = tw.build(program.workload, target, trace=trace)(*arrays)
        results = called if isinstance(called, tuple) else (called,)
        for result, expected in zip(results, program.outputs, strict=True):
            assert result.dtype == expected.dtype
            assert np.array_equal(result.reshape(expected.shape), expected), program.steps


def test_programs_have_every_operation() -> None:
    steps = {step for seed in range(200) for step in drawn(seed).steps}
    assert steps == {operation.__name__ for operation in OPERATIONS}
