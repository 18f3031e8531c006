"""Constant inputs prepacked: both entries give the reference's numbers, and whatever a wrong
one could do is found before it is timed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedule_fuzz.traces import random_step
from tests.support.tuner import planted_kernels as planted
from tests.support.tuner.planted_kernels import OPEN
from tilewright.peers.bench import bench
from tilewright.schedules import operators
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower, plain_nest
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.prepacking import split_prepack
from tilewright.schedules.primitives import CacheRead, PackAhead, Parallel
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Sketch
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile, tune
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text
from tilewright.tuner.kernel import CallError
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.checking.runner_client import RunnerClient
from tilewright.tuner.measure.local import verify_full
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.session.report import Budget

CONTRACTIONS = (
    "matmul:M=7,N=33,K=13", "matmul:M=1,N=65,K=17", "matmul_nt:M=5,N=31,K=17",
    "matmul_tn:M=17,N=33,K=3", "batch_matmul:B=3,M=5,N=17,K=7",
    "conv2d_nhwc:H=7,W=5,CI=3,CO=33,K=3,pad=1", "conv2d_nhwc:H=9,W=7,CI=4,CO=17,K=3,stride=2",
    "conv1d_nlc:L=17,CI=3,CO=20,K=5,pad=2", "conv2d_nhwc:H=5,W=5,CI=3,CO=17,K=1,epilogue=bias+relu",
)  # fmt: skip


def constant(spelling: str, first: int = 1) -> Workload:
    """An operator with all inputs but the first constant."""
    from tilewright.schedules.spelling import parse_operator

    workload = parse_operator(spelling)
    inputs = [replace(t, constant=n >= first) for n, t in enumerate(workload.inputs)]
    return replace(workload, inputs=tuple(inputs)).normalised()


def packing_settings(sketch: Sketch, rng: random.Random) -> Iterator[tuple[int, ...]]:
    """Feasible settings that pack ahead."""
    at = [knob.name for knob in sketch.knobs].index("pack_columns")
    sizes = [len(knob.values) for knob in sketch.knobs]
    drawn = np.random.default_rng(rng.getrandbits(32)).integers(0, sizes, (1500, len(sizes)))
    drawn[:, at] = sketch.knobs[at].values.index(2)
    for row in drawn[sketch.feasible(drawn)]:
        yield tuple(int(i) for i in row)


@given(st.sampled_from(CONTRACTIONS), st.integers(0, 2**32 - 1), st.sampled_from((1, 2)))
@settings(max_examples=40)
def test_settings_that_pack_ahead_agree_with_the_reference(
    spelling: str, seed: int, threads: int
) -> None:
    rng = random.Random(seed)
    workload = constant(spelling)
    bits = rng.choice((128, 256, 512))
    sketch = space_for(workload, this_machine(threads, bits)).sketches[0]
    found = next(packing_settings(sketch, rng), None)
    if found is None:
        return
    trace = sketch.trace(found)
    assert any(isinstance(step, PackAhead) for step in trace.steps)
    check_pair(Pair("knobs", workload, trace, threads, bits))


@given(st.sampled_from(CONTRACTIONS), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_random_steps_after_packing_ahead_agree_with_the_reference(
    spelling: str, seed: int
) -> None:
    rng = random.Random(seed)
    workload = constant(spelling)
    steps: list[Any] = [CacheRead("i1", "", "p"), PackAhead("p")]
    nest = Trace(tuple(steps)).apply(plain_nest(workload))
    for _ in range(12):
        step = random_step(rng, nest)
        try:
            nest = step.apply(nest)
        except ScheduleError:
            continue
        steps.append(step)
    pair = Pair("steps", workload, Trace(tuple(steps)), 2, 256)
    try:
        check_pair(pair)
    except ScheduleError:
        return  # registers that are indexed by loops that run


@pytest.mark.parametrize("spelling", CONTRACTIONS)
@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_default_is_right_whatever_is_constant(spelling: str, first: int) -> None:
    workload = constant(spelling, first)
    for threads in (1, 2):
        target = this_machine(threads, 256)
        sketch = space_for(workload, target).sketches[0]
        check_pair(Pair("knobs", workload, sketch.trace(sketch.default()), threads, 256))


def test_constant_columns_are_packed_ahead_by_default_and_others_never() -> None:
    for spelling, wanted in (("matmul:M=7,N=33,K=13", True), ("matmul:M=1,N=65,K=17", True)):
        sketch = space_for(constant(spelling), this_machine()).sketches[0]
        trace = sketch.trace(sketch.default())
        assert any(isinstance(step, PackAhead) for step in trace.steps) is wanted
    plain = operators.build("matmul", M=7, N=33, K=13).normalised()
    (knob,) = (
        k for k in space_for(plain, this_machine()).sketches[0].knobs if k.name == "pack_columns"
    )
    assert knob.values == (0, 1)


@pytest.mark.parametrize(
    "spelling",
    [
        "matmul:M=8,N=500,K=300",
        "matmul_nt:M=8,N=500,K=300",
        "conv2d_nhwc:H=3,W=3,CI=65,CO=256,K=3,pad=1",
    ],
)
def test_threads_meet_once_when_they_pack(spelling: str) -> None:
    """A loop that is shared within another one starts the threads once a row of the operand."""
    workload = constant(spelling)
    target = this_machine(2, 256)
    sketch = space_for(workload, target).sketches[0]
    setting = next(packing_settings(sketch, random.Random(0)))
    nest = lower(workload, sketch.trace(setting))
    outermost = next(loop for stmt in split_prepack(nest).copies for loop in loops((stmt,)))
    assert outermost.kind is LoopKind.PARALLEL
    check_pair(Pair("knobs", workload, sketch.trace(setting), 2, 256))


def test_a_constant_that_two_stages_read_keeps_its_layout() -> None:
    from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec

    specs = ("A=f32[7,16]", "B=const f32[16,16]")
    workload = from_notation(
        "T[i,j] += A[i,k] * B[k,j]; C[i,j] += T[i,k] * B[j,k]",
        [parse_tensor_spec(spec) for spec in specs],
    ).normalised()
    space = space_for(workload, this_machine())
    for sketch in space.sketches:
        trace = sketch.trace(sketch.default())
        assert not any(isinstance(step, PackAhead) for step in trace.steps)
        check_pair(Pair("knobs", workload, trace, 1, 256))


def test_a_trace_that_packs_ahead_is_refused_where_nothing_is_constant() -> None:
    workload = constant("matmul:M=7,N=33,K=13")
    sketch = space_for(workload, this_machine()).sketches[0]
    trace = sketch.trace(sketch.default())
    plain = operators.build("matmul", M=7, N=33, K=13)
    with pytest.raises(ScheduleError, match="'i1', which is not a constant input"):
        compile_kernel(plain, trace, this_machine())


def test_packing_adds_no_second_body() -> None:
    workload = constant("conv2d_nhwc:H=7,W=5,CI=3,CO=33,K=3,pad=1")
    sketch = space_for(workload, this_machine()).sketches[0]
    text = llvm_text(workload, sketch.trace(sketch.default()), this_machine(), "k")
    calls = [line for line in text.splitlines() if "call void @k_main(" in line]
    assert len(calls) == 2
    assert text.count("define internal void @k_main(") == 1
    assert text.count("define internal void @k_pack(") == 1
    first, again = (
        compile_kernel(workload, sketch.trace(sketch.default()), this_machine()) for _ in range(2)
    )
    assert first == again


# -- arrays


def test_a_kernel_packs_once_for_many_calls(rng: np.random.Generator) -> None:
    workload = operators.build("matmul", M=9, N=35, K=17, constant="B")
    kernel = compile(workload, target=this_machine())
    b = rng.integers(-4, 5, (17, 35)).astype(np.float32)
    packed = kernel.prepack(b)
    kept = b.copy()
    b[:] = np.nan
    for _ in range(3):
        a = rng.integers(-4, 5, (9, 17)).astype(np.float32)
        np.testing.assert_array_equal(packed(a), a @ kept)
        np.testing.assert_array_equal(kernel(a, kept), a @ kept)
    with pytest.raises(CallError, match="takes 1 inputs, got 2"):
        packed(a, kept)
    with pytest.raises(CallError, match=r"packs 1 inputs \(B\), got 2"):
        kernel.prepack(kept, kept)
    with pytest.raises(CallError, match=r"B: takes float32\[17, 35\], got float32\[9, 17\]"):
        kernel.prepack(a)


def test_without_constant_inputs_there_is_nothing_to_pack() -> None:
    kernel = compile(operators.build("matmul", M=4, N=4, K=4), target=this_machine())
    with pytest.raises(CallError, match="has no input marked constant"):
        kernel.prepack()


# -- measuring


@pytest.mark.parametrize("threads", [1, 2])
def test_a_full_check_times_both_ways(threads: int) -> None:
    workload = constant("matmul:M=8,N=256,K=256", 1)
    target = detect().with_threads(threads)
    sketch = space_for(workload, target).sketches[0]
    # 256 KiB are copied for 1 MFLOP: packing takes longer than what it is for, on any machine that
    # does not do something else in the middle of it.
    for _ in range(5):
        result = verify_full(workload, sketch.trace(sketch.default()), target)
        assert result.status == MeasureStatus.OK, result.detail
        assert result.run_secs_estimate is not None
        assert result.run_secs_with_packing is not None
        if result.run_secs_with_packing > result.run_secs_estimate:
            return
    pytest.fail(
        f"with packing {result.run_secs_with_packing} s, without {result.run_secs_estimate} s"
    )


def test_parallel_packing_is_raced_too() -> None:
    workload = constant("matmul:M=4,N=64,K=32")
    steps = (CacheRead("i1", "", "p"), PackAhead("p"), Parallel("p.1"))
    result = verify_full(workload, Trace(steps), detect().with_threads(2))
    assert result.status == MeasureStatus.OK, result.detail


def test_a_benchmark_reports_both_figures(tmp_path: Path) -> None:
    workload = constant("matmul:M=8,N=64,K=64")
    sketch = space_for(workload, detect()).sketches[0]
    trace = sketch.trace(sketch.default())
    report = bench(
        workload, trace, detect(), against=("numpy", "default"), seconds=0.1,
        lock_path=tmp_path / "lock",
    ).to_json()  # fmt: skip
    assert report["kernel"]["packed_ahead"] is True
    assert report["kernel"]["run_secs_with_packing"] > 0
    assert list(report["against"]) == ["numpy", "default"]


def test_the_time_with_packing_is_kept_and_older_records_keep_their_keys() -> None:
    result = MeasureResult(MeasureStatus.OK, (1e-3,), 1e-3)
    toolchain = Toolchain(1, "a", "b")
    old = TuningRecord("w", "t", 1, [], result, toolchain, seed=0, trial=1)
    assert "run_secs_with_packing" not in old.to_json()["result"]
    assert old.key == "sha256:ddf8cb460707169d22b02a5cb44b374b634363eedba9e49d67dfada7adefae68"
    new = replace(old, result=replace(result, run_secs_with_packing=2e-3))
    assert TuningRecord.from_json(new.to_json()) == new
    assert TuningRecord.from_json(old.to_json()) == old
    assert new.key != old.key


def test_a_report_says_what_its_time_is_of() -> None:
    for spelling, wanted in (("matmul:M=8,N=32,K=16", True), ("colsum_mn:M=64,N=32", False)):
        machine = SimulatedMachine()
        report = tune(constant(spelling), this_machine(), budget=Budget(4), measurer=machine)
        assert report.best is not None
        assert report.best.packed_ahead is wanted
        assert report.to_json()["best"]["run_secs_with_packing"] is None


PACK = "for (int i = 0; i < N; i++) p[i] = a[i]; "
MAIN = "for (int i = 0; i < N; i++) b[i] = p[i] + 1; "
NEEDS = {"constants": [0], "packed_bytes": 4 * planted.N, "prepacked_workspace_bytes": 0}


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerClient]:
    with RunnerClient(OPEN) as client:
        yield client


def run(runner: RunnerClient, *code: str, op: str = "measure", **job: Any) -> dict[str, Any]:
    job = {"symbol": "kernel", "workspace_bytes": 0, "threads": 1, **NEEDS, **job}
    runner.submit(job, planted.prepacked_object(*code), 20.0, op)
    return runner.result()


def test_a_right_pair_of_entries_is_timed(runner: RunnerClient) -> None:
    result = run(runner, PACK, MAIN, op="check", every_entry=True)
    assert result["status"] == MeasureStatus.OK, result
    assert 0 < result["run_secs_estimate"] < 1e-3
    assert 0 < result["with_packing_run_secs_estimate"] < 1e-3


@pytest.mark.parametrize(
    ("pack", "main", "status", "detail"),
    [
        ("for (int i = 1; i < N; i++) p[i] = a[i]; ", MAIN, "wrong_result", r"B\[0\] is nan"),
        (PACK, MAIN + "p[0] = 0; ", "out_of_bounds", "a write to packed memory"),
        (PACK + "p[N] = 0; ", MAIN, "out_of_bounds", "0 bytes past the end of packed memory"),
        (PACK + "p[-1] = 0; ", MAIN, "out_of_bounds", "packed memory"),
        (PACK, MAIN + "b[0] = p[N + 7]; ", "out_of_bounds", "past the end of packed memory"),
        (PACK + "return 7; ", MAIN, "wrong_result", "returned error code 7"),
        (PACK + "((float *)a)[0] = 0; ", MAIN, "out_of_bounds", "a write to A, which is an input"),
    ],
)
def test_what_packing_can_do_wrong_is_found(
    runner: RunnerClient, pack: str, main: str, status: str, detail: str
) -> None:
    result = run(runner, pack, main)
    assert result["status"] == status, result
    assert re.search(detail, result["detail"]), result


def test_an_entry_that_gives_something_else_is_found_in_full(runner: RunnerClient) -> None:
    other = "for (int i = 0; i < N; i++) b[i] = a[i] + 2; "
    assert run(runner, PACK, MAIN, other)["status"] == MeasureStatus.OK
    result = run(runner, PACK, MAIN, other, op="check", every_entry=True)
    assert result["status"] == MeasureStatus.WRONG_RESULT


def test_threads_that_pack_the_same_bytes_are_a_race(runner: RunnerClient) -> None:
    twice = "\n#pragma omp parallel num_threads(2)\n{ for (int i = 0; i < N; i++) p[i] = a[i]; }\n"
    result = run(runner, twice, MAIN, threads=2)
    assert result["status"] == MeasureStatus.WRONG_RESULT
    assert "both write byte 0 of packed memory" in result["detail"]


def test_an_object_without_the_entries_is_refused(runner: RunnerClient) -> None:
    job = {"symbol": "kernel", "workspace_bytes": 0, "threads": 1, **NEEDS}
    runner.submit(job, planted.c_object(planted.RIGHT), 20.0)
    result = runner.result()
    assert result["status"] == MeasureStatus.COMPILE_ERROR
    assert "no function 'kernel_prepacked'" in result["detail"]
