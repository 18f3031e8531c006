"""What `python -m tests.fuzz` found in generated code, each as small as it came."""

from __future__ import annotations

import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair
from tests.support.schedules.workloads import notation
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    Fuse,
    Partition,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace


@pytest.mark.parametrize(("dtype", "n"), [("bf16", 5), ("i8", 5), ("u8", 9), ("bf16", 4)])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_a_tail_of_one_narrow_element_is_written_alone(dtype: str, n: int, bits: int) -> None:
    # LLVM wrote 4 bytes for a masked store of one lane of a vector truncated from 32 bits.
    source = "f32" if dtype == "bf16" else "i32"
    workload = notation(f"Y[i] = {dtype}(A[i])", A=f"{source}[{n}]")
    steps = (Split("s0.d0", 4 if n > 4 else 3), Vectorize("s0.d0i"), Unroll("s0.d0o"))
    check_pair(Pair("steps", workload, Trace(steps), 1, bits))


def test_private_arrays_of_two_types_in_one_place_have_addresses_of_their_own() -> None:
    # q4 (i8) and q3 (i32) lie at the start of the workspace, one after the other is done; element
    # 1 of q3 was read at the address of element 1 of q4.
    workload = notation(
        "Y[i,j,k] = i8(A[3] + B[i,k])", {"i": 3, "j": 2, "k": 5}, A="i32[4]", B="i32[3,5]"
    )
    steps = (
        Unroll("s0.d2"),
        Partition("s0.d0", 1),
        Fuse("s0.d0.t", "s0.d1.t"),
        CacheWrite("s0", "s0.d1", "q4", register=False),
        CacheRead("i1", "s0.d0.tf", "q3", register=False),
        Split("q3.1", 3),
    )
    check_pair(Pair("steps", workload, Trace(steps), 1, 128))


def test_a_copy_around_reads_by_divisions_has_whole_steps() -> None:
    # With one iteration, (-i - 1) % 8 is 7, which its text does not say.
    workload = notation(
        "T[x,y] = A[y] + x; Y[i,j] = T[1, 3] + T[(7 * i + 7) % 8, (4 * i) % 4]",
        {"x": 9, "i": 1, "j": 4},
        A="i32[4]",
    )
    check_pair(Pair("steps", workload, Trace((CacheRead("s0", "s1.d0", "q0"),)), 1, 128))
