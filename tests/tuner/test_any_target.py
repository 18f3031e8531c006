"""Descriptions of hardware from outside: LLVM ends no process of ours, whatever they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.paths import example_target
from tilewright.schedules.errors import TargetError
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner import compile as compile_here
from tilewright.tuner.backend.cpu.checker import runner
from tilewright.tuner.backend.protocol import LoadError
from tilewright.tuner.compiling.deadline_compile import (
    assembly_by_deadline,
    build_by_deadline,
    emit_by_deadline,
    is_well_known,
)
from tilewright.tuner.compiling.helper_process import CompileError
from tilewright.tuner.emit.emitted import emit_kernel
from tilewright.tuner.emit.kernel import generated
from tilewright.tuner.emit.object_code import emit_assembly
from tilewright.tuner.emit.variant import Variant
from tilewright.tuner.machine import llvm_names
from tilewright.tuner.machine.llvm_names import check_target, names_of
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.machine.x86_levels import LEVELS, level_target
from tilewright.tuner.search.default import default_trace

WORKLOAD = parse_workload("matmul:M=8,N=8,K=8")
PLAIN = level_target("x86-64")
TEXT = generated(WORKLOAD, Trace(), PLAIN).text


@pytest.mark.parametrize(
    "target",
    [
        replace(PLAIN, cpu="athlon"),  # 32 bits alone
        replace(PLAIN, triple="riscv64-unknown-linux-gnu", cpu="generic-rv32", features=()),
        replace(PLAIN, triple="riscv64-unknown-linux-gnu", cpu="generic-rv64", features=("32bit",)),
    ],
    ids=["no 64 bits", "another width", "features that contradict"],
)
def test_what_ends_llvm_ends_a_helper_with_its_words(target: Target) -> None:
    with pytest.raises(TargetError, match=rf"{target.cpu}.* LLVM ERROR: .*(64|RV32)"):
        emit_by_deadline(TEXT, target)
    with pytest.raises(TargetError, match="LLVM ERROR"):
        check_target(target)
    assert emit_by_deadline(TEXT, PLAIN).startswith(b"\x7fELF")


def test_names_that_llvm_does_not_know_are_told_with_their_neighbours() -> None:
    with pytest.raises(TargetError, match=r"no CPU 'znver55' .* znver5"):
        assembly_by_deadline(TEXT, replace(PLAIN, cpu="znver55"))
    with pytest.raises(TargetError, match=r"no feature 'avx22' .* avx2"):
        emit_kernel(
            WORKLOAD,
            [Variant("a", Trace(), replace(PLAIN, features=("avx22",)))],
            "k",
            build_by_deadline,
        )


def test_every_architecture_is_listed_though_llvm_lists_one_a_process() -> None:
    arm = replace(PLAIN, triple="aarch64-unknown-linux-gnu", cpu="neoverse-n1", features=("neon",))
    for target in (replace(PLAIN, cpu="btver2"), arm):
        assert emit_by_deadline(TEXT, target)


def test_a_module_that_llvm_refuses_is_no_fault_of_the_description() -> None:
    with pytest.raises(CompileError):
        emit_by_deadline("no module", replace(PLAIN, cpu="btver2"))


def test_a_description_is_asked_for_once_and_lists_are_shared_by_triples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arm = example_target("neoverse-n1")
    asked: list[list[str]] = []
    tell = llvm_names._listed_by_llvm

    def told(triple: str, words: list[str], document: bytes) -> Any:
        asked.append(words)
        return tell(triple, words, document)

    monkeypatch.setattr(llvm_names, "_listed_by_llvm", told)
    llvm_names._names_of.cache_clear()
    llvm_names._fatal_message.cache_clear()
    for _ in range(2):
        check_target(arm)
        check_target(replace(arm, triple="aarch64-alpine-linux-musl"))
    assert asked == [["aarch64-unknown-linux-gnu"], [], []]


def test_well_known_targets_are_in_llvms_lists() -> None:
    for target in (detect(), *map(level_target, LEVELS)):
        cpus, features = names_of(target.triple)
        assert is_well_known(target)
        assert target.cpu in cpus
        assert features.issuperset(target.features)
    assert not is_well_known(replace(PLAIN, cpu="athlon"))
    assert not is_well_known(replace(PLAIN, features=("avx",)))
    assert not is_well_known(replace(detect(), features=(*detect().features, "soft-float")))


def test_code_uses_nothing_that_the_description_leaves_out() -> None:
    wide = level_target("x86-64-v4")
    workload = parse_workload("matmul:M=64,N=64,K=64")
    text = generated(workload, default_trace(workload, wide), wide).text
    assert "zmm" in emit_assembly(text, wide)
    bare = replace(wide, cpu="sapphirerapids", features=())
    assert "zmm" not in emit_assembly(text, bare)
    assert "ymm" not in emit_assembly(text, bare)


def test_a_kernel_for_a_cpu_that_can_do_more_is_not_loaded() -> None:
    more = replace(detect(), cpu="bdver4", features=("fma4", "xop"), vector_bits=128)
    with pytest.raises(LoadError, match="for bdver4, and this machine lacks fma4"):
        compile_here(WORKLOAD, Trace(), more)


def test_a_machine_that_is_busy_at_the_first_burst_is_calibrated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bursts = iter([10.0])

    def slow_at_first(helpers: Any, steps: int, times: int) -> float:
        assert times > 0
        return next(bursts, 1e-4)

    monkeypatch.setattr(runner, "_fastest_burst_secs", slow_at_first)
    steps, secs = runner._calibrate(None, ())  # type: ignore[arg-type]
    assert steps > 0
    assert secs == 1e-4
