"""Features of x86 CPUs: which of them code may use and does use, and how to query the CPU.

Names are LLVM's. Only features that code generation uses for arithmetic are listed. Generated code
never contains instructions of other features (encryption, cache control, locks, ...).

Sources: for bits of CPUID, Intel SDM vol. 2A, CPUID, and AMD APM vol. 3, appendix E; for state that
the operating system must save (XCR0), Intel SDM vol. 1, 13.3 and 14.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from tilewright.schedules.target import Target

X86_64 = "x86_64"
ARCHITECTURES = (X86_64, "i686", "i386")

BASE_CPU = "x86-64"
"""LLVM's name of a CPU with only the features of every 64-bit x86 CPU."""

STREAMS = (16, 32, 64)
"""The sizes in bytes of the vectors that have non-temporal stores: `movntps` and its wider
forms."""

STREAM_FENCE = "llvm.x86.sse.sfence"
"""The intrinsic that orders non-temporal stores before later stores."""

SCALE, RANGE = "llvm.x86.avx512.mask.scalef", "llvm.x86.avx512.mask.range"
"""Intrinsics of AVX-512. SCALE computes `x * 2**floor(n)` with one rounding. RANGE selects the
value of smaller magnitude (AVX-512DQ)."""

MANTISSA, EXPONENT = "llvm.x86.avx512.mask.getmant", "llvm.x86.avx512.mask.getexp"
"""Intrinsics of AVX-512F. MANTISSA scales `x` by a power of two to within an interval. EXPONENT is
floor(log2(abs(x))) as a float: -inf for zeros, inf for infinities. Both accept denormal numbers."""

PERMUTE = {16: "llvm.x86.avx512.permvar.sf.512", 8: "llvm.x86.avx2.permps"}
"""The intrinsics that look up a table of floats in a register, by the number of floats. The index
is an integer per lane, of which only the low bits count. The first needs AVX-512F, the second
AVX2."""

PERMUTE_PAIR = {16: "llvm.x86.avx512.vpermi2var.ps.512"}
"""The intrinsics that look up a table in a pair of registers: the first half, the index, the second
half. They need the features of `PERMUTE` of as many floats."""


class Word(IntEnum):
    """The 32-bit words that a program queries. Each feature is a bit of one of them."""

    LEAF1_ECX = 0
    LEAF7_EBX = 1
    LEAF7_ECX = 2
    LEAF7_EDX = 3
    LEAF7_1_EAX = 4
    EXTENDED1_ECX = 5
    XCR0 = 6


BITS: dict[str, tuple[Word, int]] = {
    "sse3": (Word.LEAF1_ECX, 0),
    "ssse3": (Word.LEAF1_ECX, 9),
    "fma": (Word.LEAF1_ECX, 12),
    "cx16": (Word.LEAF1_ECX, 13),
    "sse4.1": (Word.LEAF1_ECX, 19),
    "sse4.2": (Word.LEAF1_ECX, 20),
    "movbe": (Word.LEAF1_ECX, 22),
    "popcnt": (Word.LEAF1_ECX, 23),
    "avx": (Word.LEAF1_ECX, 28),
    "f16c": (Word.LEAF1_ECX, 29),
    "bmi": (Word.LEAF7_EBX, 3),
    "avx2": (Word.LEAF7_EBX, 5),
    "bmi2": (Word.LEAF7_EBX, 8),
    "avx512f": (Word.LEAF7_EBX, 16),
    "avx512dq": (Word.LEAF7_EBX, 17),
    "adx": (Word.LEAF7_EBX, 19),
    "avx512ifma": (Word.LEAF7_EBX, 21),
    "avx512cd": (Word.LEAF7_EBX, 28),
    "avx512bw": (Word.LEAF7_EBX, 30),
    "avx512vl": (Word.LEAF7_EBX, 31),
    "avx512vbmi": (Word.LEAF7_ECX, 1),
    "avx512vbmi2": (Word.LEAF7_ECX, 6),
    "gfni": (Word.LEAF7_ECX, 8),
    "avx512vnni": (Word.LEAF7_ECX, 11),
    "avx512bitalg": (Word.LEAF7_ECX, 12),
    "avx512vpopcntdq": (Word.LEAF7_ECX, 14),
    "avx512vp2intersect": (Word.LEAF7_EDX, 8),
    "avx512fp16": (Word.LEAF7_EDX, 23),
    "avxvnni": (Word.LEAF7_1_EAX, 4),
    "avx512bf16": (Word.LEAF7_1_EAX, 5),
    "avxifma": (Word.LEAF7_1_EAX, 23),
    "sahf": (Word.EXTENDED1_ECX, 0),
    "lzcnt": (Word.EXTENDED1_ECX, 5),
    "sse4a": (Word.EXTENDED1_ECX, 6),
    "prfchw": (Word.EXTENDED1_ECX, 8),
    "xop": (Word.EXTENDED1_ECX, 11),
    "fma4": (Word.EXTENDED1_ECX, 16),
    "tbm": (Word.EXTENDED1_ECX, 21),
}
"""All features that code generation may use in addition to those of every x86-64 CPU."""

OSXSAVE_BIT = 27
"""The bit of `Word.LEAF1_ECX` that is set if XCR0 may be read."""

YMM_STATE, ZMM_STATE = 0x6, 0xE6
"""Bits of XCR0 for the registers that the operating system saves. The first has xmm and ymm. The
second also has masks, zmm and the upper sixteen registers."""

_IMPLIES: dict[str, tuple[str, ...]] = {
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "sse4a": ("sse3",),
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "fma": ("avx",),
    "f16c": ("avx",),
    "fma4": ("avx", "sse4a"),
    "xop": ("fma4",),
    "avxvnni": ("avx2",),
    "avxifma": ("avx2",),
    "avx512f": ("avx2", "fma", "f16c"),
    "avx512cd": ("avx512f",),
    "avx512dq": ("avx512f",),
    "avx512bw": ("avx512f",),
    "avx512vl": ("avx512f",),
    "avx512ifma": ("avx512f",),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avx512vnni": ("avx512f",),
    "avx512bitalg": ("avx512bw",),
    "avx512vpopcntdq": ("avx512f",),
    "avx512vp2intersect": ("avx512f",),
    "avx512bf16": ("avx512bw",),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
}
"""The features that LLVM enables together with each feature (X86.td)."""

_AVX = frozenset({"avx", "avx2"})
_AVX512 = frozenset({"avx512f", "avx512cd", "avx512dq", "avx512bw", "avx512vl"})
_SSE4 = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2"})

_BY_MNEMONIC: tuple[tuple[str, str], ...] = (
    ("fma", r"vfn?m(add|sub).*"),
    ("f16c", r"vcvtph2ps|vcvtps2ph"),
    ("bmi", r"(andn|bextr|blsi|blsmsk|blsr|tzcnt)[lqw]?"),
    ("bmi2", r"(bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)[lq]?"),
    ("lzcnt", r"lzcnt[lqw]?"),
    ("popcnt", r"popcnt[lqw]?"),
    ("movbe", r"movbe[lqw]?"),
    ("cx16", r"cmpxchg16b"),
    ("sahf", r"[ls]ahf"),
    ("adx", r"ad[co]x[lq]?"),
    ("sse4a", r"extrq|insertq|movnts[sd]"),
    ("prfchw", r"prefetchw"),
    ("gfni", r"v?gf2p8.*"),
    ("avxvnni", r"vpdp.*"),
    ("avx512vnni", r"vpdp.*"),
    ("avxifma", r"vpmadd52.*"),
    ("avx512ifma", r"vpmadd52.*"),
    ("avx512bf16", r"vcvtne.*bf16|vdpbf16ps"),
    ("avx512fp16", r"v.*(ph|sh|phx)|vmovw"),
    ("avx512vbmi", r"vperm(b|i2b|t2b)|vpmultishiftqb"),
    ("avx512vbmi2", r"vpsh[lr]dv?[wdq]|vp(compress|expand)[bw]"),
    ("avx512bitalg", r"vpopcnt[bw]|vpshufbitqmb"),
    ("avx512vpopcntdq", r"vpopcnt[dq]"),
    ("avx512vp2intersect", r"vp2intersect[dq]"),
    ("xop", r"vp(cmov|perm|rot|sh[al]|com|mac).*"),
    ("fma4", r"vfn?m(add|sub).*"),
    ("tbm", r"bl(cfill|ci|cic|cmsk|cs|sfill|sic)[lq]?|t1mskc[lq]?|tzmsk[lq]?"),
)
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _BY_MNEMONIC)
_INSTRUCTION = re.compile(r"^\t(?:\{?vex\}?\s+)?([a-z][a-z0-9]*)\b([^\n#]*)", re.MULTILINE)
_AVX512_OPERANDS = re.compile(
    r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])\b|\{1to|\{sae\}|\{r[nudz]-sae"
)


def closed(features: Iterable[str]) -> frozenset[str]:
    """Return `features` and all features that they imply."""
    found: set[str] = set()
    left = list(features)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _IMPLIES.get(name, ())
    return frozenset(found)


def essential(features: Iterable[str]) -> tuple[str, ...]:
    """Return `features`, sorted, without those that other features imply. AVX-512F is always
    listed, because it names the family."""
    names = set(features)
    implied = {name for feature in names for name in closed(_IMPLIES.get(feature, ()))}
    return tuple(sorted(names - (implied - {"avx512f"})))


def features_in(assembly: str, available: Iterable[str]) -> frozenset[str]:
    """Return the features of `available` that instructions of `assembly` (AT&T syntax) may need.

    Some features are always present together in CPUs (AVX and AVX2, the five AVX-512 features of
    x86-64-v4). They are returned together. The caller must prove that no feature is missing, by
    compiling with only the returned ones.
    """
    instructions = {(found[1], found[2]) for found in _INSTRUCTION.finditer(assembly)}
    mnemonics = {name for name, _ in instructions}
    used = {name for name, pattern in _PATTERNS if any(map(pattern.fullmatch, mnemonics))}
    if any(_AVX512_OPERANDS.search(operands) for _, operands in instructions):
        used |= _AVX512
    if any(name.startswith("v") for name in mnemonics):
        used |= _AVX
    used |= _SSE4
    return closed(used & closed(set(available) & set(BITS)))


def switches(needed: Iterable[str]) -> str:
    """Return LLVM's feature string that allows exactly `needed` of the features in `BITS`."""
    allowed = closed(needed)
    off = [f"-{name}" for name in BITS if name not in allowed]
    return ",".join([*off, *(f"+{name}" for name in BITS if name in allowed)])


def required_bits(needed: Iterable[str]) -> dict[Word, int]:
    """Return the bits that must be set in each word so that code with these features can run. They
    include bits for the state that the operating system must save."""
    masks: dict[Word, int] = {}
    allowed = closed(needed)
    for name in allowed:
        word, bit = BITS[name]
        masks[word] = masks.get(word, 0) | 1 << bit
    if "avx" in allowed:
        masks[Word.LEAF1_ECX] |= 1 << OSXSAVE_BIT
        masks[Word.XCR0] = ZMM_STATE if "avx512f" in allowed else YMM_STATE
    return dict(sorted(masks.items()))


def vector_shape(features: frozenset[str]) -> tuple[int, int]:
    """Return `(vector_bits, vector_registers)` of a CPU with these features."""
    if "avx512f" in features:
        return 512, 32
    return (256, 16) if "avx" in features else (128, 16)


def masked_load_bits(features: frozenset[str]) -> int | None:
    """Return the width in bits of the widest masked load that LLVM does not split, or None if there
    is no limit.

    If masks are in vector registers (AVX without AVX-512), LLVM 22 splits a wider load. It then
    reads all elements of a part whose mask is constant false.
    """
    return 256 if "avx" in features and "avx512f" not in features else None


def scaled_bits(features: frozenset[str]) -> frozenset[int]:
    """Return the widths in bits of the vectors that have `SCALE` and `RANGE`."""
    needed = {512: {"avx512dq"}, 256: {"avx512dq", "avx512vl"}}
    return frozenset(bits for bits, names in needed.items() if names <= features)


def table_floats(features: frozenset[str]) -> int:
    """Return the number of floats in the largest table that `PERMUTE` looks up, or 0 if there is no
    such instruction or no fused multiply-add, which functions by tables rely on."""
    available = closed(features)
    if "avx512f" in available:
        return 16
    return 8 if {"avx2", "fma"} <= available else 0


def asks_cpu(target: Target) -> bool:
    """Return whether an object can query the CPU's features (see `emit.dispatch`). It can on x86-64
    with the System V calling convention."""
    return target.architecture == X86_64 and "windows" not in target.triple
