"""Every workload has cases: of any element type, of one element, and as many as are planned."""

from __future__ import annotations

import pytest

from tilewright.schedules.frontend.notation import from_notation
from tilewright.tuner.judge.cases import WorkloadCases
from tilewright.tuner.judge.oracle import Oracle


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"])
@pytest.mark.parametrize("extent", [1, 2, 3, 40])
@pytest.mark.parametrize(
    "text",
    ["Y[i] max= max(X[i,j], X[j,i])", "Y[i] += X[i,j]*X[j,i]", "Y[i,j] = X[j,i] - X[i,j]"],
)
def test_a_full_check_has_cases_for_every_type_and_size(dtype: str, extent: int, text: str) -> None:
    workload = from_notation(text, {"X": (dtype, (extent, extent))})
    cases = WorkloadCases(Oracle(workload))
    found = list(cases.full())
    assert 1 <= len(found) <= cases.planned
    for case in found:
        assert [a.shape for a in case.inputs] == [(extent, extent)]
