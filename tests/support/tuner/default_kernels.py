"""Full checks of the default kernel of every sketch of a workload."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.judge.oracle import Oracle


def check_default_kernels(workload: Workload, target: Target) -> None:
    for sketch in space_for(workload, target).sketches:
        trace = sketch.trace(sketch.default())
        kernel = compile_to_call(workload, trace, target)
        for case in Oracle(workload, 0, trace.rewrites).full():
            outputs = [np.full(t.shape, 7, t.dtype.numpy) for t in workload.output_tensors]
            kernel(*case.inputs, out=outputs if len(outputs) > 1 else outputs[0])
            assert case.check(outputs) is None, trace
