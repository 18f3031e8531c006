"""Target: a description of the hardware for which a kernel is compiled, as a JSON value with a key.

Measured figures (`probes`) are not part of the key, so machines of the same kind share records.
`tuner/machine/native_target.py` detects and probes a machine. This module defines the value and
validates descriptions from files and requests: impossible numbers would cause a division by zero,
an allocation of all memory or a crash inside LLVM.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from .canonical import canonical_bytes
from .dtypes import DType
from .errors import TargetError
from .python_numbers import as_whole_number

MAX_CORES = 4096
MAX_REGISTERS = 1024
MAX_CLOCK_GHZ = 100
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
"""Architectures with which a triple may begin; LLVM aborts the process for an unknown one."""

_TRIPLE = re.compile(rf"({'|'.join(ARCHITECTURES)})-[A-Za-z0-9_.-]{{1,99}}")


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of data cache, seen from one core."""

    bytes: int
    ways: int
    line_bytes: int = 64
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Probes:
    """Measured figures of the machine. Except for `parallel_region_secs`, figures that were not
    measured are zero."""

    peak_gflops: dict[str, list[float]] = field(default_factory=dict)
    """Map from an element type or a dot-product instruction ("vpdpbusd") to a list. Element n - 1
    is the figure for n threads."""
    bandwidth_gbs: dict[str, list[float]] = field(default_factory=dict)
    """Map from "L1", "L2", "L3" or "memory" to a list. Element n - 1 is the figure for n
    threads."""
    parallel_region_secs: float = 2e-6
    """The time of an empty parallel region in seconds."""
    doubtful: bool = False
    """Whether the true figures are higher: other processes ran during the probes, or a kernel
    exceeded the figures."""
    clock_ghz: float = 0.0
    """The clock of one busy core."""
    strided_gbs: dict[str, list[float]] = field(default_factory=dict)
    """Map from "L2", "L3" or "memory" to a list. Element n - 1 is the rate at which n threads read
    whole lines of different pages, which no prefetcher loads in time."""

    def peak(self, dtype: DType, threads: int) -> float:
        """Return the measured peak of `dtype` in GFLOP/s, or 0.0 if it was not probed."""
        return self.peak_of(dtype, threads)

    def peak_of(self, name: str, threads: int) -> float:
        """Return the measured peak in GFLOP/s of the type or instruction `name`, or 0.0 if it was
        not probed."""
        values = self.peak_gflops.get(name, [])
        return values[min(threads, len(values)) - 1] if values else 0.0

    def bandwidth(self, level: str, threads: int) -> float:
        """Return the measured read bandwidth in GB/s (1e9 bytes), or 0.0 if it was not probed."""
        values = self.bandwidth_gbs.get(level, [])
        return values[min(threads, len(values)) - 1] if values else 0.0

    def strided(self, level: str) -> float:
        """Return the rate in GB/s at which one thread reads lines of different pages, or 0.0 if it
        was not probed."""
        return next(iter(self.strided_gbs.get(level, ())), 0.0)


@dataclass(frozen=True)
class Target:
    """A compilation target and its hardware parameters. `triple`, `cpu` and `features` are names
    that LLVM uses."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    """The enabled features, sorted."""
    vector_bits: int
    vector_registers: int
    """Number of registers of `vector_bits`."""
    caches: tuple[Cache, ...]
    cores: int
    threads: int = 1
    """Number of threads that a kernel may use."""
    probes: Probes = field(default_factory=Probes, compare=False)

    @cached_property
    def key(self) -> str:
        """SHA-256 of triple, CPU, features, cache sizes and threads, without the probes."""
        identity = {
            "triple": self.triple,
            "cpu": self.cpu,
            "features": sorted(self.features),
            "cache_bytes": [c.bytes for c in self.caches],
            "threads": self.threads,
        }
        return hashlib.sha256(canonical_bytes(identity)).hexdigest()

    @property
    def architecture(self) -> str:
        """The first component of the triple: one of `ARCHITECTURES`."""
        return self.triple.partition("-")[0]

    def lanes(self, dtype: DType) -> int:
        """Return the number of elements of `dtype` in one vector register.

        For a narrow float, return the number of elements of its compute type.
        """
        bits = max((dtype.wide if dtype.is_float else dtype).bits, 8)
        return max(self.vector_bits // bits, 1)

    @property
    def line_bytes(self) -> int:
        return self.caches[0].line_bytes

    @property
    def most_transposed(self) -> int:
        """The longest side of a block that can be transposed in registers.

        Half of the registers hold the block, the other half the results of a step.
        """
        return max(self.vector_registers // 2, 1)

    @property
    def own_cache_bytes(self) -> int:
        """Bytes of the largest cache that is private to a core, or 0 if all caches are shared."""
        return max((cache.bytes for cache in self.caches if not cache.shared), default=0)

    def with_threads(self, threads: int) -> Target:
        """Return this machine as a target for kernels of up to `threads` threads.

        Raise TargetError if the machine has fewer cores.
        """
        number = as_whole_number(threads)
        if number is None or not 1 <= number <= self.cores:
            raise TargetError(
                f"threads={threads}: this machine allows 1..{self.cores} threads per kernel"
            )
        return replace(self, threads=number)

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        for name in (
            "clock_ghz",
            "doubtful",
            "strided_gbs",
        ):  # omitted, as in documents of older versions
            if not document["probes"][name]:
                del document["probes"][name]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the target of a document written by `to_json`.

        Raise TargetError with the invalid field if the document is not valid.
        """
        try:
            probes = document.get("probes") or {}
            target = cls(
                triple=str(document["triple"]),
                cpu=str(document["cpu"]),
                features=tuple(sorted(str(f) for f in document["features"])),
                vector_bits=document["vector_bits"],
                vector_registers=document["vector_registers"],
                caches=tuple(Cache(**c) for c in document["caches"]),
                cores=document["cores"],
                threads=document.get("threads", 1),
                probes=Probes(**probes),
            )
        except KeyError as error:
            raise TargetError(f"not a target description: it has no {error}") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise TargetError(f"not a target description: {error}") from error
        check_target(target)
        return target


def check_target(target: Target) -> None:
    """Raise TargetError if a value is outside the range of real machines."""
    if not _TRIPLE.fullmatch(target.triple):
        raise TargetError(
            "triple must be LLVM's, such as x86_64-unknown-linux-gnu, for one of"
            f" {', '.join(ARCHITECTURES)}; got {target.triple[:80]!r}"
        )
    for name in (target.cpu, *target.features):
        if not _WORD.fullmatch(name):
            raise TargetError(f"cpu and features must be names of LLVM, got {name[:80]!r}")
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
    for group, table in (
        ("peak_gflops", probes.peak_gflops),
        ("bandwidth_gbs", probes.bandwidth_gbs),
        ("strided_gbs", probes.strided_gbs),
    ):
        if not isinstance(table, dict):
            raise TargetError(f"probes/{group} must be an object of lists, got {_shown(table)}")
        for name, values in table.items():
            if (
                not isinstance(values, list)
                or len(values) > MAX_CORES
                or not all(_is_number(value) and 0 <= value <= 1e9 for value in values)
            ):
                raise TargetError(
                    f"probes/{group}/{str(name)[:40]} must be a list of numbers from 0 to 1e9, one"
                    f" per thread count; got {_shown(values)}"
                )
    secs = probes.parallel_region_secs
    if not _is_number(secs) or not 0 <= secs <= 1:
        raise TargetError(f"probes/parallel_region_secs must be 0 to 1, got {_shown(secs)}")
    if not _is_number(probes.clock_ghz) or not 0 <= probes.clock_ghz <= MAX_CLOCK_GHZ:
        raise TargetError(
            f"probes/clock_ghz must be 0 to {MAX_CLOCK_GHZ}, got {_shown(probes.clock_ghz)}"
        )
    if not isinstance(probes.doubtful, bool):
        raise TargetError(f"probes/doubtful must be true or false, got {_shown(probes.doubtful)}")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TargetError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return repr(value)[:80]
