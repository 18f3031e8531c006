"""Mistakes of every class of `wrong_kernels` fail the full check, and the same kernels without
them pass it. `TIMES=2` tries all of them, which takes minutes."""

from __future__ import annotations

import platform
import shutil

import pytest

from tests.support.times import TIMES
from tests.support.tuner.wrong_kernels import KERNELS, WrongKernel, check
from tilewright.schedules.record import MeasureStatus

SAMPLE = (
    "fresh min f32 workspace",
    "fresh max i8",
    "fresh sum of what is small",
    "lies B at 52",
    "lies C at half a vector, A at a line",
    "share writes back after its rows",
    "share writes back beside its columns",
    "share writes back in the workspace",
    "special i32 of NaN",
    "special inf in the second of a product of 4",
    "special NaN in a small sum",
    "range exp above 50",
    "range sqrt below 1e-3",
    "range quotient below -1000",
    "range root of a small sum of squares",
    "team n == 11 && t == 4, for 16",
    "calls w[0] == 50, for 2",
)
TRIED = [k for k in KERNELS if TIMES > 1 or k.name in SAMPLE]

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="needs a C compiler (cc); stores are watched on x86-64",
)


@pytest.mark.parametrize("kernel", TRIED, ids=lambda kernel: kernel.name)
def test_a_mistake_in_a_right_kernel_fails_the_full_check(kernel: WrongKernel) -> None:
    right, wrong = check(kernel)
    assert right["status"] == MeasureStatus.OK, right["detail"]
    assert wrong["status"] == MeasureStatus.WRONG_RESULT, wrong


def test_the_sample_names_kernels_there_are() -> None:
    names = [kernel.name for kernel in KERNELS]
    assert set(SAMPLE) <= set(names)
    assert len(set(names)) == len(names) >= 100
