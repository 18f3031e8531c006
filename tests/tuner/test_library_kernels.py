"""Every operator of the library has a kernel that passes the full check, in every sketch's default
setting."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.schedules.operators import OPERATORS, build
from tilewright.schedules.sketches import space_for
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.machine.native_target import native_target

SIZES = {
    "B": 2, "C": 6, "CI": 6, "CO": 10, "D": 5, "H": 5, "I": 9, "K": 3, "L": 19, "M": 5, "N": 17,
    "S": 11, "W": 9, "batch": 2, "dim": 5, "groups": 2, "heads": 2, "seq": 9,
}  # fmt: skip
MORE = {"stride": 2, "pad": 1, "groups": 2, "out_pad": 1, "causal": 1}


@pytest.mark.parametrize("name", OPERATORS)
def test_default_kernels_are_right(name: str) -> None:
    op = OPERATORS[name]
    given = {p.name: SIZES[p.name] for p in op.params if p.default is None}
    given |= {p.name: MORE[p.name] for p in op.params if p.name in MORE}
    workload = build(name, given, epilogue="bias+relu" if op.epilogues else "").normalised()
    target = native_target(threads=2)
    for sketch in space_for(workload, target).sketches:
        trace = sketch.trace(sketch.default())
        kernel = compile_to_call(workload, trace, target)
        for case in Oracle(workload, 0, trace.rewrites).full():
            outputs = [np.full(t.shape, 7, t.dtype.numpy) for t in workload.output_tensors]
            kernel(*case.inputs, out=outputs if len(outputs) > 1 else outputs[0])
            assert case.check(outputs) is None, trace
