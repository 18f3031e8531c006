"""The choice among variants, on CPUs that are made up: whatever CPUID and XCR0 may say."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from llvmlite import binding as llvm

from tilewright.tuner.emit.dispatch import DispatchVariant, Sizes, entries_text
from tilewright.tuner.emit.object_code import host_target_machine
from tilewright.tuner.isa.x86 import closed

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="CPUID is an instruction of x86"
)

V2 = closed({"sse4.2", "popcnt"})
V3 = closed({"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}) | V2
V4 = closed({"avx512bw", "avx512cd", "avx512dq", "avx512vl"}) | V3
VNNI = closed({"avx512vnni", "avxvnni"}) | V4

CHOICES = (
    DispatchVariant("vnni", "k.0", tuple(VNNI)),
    DispatchVariant("v4", "k.1", tuple(V4)),
    DispatchVariant("v3", "k.2", tuple(V3)),
    DispatchVariant("v2", "k.3", tuple(V2)),
)
PLAIN = DispatchVariant("plain", "k.4", ())


@dataclass(frozen=True)
class Cpu:
    """What a CPU answers. `leaves[leaf, subleaf]` are eax, ebx, ecx, edx; a leaf it has not
    answers `junk` in every register, as the highest one does on some."""

    leaves: Mapping[tuple[int, int], tuple[int, int, int, int]]
    xcr0: int = 0xE7
    junk: int = 0xFFFFFFFF
    xgetbv_asked: list[bool] = field(default_factory=list)


SSE42 = 1 << 0 | 1 << 9 | 1 << 19 | 1 << 20 | 1 << 23
AVX = SSE42 | 1 << 12 | 1 << 22 | 1 << 27 | 1 << 28 | 1 << 29
BMI_AVX2 = 1 << 3 | 1 << 5 | 1 << 8
AVX512 = BMI_AVX2 | 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31


def cpu(
    ecx: int = AVX,
    ebx7: int = 0,
    *,
    ecx7: int = 0,
    eax71: int = 0,
    lzcnt: int = 1,
    top: int = 0x20,
    top7: int = 1,
    top_extended: int = 0x80000008,
    xcr0: int = 0xE7,
) -> Cpu:
    """A CPU with these words of features, and leaves up to `top`, `top7` and `top_extended`."""
    leaves = {
        (0, 0): (top, 0, 0, 0),
        (1, 0): (0, 0, ecx, 0),
        (0x80000000, 0): (top_extended, 0, 0, 0),
    }
    if top >= 7:
        leaves[7, 0] = (top7, ebx7, ecx7, 0)
        if top7 >= 1:
            leaves[7, 1] = (eax71, 0, 0, 0)
    if 0x80000001 <= top_extended < 0xFFFFFFFF:
        leaves[0x80000001, 0] = (0, 0, lzcnt << 5, 0)
    return Cpu(leaves, xcr0)


@contextmanager
def running_on(made_up: Cpu, choices: tuple[DispatchVariant, ...]) -> Iterator[Any]:
    """The entries `k`, `k_supported` and `k_variant` of these choices on that CPU. Variant n
    returns 100 + n."""

    def cpuid(out: Any, leaf: int, subleaf: int) -> None:
        answer = made_up.leaves.get((leaf, subleaf), (made_up.junk,) * 4)
        for number, value in enumerate(answer):
            out[number] = value

    def xcr0() -> int:
        made_up.xgetbv_asked.append(True)
        return made_up.xcr0

    word = ctypes.c_uint32
    asks = ctypes.CFUNCTYPE(None, ctypes.POINTER(word), word, word)(cpuid)
    reads = ctypes.CFUNCTYPE(word)(xcr0)
    text = entries_text("k", "x86_64-unknown-linux-gnu", choices, Sizes(0), [False], 1)
    text, count = re.subn(
        r"define internal (void @k\.cpuid\(.*?\)|i32 @k\.xcr0\(\)) noinline .*?\n\}",
        r"declare \1", text, flags=re.DOTALL,
    )  # fmt: skip
    assert count == 2
    for number, choice in enumerate(choices):
        text = re.sub(rf"declare (i32 @{re.escape(choice.symbol)}\(.*?\))",
                      rf"define \1 {{\n  ret i32 {100 + number}\n}}", text)  # fmt: skip
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host_target_machine())
    llvm.add_symbol("k.cpuid", ctypes.cast(asks, ctypes.c_void_p).value)
    llvm.add_symbol("k.xcr0", ctypes.cast(reads, ctypes.c_void_p).value)
    engine.add_module(llvm.parse_assembly(text))
    engine.finalize_object()

    def function(name: str, result: Any, *arguments: Any) -> Any:
        address = engine.get_function_address(name)
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    yield {
        "call": lambda: function("k", ctypes.c_int, *[ctypes.c_void_p] * 3)(None, None, None),
        "supported": function("k_supported", ctypes.c_int),
        "variant": function("k_variant", ctypes.c_char_p),
        "keep": (engine, asks, reads),
    }


CPUS = {
    "a CPU with everything": (cpu(ebx7=AVX512, ecx7=1 << 11, eax71=1 << 4), "vnni"),
    "AVX-512 without VNNI": (cpu(ebx7=AVX512), "v4"),
    "VNNI of one kind only": (cpu(ebx7=AVX512, ecx7=1 << 11), "v4"),
    "AVX-512F alone, as on Knights Landing": (cpu(ebx7=BMI_AVX2 | 1 << 16 | 1 << 28), "v3"),
    "AVX2": (cpu(ebx7=BMI_AVX2), "v3"),
    "AVX2 without LZCNT": (cpu(ebx7=BMI_AVX2, lzcnt=0), "v2"),
    "AVX2 without FMA": (cpu(AVX & ~(1 << 12), ebx7=BMI_AVX2), "v2"),
    "SSE4.2": (cpu(SSE42, top=5), "v2"),
    "SSE2": (cpu(0, top=1, top_extended=0), "plain"),
    "no leaf 7, and junk where it would be": (cpu(AVX, top=6), "v2"),
    "no subleaf 1 of leaf 7, and junk there": (
        cpu(ebx7=AVX512, ecx7=1 << 11, top7=0),
        "v4",
    ),
    "no extended leaf 1, and junk there": (cpu(ebx7=BMI_AVX2, top_extended=0x80000000), "v2"),
    "a system that does not save zmm": (cpu(ebx7=AVX512, xcr0=0x7), "v3"),
    "a system that saves masks but not zmm": (cpu(ebx7=AVX512, xcr0=0x27), "v3"),
    "a system that does not save ymm": (cpu(ebx7=AVX512, xcr0=0x3), "v2"),
    "a system without XSAVE": (cpu(AVX & ~(1 << 27), ebx7=AVX512), "v2"),
}


@pytest.mark.parametrize("name", CPUS)
def test_the_first_variant_that_runs_is_chosen(name: str) -> None:
    made_up, label = CPUS[name]
    choices = (*CHOICES, PLAIN)
    with running_on(made_up, choices) as kernel:
        number = [choice.label for choice in choices].index(label)
        assert kernel["variant"]() == label.encode()
        assert kernel["call"]() == 100 + number
        assert kernel["supported"]() == 1


@pytest.mark.parametrize("name", ["SSE2", "a CPU with everything"])
def test_without_a_plain_variant_a_cpu_may_be_refused(name: str) -> None:
    made_up, label = CPUS[name]
    with running_on(made_up, CHOICES) as kernel:
        expected = (b"none", 2, 0) if label == "plain" else (label.encode(), 100, 1)
        for _ in range(2):
            assert (kernel["variant"](), kernel["call"](), kernel["supported"]()) == expected


def test_xcr0_is_read_only_where_that_is_allowed() -> None:
    """XGETBV is an illegal instruction where the system does not use XSAVE."""
    without = cpu(AVX & ~(1 << 27), ebx7=AVX512)
    with running_on(without, (*CHOICES, PLAIN)) as kernel:
        kernel["call"]()
    assert not without.xgetbv_asked


def test_the_cpu_is_asked_once() -> None:
    made_up = cpu(ebx7=BMI_AVX2)
    with running_on(made_up, (*CHOICES, PLAIN)) as kernel:
        for _ in range(5):
            kernel["call"]()
            kernel["supported"]()
    assert len(made_up.xgetbv_asked) == 1


def test_a_kernel_for_every_cpu_asks_nothing() -> None:
    text = entries_text("k", "x86_64-unknown-linux-gnu", [PLAIN], Sizes(0), [False], 1)
    assert "cpuid" not in text
    assert "global" not in text.replace("unnamed_addr constant", "")
