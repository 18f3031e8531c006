"""LLVM's time for a block of n instructions grows faster than n."""

from __future__ import annotations

import pytest

from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.primitives import Split, Unroll, Vectorize
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import llvm_text
from tilewright.tuner.emit.object_code import optimised
from tilewright.tuner.machine.native_target import native_target

EIGHT_VECTORS = Trace(
    (Split("s0.d0", 16), Split("s0.d0o", 8), Vectorize("s0.d0i"), Unroll("s0.d0oi"))
)


def terms(count: int) -> Workload:
    each = (f"exp(tanh(erf(sigmoid(A[i]*{k}.5))))" for k in range(count))
    return from_notation("S[i] = " + "+".join(each), {"A": ("f32", (1000,))})


@pytest.mark.parametrize("count", [1, 29])
def test_math_functions_are_written_out_unless_they_are_very_many(count: int) -> None:
    workload, target = terms(count), native_target(probe=False)
    text = llvm_text(workload, EIGHT_VECTORS, target)
    functions = [line for line in text.splitlines() if "@tw_" in line and "define" in line]
    assert functions
    assert all(("noinline" in line) == (count == 29) for line in functions)
    assert all(("alwaysinline" in line) == (count == 1) for line in functions)
    assert len(str(optimised(text, target)).splitlines()) < 20_000
