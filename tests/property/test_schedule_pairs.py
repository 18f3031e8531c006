"""A sample of what `benchmarks/fuzz_schedules.py` runs in thousands: any legal schedule of any
expression computes it; any illegal step raises ScheduleError and nothing else."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.interpreter.interpret import interpret_for
from tests.support.schedule_fuzz.check import (
    INTERPRETED_EXECUTIONS,
    Pair,
    check_pair,
    executions,
    random_pair,
    usable_case,
)
from tests.support.schedule_fuzz.traces import random_trace
from tests.support.schedule_fuzz.workloads import random_workload
from tilewright.schedules.lowering.lower import plain_nest, start
from tilewright.schedules.primitives import PRIMITIVES, Primitive
from tilewright.schedules.primitives.primitive import spelling_of, spellings_of

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


@given(SEEDS)
@settings(max_examples=60)
def test_primitives_keep_the_meaning_of_a_nest_that_nobody_has_cleaned(seed: int) -> None:
    rng = random.Random(seed)
    workload = random_workload(rng, 1 << 11)
    trace, _ = random_trace(rng, workload, 15)
    rewritten, primitives = start(workload, trace)
    nest = primitives.apply(plain_nest(rewritten))
    case = usable_case(Pair("steps", workload, trace, 1))
    if case is not None and executions(nest) <= INTERPRETED_EXECUTIONS:
        assert case.check(interpret_for(workload, nest, list(case.inputs))) is None


def test_random_traces_hold_every_kind_of_step() -> None:
    """A kind that is refused wherever it is drawn would be tested by none of the others here.

    Tensorize needs a loop whose body is exactly the semantics of an instruction, which random
    workloads never have: it has tests of its own.
    """
    missing = {spelling.name for kind in PRIMITIVES for spelling in spellings_of(kind)}
    missing.remove("Tensorize")
    for seed in range(2000):
        rng = random.Random(seed)
        trace, _ = random_trace(rng, random_workload(rng, 1 << 11))
        missing -= {spelling_of(step).name for step in trace.steps if isinstance(step, Primitive)}
        if not missing:
            return
    raise AssertionError(f"never legal: {sorted(missing)}")
