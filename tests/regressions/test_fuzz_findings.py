"""What `python -m tests.fuzz` found in generated code, each as small as it came."""

from __future__ import annotations

import pytest

from schedules.primitives import Split, Unroll, Vectorize
from schedules.trace import Trace
from tests.schedule_fuzz.cases import notation
from tests.schedule_fuzz.check import Pair, check_pair


@pytest.mark.parametrize(("dtype", "n"), [("bf16", 5), ("i8", 5), ("u8", 9), ("bf16", 4)])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_a_tail_of_one_narrow_element_is_written_alone(dtype: str, n: int, bits: int) -> None:
    # LLVM wrote 4 bytes for a masked store of one lane of a vector truncated from 32 bits.
    source = "f32" if dtype == "bf16" else "i32"
    workload = notation(f"Y[i] = {dtype}(A[i])", A=f"{source}[{n}]")
    steps = (Split("s0.d0", 4 if n > 4 else 3), Vectorize("s0.d0i"), Unroll("s0.d0o"))
    check_pair(Pair("steps", workload, Trace(steps), 1, bits))
