"""A few seconds of what `python -m tests.fuzz` runs for hours, and of the fuzzer itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz.cases import KINDS, run_case
from tests.fuzz.computation import Bin, Computation, IxAdd, IxConst, IxVar, Num, Read, Stage, Tensor
from tests.fuzz.evaluate import evaluate
from tests.fuzz.generate import random_computation
from tests.fuzz.shrink import shrunk

CASES = {"documents": 12, "spaces": 80, "traces": 25, "fronts": 40, "mutations": 8}


@pytest.mark.parametrize("kind", list(KINDS))
def test_random_computations(kind: str) -> None:
    found = [run_case(kind, 11, number) for number in range(CASES[kind])]
    assert [case for case in found if "failure" in case] == []


def window() -> Computation:
    """`Y[i] += X[i + r - 1] * 2` with i in 0..3, r in 0..2: zero outside of X."""
    read = Read("X", (IxAdd(IxAdd(IxVar("i"), IxVar("r")), IxConst(-1)),), "f32")
    body = Bin("mul", read, Num(2.0, "f32"), "f32")
    stage = Stage("Y", "f32", (("i", 4),), body, "sum", (("r", 3),))
    return Computation((Tensor("X", "f32", (4,)),), (stage,))


def test_the_evaluator_knows_what_is_exact() -> None:
    whole = evaluate(window(), {"X": np.array([1, 2, 3, 4], np.float32)})
    assert whole["Y"] == [(6.0, 0.0), (12.0, 0.0), (18.0, 0.0), (14.0, 0.0)]
    tenth = evaluate(window(), {"X": np.full(4, 0.1, np.float32)})["Y"]
    assert all(value is not None and 0 < value[1] < 1e-5 for value in tenth)


def test_a_failure_is_made_small() -> None:
    rng = random.Random(5)

    def fails(computation: Computation) -> bool:
        return any(s.reducer == "sum" for s in computation.stages)

    found = next(c for c in (random_computation(rng) for _ in range(99)) if fails(c))
    small = shrunk(found, fails)
    assert len(small.stages) == 1
    assert small.points <= 2
