"""LocateExtreme: positions of extremes in one pass."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.extremes import DTYPES, drawn
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import LocateExtreme
from tilewright.schedules.sketches import space_for
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Reduction
from tilewright.schedules.workload.workload import Workload


def positions(function: str, dtype: str, rows: int = 60, columns: int = 7) -> Workload:
    text = f"P[i] = {function}(X[i,k], k)"
    return notation(text, X=f"{dtype}[{rows},{columns}]").normalised()


@pytest.mark.parametrize("parts", [0, 2, 3, 6])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("function", ["argmax", "argmin"])
def test_positions_are_those_of_numpy(function: str, dtype: str, parts: int) -> None:
    workload = positions(function, dtype)
    located = LocateExtreme("s1", parts).rewrite(workload)
    assert not any(isinstance(stage.kind, Reduction) for stage in located.stages)
    values = drawn(dtype)
    (found,) = evaluate(located, [values])
    np.testing.assert_array_equal(found, getattr(np, function)(values, axis=1))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("function", ["argmax", "argmin"])
def test_last_positions_are_found_in_order(function: str, dtype: str) -> None:
    workload = notation(f"P[i] = {function}(X[i,k], k, last)", X=f"{dtype}[60,7]").normalised()
    values = drawn(dtype)
    (found,) = evaluate(LocateExtreme("s1").rewrite(workload), [values])
    np.testing.assert_array_equal(found, 6 - getattr(np, function)(values[:, ::-1], axis=1))
    with pytest.raises(ScheduleError, match="do not find the last position"):
        LocateExtreme("s1", 3).rewrite(workload)


@pytest.mark.parametrize("parts", [0, 4])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_nests_of_the_rewritten_form_are_right(dtype: str, parts: int) -> None:
    workload = positions("argmin", dtype, 5, 19)
    check_meaning(workload, lower(workload, Trace((LocateExtreme("s1", parts),))))


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("P[i] = argmax(X[i,k], k)", "s0"),
        ("M[i] max= X[i,k]; P[i] max= where(X[i,k] == M[i], k, 19)", "s1"),
        ("M[i] max= X[i,k]; P[i] min= where(X[i,k] == M[i], k, 18)", "s1"),
        ("M[i] max= X[i,k]; P[i] min= where(X[i,k] == M[i], k, 19)", "s1"),  # where is NaN?
        ("M[i] += X[i,k]; P[i] min= where(X[i,k] == M[i], k, 19)", "s1"),
        ("M[i] max= X[i,k] + 1; P[i] min= where(X[i,k] == M[i], k, 19)", "s1"),
    ],
)
def test_other_stages_do_not_look_for_an_extreme(text: str, stage: str) -> None:
    workload = notation(text, X="f32[5,19]").normalised()
    with pytest.raises(ScheduleError, match="does not look for an extreme"):
        LocateExtreme(stage).rewrite(workload)


@pytest.mark.parametrize("parts", [-1, 1, 7, 8])
def test_the_axis_must_be_longer_than_the_parts(parts: int) -> None:
    with pytest.raises(ScheduleError, match="7 positions"):
        LocateExtreme("s1", parts).rewrite(positions("argmax", "i32"))


USED = "M[j] max= X[k,j]; P[j] min= where(X[k,j] == M[j], k, 50); Y[j] = P[j] + M[j]"


@pytest.mark.parametrize(
    ("text", "tensor", "steps"),
    [
        ("P[j] = argmax(X[k,j], k)", "f32[50,64]", (LocateExtreme("s1"),)),
        ("P[j] = argmax(X[k,j], k, last)", "f32[50,64]", (LocateExtreme("s1"),)),
        ("P[i] = argmax(X[i,k], k)", "f32[2,5000000]", ()),
        ("P[i] = argmax(X[i,k], k)", "f32[64,500]", ()),
        (USED, "i32[50,64]", ()),
    ],
)
def test_one_pass_is_chosen_where_data_would_be_read_again(
    text: str, tensor: str, steps: tuple[LocateExtreme, ...]
) -> None:
    space = space_for(notation(text, X=tensor), this_machine())
    first = space.sketches[0]
    found = first.trace(first.default()).rewrites
    assert tuple(step for step in found if isinstance(step, LocateExtreme)) == steps
