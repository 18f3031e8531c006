"""Which reads are zero because they lie outside of their tensor."""

from __future__ import annotations

from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.operators import build
from tilewright.schedules.workload.padding import PaddedRead, padded_reads


def test_a_padded_convolution_reads_zeros_before_and_after() -> None:
    workload = build("conv2d_nhwc", {"n": 1, "h": 5, "w": 6, "ci": 2, "co": 3, "k": 3, "pad": 1})
    found = padded_reads(workload)
    name = workload.inputs[0].name
    assert found == (PaddedRead(name, 1, 5, -1, 5), PaddedRead(name, 2, 6, -1, 6))
    assert str(found[0]) == f"{name} dimension 1 (1 before and 1 after its 5)"


def test_an_index_that_is_off_by_one_is_shown() -> None:
    workload = from_notation("Y[i] = X[i+1]", {"X": ("f32", (8,))}, {"i": 8})
    assert padded_reads(workload) == (PaddedRead("X", 0, 8, 1, 8),)


def test_what_lies_inside_or_is_not_zero_outside_is_no_padding() -> None:
    inside = from_notation("C[i,j] += A[i,k]*B[k,j]", {"A": ("f32", (2, 3)), "B": ("f32", (3, 4))})
    pooled = from_notation(
        "Y[i] max= where(0 <= i+r-1 < 8, X[i+r-1], -inf)", {"X": ("f32", (8,))}, {"r": 3, "i": 8}
    )
    assert padded_reads(inside) == ()
    assert padded_reads(pooled) == ()
