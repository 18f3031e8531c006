"""Every operator of the library has a kernel that passes the full check, in every sketch's default
setting."""

from __future__ import annotations

import pytest

from tests.support.tuner.default_kernels import check_default_kernels
from tilewright.schedules.operators import OPERATORS, build
from tilewright.tuner.machine.native_target import native_target

SIZES = {
    "B": 2, "C": 6, "CI": 6, "CO": 10, "D": 5, "H": 5, "I": 9, "K": 3, "L": 19, "M": 5, "N": 17,
    "S": 11, "V": 23, "W": 9, "batch": 2, "dim": 5, "groups": 2, "heads": 2, "seq": 9,
}  # fmt: skip
MORE = {"stride": 2, "pad": 1, "groups": 2, "out_pad": 1, "causal": 1}


@pytest.mark.parametrize("name", OPERATORS)
def test_default_kernels_are_right(name: str) -> None:
    op = OPERATORS[name]
    given = {p.name: SIZES[p.name] for p in op.params if p.default is None}
    given |= {p.name: MORE[p.name] for p in op.params if p.name in MORE}
    workload = build(name, given, epilogue="bias+relu" if op.epilogues else "").normalised()
    check_default_kernels(workload, native_target(threads=2))
