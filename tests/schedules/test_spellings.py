"""Spellings of one computation: equal keys of their common form, and schedules of one that are
schedules of the others, with the same nests."""

from __future__ import annotations

import random
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.transposed import ROWS, Convolution
from tests.support.schedules.regrouping import MACHINE, expression
from tests.support.schedules.spellings import drawn_spellings
from tests.support.schedules.transposed import ALL_SPELLINGS, random_convolution
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.rewrites import (
    CompactOutputs,
    MergeAxes,
    PrecomputeFactors,
    SplitAxis,
)
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.forms.spellings import form_key, respelled
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

SOFTMAX = (
    "M[{i}] max= X[{i},{j}]; E[{i},{j}] = exp(X[{i},{j}] - M[{i}]);"
    "S[{i}] += E[{i},{j}]; Y[{i},{j}] = E[{i},{j}] / S[{i}]"
)
SPELLED = {
    "elementwise": [
        ("Y[i] = exp(X[i])", "X=f32[840]"),
        ("Y[i,j] = exp(X[i,j])", "X=f32[28,30]"),
        ("Y[i,j,k] = exp(X[i,j,k])", "X=f32[7,4,30]"),
        ("Y[i,j,k] = exp(X[i,j,k])", "X=f32[14,10,6]"),
    ],
    "sum": [
        ("S[i] += X[i,j]", "X=f32[6,60]"),
        ("S[a,b] += X[a,b,j]", "X=f32[2,3,60]"),
        ("S[i] += X[i,j,k,l]", "X=f32[6,3,4,5]"),
        ("S[a,b] += X[a,b,k,l]", "X=f32[3,2,4,15]"),
    ],
    "product": [
        ("C[i,j] += A[i,k] * B[k,j]", "A=f32[12,20] B=f32[20,32]"),
        ("C[a,b,j] += A[a,b,k] * B[k,j]", "A=f32[3,4,20] B=f32[20,32]"),
        ("C[i,j,q] += A[i,k,l] * B[k,l,j,q]", "A=f32[12,5,4] B=f32[5,4,2,16]"),
        ("C[a,b,j,q] += A[a,b,k,l] * B[k,l,j,q]", "A=f32[2,6,4,5] B=f32[4,5,4,8]"),
    ],
    "softmax": [
        (SOFTMAX.format(i="i", j="j"), "X=f32[12,40]"),
        (SOFTMAX.format(i="a,b", j="j"), "X=f32[3,4,40]"),
        (SOFTMAX.format(i="i", j="j,k"), "X=f32[12,5,8]"),
        (SOFTMAX.format(i="a,b", j="j,k"), "X=f32[2,6,4,10]"),
    ],
    "scan": [
        ("Y[i,t] = cumsum(X[i,t], t)", "X=f32[12,9]"),
        ("Y[a,b,t] = cumsum(X[a,b,t], t)", "X=f32[3,4,9]"),
    ],
    "window beside the pair": [
        ("Y[t,p] += X[t+r-1,p] * k[r]", "X=f32[6,15] k=f32[3]"),
        ("Y[t,h,w] += X[t+r-1,h,w] * k[r]", "X=f32[6,3,5] k=f32[3]"),
    ],
    "part of the rows": [
        ("Y[i] = X[i] + Z[i]", "X=f32[63] Z=f32[35]"),
        ("Y[h,w] = X[h,w] + Z[h,w]", "X=f32[9,7] Z=f32[5,7]"),
    ],
    "whole numbers": [
        ("C[i,j] += A[i,k] * B[k,j]", "A=u8[12,20] B=i8[20,32]"),
        ("C[i,j] += A[i,k,l] * B[k,l,j]", "A=u8[12,5,4] B=i8[5,4,32]"),
    ],
}  # fmt: skip
RANGES: dict[str, list[dict[str, int]]] = {"part of the rows": [{"i": 35}, {"h": 5}]}


def spellings(name: str) -> list[Workload]:
    ranges = RANGES.get(name, [{}] * len(SPELLED[name]))
    pairs = zip(SPELLED[name], ranges, strict=True)
    return [expression(text, tensors, **more) for (text, tensors), more in pairs]


def check_respelled(of: Workload, to: Workload) -> None:
    """The default schedules of one spelling are schedules of the other, with equal nests."""
    for sketch in space_for(of, MACHINE).sketches:
        trace = sketch.trace(sketch.default())
        found = respelled(trace, of, to)
        assert found is not None, sketch.name
        assert Trace.from_json(found.to_json()) == found
        nest = lower(to, found)
        assert nest == lower(of, trace)
        check_meaning(to, nest)


@pytest.mark.parametrize("name", SPELLED)
def test_spellings_have_one_form_and_share_schedules(name: str) -> None:
    found = spellings(name)
    assert len({workload.key for workload in found}) == len(found)
    assert len({form_key(workload) for workload in found}) == 1
    for of, to in permutations(found, 2):
        check_respelled(of, to)


def test_the_rewrites_between_spellings_are_few() -> None:
    whole, _, three, other = spellings("elementwise")
    plain = space_for(whole, MACHINE).sketches[0]
    trace = plain.trace(plain.default())
    merge = MergeAxes("s0", "d0", "d1")
    found = respelled(trace, whole, three)
    assert found is not None
    assert found.rewrites == (merge, merge)
    assert respelled(trace, whole, whole) == trace
    split = SplitAxis("s0", "d0", 30)
    rows = expression(*SPELLED["elementwise"][1])
    found = respelled(Trace(), rows, other)
    assert found == Trace((merge, merge, split))
    assert respelled(Trace(), rows, three) == Trace((merge,))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_expressions_share_schedules_with_their_split_spellings(data: st.DataObject) -> None:
    split, whole, _ = drawn_spellings(data)
    assert form_key(split) == form_key(whole)
    check_respelled(split, whole)
    check_respelled(whole, split)


@pytest.mark.parametrize("name", ROWS)
def test_transposed_convolutions_have_one_form(name: str) -> None:
    assert len({form_key(spelled(ROWS[name])) for spelled in ALL_SPELLINGS.values()}) == 1


@pytest.mark.parametrize("seed", range(24))
def test_transposed_convolutions_share_schedules(seed: int) -> None:
    """In one to three dimensions; an axis of one element may have another form (ADR 106)."""
    convolution = random_convolution(random.Random(seed))
    found = {spelled(convolution).normalised() for spelled in ALL_SPELLINGS.values()}
    if 1 not in (*convolution.size, *convolution.kernel, *convolution.out):
        assert len({form_key(workload) for workload in found}) == 1
    for of, to in permutations(found, 2):
        if form_key(of) == form_key(to):
            check_respelled(of, to)


DIFFERENT = {
    "transposed": [("Y[i,j] = X[i,j]", "X=f32[6,4]"), ("Y[i,j] = X[j,i]", "X=f32[4,6]"),
                   ("Y[i,j,k] = X[k,j,i]", "X=f32[4,2,3]")],
    "sums over other axes": [("Y[i] += X[i,j]", "X=f32[6,6]"), ("Y[j] += X[i,j]", "X=f32[6,6]")],
    "sum, maximum": [("Y[i] += X[i,j]", "X=f32[6,6]"), ("Y[i] max= X[i,j]", "X=f32[6,6]")],
    "operands": [("C[i,j] += A[i,k] * B[k,j]", "A=f32[6,6] B=f32[6,6]"),
                 ("C[i,j] += A[i,k] * B[j,k]", "A=f32[6,6] B=f32[6,6]"),
                 ("C[i,j] += A[k,i] * B[k,j]", "A=f32[6,6] B=f32[6,6]")],
    "other extents": [("Y[i] += X[i,j]", "X=f32[6,6]"), ("Y[i] += X[i,j]", "X=f32[4,9]"),
                      ("Y[i] += X[i,j]", "X=f32[9,4]"), ("Y[i] += X[i,j,k]", "X=f32[3,4,3]")],
    "types": [("Y[i] = X[i]", "X=f32[6]"), ("Y[i] = X[i]", "X=i32[6]"),
              ("Y[i] = X[i]", "X=f64[6]")],
    "bias": [("Y[i,j] = X[i,j] + b[j]", "X=f32[6,6] b=f32[6]"),
             ("Y[i,j] = X[i,j] + b[i]", "X=f32[6,6] b=f32[6]")],
    "shifted": [("Y[i] = X[i+1]", "X=f32[6]"), ("Y[i] = X[i-1]", "X=f32[6]")],
    "strides": [("Y[i] = X[2*i]", "X=f32[12]"), ("Y[i] = X[2*i+1]", "X=f32[12]"),
                ("Y[i] = X[i]", "X=f32[12]")],
    "condition on one axis": [("Y[i,j] = where(j < 2, X[i,j], 0.0)", "X=f32[6,4]"),
                              ("Y[i,j] = where(j < 2, X[i,j], 0.0)", "X=f32[4,6]"),
                              ("Y[i] = where(i < 2, X[i], 0.0)", "X=f32[24]")],
    "scanned": [("Y[i,t] = cumsum(X[i,t], t)", "X=f32[6,4]"),
                ("Y[i,t] = cumsum(X[i,t], i)", "X=f32[6,4]"),
                ("Y[t] = cumsum(X[t], t)", "X=f32[24]")],
    "softmax": [(SOFTMAX.format(i="i", j="j"), "X=f32[12,40]"),
                (SOFTMAX.format(i="i", j="j"), "X=f32[40,12]"),
                (SOFTMAX.format(i="a,b", j="j"), "X=f32[12,4,10]")],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_computations_have_other_forms(name: str) -> None:
    ranges = {"i": 6} if name in ("shifted", "strides") else {}
    found = [expression(text, tensors, **ranges) for text, tensors in DIFFERENT[name]]
    assert len({form_key(workload) for workload in found}) == len(found)
    for of, to in combinations(found, 2):
        assert respelled(Trace(), of, to) is None


def test_the_allowed_error_is_a_part_of_the_form() -> None:
    exact, split = spellings("product")[:2]
    assert form_key(exact.allowing(1e-3)) == form_key(split.allowing(1e-3))
    assert form_key(exact.allowing(1e-3)) != form_key(exact)
    assert form_key(exact.allowing(1e-3)) != form_key(exact.allowing(1e-4))


def test_constant_inputs_are_a_part_of_the_form() -> None:
    plain, constant = (
        parse_workload(expr="Y[i] = X[i] * w[i]", tensors=["X=f32[6]", f"w={kind}f32[6]"])
        for kind in ("", "const ")
    )
    assert form_key(plain) != form_key(constant)


def test_fast_filters_are_shared() -> None:
    """The rewrites that change operations are those that the other spelling tries itself."""
    whole, split = (
        expression(
            f"Y[h,w,{o}] += X[h+r-1,w+s-1,c] * W[r,s,c,{o}]",
            f"X=f32[8,8,3] W=f32[3,3,3,{extents}]",
            h=8,
            w=8,
        ).allowing(0.3)
        for o, extents in (("o", "8"), ("o,q", "2,4"))
    )
    for of, to in ((whole, split), (split, whole)):
        sketches = space_for(of, MACHINE).sketches
        traces = [s.trace(s.default()) for s in sketches if "winograd" in s.name]
        assert traces
        for trace in traces:
            found = respelled(trace, of, to)
            assert found is not None
            assert lower(to, found) == lower(of, trace)


def test_shared_schedules_may_change_operations_before_shapes() -> None:
    """The other order is not legal: their error bounds are compared in the original shapes."""
    small = Convolution.of(1, size=9, ci=4, co=8, kernel=3, stride=3, dilation=3)
    of, to = (ALL_SPELLINGS[n](small) for n in ("library", "upsampled"))
    (sketch, *_) = space_for(of, MACHINE).sketches
    trace = sketch.trace(sketch.default())
    assert isinstance(trace.rewrites[0], CompactOutputs)
    check_respelled(of, to)
    sums = expression("C[i,j] += A[i,k] * d[k] * B[k,j]", "A=f32[15,7] d=f32[7] B=f32[7,9]")
    split = expression("C[i,q,j] += A[i,q,k] * d[k] * B[k,j]", "A=f32[3,5,7] d=f32[7] B=f32[7,9]")
    assert form_key(sums) == form_key(split)
    factors = Trace((PrecomputeFactors("s0", (0, 1)),))
    assert respelled(factors, sums, split) is None
