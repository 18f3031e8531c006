"""Measure a machine: arithmetic peaks, read bandwidth a level, the cost of a parallel region.

Probes run in a process of their own (`python -m tuner.probe`, target JSON on stdin, probes JSON
on stdout): they start threads and OpenMP, and no process that forks later may have done that.
Every figure is the best of several bursts: interference only ever makes a burst slower.
Source of the estimator: Chen and Revels, arXiv:1608.04295.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from schedules.dtypes import DType
from schedules.errors import TargetError
from schedules.target import Probes, Target

from . import probe_kernels as kernels
from .host import available_memory_bytes, cpu_affinity, distinct_cores_first
from .probe_kernels import ProbeKernel, fma_burst_ir

__all__ = ["DEFAULT_REGION_SECS", "fma_burst_ir", "measure_probes", "probe_target"]

PROBED_DTYPES = (DType.F32, DType.F64, DType.I32)
DEFAULT_REGION_SECS = 2e-6
MAX_REGION_SECS = 1e-4
PROCESS_DEADLINE_SECS = 60.0
TOTAL_BUDGET_SECS = 0.8
MAX_PROBE_SECS = 0.04
BURST_SECS = 0.0015
ATTEMPTS = 3
_GOMP = "libgomp.so.1"


def probe_target(target: Target) -> Probes:
    """Probe this machine, which must be the one `target` describes, in a process of its own.

    TargetError if that process fails, with the last line it wrote.
    """
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tuner.probe"],
            input=json.dumps(target.to_json()),
            capture_output=True,
            text=True,
            timeout=PROCESS_DEADLINE_SECS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TargetError(
            f"probing {target.cpu} took longer than {PROCESS_DEADLINE_SECS:.0f} s and was stopped"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"probing {target.cpu} failed with status {done.returncode}: {last}")
    return Probes(**json.loads(done.stdout))


def measure_probes(target: Target, budget_secs: float = TOTAL_BUDGET_SECS) -> Probes:
    """Probe in this very process: threads are started, OpenMP too. About `budget_secs`."""
    counts = thread_counts(target.cores)
    levels = working_sets(target, available_memory_bytes())
    probes = len(counts) * (len(PROBED_DTYPES) + len(levels))
    with _Machine(target, min(MAX_PROBE_SECS, budget_secs / probes)) as machine:
        machine.warm_up()
        peaks = {
            dtype.value: spread(scaling(partial(machine.gigaops, dtype), counts), target.cores)
            for dtype in PROBED_DTYPES
        }
        bandwidths = {}
        for level, (size, shared) in levels.items():
            measure = partial(machine.gigabytes, size, shared)
            found = scaling(measure, counts, attempts=1 if shared else ATTEMPTS)
            bandwidths[level] = spread(found, target.cores)
        region_secs = machine.region_secs(target.cores)
    # bf16 is stored in 16 bits and computed in f32: its peak is the f32 peak.
    peaks[DType.BF16.value] = list(peaks[DType.F32.value])
    return Probes(peaks, bandwidths, region_secs)


def scaling(
    measure: Callable[[int], float], counts: list[int], attempts: int = ATTEMPTS
) -> dict[int, float]:
    """`{threads: rate}` of a private resource, asking again where cores did not add up.

    That is the mark of another process on one of them, and a peak taken too low would make
    honest kernels look impossible. SMT siblings never add up, and cost the further attempts.
    """
    found: dict[int, float] = {}
    for n in counts:
        found[n] = measure(n)
        for _ in range(attempts - 1):
            if found[n] >= 0.95 * n * found[counts[0]]:
                break
            found[n] = max(found[n], measure(n))
    return found


def thread_counts(cores: int) -> list[int]:
    """The numbers of threads that are measured: 1, 2, 4, ... and all of them."""
    return sorted({1 << i for i in range(cores.bit_length()) if 1 << i <= cores} | {cores})


def spread(measured: dict[int, float], cores: int) -> list[float]:
    """A value for every thread count 1..cores: measured ones as they are, linear in between."""
    known = sorted(measured)
    values = []
    for n in range(1, cores + 1):
        high = next(k for k in known if k >= n)
        low = max(k for k in known if k <= n)
        share = (n - low) / (high - low) if high > low else 0.0
        value = measured[low] + share * (measured[high] - measured[low])
        values.append(float(f"{value:.4g}"))
    return values


def working_sets(target: Target, memory_bytes: int) -> dict[str, tuple[int, bool]]:
    """`{level: (bytes, shared)}`: what to read so that it comes from that level.

    Half of a private cache and a quarter of a shared one, so that it fits beside everything else;
    for memory four times the last level, 64 to 512 MiB, at most an eighth of what is free.
    """
    step = 16 * kernels.read_step_bytes(target)
    sets = {}
    for i, cache in enumerate(target.caches):
        size = cache.bytes // (4 if cache.shared else 2)
        sets[f"L{i + 1}"] = (max(size // step, 1) * step, cache.shared)
    wanted = min(max(4 * target.caches[-1].bytes, 64 << 20), 512 << 20)
    size = max(min(wanted, memory_bytes // 8), 1 << 20)
    return {**sets, "memory": (size // step * step, True)}


@dataclass(frozen=True, slots=True)
class _Job:
    """One kernel on one thread, with the address and size of what it may touch."""

    symbol: str
    data: int
    bytes: int


class _Machine:
    """Compiled probes, a pool of threads and a buffer. Leaving it ends the threads."""

    def __init__(self, target: Target, probe_secs: float) -> None:
        self._target = target
        self._probe_secs = probe_secs
        self._arithmetic = {
            d: kernels.arithmetic_kernel(target, d, f"tw_probe_{d.value}") for d in PROBED_DTYPES
        }
        self._read: ProbeKernel = kernels.read_kernel(target, "tw_probe_read")
        texts = [k.text for k in (*self._arithmetic.values(), self._read)]
        text = "\n".join([*texts, kernels.driver_text(), kernels.regions_text()])
        self._engine = _load(text, target)
        self._driver = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7)(
            self._engine.get_function_address(kernels.DRIVER)
        )
        self._pool = ThreadPoolExecutor(target.cores)
        self._cpus = distinct_cores_first(cpu_affinity())
        self._buffer, self._address, self._filled = mmap.mmap(-1, 4096), 0, 0

    def __enter__(self) -> _Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()

    def warm_up(self) -> None:
        """Bring the core to the clock it keeps under vector load."""
        self.gigaops(DType.F32, 1)

    def gigaops(self, dtype: DType, threads: int) -> float:
        """Best multiply-adds of `threads` threads at once, two operations each, in 1e9 a second."""
        kernel = self._arithmetic[dtype]
        self._reserve(4096 * threads)
        jobs = [_Job(kernel.symbol, self._address + 4096 * i, 0) for i in range(threads)]
        return kernel.ops_per_iteration * self._best_rate(jobs) / 1e9

    def gigabytes(self, size: int, shared: bool, threads: int) -> float:
        """Best read rate of `threads` threads at once, in 1e9 bytes a second.

        Each has `size` bytes of its own, or its part of them where the level is shared.
        """
        step = kernels.read_step_bytes(self._target)
        part = max(size // threads // step, 1) * step if shared else size
        # An odd number of lines apart: threads never meet in the same sets of a shared level.
        stride = part + (-part) % 4096 + 4096 + 64
        self._reserve(stride * threads)
        jobs = [_Job(self._read.symbol, self._address + stride * i, part) for i in range(threads)]
        return part * self._best_rate(jobs) / 1e9

    def region_secs(self, threads: int) -> float:
        """Seconds of an empty, warm OpenMP region of `threads` threads, best of many batches.

        The default where there is no libgomp, or no two cores were ever free at once.
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
            # A region that waits for a busy core takes a scheduler's time slice: go on for longer.
            if now - started > self._probe_secs * (1 if best < MAX_REGION_SECS else 5):
                break
        return float(f"{best:.3g}") if best < MAX_REGION_SECS else DEFAULT_REGION_SECS

    def _best_rate(self, jobs: list[_Job]) -> float:
        """Iterations a second summed over `jobs`, all running at once: the best burst."""
        iterations, best = 1, 0.0
        deadline = time.perf_counter() + self._probe_secs
        while True:
            secs = self._burst(jobs, iterations)
            if secs < BURST_SECS / 2 and iterations < 1 << 40:  # too short to time: not counted
                iterations *= int(min(max(1.1 * BURST_SECS / max(secs, 1e-7), 2), 100))
                continue
            best = max(best, iterations * len(jobs) / secs)
            if time.perf_counter() >= deadline:
                return best

    def _burst(self, jobs: list[_Job], iterations: int) -> float:
        """Seconds from the first start to the last end of `jobs`, each on a thread of its own."""
        arrived = ctypes.c_int64(0)
        times = [(ctypes.c_int64 * 4)() for _ in jobs]
        pins = self._cpus if len(jobs) > 1 else []

        def work(i: int) -> None:
            if i < len(pins) and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, {pins[i]})  # of this thread only
            self._driver(
                self._engine.get_function_address(jobs[i].symbol), iterations, jobs[i].data,
                jobs[i].bytes, ctypes.addressof(arrived), len(jobs), ctypes.addressof(times[i]),
            )  # fmt: skip

        for done in [self._pool.submit(work, i) for i in range(len(jobs))]:
            done.result()
        first = min(t[0] * 10**9 + t[1] for t in times)
        last = max(t[2] * 10**9 + t[3] for t in times)
        return max(last - first, 1) / 1e9

    def _reserve(self, size: int) -> None:
        """At least `size` bytes at `self._address`, written once: untouched pages are all one.

        All cores write, as the kernel's handing out of pages is what takes long.
        """
        if size <= self._filled:
            return
        self._buffer = mmap.mmap(-1, size)
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
    """An llvmlite execution engine holding `text`, compiled for `target` with no IR passes."""
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


def main() -> None:
    target = Target.from_json(json.load(sys.stdin))
    probes = measure_probes(target)
    json.dump(asdict(probes), sys.stdout)


if __name__ == "__main__":
    main()
