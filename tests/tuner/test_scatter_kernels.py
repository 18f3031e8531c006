"""Kernels in which data select the output of each term: every schedule gives the sums of the
expression, also for integers outside of the outputs, and with several threads."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import (
    CACHES,
    DisagreementError,
    Pair,
    check_pair,
    run_kernel,
    this_machine,
    usable_case,
)
from tests.support.schedule_fuzz.patterns import scattered_terms
from tests.support.schedule_fuzz.traces import random_trace
from tests.support.schedules.workloads import notation
from tests.support.tuner.default_kernels import problems
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.primitives import Initialise, Reorder, Split, TakeSelected, Vectorize
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.scatter import sketch as scatters
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.emit.kernel import compile_nest, llvm_text
from tilewright.tuner.emit.object_code import emit_object
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.inputs import make_inputs
from tilewright.tuner.machine.native_target import native_target

SCATTER = (Reorder(("s0.r0", "s0.d0", "s0.d1")), Initialise("s0", ""), TakeSelected("s0.d0"))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]), st.sampled_from([128, 256, 512]))
@settings(max_examples=40, deadline=None)
def test_settings_of_any_program_compute_its_sums(seed: int, threads: int, bits: int) -> None:
    rng = Random(seed)
    try:
        workload = scattered_terms(rng).normalised()
    except WorkloadError:
        return  # types that differ
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scatters, "LEAST_TERMS", 1)
        space = space_for(workload, this_machine(threads, bits, rng.choice(CACHES)))
        for sketch in space.sketches:
            if sketch.name.endswith("scatter"):
                sizes = [len(knob.values) for knob in sketch.knobs]
                drawn = np.random.default_rng(seed).integers(0, sizes, (100, len(sizes)))
                setting = tuple(map(int, drawn[sketch.feasible(drawn)][0]))
                check_pair(Pair("knobs", workload, sketch.trace(setting), threads, bits))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]))
@settings(max_examples=30, deadline=None)
def test_any_steps_compute_its_sums(seed: int, threads: int) -> None:
    rng = Random(seed)
    try:
        workload = scattered_terms(rng).normalised()
    except WorkloadError:
        return  # types that differ
    trace, _ = random_trace(rng, workload)
    try:
        lower(workload, trace)
    except ScheduleError:
        return
    check_pair(Pair("steps", workload, trace, threads))


@pytest.mark.parametrize(
    "text",
    [
        "Y[v,d] += where(I[n] == v, X[n,d], 0.0)",
        "Y[v,d] += f32(I[n] == v) * X[n,d]",
        "Y[v,d] max= where(I[n] == v, X[n,d], -inf)",
        "Y[v,d] min= where(I[n] == v, X[n,d] * 2, inf)",
        "H[n,v] = where(I[n] == v, 1.0, 0.0); Y[v,d] += H[n,v] * X[n,d]",
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_pass_their_full_check(text: str, threads: int) -> None:
    """Infinities and NaN reach the outputs that are selected, and no others."""
    workload = notation(text, {"v": 30}, I="i32[300]", X="f32[300,18]").normalised()
    target = native_target(threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scatters, "LEAST_TERMS", 1)
        sketch = next(
            one for one in space_for(workload, target).sketches if one.name.endswith("scatter")
        )
        for divided in range(len(sketch.knobs[-1].values)):
            trace = sketch.trace((*sketch.default()[:-1], divided))
            assert not problems(workload, trace, target)


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "i64"])
def test_inputs_of_checks_select_all_outputs_and_none(dtype: str) -> None:
    workload = notation("H[v] += where(I[n] == v, 1, 0)", {"v": 50}, I=f"{dtype}[3000]")
    (found,) = make_inputs(workload, next(iter(InputKind)), 0)
    kind = workload.inputs[0].dtype
    least, most = kind.integer_range
    there = set(found.ravel().tolist())
    assert {*range(50), 50, max(least, -1), least, most} <= there


def test_extremes_are_stored_without_masks() -> None:
    """A masked store takes ten times as long on some processors."""
    workload = notation(
        "Y[v,d] max= where(I[n] == v, X[n,d], -inf)", {"v": 30}, I="i32[99]", X="f32[99,64]"
    ).normalised()
    steps = (*SCATTER, Split("s0.d1", 8), Vectorize("s0.d1i"))
    assert "freeze <8 x float>" in llvm_text(workload, Trace(steps), this_machine())


def bincount(data: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    return np.bincount(data[(data >= 0) & (data < 5000)], minlength=5000)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_histogram_equals_that_of_numpy(threads: int) -> None:
    workload = notation("H[v] += where(I[n] == v, 1, 0)", {"v": 5000}, I="i32[100003]").normalised()
    target = native_target(threads)
    sketch = space_for(workload, target).sketches[0]
    data = np.random.default_rng(0).integers(-9, 5009, 100003).astype(np.int32)
    for setting in {sketch.default(), tuple(len(knob.values) - 1 for knob in sketch.knobs)}:
        found = compile_to_call(workload, sketch.trace(setting), target)(data)
        np.testing.assert_array_equal(found, bincount(data))


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        (r"icmp ult i64 (%\w+), 50", r"icmp ule i64 \1, 50", "outside its output"),
        (r"icmp ult i64 (%\w+), 50", r"icmp ult i64 \1, 49", r"s0\[49\] is"),
        (r"br i1 (%\w+), label %then", r"br i1 false, label %then", "elements are wrong"),
    ],
)
@pytest.mark.parametrize("dtype", ["u8", "i32", "i64"])
def test_wrong_scatters_are_found(right: str, wrong: str, reason: str, dtype: str) -> None:
    workload = notation(
        "H[v] += where(I[n] == v, X[n], 0)", {"v": 50}, I=f"{dtype}[300]", X="i32[300]"
    ).normalised()
    nest = lower(workload, Trace((Reorder(("s0.r0", "s0.d0")), *SCATTER[1:])))

    def spoiled(text: str, target: Target) -> bytes:
        changed = re.sub(right, wrong, text)
        assert changed != text
        return emit_object(changed, target)

    case = usable_case(Pair("wrong", workload, Trace(), 1))
    assert case is not None
    kernel = compile_nest(workload, nest, this_machine(), emit=spoiled)
    try:
        problem = case.check(run_kernel(kernel, workload, case))
    except DisagreementError as error:
        problem = str(error)
    assert problem is not None
    assert re.search(reason, problem)
