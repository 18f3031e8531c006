"""Full checks of kernels that are called in this process."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.schedules.rewrites import Rewrite
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.oracle import Oracle


@lru_cache(maxsize=16)
def full_cases(workload: Workload, rewrites: tuple[Rewrite, ...]) -> tuple[Case, ...]:
    """The cases of a full check of every schedule with these rewrites: inputs, bounds of outputs.
    To compute them takes longer than to compile and to run a small kernel."""
    return tuple(Oracle(workload, 0, rewrites).full())


def problems(workload: Workload, trace: Trace, target: Target) -> list[str]:
    """What the full check says of the kernel of a schedule."""
    kernel = compile_to_call(workload, trace, target)
    found = []
    for case in full_cases(workload, trace.rewrites):
        outputs = [np.full(t.shape, 7, t.dtype.numpy) for t in workload.output_tensors]
        kernel(*case.inputs, out=outputs if len(outputs) > 1 else outputs[0])
        problem = case.check(outputs)
        if problem is not None:
            found.append(problem)
    return found


def check_default_kernels(workload: Workload, target: Target) -> None:
    for sketch in space_for(workload, target).sketches:
        trace = sketch.trace(sketch.default())
        assert problems(workload, trace, target) == [], trace
