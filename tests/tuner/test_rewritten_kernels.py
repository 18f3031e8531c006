"""Rewritten kernels on this machine: right to the stated error, exact where they must be, and a
wrong one is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from itertools import compress

import numpy as np
import pytest

from tests.support.tuner.default_kernels import full_cases, problems
from tilewright.schedules import operators
from tilewright.schedules.lowering.lower import start
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from tilewright.schedules.rewrites import (
    MergeAxes,
    SplitAxis,
    Winograd,
    merge_axes,
    split_axis,
    winograd,
)
from tilewright.schedules.rewrites.cook_toom import FastFilter, fast_filter
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.machine.roofline import bound_for
from tilewright.tuner.measure.local import LocalMeasurer
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.session.run import run_session

ALLOWED = 0.3


def conv(**sizes: object) -> Workload:
    found: dict[str, object] = {"N": 1, "H": 8, "W": 8, "CI": 3, "CO": 4, "K": 3, "pad": 1}
    return operators.build("conv2d_nhwc", found | sizes).allowing(ALLOWED)


def rewritten_traces(space: ScheduleSpace, count: int, seed: int = 0) -> Iterator[Trace]:
    """The default and `count` random traces of every rewritten sketch."""
    rng = np.random.default_rng(seed)
    for sketch in space.sketches:
        if not sketch.trace(sketch.default()).rewrites:
            continue
        yield sketch.trace(sketch.default())
        drawn = np.stack([rng.integers(0, len(k.values), 4000) for k in sketch.knobs], axis=1)
        for setting in drawn[sketch.feasible(drawn)][:count]:
            yield sketch.trace(tuple(int(i) for i in setting))


def target_of(threads: int) -> Target:
    found = native_target(probe=False)
    return dataclasses.replace(found, cores=max(found.cores, 2)).with_threads(threads)


@pytest.fixture(params=[1, 2])
def target(request: pytest.FixtureRequest) -> Target:
    return target_of(request.param)


SIZES = [
    {"H": 1, "W": 4, "CI": 5, "CO": 3},
    {"H": 3, "W": 2, "CI": 1, "CO": 1},
    {"H": 9, "W": 8, "CI": 17, "CO": 48},
    {"N": 2, "H": 7, "W": 13, "CI": 16, "CO": 33, "pad": 0},
    {"N": 2, "H": 5, "W": 6, "CI": 32, "CO": 16, "pad": 2, "epilogue": "bias+relu"},
    {"H": 6, "W": 6, "CI": 8, "CO": 8, "dtype": "f64"},
    {"H": 8, "W": 8, "CI": 4, "CO": 8, "KH": 1, "KW": 3},
    {"H": 9, "W": 7, "CI": 4, "CO": 8, "KH": 3, "KW": 5},
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_rewritten_schedules_pass_the_full_check(sizes: dict[str, object]) -> None:
    """With one thread and with two, which share their cases."""
    workload = conv(**sizes)
    for threads in (1, 2):
        target = target_of(threads)
        traces = list(rewritten_traces(space_for(workload, target), count=2))
        assert traces
        for trace in traces:
            assert problems(workload, trace, target) == []


def test_layouts_nobody_planned_for_pass_the_full_check() -> None:
    workload = parse_workload(
        expr="Y[n,o,h,w] += X[n,c,h+r-1,w+s-1] * W[o,c,r,s]",
        tensors=["X=f32[2,5,7,9]", "W=f32[6,5,3,3]"],
        allow_error=ALLOWED,
    )
    target = native_target(probe=False)
    traces = list(rewritten_traces(space_for(workload, target), count=1))
    assert traces
    for trace in traces:
        assert problems(workload, trace, target) == []


FORMULAS = [
    "Y[k,i] = where(k==0, X[i], where(k==1, 2.0*X[i], X[i]-1.0))",
    "Y[i,k] = where(k==0, X[i], where(k==1, 2.0*X[i], X[i]-1.0))",
    "Y[i] = where(i%3==0, X[i], where(i%3==1, 2.0*X[i], X[i]-1.0))",
    "T[k,i] = where(k==0, X[i], X[i]*X[i]); Y[k,i] = where(k==1, T[0,i]-T[1,i], T[0,i]+T[1,i])",
    "T[k,i] = where(k==0, X[i], X[i]*X[i]); Y[i] = where(i%2==0, T[0,i//2]-T[1,i//2], T[1,i//2])",
]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("extent", [1, 2, 16, 37])
def test_formulas_chosen_by_an_index_are_written_out_in_any_workload(
    text: str, extent: int, target: Target
) -> None:
    ranges = ["k=2" if text.startswith("T") else "k=3"] if "k" in text else []
    if "//" in text:
        ranges.append(f"i={2 * extent}")
    workload = parse_workload(expr=text, tensors=[f"X=f32[{extent}]"], ranges=ranges)
    space = space_for(workload, target)
    for number, sketch in enumerate(space.sketches):
        assert extent < 3 or "%" in text or "transform" in sketch.name
        for setting in np.ndindex(*(len(k.values) for k in sketch.knobs)):
            if sketch.feasible(np.array([setting]))[0]:
                trace = space.trace(Candidate(number, setting))
                assert problems(workload, trace, target) == []


def test_small_tiles_must_be_exact_on_small_integers_and_large_ones_need_not() -> None:
    workload = conv(CI=16, CO=16)
    two, four = (Winograd("s0", ((1, m), (2, m))) for m in (2, 4))
    assert Oracle(workload).quick.exact
    assert Oracle(workload, 0, (two,)).quick.exact
    loose = Oracle(workload, 0, (four,)).quick
    assert loose.kind is InputKind.INTEGERS
    assert not loose.exact
    # Inputs and values are those of the workload as it is, whoever is judged.
    plain = Oracle(workload).quick
    for a, b in zip(plain.inputs, loose.inputs, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(plain.expected[0].values, loose.expected[0].values)


def test_direct_kernels_are_held_to_as_much_as_ever() -> None:
    workload = conv(CI=16, CO=16)
    plain, allowing = Oracle(workload.allowing(None)).quick, Oracle(workload).quick
    assert allowing.exact
    assert allowing.scale is None
    assert np.array_equal(plain.expected[0].values, allowing.expected[0].values)


MERGED = {
    "sum over a middle axis": ("Y[a,c,d] += X[a,b,c,d]", ["X=f32[3,5,4,7]"]),
    "softmax over channels": (
        "M[n,h,w] max= X[n,c,h,w]; S[n,h,w] += exp(X[n,c,h,w]-M[n,h,w]);"
        "Y[n,c,h,w] = exp(X[n,c,h,w]-M[n,h,w]) / S[n,h,w]", ["X=f32[2,5,3,7]"],
    ),
    "products of channels": (
        "Y[n,o,h,w] += X[n,c,h,w] * W[o,c]", ["X=f32[2,9,5,7]", "W=const f32[17,9]"],
    ),
    "constant image": ("Y[n,h,w] = X[n,h,w] * m[h,w]", ["X=f16[3,5,7]", "m=const f32[5,7]"]),
    "whole numbers": ("Y[a,c,d] max= X[a,b,c,d]", ["X=i8[3,5,4,7]"]),
    "two results": ("S[n] += X[n,h,w]; T[h,w] += X[n,h,w]; Y[n,h,w] = X[n,h,w] * S[n]",
                    ["X=f32[3,5,7]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MERGED)
def test_kernels_of_merged_axes_take_arrays_of_the_original_shapes(
    name: str, target: Target
) -> None:
    text, tensors = MERGED[name]
    workload = parse_workload(expr=text, tensors=tensors)
    traces = list(rewritten_traces(space_for(workload, target), count=3))
    assert any(isinstance(step, MergeAxes) for step in traces[0].rewrites)
    for trace in traces:
        assert problems(workload, trace, target) == []
        kernel = compile_to_call(workload, trace, target)
        constant = [t.constant for t in workload.inputs]
        if any(constant):
            given = [np.ones(t.shape, t.dtype.numpy) for t in workload.inputs]
            prepacked = kernel.prepack(*compress(given, constant))
            found = prepacked(*compress(given, [not c for c in constant]))
            np.testing.assert_array_equal(found, kernel(*given))


SPLIT = {
    "rows of an image": ("Y[n,p] = X[n,p] * m[p]", ["X=f16[3,35]", "m=const f32[35]"],
                         SplitAxis("s0", "d1", 7)),
    "product": ("C[i,j] += A[i,k] * B[k,j]", ["A=f32[9,20]", "B=const f32[20,17]"],
                SplitAxis("s0", "r0", 5)),
    "softmax": ("M[i] max= X[i,j]; E[i,j] = exp(X[i,j] - M[i]); S[i] += E[i,j];"
                "Y[i,j] = E[i,j] / S[i]", ["X=f32[6,40]"], SplitAxis("s0", "d0", 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLIT)
def test_kernels_of_split_axes_take_arrays_of_the_original_shapes(
    name: str, target: Target
) -> None:
    text, tensors, step = SPLIT[name]
    workload = parse_workload(expr=text, tensors=tensors)
    split, _ = start(workload, Trace((step,)))
    for sketch in space_for(split, target).sketches:
        trace = Trace((step, *sketch.trace(sketch.default()).steps))
        assert problems(workload, trace, target) == []
        compile_to_call(workload, trace, target)


@pytest.fixture
def own_cases() -> Iterator[None]:
    """The cases of a wrong rewrite are its own."""
    full_cases.cache_clear()
    yield
    full_cases.cache_clear()


@pytest.mark.usefixtures("own_cases")
def test_a_wrong_merge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair merged although another operand has it transposed."""
    workload = parse_workload(expr="Y[i,j] = X[i,j] - Z[j,i]", tensors=["X=f32[5,5]", "Z=f32[5,5]"])
    right = parse_workload(expr="Y[i,j] = X[i,j] - Z[i,j]", tensors=["X=f32[5,5]", "Z=f32[5,5]"])
    wrong, rewrite = right.normalised(), MergeAxes.rewrite
    monkeypatch.setattr(merge_axes.MergeAxes, "rewrite", lambda self, _: rewrite(self, wrong))
    trace = Trace((MergeAxes("s0", "d0", "d1"),))
    assert problems(workload, trace, native_target(probe=False))


@pytest.mark.usefixtures("own_cases")
def test_a_wrong_split_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The axis split although a condition uses it: the condition then tests the outer axis."""
    workload = parse_workload(expr="Y[i] = where(i < 3, X[i], 0.0)", tensors=["X=f32[15]"])
    monkeypatch.setattr(split_axis, "other_indices", lambda body: iter(()))
    assert problems(workload, Trace((SplitAxis("s0", "d0", 5),)), native_target(probe=False))


def test_merged_axes_are_measured_checked_and_reported() -> None:
    text, tensors = MERGED["products of channels"]
    workload, target = parse_workload(expr=text, tensors=tensors), native_target(probe=False)
    space = space_for(workload, target)
    trace = space.sketches[0].trace(space.sketches[0].default())
    with LocalMeasurer(workload, target, seed=0) as measurer:
        (found,) = measurer.measure([MeasureRequest(1, trace)])
        full = measurer.confirm(MeasureRequest(1, trace))
    assert [found.status, full.status] == [MeasureStatus.OK] * 2
    only = dataclasses.replace(space, sketches=space.sketches[:1])
    with LocalMeasurer(workload, target, seed=0) as measurer:
        report = run_session(
            workload, only, measurer=measurer, sink=MemorySink(), strategy="random",
            budget=Budget(trials=2),
        )  # fmt: skip
    assert report.best is not None
    assert report.best.verified
    assert report.to_json()["best"]["rewritten"] is None


def wrong_filter(of: FastFilter, which: str, row: int, column: int, by: Fraction) -> FastFilter:
    matrix = [list(r) for r in getattr(of, which)]
    matrix[row][column] += by
    return dataclasses.replace(of, **{which: tuple(map(tuple, matrix))})


@pytest.mark.usefixtures("own_cases")
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("which", "row", "column", "by"),
    [
        ("inputs", 0, 2, Fraction(-2)),
        ("inputs", 1, 1, Fraction(1, 1000)),
        ("taps", 1, 1, Fraction(1, 1000)),
        ("taps", 2, 0, Fraction(-1, 4)),
        ("outputs", 1, 2, Fraction(1, 500)),
        ("outputs", 0, 1, Fraction(-1)),
    ],
)
def test_a_wrong_matrix_entry_is_found(
    size: int,
    which: str,
    row: int,
    column: int,
    by: Fraction,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the error analysis of the rewritten form has the same mistake in it."""

    def wrong(outputs: int, taps: int) -> FastFilter:
        return wrong_filter(fast_filter(outputs, taps), which, row, column, by)

    monkeypatch.setattr(winograd, "fast_filter", wrong)
    workload, target = conv(CI=8, CO=16), native_target(probe=False)
    trace = next(
        t
        for t in rewritten_traces(space_for(workload, target), count=0)
        if t.rewrites[0].label.endswith(f"x{size}")
    )
    assert problems(workload, trace, target)


def test_a_kernel_within_the_stated_error_of_the_wrong_rewrite_is_found_by_the_other() -> None:
    """A kernel of large tiles does not pass for one of small tiles: its rounding shows."""
    workload, target = conv(CI=16, CO=16), native_target(probe=False)
    four = next(rewritten_traces(space_for(workload, target), count=0))
    small = Oracle(workload, 0, (Winograd("s0", ((1, 2), (2, 2))),)).quick
    out = np.zeros(workload.output_tensors[0].shape, np.float32)
    compile_to_call(workload, four, target)(*small.inputs, out=out)
    assert "expected" in (small.check([out]) or "")


def test_the_bound_counts_the_operations_of_the_rewritten_form() -> None:
    target = native_target(probe=False)
    direct, allowing = conv(H=32, W=32, CI=64, CO=64).allowing(None), conv(H=32, W=32, CI=64, CO=64)
    ratio = bound_for(direct, target).secs / bound_for(allowing, target).secs
    assert 3.0 < ratio < 4.5


def test_a_measured_rewrite_says_the_error_it_found() -> None:
    workload, target = conv(H=12, W=12, CI=16, CO=16), native_target(probe=False)
    four = next(rewritten_traces(space_for(workload, target), count=0))
    with LocalMeasurer(workload, target, seed=0) as measurer:
        (first, plain) = measurer.measure([MeasureRequest(1, four), MeasureRequest(2, Trace())])
        full = measurer.confirm(MeasureRequest(1, four))
    assert [first.status, plain.status, full.status] == [MeasureStatus.OK] * 3
    assert plain.error_found is None
    assert full.error_found is not None
    stated = four.rewrites[0].stated_error(workload.normalised())
    assert 0 < full.error_found < stated / 10


def test_a_report_states_the_error_of_a_rewritten_best() -> None:
    workload, target = conv(H=12, W=12, CI=16, CO=16), native_target(probe=False)
    space = space_for(workload, target)
    only = tuple(s for s in space.sketches if s.trace(s.default()).rewrites)
    with LocalMeasurer(workload, target, seed=0) as measurer:
        report = run_session(
            workload,
            dataclasses.replace(space, sketches=only),
            measurer=measurer,
            sink=MemorySink(),
            strategy="random",
            budget=Budget(trials=2),
        )
    assert report.best is not None
    assert report.best.verified
    found = report.to_json()["best"]["rewritten"]
    assert found["steps"] == [str(Trace.from_json(report.best.trace).rewrites[0])]
    assert 0 < found["error_found"] < found["error_stated"] <= found["error_allowed"] == ALLOWED


def test_a_record_without_a_rewrite_is_what_it_always_was() -> None:
    record = TuningRecord(
        "w", "t", 1, [], MeasureResult(MeasureStatus.OK, (1.0,), 1.0), Toolchain(1, "a", "b"), 0, 1
    )
    assert "error_found" not in record.to_json()["result"]
    found = dataclasses.replace(record, result=dataclasses.replace(record.result, error_found=1e-7))
    assert found.to_json()["result"]["error_found"] == 1e-7
    for each in (record, found):
        assert TuningRecord.from_json(each.to_json()) == each
    assert record.key != found.key
