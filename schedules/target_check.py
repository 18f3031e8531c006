"""Target descriptions from outside, held to what code generation and measuring can work with.

A description is a file or a field of a request: any JSON. Numbers that no machine has would divide
by zero, ask for all memory, or end a worker inside LLVM.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import TargetError

if TYPE_CHECKING:
    from .target import Target

MAX_CORES = 4096
MAX_REGISTERS = 1024
MAX_CACHES = 8
MAX_CACHE_BYTES = 1 << 40
MAX_FEATURES = 1000

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
ARCHITECTURES = (
    "aarch64",
    "arm64",
    "armv7",
    "i386",
    "i686",
    "loongarch64",
    "powerpc64le",
    "ppc64le",
    "riscv32",
    "riscv64",
    "s390x",
    "x86_64",
)
"""What a triple may begin with: LLVM ends the process for one that it does not know."""

_TRIPLE = re.compile(rf"({'|'.join(ARCHITECTURES)})-[A-Za-z0-9_.-]{{1,99}}")


def check_target(target: Target) -> None:
    """TargetError for what no machine has."""
    if not _TRIPLE.fullmatch(target.triple):
        raise TargetError(
            "triple must be LLVM's, such as x86_64-unknown-linux-gnu, for one of"
            f" {', '.join(ARCHITECTURES)}; got {target.triple[:80]!r}"
        )
    for name in (target.cpu, *target.features):
        if not _WORD.fullmatch(name):
            raise TargetError(f"cpu and features are names LLVM knows, got {name[:80]!r}")
    if len(target.features) > MAX_FEATURES:
        raise TargetError(f"at most {MAX_FEATURES} features, got {len(target.features)}")
    if target.vector_bits not in (64, 128, 256, 512):
        raise TargetError(f"vector_bits must be 64, 128, 256 or 512, got {target.vector_bits!r}")
    _whole("cores", target.cores, 1, MAX_CORES)
    _whole("threads", target.threads, 1, target.cores)
    _whole("vector_registers", target.vector_registers, 4, MAX_REGISTERS)
    _whole("the number of caches", len(target.caches), 1, MAX_CACHES)
    for number, cache in enumerate(target.caches):
        _whole(f"caches/{number}/bytes", cache.bytes, 1024, MAX_CACHE_BYTES)
        _whole(f"caches/{number}/line_bytes", cache.line_bytes, 16, 1024)
        _whole(f"caches/{number}/ways", cache.ways, 1, 65536)
    _check_probes(target)


def _check_probes(target: Target) -> None:
    probes = target.probes
    for field, table in (
        ("peak_gflops", probes.peak_gflops),
        ("bandwidth_gbs", probes.bandwidth_gbs),
    ):
        if not isinstance(table, dict):
            raise TargetError(f"probes/{field} must be an object of lists, got {_shown(table)}")
        for name, values in table.items():
            if (
                not isinstance(values, list)
                or len(values) > MAX_CORES
                or not all(_is_number(value) and 0 <= value <= 1e9 for value in values)
            ):
                raise TargetError(
                    f"probes/{field}/{str(name)[:40]} must be a list of numbers from 0 to 1e9, one"
                    f" a thread count; got {_shown(values)}"
                )
    secs = probes.parallel_region_secs
    if not _is_number(secs) or not 0 <= secs <= 1:
        raise TargetError(f"probes/parallel_region_secs must be 0 to 1, got {_shown(secs)}")
    if not isinstance(probes.doubtful, bool):
        raise TargetError(f"probes/doubtful must be true or false, got {_shown(probes.doubtful)}")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TargetError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return repr(value)[:80]
