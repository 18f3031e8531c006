"""Kernels of reductions of tuples: every setting agrees with the reference, and every right kernel
is accepted."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, random_setting, this_machine
from tests.support.schedule_fuzz.liberal import liberal_outputs
from tests.support.schedule_fuzz.tuples import random_tuples
from tilewright.schedules.workload.size import iterations
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge.oracle import Oracle

MOST_POINTS = 1 << 12


def drawn(rng: random.Random) -> Workload:
    while True:
        workload = random_tuples(rng)
        if iterations(workload) <= MOST_POINTS:
            return workload


@pytest.mark.parametrize("seed", range(40))
def test_kernels_of_random_settings_agree(seed: int) -> None:
    rng = random.Random(seed)
    workload, threads, bits = drawn(rng), rng.choice((1, 2)), rng.choice((128, 256, 512))
    trace = random_setting(rng, workload, this_machine(threads, bits))
    check_pair(Pair("knobs", workload, trace, threads, bits))


@pytest.mark.parametrize("seed", range(12))
def test_right_kernels_are_accepted_in_every_case(seed: int) -> None:
    rng = random.Random(seed)
    workload = drawn(rng)
    for number, case in enumerate(Oracle(workload, check_secs=0.1).full()):
        draw = np.random.default_rng(1000 * seed + number)
        assert case.check(liberal_outputs(workload, case.inputs, draw)) is None, case.kind
