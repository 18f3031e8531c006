"""A back end beside the CPU is asked by everything that makes, loads or times kernels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from schedules import operators
from schedules.errors import TargetError
from schedules.target import Target
from schedules.trace import Trace
from schedules.workload.workload import Workload
from tests.schedule_fuzz.check import this_machine
from tuner import compile as compile_here
from tuner.backend import choose
from tuner.backend.cpu import Cpu
from tuner.backend.protocol import Backend, Emit, Loaded
from tuner.codegen.abi import Needs
from tuner.compiling import requests
from tuner.emit.kernel import CompiledKernel
from tuner.measure.local import LocalMeasurer


@dataclass
class Doubled:
    """Makes kernels that are the CPU's, and remembers what it was asked for."""

    cpu: Cpu = field(default_factory=Cpu)
    asked: list[str] = field(default_factory=list)
    name: str = "doubled"
    checker: str = "nowhere"

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

    def clock(self, arguments: int, target: Target) -> Any:
        raise NotImplementedError


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Doubled:
    made = Doubled()
    backends: tuple[Backend, ...] = (made, Cpu())
    monkeypatch.setattr(choose, "BACKENDS", backends)
    return made


def test_the_cpu_makes_kernels_for_every_target() -> None:
    assert choose.backend_for(this_machine()).name == "cpu"


def test_no_back_end_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "BACKENDS", ())
    with pytest.raises(TargetError, match="no back end makes kernels for"):
        choose.backend_for(this_machine())


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
