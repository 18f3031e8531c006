"""Kernels with loops that are run by one instruction: right where the CPU has it, refused where it
does not."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import example_target
from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.instructions import MARK, narrow, schedule
from tests.support.schedules.workloads import matmul
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.nest.instructions import BY_NAME
from tilewright.schedules.primitives import (
    CacheWrite,
    Parallel,
    Partition,
    Primitive,
    Reorder,
    Split,
    Tensorize,
    Unroll,
)
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import assembly_text, compile_kernel, llvm_text


def agrees(workload: Workload, *steps: Primitive, threads: int = 1) -> None:
    """Interpreter, reference and, where this CPU has the instruction, the kernel agree."""
    pair = Pair("steps", workload, Trace(steps), threads, 512)
    lanes = next(s.factor for s in steps if isinstance(s, Split))
    form = BY_NAME[MARK.instruction].form_for(lanes)
    assert form is not None
    if form.is_on(this_machine().features):
        assert check_pair(pair)
    else:
        with pytest.raises(ScheduleError, match=r"Tensorize\(.*does not have it"):
            compile_kernel(workload, pair.trace, this_machine())


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("register", [True, False])
def test_dot_products_of_bytes(lanes: int, register: bool) -> None:
    agrees(narrow(), *schedule(MARK, lanes=lanes, register=register))


def test_dot_products_in_a_register_tile_on_two_threads() -> None:
    agrees(narrow(m=7, n=64), *schedule(MARK, Parallel("s0.d0")), threads=2)
    agrees(narrow(m=5, n=48, k=12), *schedule(MARK, Unroll("s0.d1o")))


def test_dot_products_beside_a_ragged_edge() -> None:
    agrees(narrow(n=40), *schedule(Partition("s0.d1o", 2), MARK, register=False))


def test_dot_products_of_rows_that_end_within_a_tile() -> None:
    agrees(narrow(m=3), *schedule(Split("s0.d0", 2), MARK))


def test_multiply_adds_are_the_code_of_their_row() -> None:
    steps = (Reorder(("s0.r0", "s0.d1")), CacheWrite("s0", "s0.d0", "c", False))
    trace = Trace((*steps, Tensorize("s0.d1", "fma.f32")))
    target = example_target("znver5")
    assert "@llvm.fma.v16f32" in llvm_text(matmul(4, 16, 5), trace, target)
    if BY_NAME["fma.f32"].has_form_on(this_machine().features):
        assert check_pair(Pair("steps", matmul(4, 16, 5), trace, 1, 512))


def test_the_instruction_is_in_the_code_once_a_loop() -> None:
    assembly = assembly_text(narrow(), Trace(schedule(MARK)), example_target("znver5"))
    assert len(re.findall(r"\tvpdpbusd\t", assembly)) >= 1
    assert "vpmaddwd" not in assembly


def test_a_target_without_it_gets_an_error_that_names_the_step() -> None:
    with pytest.raises(ScheduleError, match=r"Tensorize\(loop='s0.d1i', instruction='vpdpbusd'\)"):
        llvm_text(narrow(), Trace(schedule(MARK)), example_target("x86-64-v3"))
