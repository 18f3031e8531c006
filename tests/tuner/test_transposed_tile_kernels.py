"""Kernels that compute a reduction and transpose it row by row pass the full check, with NaN and
infinities."""

from __future__ import annotations

import pytest

from benchmarks.transposed import Convolution, definition, library
from tests.support.schedule_fuzz.check import this_machine
from tests.support.tuner.default_kernels import check_default_kernels
from tilewright.schedules.sketches import space_for

CONVOLUTIONS = {
    "stride 2": Convolution.of(2, batch=2, size=9, ci=3, co=17, kernel=3, stride=2, pad=1),
    "more phases than taps": Convolution.of(
        2, batch=2, size=(5, 7), ci=4, co=16, kernel=3, stride=5, pad=1, dilation=2
    ),
    "grouped volume": Convolution.of(
        3, size=(2, 3, 6), ci=4, co=16, kernel=3, stride=2, pad=1, groups=2
    ),
    "zeros between rows": Convolution.of(
        2, batch=2, size=(5, 9), ci=4, co=16, kernel=3, stride=(2, 3), pad=1, dilation=(2, 1)
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize(("threads", "bits"), [(1, 512), (2, 256)])
def test_default_kernels_pass_the_full_check(name: str, threads: int, bits: int) -> None:
    machine = this_machine(threads, bits)
    for spelling in (library, definition):
        workload = spelling(CONVOLUTIONS[name])
        names = [sketch.name for sketch in space_for(workload, machine).sketches]
        assert any("tile_transpose" in each for each in names), names
        check_default_kernels(workload, machine)
