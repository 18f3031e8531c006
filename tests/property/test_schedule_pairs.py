"""A sample of what `benchmarks/fuzz_schedules.py` runs in thousands: any legal schedule of any
expression computes it; any illegal step raises ScheduleError and nothing else."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule_fuzz.check import check_pair, random_pair
from tests.schedule_fuzz.traces import random_trace
from tests.schedule_fuzz.workloads import random_workload

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
@settings(max_examples=120)
def test_interpreter_kernel_and_numpy_agree_on_every_pair(seed: int) -> None:
    pair, _ = random_pair(random.Random(seed), most_points=1 << 13, most_steps=15)
    check_pair(pair)


@given(SEEDS)
@settings(max_examples=150)
def test_illegal_steps_raise_schedule_errors_and_legal_ones_leave_well_formed_nests(
    seed: int,
) -> None:
    rng = random.Random(seed)
    random_trace(rng, random_workload(rng, 1 << 13))
