"""Execution of probe kernels in short runs (bursts) on threads of this process, and their rates."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.instructions import fastest_for
from tilewright.schedules.target import Target

from ....process.host import cpu_affinity, distinct_cores_first
from . import kernels
from .kernels import ProbeKernel

PROBED_DTYPES = (DType.F32, DType.F64, DType.I32)
DEFAULT_REGION_SECS = 2e-6
MAX_REGION_SECS = 1e-4
BURST_SECS = 0.0015
SHARED_SET_RATIO = 4
"""Size of the data that probe a shared cache, relative to the private caches of all cores, at
most. Operands of kernels that are read again from a shared cache have such sizes."""
_GOMP = "libgomp.so.1"


def probed_dots(target: Target) -> dict[str, ProbeKernel]:
    """Return the probes of `target`'s dot-product instructions, by the name of the instruction."""
    dots = (fastest_for(dtype, target) for dtype in (DType.I8, DType.BF16))
    made = {
        dot.name: kernels.dot_kernel(target, dot, f"tw_probe_{dot.name}")
        for dot in dots
        if dot is not None
    }
    return {name: kernel for name, kernel in made.items() if kernel is not None}


def working_sets(target: Target, memory_bytes: int) -> dict[str, tuple[int, bool]]:
    """Return the data that the bandwidth probe of each level reads: `{level: (bytes, is shared)}`.

    The size is half of a private cache or a quarter of a shared cache, which leaves space for other
    data. A large shared cache consists of slices, and distant ones are slower: its size is at most
    SHARED_SET_RATIO times the private caches of all cores. For memory it is four times the last
    cache level, clamped to 64..512 MiB, but at most an eighth of `memory_bytes`.
    """
    step = 16 * kernels.read_step_bytes(target)
    sets = {}
    nearby = SHARED_SET_RATIO * target.own_cache_bytes * target.cores
    for i, cache in enumerate(target.caches):
        size = cache.bytes // (4 if cache.shared else 2)
        if cache.shared and nearby:
            size = min(size, nearby)
        sets[f"L{i + 1}"] = (max(size // step, 1) * step, cache.shared)
    wanted = min(max(4 * target.caches[-1].bytes, 64 << 20), 512 << 20)
    size = max(min(wanted, memory_bytes // 8), 1 << 20)
    return {**sets, "memory": (size // step * step, True)}


@dataclass(frozen=True, slots=True)
class _Job:
    """One kernel on one thread, with the address and size of its data."""

    symbol: str
    data: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Burst:
    """One run of a kernel with `iterations` on each of several threads."""

    iterations: int
    wall_secs: float
    """The time from the first start to the last end."""
    cpu_secs: tuple[float, ...]
    """The CPU time of each thread."""

    @property
    def clean(self) -> bool:
        """Return whether every thread had a dedicated core from start to end."""
        return self.wall_secs <= 1.05 * max(self.cpu_secs)

    def rate(self, shared: bool) -> float:
        """Return the iterations per second of all threads together.

        If the resource is not `shared`, the rate uses the CPU time, which excludes other processes.
        Rates of shared resources use the wall time.
        """
        if shared:
            return self.iterations * len(self.cpu_secs) / self.wall_secs
        return sum(self.iterations / secs for secs in self.cpu_secs)


def best_rate(bursts: list[Burst], shared: bool) -> float:
    """Return the best rate of the clean bursts, or of all bursts if none is clean."""
    clean = [burst for burst in bursts if burst.clean]
    return max(burst.rate(shared) for burst in clean or bursts)


class ProbedMachine:
    """Compiled probes, a pool of threads and a buffer. Leaving the context ends the threads."""

    def __init__(self, target: Target, probe_secs: float) -> None:
        self._target = target
        self._probe_secs = probe_secs
        self._arithmetic = {
            d.value: kernels.arithmetic_kernel(target, d, f"tw_probe_{d.value}")
            for d in PROBED_DTYPES
        } | probed_dots(target)
        self._read: ProbeKernel = kernels.read_kernel(target, "tw_probe_read")
        self._chain = kernels.chain_kernel("tw_probe_chain")
        self._strided = kernels.strided_kernel("tw_probe_strided", target.line_bytes)
        single = (self._read, self._chain, self._strided)
        texts = [k.text for k in (*self._arithmetic.values(), *single)]
        text = "\n".join([*texts, kernels.driver_text(), kernels.regions_text()])
        self._engine = _load(text, target)
        self._driver = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7)(
            self._engine.get_function_address(kernels.DRIVER)
        )
        self._pool = ThreadPoolExecutor(target.cores)
        self._cpus = distinct_cores_first(cpu_affinity())
        self._buffer, self._address, self._filled = mmap.mmap(-1, 4096), 0, 0

    def __enter__(self) -> ProbedMachine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()

    def warm_up(self) -> None:
        """Run until the core has reached its clock frequency under vector load."""
        self.gigaops(DType.F32.value, 1)

    @property
    def arithmetic(self) -> tuple[str, ...]:
        """The names of the types and dot-product instructions whose peaks can be measured on this
        machine."""
        return tuple(self._arithmetic)

    def gigaops(self, name: str, threads: int) -> float:
        """Return the peak of `threads` threads together in 1e9 operations per second.

        A multiply-add counts as two operations. `name` is one of `arithmetic`.
        """
        kernel = self._arithmetic[name]
        self._reserve(4096 * threads)
        jobs = [_Job(kernel.symbol, self._address + 4096 * i, 0) for i in range(threads)]
        return kernel.ops_per_iteration * self._best_rate(jobs, shared=False) / 1e9

    def gigahertz(self) -> float:
        """Return the clock frequency of one core in GHz. It is measured by a chain with one step
        per cycle."""
        self._reserve(4096)
        jobs = [_Job(self._chain.symbol, self._address, 0)]
        return self._chain.ops_per_iteration * self._best_rate(jobs, shared=False) / 1e9

    def gigabytes(self, size: int, shared: bool, threads: int) -> float:
        """Return the best read rate of `threads` threads together, in 1e9 bytes per second.

        Each thread reads `size` bytes that no other thread reads. If the level is `shared`, `size`
        is divided among the threads.
        """
        step = kernels.read_step_bytes(self._target)
        part = max(size // threads // step, 1) * step if shared else size
        # A stride of an odd number of lines makes threads use different sets of a shared cache.
        stride = part + (-part) % 4096 + 4096 + 64
        self._reserve(stride * threads)
        jobs = [_Job(self._read.symbol, self._address + stride * i, part) for i in range(threads)]
        return part * self._best_rate(jobs, shared) / 1e9

    def strided_gigabytes(self, size: int) -> float:
        """Return the rate of one thread that reads lines of different pages of `size` bytes, in 1e9
        bytes of whole lines per second."""
        self._reserve(size)
        lines = -(-size // kernels.LINE_STRIDE_BYTES)
        jobs = [_Job(self._strided.symbol, self._address, size)]
        return lines * self._target.line_bytes * self._best_rate(jobs, shared=False) / 1e9

    def region_secs(self, threads: int) -> float:
        """Return the seconds of an empty, warm OpenMP region of `threads` threads: the best of many
        batches.

        Return the default if libgomp is missing, or if cores were too busy for every batch.
        """
        try:
            gomp = ctypes.CDLL(_GOMP)
        except OSError:
            return DEFAULT_REGION_SECS
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)(
            self._engine.get_function_address(kernels.REGIONS)
        )
        entry = ctypes.cast(gomp.GOMP_parallel, ctypes.c_void_p)
        count, best, started = 10, float("inf"), time.perf_counter()
        while True:
            start = time.perf_counter()
            run(entry, count, threads)
            now = time.perf_counter()
            best = min(best, (now - start) / count)
            # A region that waits for a busy core takes a time slice of the scheduler.
            if now - started > self._probe_secs * (1 if best < MAX_REGION_SECS else 5):
                break
        return best if best < MAX_REGION_SECS else DEFAULT_REGION_SECS

    def _best_rate(self, jobs: list[_Job], shared: bool) -> float:
        """Return the iterations per second of all `jobs` in parallel: the best of many bursts.

        If the machine is too busy for three clean bursts, measuring takes up to three times as
        long.
        """
        iterations, bursts = 1, list[Burst]()
        start = time.perf_counter()
        while True:
            burst = self._burst(jobs, iterations)
            busy_secs = max(burst.cpu_secs)
            if busy_secs < BURST_SECS / 2 and iterations < 1 << 40:  # too short to be timed
                iterations *= int(min(max(1.1 * BURST_SECS / busy_secs, 2), 100))
                continue
            bursts.append(burst)
            patience = 1 if sum(burst.clean for burst in bursts) >= 3 else 3
            if time.perf_counter() - start >= patience * self._probe_secs:
                return best_rate(bursts, shared)

    def _burst(self, jobs: list[_Job], iterations: int) -> Burst:
        arrived = ctypes.c_int64(0)
        times = [(ctypes.c_int64 * 8)() for _ in jobs]
        pins = self._cpus if len(jobs) > 1 else []

        def work(i: int) -> None:
            if hasattr(os, "sched_setaffinity"):  # affects this thread only
                os.sched_setaffinity(0, {pins[i]} if i < len(pins) else set(self._cpus))
            self._driver(
                self._engine.get_function_address(jobs[i].symbol), iterations, jobs[i].data,
                jobs[i].bytes, ctypes.addressof(arrived), len(jobs), ctypes.addressof(times[i]),
            )  # fmt: skip

        for done in [self._pool.submit(work, i) for i in range(len(jobs))]:
            done.result()
        nanos = [[t[i] * 10**9 + t[i + 1] for i in (0, 2, 4, 6)] for t in times]
        wall = max(t[3] for t in nanos) - min(t[0] for t in nanos)
        cpu = [max(t[2] - t[1], 1) / 1e9 for t in nanos]
        return Burst(iterations, max(wall, 1) / 1e9, tuple(cpu))

    def _reserve(self, size: int) -> None:
        """Provide at least `size` bytes at `self._address`, and write each page once.

        Otherwise all pages would map to one zero page. All cores write, because allocating pages is
        slow.
        """
        if size <= self._filled:
            return
        # Private memory, as NumPy uses it. Shared memory has no huge pages on most systems.
        self._buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._buffer.madvise(mmap.MADV_HUGEPAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        part = -(-size // self._target.cores)
        starts = range(0, size, part)
        lengths = [min(part, size - start) for start in starts]
        fill = ctypes.memset
        jobs = [
            self._pool.submit(fill, self._address + start, 1, length)
            for start, length in zip(starts, lengths, strict=True)
        ]
        for job in jobs:
            job.result()
        self._filled = size


def _load(text: str, target: Target) -> Any:
    """Return an execution engine with the code of `text` for `target`. No optimisation passes
    run."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=",".join(f"+{f}" for f in target.features), opt=3, jit=True
    )
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
