"""A product of bytes, and the schedule that brings it into the order of an instruction."""

from __future__ import annotations

from tests.support.schedules.workloads import notation
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    Primitive,
    Reorder,
    Split,
    Tensorize,
    TransformLayout,
    Vectorize,
)
from tilewright.schedules.workload.workload import Workload


def narrow(m: int = 3, n: int = 32, k: int = 8) -> Workload:
    """C = A B of unsigned and signed bytes, in 32 bits."""
    return notation("C[i,j] += i32(A[i,k]) * i32(B[k,j])", A=f"u8[{m},{k}]", B=f"i8[{k},{n}]")


PACKED = (
    CacheRead("i1", "", "p"),
    TransformLayout("p", ((0, 4),), ((0, 1), (1, 0), (0, 2))),
)
"""B with four rows of a column side by side."""


def schedule(*then: Primitive, lanes: int = 16, register: bool = True) -> tuple[Primitive, ...]:
    """Lanes of a row of C in registers, four steps of the sum at a time."""
    return (
        *PACKED,
        Split("s0.d1", lanes),
        Split("s0.r0", 4),
        Reorder(("s0.d0", "s0.d1o", "s0.r0o", "s0.d1i", "s0.r0i")),
        CacheWrite("s0", "s0.d1o", "c", register),
        Vectorize("s0.d1i.init"),
        Vectorize("s0.d1i.out"),
        *then,
    )


MARK = Tensorize("s0.d1i", "vpdpbusd")
