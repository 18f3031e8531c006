"""A back end beside the CPU is asked by everything that makes, loads or times kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tilewright.peers import contender
from tilewright.schedules import operators
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile as compile_here
from tilewright.tuner.backend import registry
from tilewright.tuner.backend.cpu.backend import Cpu
from tilewright.tuner.backend.protocol import Backend, Buffers, Clock, Emit, Loaded
from tilewright.tuner.codegen.abi import Needs
from tilewright.tuner.compiling import requests
from tilewright.tuner.emit.kernel import CompiledKernel
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.measure.local import LocalMeasurer


@dataclass
class Doubled:
    """Makes kernels that are the CPU's, and remembers what it was asked for."""

    cpu: Cpu = field(default_factory=Cpu)
    asked: list[str] = field(default_factory=list)
    name: str = "doubled"
    checker: str = "nowhere"
    prober: str = "tests.support.tuner.other_prober"

    def makes(self, target: Target) -> bool:
        return target.cores == 3

    def generate(
        self, workload: Workload, trace: Trace, target: Target, emit: Emit | None = None
    ) -> CompiledKernel:
        self.asked.append("generate")
        return self.cpu.generate(workload, trace, target, emit)

    def load(self, code: bytes, symbol: str, needs: Needs, arguments: int) -> Loaded:
        self.asked.append("load")
        return self.cpu.load(code, symbol, needs, arguments)

    def detect(self) -> Target:
        return replace(self.cpu.detect(), cpu="other", cores=3)

    def refuse_foreign(self, target: Target) -> None:
        self.asked.append("refuse_foreign")

    def warm_up(self) -> None:
        self.asked.append("warm_up")

    def buffers(self, size_bytes: Sequence[int], skip_bytes: int = 0) -> Buffers:
        self.asked.append("buffers")
        return self.cpu.buffers(size_bytes, skip_bytes)

    def clock(self, arguments: int, target: Target) -> Clock:
        self.asked.append("clock")
        return self.cpu.clock(arguments, target)


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Doubled:
    made = Doubled()
    backends: tuple[Backend, ...] = (made, Cpu())
    monkeypatch.setattr(registry, "BACKENDS", backends)
    return made


def test_the_cpu_makes_kernels_for_every_target() -> None:
    assert registry.backend_for(this_machine()).name == "cpu"


def test_no_back_end_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BACKENDS", ())
    with pytest.raises(TargetError, match="no back end makes kernels for"):
        registry.backend_for(this_machine())


def test_kernels_are_made_loaded_and_called_by_the_back_end_of_their_target(
    doubled: Doubled,
) -> None:
    target = replace(this_machine(), cores=3)
    workload = operators.matmul(M=8, N=8, K=8)
    kernel = compile_here(workload, Trace(), target)
    a, b = (np.ones((8, 8), np.float32) for _ in range(2))
    np.testing.assert_array_equal(kernel(a, b), np.full((8, 8), 8.0, np.float32))
    assert doubled.asked == ["generate", "load"]
    compile_here(workload, Trace(), this_machine())
    assert doubled.asked == ["generate", "load"]


def test_compile_workers_ask_the_back_end_of_the_target(doubled: Doubled) -> None:
    target = replace(this_machine(), cores=3)
    document = {
        "workload": operators.matmul(M=8, N=8, K=8).to_json(),
        "trace": [],
        "target": target.to_json(),
    }
    assert requests.compile_document(document).object_bytes
    assert doubled.asked == ["generate"]


def test_candidates_are_checked_by_the_back_end_s_own_program(doubled: Doubled) -> None:
    target = replace(this_machine(), cores=3)
    measurer = LocalMeasurer(operators.matmul(M=8, N=8, K=8), target, 0)
    assert measurer._runner.program == doubled.checker
    assert doubled.asked == ["refuse_foreign"]


def test_a_machine_is_described_and_probed_by_its_back_end(
    doubled: Doubled, tmp_path: Path
) -> None:
    target = native_target(threads=3, cache_dir=tmp_path)
    assert target.cpu == "other"
    assert target.probes.peak(DType.F32, 3) == 300.0


def test_helper_processes_warm_every_back_end_up(
    doubled: Doubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BACKENDS", registry.BACKENDS)
    requests.warm_up()
    assert doubled.asked == ["warm_up"]


def test_a_kernel_is_benchmarked_on_the_memory_and_the_clock_of_its_back_end(
    doubled: Doubled,
) -> None:
    target = replace(this_machine(), cores=3)
    workload = operators.matmul(M=8, N=8, K=8)
    made = doubled.generate(workload, Trace(), target)
    document = {
        "target": target.to_json(),
        "needs": asdict(made.needs),
        "symbol": made.symbol,
        "with_packing": False,
        "bytes_behind_line": 16,
    }
    case = Oracle(workload, 0).quick
    kernel = contender._kernel(document, made.object_bytes, workload, case)
    assert min(kernel.time(1, 2)) > 0
    assert case.check(kernel.outputs()) is None
    assert doubled.asked == ["generate", "load", "buffers", "buffers", "clock"]
