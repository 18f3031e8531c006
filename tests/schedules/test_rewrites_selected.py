"""Reductions whose terms a comparison selects: scans of prefixes, and reads at an index of data."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.patterns import selected_prefixes, selected_terms
from tests.support.schedules.regrouping import inputs_of, same_meaning
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.algebra.bounds import solved_for
from tilewright.schedules.algebra.comparisons import holds
from tilewright.schedules.algebra.index_text import parse_condition
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import GatherSelected, ScanPrefixes, SelectOutputs
from tilewright.schedules.sketches.forms.rewriting import canonical
from tilewright.schedules.sketches.forms.spellings import form_key
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Scan
from tilewright.schedules.workload.workload import Workload


@given(st.integers(0, 2**32 - 1), st.sampled_from([selected_prefixes, selected_terms]))
@settings(max_examples=150)
def test_the_form_has_the_values_of_the_expression(
    seed: int, source: Callable[[random.Random], Workload]
) -> None:
    rng = random.Random(seed)
    try:
        workload = source(rng).normalised()
    except WorkloadError:
        return  # a sum of nothing, or types that differ
    form = canonical(workload)
    inputs = inputs_of(workload, seed)
    for before, after in zip(
        evaluate(workload, inputs), evaluate(form.workload, inputs), strict=True
    ):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
    check_meaning(form.workload, lower(workload, Trace(form.steps)))


@pytest.mark.parametrize(
    "text",
    [
        "3*k <= i + 4", "2*k >= i - 3", "k + i >= 5", "i//4 >= k//4", "(k + 3)//2 <= i",
        "5 - (2*k + 1)//3 >= i", "7*i - 2*k >= 1",
    ],
)  # fmt: skip
def test_a_condition_is_solved_for_a_variable(text: str) -> None:
    cond = parse_condition(text)
    bound = solved_for("k", cond)  # type: ignore[arg-type]
    assert bound is not None
    assert bound.limit.vars() <= {"i"}
    for i in range(-9, 10):
        limit = bound.limit.evaluate({"i": i})
        for k in range(-20, 21):
            inside = k <= limit if bound.upper else k >= limit
            assert inside == holds(cond, {"i": i, "k": k}), (i, k)


@pytest.mark.parametrize("text", ["k + k//2 <= i", "k%3 <= i", "i <= 3"])
def test_some_conditions_are_not_solved(text: str) -> None:
    assert solved_for("k", parse_condition(text)) is None  # type: ignore[arg-type]


RUNNING = "Y[i,j] += where(k <= j, A[i,k], 0.0)"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (RUNNING, "Y[i,j] = cumsum(A[i,j], j)"),
        ("Y[i,j] += where(k < j, A[i,k], 0.0)", "Y[i,j] = cumsum(A[i,j], j, exclusive)"),
        ("Y[i,j] += where(k >= j, A[i,k], 0.0)", "Y[i,j] = cumsum(A[i,j], j, reverse)"),
        ("Y[i,j] += where(k <= j, 1.0, 0.0) * A[i,k]", "Y[i,j] = cumsum(A[i,j], j)"),
        ("M[k,j] = where(j < k, 0.0, 1.0); Y[i,j] += A[i,k] * M[k,j]",
         "Y[i,j] = cumsum(A[i,j], j)"),
        ("Y[i,j] max= where(k <= j, A[i,k], -inf)", "Y[i,j] = cummax(A[i,j], j)"),
        ("Y[i,j] += where(k <= i && l <= j, A[k,l], 0.0)",
         "R[i,j] = cumsum(A[i,j], j); Y[i,j] = cumsum(R[i,j], i)"),
    ],
)  # fmt: skip
def test_a_running_reduction_has_the_form_of_the_scan(text: str, same: str) -> None:
    ranges = dict.fromkeys("ijk", 20)
    one, other = (notation(t, r, A="f32[20,20]") for t, r in ((text, ranges), (same, None)))
    assert one.key != other.key
    assert form_key(one) == form_key(other)


@pytest.mark.parametrize(
    "text",
    [
        "Y[n,d] += where(I[n] == v, T[v,d], 0.0)",
        "Y[n,d] += where(v != I[n], 0.0, T[v,d])",
        "Y[n,d] += f32(I[n] == v) * T[v,d]",
        "Y[n,d] += where(v == I[n], 1.0, 0.0) * T[v,d]",
        "H[n,v] = where(I[n] == v, 1.0, 0.0); Y[n,d] += T[v,d] * H[n,v]",
    ],
)
def test_products_with_one_hot_vectors_have_the_form_of_a_read(text: str) -> None:
    read = "Y[n,d] = T[zero(I[n]),d]"
    one, other = (
        notation(t, r, I="i32[40]", T="f32[50,8]") for t, r in ((text, {"v": 50}), (read, None))
    )
    assert form_key(one) == form_key(other)


SIZES = {"m": 12, "v": 12, "w": 6}


@pytest.mark.parametrize(
    "text",
    [
        "H[m,v] = where(J[m] == v + m, 1.0, 0.0); Y[n,d] += H[clamp(P[n]),v] * T[v,d]",
        "H[m,w] = where(w <= m, 1.0, 0.0); Y[n,w] += H[clamp(P[n]),w] * f32(J[n] == v) * T[v,w]",
        "H[m,w] = where(w <= m, 1.0, 0.0); Y[v,w] += H[clamp(P[n]),w] * f32(J[n] == v) * T[n,w]",
        "H[m,w] = where(J[clamp(m + 2)] == w, 1.0, 0.0); "
        "Y[v,w] += H[clamp(P[n]),w] * f32(J[n] == v) * T[n,w]",
    ],
)
def test_masks_that_are_read_at_data_compare_no_data_as_positions(text: str) -> None:
    """Data are indices of reads only: a position in a mask's test cannot become one."""
    ranges = {name: extent for name, extent in SIZES.items() if re.search(rf"\b{name}\b", text)}
    workload = notation(text, ranges, J="i32[12]", P="i32[12]", T="f32[12,6]").normalised()
    rng = np.random.default_rng(0)
    integers = [rng.integers(-2, 14, 12).astype(np.int32) for _ in range(2)]
    values = [*integers, rng.integers(-9, 10, (12, 6)).astype(np.float32)]
    expected = evaluate(workload, values)
    np.testing.assert_array_equal(evaluate(canonical(workload).workload, values), expected)


def test_masks_that_are_read_at_data_may_compare_what_they_read_there() -> None:
    text = "H[m,v] = where(J[m] == v, 1.0, 0.0); Y[n,d] += H[clamp(P[n]),v] * T[v,d]"
    read = "Y[n,d] = T[zero(J[clamp(P[n])]),d]"
    inputs = {"J": "i32[12]", "P": "i32[12]", "T": "f32[12,6]"}
    one, other = (notation(t, r, **inputs) for t, r in ((text, {"m": 12, "v": 12}), (read, None)))
    assert form_key(one) == form_key(other)


@pytest.mark.parametrize(
    "text",
    [
        "Y[v,d] += f32(I[n] == v) * X[n,d]",
        "Y[v,d] += X[n,d] * where(v != I[n], 0.0, 1.0)",
        "Y[v,d] += where(I[n] == v, 1.0, 0.0) * X[n,d]",
        "H[n,v] = where(I[n] == v, 1.0, 0.0); Y[v,d] += H[n,v] * X[n,d]",
    ],
)
def test_sums_of_products_with_masks_of_outputs_have_one_form(text: str) -> None:
    chosen = "Y[v,d] += where(I[n] == v, X[n,d], 0.0)"
    one, other = (
        notation(t, {"v": 50}, I="i32[40]", X="f32[40,8]").normalised() for t in (text, chosen)
    )
    form = same_meaning(one, (SelectOutputs("s1" if "H[" in text else "s0"),))
    assert canonical(one).steps == (SelectOutputs("s1" if "H[" in text else "s0"),)
    assert form_key(one) == form_key(other) or "!=" in text  # the operands stay in their order
    assert canonical(form).steps == canonical(other).steps == ()


@pytest.mark.parametrize(
    "text",
    [
        "Y[v,d] += where(I[n] == v, X[n,d], 0.0)",
        "Y[v,d] += where(I[n] == v, X[n,d], 1.0)",
        "Y[v,d] += X[n,d] * X[v,d]",
        "Y[v,d] max= f32(I[n] == v) * X[n,d]",
    ],
)
def test_other_bodies_stay_as_they_are(text: str) -> None:
    workload = notation(text, I="i32[40]", X="f32[40,8]", ranges={"v": 40}) if "I[" in text else (
        notation(text, X="f32[40,8]", ranges={"n": 40})
    )  # fmt: skip
    with pytest.raises(ScheduleError, match="no mask selects outputs"):
        SelectOutputs("s0").rewrite(workload.normalised())


def test_integers_at_the_ends_of_their_type_select_nothing() -> None:
    workload = notation(
        "Y[n] += where(v + 3 == I[n], T[v], 0)", I="i32[6]", T="i32[5]"
    ).normalised()
    form = same_meaning(workload, (GatherSelected("s0", "r0"),))
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    data = np.array([least, most, least + 2, 3, 7, 8], np.int32), np.arange(1, 6, dtype=np.int32)
    (found,) = evaluate(form, list(data))
    np.testing.assert_array_equal(found, [0, 0, 0, 1, 5, 0])


def test_a_term_keeps_what_is_infinite_elsewhere_away() -> None:
    """Terms that are not selected have no effect, also if they are infinite."""
    workload = notation(RUNNING, {"j": 9}, A="f32[1,9]")
    form = canonical(workload.normalised()).workload
    values = np.ones((1, 9), np.float32)
    values[0, 5] = np.inf
    for some in (workload, form):
        np.testing.assert_array_equal(evaluate(some, [values])[0], [[1, 2, 3, 4, 5, *[np.inf] * 4]])


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("Y[i,j] += where(k <= j, A[j,k], 0.0)", "r0"),  # each output has terms of its own
        ("Y[i,j] += where(k <= j && k >= j - 2, A[i,k], 0.0)", "r0"),  # a window
        ("Y[i,j] += where(k <= j, A[i,k], 1.0)", "r0"),
        ("Y[i,j] max= where(k <= j, A[i,k], 0.0)", "r0"),
        ("Y[i,j] += where(k%5 <= j, A[i,k], 0.0)", "r0"),
        ("Y[i,j] += A[i,k] + where(k <= j, A[i,k], 0.0)", "r0"),
        ("Y[i,j] += where(k <= j, A[i,k], 0.0)", "r1"),
        ("Y[i,j] += where(k <= r, A[i,k], 0.0)", "r0"),
    ],
)
def test_other_reductions_are_no_scans(text: str, axis: str) -> None:
    ranges = {name: 20 for name in "ijkr" if re.search(rf"\b{name}\b", text)}
    workload = notation(text, ranges, A="f32[20,20]").normalised()
    with pytest.raises(ScheduleError, match="reduces no prefixes"):
        ScanPrefixes("s0", axis).rewrite(workload)


@pytest.mark.parametrize(
    "text",
    [
        "Y[n,d] += where(I[v] == v, T[v,d], 0.0)",
        "Y[n,d] += where(I[n] == 2*v, T[v,d], 0.0)",
        "Y[n,d] += where(I[n] <= v, T[v,d], 0.0)",
        "Y[n,d] += where(I[n] == v, T[v,d], 1.0)",
        "Y[n,d] += where(I[n] == v, f32(v) * T[v,d], 0.0)",
        "Y[n,d] += where(I[n] == v && d <= v, T[v,d], 0.0)",
        "Y[n,d] += T[v,d] + where(I[n] == v, T[v,d], 0.0)",
        "Y[n,d] *= where(I[n] == v, T[v,d], 0.0)",
    ],
)
def test_other_reductions_are_no_reads(text: str) -> None:
    workload = notation(text, {"n": 50, "d": 50, "v": 50}, I="i32[50]", T="f32[50,50]").normalised()
    with pytest.raises(ScheduleError, match="data select no terms"):
        GatherSelected("s0", "r0").rewrite(workload)


def test_short_prefixes_and_large_intermediates_stay_reductions() -> None:
    """A scan of all positions for a few results is more work, or does not fit."""
    few = notation("Y[j] += where(k <= j, A[k], 0.0)", {"j": 3}, A="f32[3]")
    large = notation(
        "Y[i,j] += where(k <= j, A[k] * B[i], 0.0)", {"j": 9}, A="f32[50]", B="f32[50]"
    )
    for workload in few, large:
        form = canonical(workload.normalised()).workload
        assert not any(isinstance(stage.kind, Scan) for stage in form.stages)


def stages(workload: Workload) -> list[str]:
    return [type(stage.kind).__name__ for stage in workload.stages]


def test_other_reduction_axes_are_reduced_before_the_scan() -> None:
    workload = notation(
        "Y[i,j] += where(k <= 2*j + 3, A[i,k] * W[r,k], 0.0)",
        {"j": 30},
        A="f32[20,30]",
        W="f32[7,30]",
    ).normalised()
    form = same_meaning(workload, (ScanPrefixes("s0", "r0"),))
    assert stages(form) == ["Reduction", "Scan", "Elementwise"]
