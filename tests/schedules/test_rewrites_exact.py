"""Rewrites that only regroup: products in steps, and a stage with another axis last."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.interpreter.interpret import interpret
from tests.support.schedules.regrouping import MACHINE, expression, inputs_of, same_meaning
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.lowering.lower import lower, plain_nest
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import PermuteAxes, PrecomputeFactors, Rewrite
from tilewright.schedules.rewrites.precompute_factors import factors_of
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.orders import permute_axes
from tilewright.schedules.sketches.forms.products import precompute_factors
from tilewright.schedules.trace import Trace

PRODUCTS = {
    "diagonal between": (
        "C[i,j] += A[i,k] * d[k] * B[k,j]", "A=f32[40,30] d=f32[30] B=f32[30,50]", 2,
    ),
    "factors of the result": (
        "C[i,j] += l[i] * A[i,k] * B[k,j] * r[j]",
        "l=f32[30] A=f32[30,60] B=f32[60,31] r=f32[31]", 2,
    ),
    "chain of matrices": (
        "Y[a,b] += G[i,j] * A[a,i] * B[b,j]", "G=f32[14,13] A=f32[17,14] B=f32[19,13]", 2,
    ),
    "one tensor twice": (
        "y[n] += X[n,i] * M[i,j] * X[n,j]", "X=f32[33,17] M=f32[17,17]", 2,
    ),
    "common operand of rows": (
        "Y[i,r] += T[i,j,k] * B[j,r] * C[k,r]", "T=f32[41,7,5] B=f32[7,24] C=f32[5,24]", 2,
    ),
    "function of one operand": (
        "C[i,j] += (A[i,k] * sigmoid(A[i,k])) * B[k,j]", "A=f32[20,30] B=f32[30,33]", 2,
    ),
    "whole numbers": (
        "C[i,j] += A[i,k] * d[k] * B[k,j]", "A=i32[40,30] d=i32[30] B=i32[30,50]", 2,
    ),
    "padded": (
        "Y[t,o] += X[t+r-1,c] * a[c] * W[r,c,o]", "X=f32[30,8] a=f32[8] W=f32[3,8,24]", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_in_steps_mean_the_same(name: str) -> None:
    text, tensors, stages = PRODUCTS[name]
    workload = expression(text, tensors).allowing(1e-6)
    steps = precompute_factors(Form(workload)).steps
    form = same_meaning(workload, steps)
    assert steps
    assert len(form.stages) == stages


def test_a_factor_leaves_a_sum_of_floats_only_where_an_error_is_allowed() -> None:
    unasked = {"diagonal between", "factors of the result", "common operand of rows"}
    unasked |= {"function of one operand", "whole numbers", "padded"}
    found = {
        name
        for name, (text, tensors, _) in PRODUCTS.items()
        if any(precompute_factors(Form(expression(text, tensors))).steps)
    }
    assert found == unasked
    for name in PRODUCTS.keys() - found:
        text, tensors, _ = PRODUCTS[name]
        workload = expression(text, tensors)
        (step, *_) = precompute_factors(Form(workload.allowing(1e-6))).steps
        with pytest.raises(ScheduleError, match="would leave the sum over r"):
            step.rewrite(workload)
        whole = expression(text, tensors.replace("f32", "i32"))
        assert precompute_factors(Form(whole)).steps, "integers do not tell the forms apart"


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("name", PRODUCTS)
def test_unasked_rewrites_keep_infinities_nan_and_signs(name: str) -> None:
    """Stage by stage, each sum in the order in which it is written."""
    text, tensors, _ = PRODUCTS[name]
    workload = expression(text, tensors)
    steps = precompute_factors(Form(workload)).steps
    if not steps or "i32" in tensors:
        return
    rng = np.random.default_rng(3)
    odds = np.array([1, 1, 20, 20, 20, 20, 0.2, 0.2, 0.1])
    inputs = [
        rng.choice(SPECIAL, t.shape, p=odds / odds.sum()).astype(np.float32)
        for t in workload.inputs
    ]
    plain = interpret(plain_nest(workload), inputs)
    stepped = interpret(lower(workload, Trace(steps)), inputs)
    for a, b in zip(plain, stepped, strict=True):
        assert (np.isnan(a) == np.isnan(b)).all()
        assert (np.isinf(a) == np.isinf(b)).all()
        assert (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all()
        assert np.isnan(a).any()


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", "A=f32[40,30] B=f32[30,50]"),
        ("C[i,j] max= A[i,k] * d[k] * B[k,j]", "A=f32[40,30] d=f32[30] B=f32[30,50]"),
        ("C[i,j] += relu(A[i,k]) * B[k,j]", "A=f32[40,30] B=f32[30,50]"),
        ("Y[t,o] += X[t+r-1,c] * W[r,c,o]", "X=f32[30,8] W=f32[3,8,24]"),
        ("y[i] += a[i] * b[i] * c[i]", "a=f32[40] b=f32[40] c=f32[40]"),
    ],
)
def test_nothing_is_taken_apart_that_gains_nothing(text: str, tensors: str) -> None:
    if text.startswith("y[i] +="):
        text = text.replace("y[i]", "y[0]")
    assert precompute_factors(Form(expression(text, tensors))).steps == ()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_choice_of_factors_means_the_same(data: st.DataObject) -> None:
    """Random products over axes i, j (kept) and k, l (summed), and any factors of them."""
    extents = {n: data.draw(st.integers(1, 5), n) for n in "ijkl"}
    count = data.draw(st.integers(2, 4), "factors")
    axes = [
        "".join(sorted(data.draw(st.sets(st.sampled_from("ijkl"), min_size=1, max_size=3))))
        for _ in range(count)
    ]
    axes.append("ijkl")
    terms = " * ".join(f"T{n}[{','.join(a)}]" for n, a in enumerate(axes))
    tensors = " ".join(
        f"T{n}=f32[{','.join(str(extents[x]) for x in a)}]" for n, a in enumerate(axes)
    )
    workload = expression(f"Y[i,j] += {terms}", tensors)
    (stage,) = workload.stages
    total = len(factors_of(stage))
    if not total:
        return
    chosen = tuple(sorted(data.draw(st.sets(st.integers(0, total - 1), min_size=1))))
    step = PrecomputeFactors(stage.name, chosen)
    workload = workload.allowing(data.draw(st.sampled_from([None, 1e-6]), "allowed"))
    try:
        step.rewrite(workload)
    except ScheduleError:
        return
    same_meaning(workload, (step,))


def test_what_cannot_be_multiplied_beforehand_is_refused() -> None:
    workload = expression("C[i,j] += A[i,k] * B[k,j]", "A=f32[4,3] B=f32[3,5]")
    cases: list[tuple[Rewrite, str]] = [
        (PrecomputeFactors("nobody", (0,)), "no stage"),
        (PrecomputeFactors("s0", (1, 0)), "increasing"),
        (PrecomputeFactors("s0", (0, 2)), "2 factors"),
        (PrecomputeFactors("s0", (0,)), "a single element"),
        (PrecomputeFactors("s0", (0, 1)), "the whole sum"),
        (PermuteAxes("nobody", 0), "no stage"),
        (PermuteAxes("s0", 1), "is the last one"),
    ]
    for step, reason in cases:
        with pytest.raises(ScheduleError, match=reason):
            step.rewrite(workload)
    scalar = expression("y[i] += a[0] * b[0] * c[i,k]", "a=f32[1] b=f32[1] c=f32[4,5]")
    numbers = tuple(n for n, f in enumerate(factors_of(scalar.stages[0])) if "'r0'" not in repr(f))
    with pytest.raises(ScheduleError, match="no axis"):
        PrecomputeFactors("s0", numbers).rewrite(scalar)


ORDERS = {
    "channels first, steps of three": (
        "Y[o,h,w] += X[c,3*h+r-1,3*w+s-1] * W[o,c,r,s]", "X=f32[5,19,22] W=f32[17,5,3,3]", {},
    ),
    "around a circle": (
        "Y[o,i,j] += X[c,(i+r)%9,(j+s)%8] * W[o,c,r,s]", "X=f32[5,9,8] W=f32[17,5,3,3]",
        {"i": 9, "j": 8},
    ),
    "each channel several times": (
        "Y[h,w,c,m] += X[h+r-1,w+s-1,c] * W[r,s,c,m]", "X=f32[7,9,20] W=f32[3,3,20,2]", {},
    ),
    "finished afterwards": (
        "T[o,h,w] += X[c,2*h+r,2*w+s] * W[o,c,r,s]; Y[o,h,w] = max(T[o,h,w] + b[o], 0)",
        "X=f32[5,9,11] W=f32[17,5,3,3] b=f32[17]", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_another_axis_last_means_the_same_and_gives_tiles(name: str) -> None:
    text, tensors, ranges = ORDERS[name]
    workload = expression(text, tensors, **ranges)
    steps = permute_axes(workload, MACHINE)
    assert len(steps) == 1
    same_meaning(workload, steps)
    space = space_for(workload, MACHINE)
    first = space.sketches[0]
    trace = first.trace(first.default())
    assert trace.rewrites == steps
    assert "tile" in first.name
    inputs = inputs_of(workload)
    for found, values in zip(
        interpret(lower(workload, trace), inputs), evaluate(workload, inputs), strict=True
    ):
        np.testing.assert_allclose(found, values, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("along", ["a", "b", "c"])
@pytest.mark.parametrize("words", ["", ", reverse", ", exclusive"])
@pytest.mark.parametrize("dim", [0, 1])
def test_scans_with_another_axis_last_go_along_their_axis(along: str, words: str, dim: int) -> None:
    text = f"S[a,b,c] = cumsum(X[a,b,c], {along}{words}); Y[a,b,c] = S[a,b,c] * 2"
    same_meaning(expression(text, "X=i32[4,6,5]"), (PermuteAxes("s0", dim),))


@pytest.mark.parametrize(
    ("text", "tensors"),
    [
        ("C[i,j] += A[i,k] * B[k,j]", "A=f32[40,30] B=f32[30,3]"),
        ("C[i,j] += A[i,k] * B[j,k]", "A=f32[40,30] B=f32[50,30]"),
        ("Y[h,w,o] += X[h+r,w+s,c] * W[r,s,c,o]", "X=f32[9,9,8] W=f32[3,3,8,16]"),
        ("Y[i,j] += X[i+r,j+s] * W[r,s]", "X=f32[40,40] W=f32[5,5]"),
        ("y[i] += A[i,k]", "A=f32[40,30]"),
    ],
)
def test_what_lies_well_keeps_its_order(text: str, tensors: str) -> None:
    assert permute_axes(expression(text, tensors), MACHINE) == ()
