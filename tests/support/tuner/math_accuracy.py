"""What tests of math functions share: CPUs to compile for, and errors in units of last places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.paths import example_target
from tests.support.tuner.targets import plain
from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Target
from tilewright.tuner.machine.native_target import detect

Array = NDArray[Any]

CPUS = ["", "x86-64", "x86-64-v3"]
"""This machine, and CPUs that compute by other instructions than a machine with AVX-512."""


def plainer(cpu: str) -> Target:
    """The machine `cpu`, an x86-64 level with at most the features of this machine; else skip."""
    native, base = detect(), plain()
    if cpu == base.cpu:
        return base
    level = example_target(cpu)
    if not {"avx2", "fma"} <= set(native.features):
        pytest.skip(f"needs a machine with the features of {cpu}")
    return replace(level, triple=native.triple)


def ulps(got: Array, want: Array, dtype: DType) -> Array:
    """|got - want| in units of the last place of `want`; denormals count in the least unit."""
    mantissa, least = (23, -126) if dtype is DType.F32 else (52, -1022)
    wide = np.longdouble if dtype is DType.F64 else np.float64
    _, exponent = np.frexp(np.where(want != 0, np.abs(want), np.longdouble(2) ** -1080))
    unit = np.ldexp(wide(1), np.maximum(exponent - 1, least) - mantissa)
    return np.asarray(np.abs(got.astype(wide) - want) / unit)
