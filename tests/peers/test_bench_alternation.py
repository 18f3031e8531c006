"""The benchmark: every side is right before it is timed, and ratios are paired."""

from __future__ import annotations

import importlib.util
import json
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from tilewright.peers.bench import BenchError, bench, speedup_interval
from tilewright.peers.contender import rounds_otherwise
from tilewright.schedules import operators
from tilewright.schedules.primitives import Split
from tilewright.schedules.rewrites import Winograd
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.computation import with_constants
from tilewright.tuner.backend.cpu.loading.elf import undefined_symbols
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.search.default import default_trace


def test_a_benchmark_times_every_side_and_leaves_no_process(tmp_path: Path) -> None:
    workload, target = operators.build("matmul", M=48, N=48, K=48).normalised(), detect()
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    report = bench(
        workload,
        default_trace(workload, target),
        target,
        against=("numpy", "torch", "default"),
        seconds=0.2,
        compile_secs=0.0,
        lock_path=tmp_path / "lock",
    )
    document = json.loads(json.dumps(report.to_json()))
    assert document["kernel"]["run_secs"] > 0
    assert document["blocks"] >= 5
    assert list(document["against"]) == ["numpy", "torch", "default"]
    assert 0 < document["against"]["numpy"]["dispatch_secs"] < 1
    assert document["against"]["numpy"]["way"] in document["against"]["numpy"]["ways_secs"]
    assert document["against"]["numpy"]["rounding"] == ""
    assert document["against"]["default"]["dispatch_secs"] is None
    for name in ("numpy", "default"):
        side = document["against"][name]
        assert side["run_secs"] > 0
        assert 0 < side["speedup_low"] <= side["speedup"] <= side["speedup_high"]
    if importlib.util.find_spec("torch") is None:
        assert "pip install torch" in document["against"]["torch"]["detail"]
        assert document["against"]["torch"]["run_secs"] is None
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the name of an x86 processor")
def test_libraries_can_be_held_to_older_instructions(tmp_path: Path) -> None:
    workload, target = operators.build("matmul", M=16, N=16, K=16).normalised(), detect()
    report = bench(
        workload,
        default_trace(workload, target),
        target,
        seconds=0.1,
        environment={"OPENBLAS_CORETYPE": "Nehalem"},
        lock_path=tmp_path / "lock",
    )
    libraries = report.against["numpy"].libraries
    assert libraries["simd"]
    assert libraries.get("core", "Nehalem") == "Nehalem"


def test_a_rewritten_kernel_is_held_to_the_error_of_its_rewrite(tmp_path: Path) -> None:
    """F(4,3) is not exact on integers, where kernels that compute the sum itself are."""
    sizes = {"H": 9, "W": 9, "CI": 3, "CO": 8, "K": 3, "pad": 1}
    workload = operators.build("conv2d_nhwc", sizes).allowing(0.1).normalised()
    trace = Trace((Winograd("s0", ((1, 4), (2, 4))),))
    lock = tmp_path / "lock"
    report = bench(workload, trace, detect(), against=("numpy",), seconds=0.1, lock_path=lock)
    assert report.against["numpy"].detail == ""
    assert report.run_secs > 0


def test_a_kernel_that_calls_the_c_library_is_timed(tmp_path: Path) -> None:
    """Packing ahead is a plain copy here, memcpy, in a process that has loaded nothing before."""
    built = operators.build("matmul", M=4, N=16, K=1000)
    workload, target = with_constants(built, ["B"]).normalised(), detect()
    trace = Trace(())
    assert "memcpy" in undefined_symbols(compile_kernel(workload, trace, target).object_bytes)
    report = bench(workload, trace, target, against=(), seconds=0.1, lock_path=tmp_path / "lock")
    assert report.run_secs > 0
    assert report.run_secs_with_packing is not None


def test_a_kernel_is_timed_on_arrays_behind_a_line_as_well(tmp_path: Path) -> None:
    workload, target = operators.build("elementwise_add_relu", M=40, N=50).normalised(), detect()
    trace, lock = default_trace(workload, target), tmp_path / "lock"
    report = bench(
        workload, trace, target, against=(), seconds=0.1, bytes_behind_line=16, lock_path=lock
    )
    kernel = report.to_json()["kernel"]
    assert kernel["bytes_behind_line"] == 16
    assert kernel["run_secs_misaligned"] > 0
    plain = bench(workload, trace, target, against=(), seconds=0.1, lock_path=lock)
    assert "run_secs_misaligned" not in plain.to_json()["kernel"]
    with pytest.raises(BenchError, match="0 to 63 bytes behind a line; got 64"):
        bench(workload, trace, target, against=(), bytes_behind_line=64, lock_path=lock)


def test_a_kernel_that_does_not_compile_has_no_benchmark() -> None:
    workload = operators.build("matmul", M=4, N=4, K=4).normalised()
    with pytest.raises(BenchError, match="cannot be timed: not_legal: "):
        bench(workload, Trace((Split("no_such_axis", 2),)), detect(), against=())


def test_an_unknown_peer_is_refused_before_anything_starts() -> None:
    workload = operators.build("matmul", M=4, N=4, K=4)
    with pytest.raises(BenchError, match="numpy, torch, default; got 'blas'"):
        bench(workload, Trace(), replace(detect(), cpu="none"), against=("blas",))


def test_the_interval_holds_the_median_and_narrows_with_blocks() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for blocks in (10, 1000):
        ratios = 2.0 * np.exp(0.1 * rng.standard_normal(blocks))
        low, middle, high = speedup_interval(ratios, np.random.default_rng(1))
        assert low <= middle <= high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
    assert 1.95 < middle < 2.05


def test_a_library_may_round_otherwise_but_not_give_something_else() -> None:
    workload = operators.build("layernorm_mn", M=4, N=33).normalised()
    case = Oracle(workload, 0).quick
    (right,) = (np.asarray(each.values, np.float32) for each in case.expected)
    assert case.check([right]) is None
    near = right * np.float32(1 + 3e-6)
    assert case.check([near]) is not None
    assert rounds_otherwise(case, [near])
    assert not rounds_otherwise(case, [right * np.float32(1 + 5e-4)])
    missing = right.copy()
    missing[0, 0] = np.nan
    assert not rounds_otherwise(case, [missing])
    integers = operators.build("matmul", M=4, N=4, K=4, dtype="i8").normalised()
    whole = Oracle(integers, 0).quick
    assert not rounds_otherwise(whole, [np.asarray(each.values) for each in whole.expected])
