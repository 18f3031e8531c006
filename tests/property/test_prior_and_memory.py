"""The prior of windows over tensors beyond the caches is no shorter than reading them takes."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import this_machine
from tilewright.costmodel.machine import compute_dtype, machine_for
from tilewright.costmodel.prior import Prior
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Cache
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.machine.least_work import least_bytes

LAST_CACHE = 8192
CACHES = (Cache(1024, 2), Cache(4096, 4), Cache(LAST_CACHE, 4, shared=True))


def windows(rng: random.Random) -> Workload:
    """Windows that cover an image, as sums or written out, in one pass or one for each axis."""
    channels, high, wide = rng.choice((1, 3, 8)), rng.randint(8, 24), rng.randint(24, 60)
    down, right = rng.randint(1, 5), rng.randint(1, 5)
    rows, columns = down + rng.randint(0, 2), right + rng.randint(0, 2)
    shape = (channels, (high - 1) * down + rows, (wide - 1) * right + columns)
    tensors, sizes = {"X": ("f32", shape)}, {"h": high, "w": wide}
    taps = [f"X[c,{down}*h + {r},{right}*w + {q}]" for r in range(rows) for q in range(columns)]
    of_rows = " + ".join(f"X[c,{down}*h + {r},v]" for r in range(rows))
    of_columns = " + ".join(f"R[c,h,{right}*w + {q}]" for q in range(columns))
    total = f"S[c,h,w] += X[c,{down}*h + r,{right}*w + q]"
    text, more = rng.choice(
        (
            (total, {"r": rows, "q": columns}),
            (f"{total}; Y[c,h,w] = S[c,h,w]*S[c,h,w]", {"r": rows, "q": columns}),
            (f"Y[c,h,w] = {' + '.join(taps)}", {}),
            (f"R[c,h,v] = {of_rows}; Y[c,h,w] = {of_columns}", {"v": shape[-1]}),
        )
    )
    return from_notation(text, tensors, {**sizes, **more})


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]))
@settings(max_examples=60)
def test_no_window_is_predicted_to_be_faster_than_memory(seed: int, threads: int) -> None:
    workload, target = windows(random.Random(seed)), this_machine(threads, caches=CACHES)
    if least_bytes(workload) < 4 * LAST_CACHE:  # may stay in the cache from call to call
        return
    machine = machine_for(target, compute_dtype(workload))
    least = least_bytes(workload) / machine.bandwidth["memory"][threads - 1]
    space = space_for(workload, target)
    prior, rng = Prior(space), np.random.default_rng(seed)
    for number, sketch in enumerate(space.sketches):
        sizes = [len(knob.values) for knob in sketch.knobs]
        drawn = rng.integers(0, sizes, (50, len(sizes)))
        settings = np.vstack([np.asarray([sketch.default()]), drawn[sketch.feasible(drawn)]])
        assert (prior.analyse(number, settings).secs >= 0.9 * least).all(), sketch.name
