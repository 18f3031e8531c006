"""Kernels of the stencil sketch: any setting gives the result, for one thread and for two."""

from __future__ import annotations

import random

import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.spaces import settings
from tests.support.schedules.stencils import stencil_program
from tilewright.schedules.sketches import space_for


@pytest.mark.parametrize("seed", range(100, 112))
def test_kernels_of_random_stencils(seed: int) -> None:
    workload = stencil_program(random.Random(seed))
    for threads, bits in ((1, 512), (2, 256)):
        for sketch in space_for(workload, this_machine(threads, bits)).sketches:
            if "stencils" in sketch.name:
                for setting in settings(sketch, 3, seed):
                    trace = sketch.trace(setting)
                    check_pair(Pair(sketch.name, workload, trace, threads, bits))
