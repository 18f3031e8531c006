"""Target: the hardware a kernel is made for, as a plain JSON value with a key.

`probes` (what was measured on it) never enter the key: two machines of one kind share records.
Detection and probing are the tuner's (`tuner/machine/native_target.py`); this file is only the
value.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from .dtypes import DType
from .errors import TargetError
from .record import canonical_bytes
from .target_check import check_target


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of data cache as one core sees it."""

    bytes: int
    ways: int
    line_bytes: int = 64
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Probes:
    """What was measured on the machine; zeros where nothing was.

    `peak_gflops[dtype]` and `bandwidth_gbs[level]` ("L1", "L2", "L3", "memory") are lists with
    one entry a thread count: index 0 for one thread. `doubtful`: other work ran meanwhile, or a
    kernel was faster than they allow; the machine can do more than they say.
    """

    peak_gflops: dict[str, list[float]] = field(default_factory=dict)
    bandwidth_gbs: dict[str, list[float]] = field(default_factory=dict)
    parallel_region_secs: float = 2e-6
    doubtful: bool = False

    def peak(self, dtype: DType, threads: int) -> float:
        """Measured peak in GFLOP/s, 0.0 if it was not probed."""
        values = self.peak_gflops.get(dtype, [])
        return values[min(threads, len(values)) - 1] if values else 0.0

    def bandwidth(self, level: str, threads: int) -> float:
        """Measured read bandwidth in GB/s (1e9 bytes), 0.0 if it was not probed."""
        values = self.bandwidth_gbs.get(level, [])
        return values[min(threads, len(values)) - 1] if values else 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """`triple`, `cpu` and `features` are LLVM's; `features` are the enabled ones, sorted.

    `vector_registers` counts registers of `vector_bits`; `threads` is how many a kernel may use,
    `cores` how many the machine has.
    """

    triple: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    caches: tuple[Cache, ...]
    cores: int
    threads: int = 1
    probes: Probes = field(default_factory=Probes, compare=False)

    @property
    def key(self) -> str:
        """sha256 over triple, cpu, features, cache sizes and threads; never the probes."""
        identity = {
            "triple": self.triple,
            "cpu": self.cpu,
            "features": sorted(self.features),
            "cache_bytes": [c.bytes for c in self.caches],
            "threads": self.threads,
        }
        return hashlib.sha256(canonical_bytes(identity)).hexdigest()

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector register (bf16 counts as the f32 it is computed in)."""
        bits = 32 if dtype is DType.BF16 else max(dtype.bits, 8)
        return max(self.vector_bits // bits, 1)

    @property
    def own_cache_bytes(self) -> int:
        """The largest cache that a core has to itself; 0 if all are shared."""
        return max((cache.bytes for cache in self.caches if not cache.shared), default=0)

    def with_threads(self, threads: int) -> Target:
        """The same machine with kernels of up to `threads` threads; TargetError if it has fewer."""
        if not 1 <= threads <= self.cores:
            raise TargetError(
                f"threads={threads}: this machine allows 1..{self.cores} threads a kernel"
            )
        return replace(self, threads=threads)

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        if not self.probes.doubtful:  # as in documents of versions that did not know it
            del document["probes"]["doubtful"]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The target of a document as `to_json` makes it; TargetError names what is wrong."""
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
