"""Any rewrite of any expression is refused or means the same, also where no rule proposes it."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.patterns import random_pattern
from tests.support.schedule_fuzz.rewriting import again, check_step, legal_steps, small_inputs
from tests.support.schedule_fuzz.workloads import random_workload
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.rewrites import REWRITES, Winograd
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

SEEDS = st.integers(0, 2**32 - 1)


def drawn(rng: random.Random) -> Workload:
    found = random_pattern(rng) if rng.random() < 0.6 else random_workload(rng, 1 << 12)
    return found.stored()


@given(SEEDS)
@settings(max_examples=60)
def test_legal_rewrites_keep_the_meaning(seed: int) -> None:
    rng = random.Random(seed)
    form = drawn(rng)
    inputs = small_inputs(rng, form)
    for step in legal_steps(rng, form):
        made, shaped = check_step(form, step, inputs)
        any_kind = rng.sample(list(REWRITES), len(REWRITES))
        others = [*islice(again(step, made), 2), *islice(legal_steps(rng, made, 1, any_kind), 1)]
        for other in others:
            check_step(made, other, shaped)
        try:
            lower(form, Trace((step,)))
        except ScheduleError:  # a read that is not proved in bounds
            continue


def test_every_kind_of_rewrite_is_drawn() -> None:
    missing = {kind.__name__ for kind in REWRITES} - {Winograd.__name__}
    for seed in range(400):
        rng = random.Random(seed)
        form = drawn(rng)
        missing -= {type(step).__name__ for step in legal_steps(rng, form, 1)}
        if not missing:
            return
    raise AssertionError(f"never legal: {sorted(missing)}")
