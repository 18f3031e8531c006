"""Which instructions are of which feature, and which bits a program asks the CPU for."""

from __future__ import annotations

import pytest
from llvmlite import binding as llvm

from tilewright.tuner.isa.x86 import (
    BITS,
    YMM_STATE,
    ZMM_STATE,
    Word,
    closed,
    essential,
    features_in,
    required_bits,
    switches,
)

ALL = tuple(BITS)


def test_llvm_knows_every_name() -> None:
    """LLVM only warns of a name that it does not know, and then turns nothing off."""
    known = set(llvm.get_host_cpu_features())
    if "sse2" not in known:
        pytest.skip("not an x86 machine")
    assert set(BITS) <= known


@pytest.mark.parametrize(
    ("line", "features"),
    [
        ("\tvaddps\t%ymm0, %ymm1, %ymm2", {"avx", "avx2"}),
        ("\tvfmadd231ps\t(%rsi), %ymm1, %ymm2", {"avx", "avx2", "fma"}),
        ("\tvaddps\t%zmm0, %zmm1, %zmm2", {"avx512f", "avx512vl", "avx512dq"}),
        ("\tvaddps\t%ymm17, %ymm1, %ymm2", {"avx512vl"}),
        ("\tvpaddd\t(%rax){1to4}, %xmm1, %xmm2", {"avx512vl"}),
        ("\tkmovw\t%eax, %k1", {"avx512f"}),
        ("\tshlxq\t%rax, %rcx, %rdx", {"bmi2"}),
        ("\ttzcntl\t%eax, %ecx", {"bmi"}),
        ("\tpopcntq\t%rax, %rcx", {"popcnt"}),
        ("\tvpdpbusd\t%zmm0, %zmm1, %zmm2", {"avx512vnni"}),
        ("\t{vex}\tvpdpbusd\t%ymm0, %ymm1, %ymm2", {"avxvnni"}),
        ("\tvgf2p8affineqb\t$0, %ymm0, %ymm1, %ymm2", {"gfni"}),
        ("\tvpermb\t%zmm0, %zmm1, %zmm2", {"avx512vbmi"}),
        ("\tvcvtph2ps\t%xmm0, %ymm1", {"f16c"}),
        ("\tprefetchw\t(%rax)", {"prfchw"}),
    ],
)
def test_an_instruction_tells_its_feature(line: str, features: set[str]) -> None:
    found = features_in(f"kernel:\n{line}\n\tretq\n", ALL)
    assert features <= found
    plain = features_in("kernel:\n\taddps\t%xmm0, %xmm1\n\tretq\n", ALL)
    assert features & (found - plain) == features


def test_what_a_target_has_not_is_not_found() -> None:
    assert not features_in("\tvaddps\t%zmm0, %zmm1, %zmm2", ())
    found = features_in("\tvaddps\t%zmm0, %zmm1, %zmm2", ("avx512f",))
    assert found == closed({"avx512f"})
    assert "avx512vl" not in found


def test_features_bring_what_they_imply() -> None:
    assert closed({"avx512bw"}) >= {"avx512f", "avx2", "avx", "fma", "f16c", "sse4.2", "sse3"}
    assert essential(closed({"avx512bw", "bmi2"})) == ("avx512bw", "avx512f", "bmi2")
    assert essential(closed({"avx2", "fma"})) == ("avx2", "fma")
    assert essential(()) == ()


def test_switches_turn_off_first_and_then_on() -> None:
    """LLVM turns a feature off together with all that imply it, so the order counts."""
    words = switches({"avx2", "fma"}).split(",")
    assert sorted(word[1:] for word in words) == sorted(BITS)
    signs = "".join(word[0] for word in words)
    assert signs == "-" * signs.count("-") + "+" * signs.count("+")
    assert {word[1:] for word in words if word[0] == "+"} == closed({"avx2", "fma"})


def test_the_system_must_save_what_is_used() -> None:
    assert Word.XCR0 not in required_bits({"sse4.2", "popcnt"})
    assert required_bits({"avx"})[Word.XCR0] == YMM_STATE
    assert required_bits({"avx512f"})[Word.XCR0] == ZMM_STATE
    assert required_bits({"avx"})[Word.LEAF1_ECX] >> 27 & 1  # OSXSAVE: XCR0 may be read
    assert required_bits(()) == {}
    assert required_bits({"bmi2"}) == {Word.LEAF7_EBX: 1 << 8}
