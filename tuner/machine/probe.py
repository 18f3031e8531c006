"""Measure a machine: arithmetic peaks, read bandwidth a level, the cost of a parallel region.

Probes run in a process of their own (`python -m tuner.machine.probe`, target JSON on stdin, probes
JSON on stdout): they start threads and OpenMP, and no process that forks later may have done that.
Every figure is the best of short bursts in several rounds, spread in time: interference only ever
makes a burst slower, and a burst that shared its core with another process is told by its CPU time.
Rounds in which others used the cores are not enough: there are more of them, and where none is
quiet the probes say that they are doubtful (`Probes.doubtful`).
Source of the estimator: Chen and Revels, arXiv:1608.04295.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import math
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from schedules.dtypes import FLOATS, DType
from schedules.errors import TargetError
from schedules.target import Probes, Target

from ..process.child_command import module_command
from ..process.control import Control
from ..process.environment import clean_environment, openmp_environment
from . import probe_kernels as kernels
from .host import available_memory_bytes, cpu_affinity, distinct_cores_first
from .lock import machine_lock
from .others import Others, cpu_times
from .probe_kernels import ProbeKernel, fma_burst_ir
from .probed import LEAST_SECS

__all__ = ["DEFAULT_REGION_SECS", "fma_burst_ir", "measure_probes", "probe_target"]

PROBED_DTYPES = (DType.F32, DType.F64, DType.I32)
DEFAULT_REGION_SECS = 2e-6
MAX_REGION_SECS = 1e-4
PROCESS_DEADLINE_SECS = 60.0
LOCK_PATIENCE_SECS = 10.0
"""Whoever holds the machine's lock for longer is not waited for: he may be waiting for us."""

TOTAL_BUDGET_SECS = 0.8
MAX_PROBE_SECS = 0.04
BURST_SECS = 0.0015
QUIET_ROUNDS = 3
MOST_ROUNDS = 7
STEADY = 1.02
ROUND_PAUSE_SECS = 0.1
EXTRA_LOOKS = 2
LOOK_PAUSE_SECS = 0.15
_GOMP = "libgomp.so.1"
_COMMAND = tuple(module_command("tuner.machine.probe"))


def probe_target(
    target: Target, within_secs: float = math.inf, control: Control | None = None
) -> Probes:
    """Probe this machine, which must be the one `target` describes, in a process of its own.

    Nothing of ours is measured meanwhile; where that cannot be had, the probes are doubtful.
    TargetError if that process fails, with the last line it wrote, or if it all takes longer than
    `within_secs`. MeasurementAborted by `control`.
    """
    control = control or Control()
    end = time.monotonic() + within_secs
    patience_secs = min(LOCK_PATIENCE_SECS, max(within_secs - LEAST_SECS, 0.0))
    with machine_lock(patience_secs=patience_secs, on_wait=lambda _: control.check()) as alone:
        deadline_secs = min(PROCESS_DEADLINE_SECS, end - time.monotonic())
        probes = _probe_now(target, deadline_secs, control)
    return probes if alone else replace(probes, doubtful=True)


def _probe_now(target: Target, deadline_secs: float, control: Control) -> Probes:
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Regions cost what they cost where kernels are timed: each thread on a core of its own.
    places = openmp_environment(target.cores)
    clean = clean_environment(os.environ, target.cores)
    environment = {**clean, **places, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(
        _COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            with control.killing(process.kill):
                found, said = process.communicate(json.dumps(target.to_json()), deadline_secs)
        except subprocess.TimeoutExpired as error:
            raise TargetError(
                f"probing {target.cpu} took longer than {deadline_secs:.0f} s and was stopped"
            ) from error
        finally:
            process.kill()  # nothing, where it has ended
    if process.returncode != 0:
        last = (said.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"probing {target.cpu} failed with status {process.returncode}: {last}")
    return Probes(**json.loads(found))


def measure_probes(target: Target, budget_secs: float = TOTAL_BUDGET_SECS) -> Probes:
    """Probe in this very process: threads are started, OpenMP too.

    About `budget_secs` on a quiet machine, up to three times that on a busy one.
    """
    counts = thread_counts(target.cores)
    levels = working_sets(target, available_memory_bytes())
    probes = len(counts) * (len(PROBED_DTYPES) + len(levels))
    # Read once: OpenMP's runtime binds the thread that starts its first region to one core.
    others = Others(partial(cpu_times, cpu_affinity()))
    with _Machine(target, min(MAX_PROBE_SECS, budget_secs / probes) / QUIET_ROUNDS) as machine:
        machine.warm_up()
        arithmetic = {d.value: partial(machine.gigaops, d) for d in PROBED_DTYPES}
        reading = {level: partial(machine.gigabytes, *where) for level, where in levels.items()}
        both = arithmetic | reading
        found = best_of_rounds(
            lambda: {
                **{(name, n): measure(n) for name, measure in both.items() for n in counts},
                _REGIONS: 1 / machine.region_secs(target.cores),
            },
            others.worked,
            pause=partial(time.sleep, ROUND_PAUSE_SECS),
        )
        rates = {name: {n: found.rates[name, n] for n in counts} for name in both}
        private = {name: both[name] for name in both if not levels.get(name, (0, False))[1]}
        look_again(private, rates, pause=partial(time.sleep, LOOK_PAUSE_SECS))
        region_secs = float(f"{1 / found.rates[_REGIONS]:.3g}")
    curves = {name: spread(found, target.cores) for name, found in rates.items()}
    # Narrow floats are computed in f32: their peak is the f32 peak.
    peaks = {name: curves[name] for name in arithmetic}
    peaks |= {d.value: list(peaks[d.wide.value]) for d in FLOATS if d.is_narrow_float}
    bandwidths = {name: curves[name] for name in reading}
    return Probes(peaks, bandwidths, region_secs, doubtful=not found.quiet)


Figure: TypeAlias = tuple[str, int]
"""What is measured, and with how many threads."""

_REGIONS: Figure = ("parallel regions a second", 0)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The best rate of each figure; `quiet` if enough rounds had the machine to themselves."""

    rates: dict[Figure, float]
    quiet: bool


def best_of_rounds(
    measure: Callable[[], dict[Figure, float]],
    others_worked: Callable[[], bool],
    pause: Callable[[], None],
) -> Rounds:
    """Measure everything again and again, and keep the best of each figure.

    Until `QUIET_ROUNDS` were quiet and the last one brought nothing new, at most `MOST_ROUNDS`.
    Busy rounds count too: what was reached can be reached.
    """
    best: dict[Figure, float] = {}
    quiet = 0
    for _ in range(MOST_ROUNDS):
        others_worked()
        rates = measure()
        busy = others_worked()
        quiet += not busy
        steady = bool(best) and all(rates[f] <= STEADY * best[f] for f in rates)
        best = {figure: max(rate, best.get(figure, 0.0)) for figure, rate in rates.items()}
        if quiet >= QUIET_ROUNDS and steady:
            break
        if busy:
            pause()
    return Rounds(best, quiet >= QUIET_ROUNDS)


def look_again(
    private: Mapping[str, Callable[[int], float]],
    rates: dict[str, dict[int, float]],
    pause: Callable[[], None],
) -> None:
    """Measure again, later, what did not add up over cores, and keep the better of both in `rates`.

    A hypervisor may run two virtual CPUs on one core for a while, and nothing inside tells. A peak
    taken then makes honest kernels look impossible for as long as it is stored. Real SMT siblings
    never add up, and cost the extra looks.
    """
    for _ in range(EXTRA_LOOKS):
        short = [
            (name, n)
            for name in private
            for n in rates[name]
            if rates[name][n] < 0.9 * n * rates[name][1]
        ]
        if not short:
            return
        pause()
        for name, n in short:
            rates[name][n] = max(rates[name][n], private[name](n))


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


@dataclass(frozen=True, slots=True)
class Burst:
    """One run of `iterations` on several threads: seconds from first start to last end, and the
    CPU seconds of each thread."""

    iterations: int
    wall_secs: float
    cpu_secs: tuple[float, ...]

    @property
    def clean(self) -> bool:
        """Every thread had a core to itself from beginning to end."""
        return self.wall_secs <= 1.05 * max(self.cpu_secs)

    def rate(self, shared: bool) -> float:
        """Iterations a second of all threads together.

        What each core has of its own is counted by CPU time, which leaves out the time another
        process had the core. What they share must be counted while all of them really ran.
        """
        if shared:
            return self.iterations * len(self.cpu_secs) / self.wall_secs
        return sum(self.iterations / secs for secs in self.cpu_secs)


def best_rate(bursts: list[Burst], shared: bool) -> float:
    """The best of the clean bursts; of all, where none is."""
    clean = [burst for burst in bursts if burst.clean]
    return max(burst.rate(shared) for burst in clean or bursts)


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
        return kernel.ops_per_iteration * self._best_rate(jobs, shared=False) / 1e9

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
        return part * self._best_rate(jobs, shared) / 1e9

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
        return best if best < MAX_REGION_SECS else DEFAULT_REGION_SECS

    def _best_rate(self, jobs: list[_Job], shared: bool) -> float:
        """Iterations a second of all `jobs`, running at once: the best of many bursts.

        Goes on for three times as long where the machine is too busy for three clean ones.
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
        """`iterations` of every job, each on a thread of its own."""
        arrived = ctypes.c_int64(0)
        times = [(ctypes.c_int64 * 8)() for _ in jobs]
        pins = self._cpus if len(jobs) > 1 else []

        def work(i: int) -> None:
            if hasattr(os, "sched_setaffinity"):  # of this thread only
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
        """At least `size` bytes at `self._address`, written once: untouched pages are all one.

        All cores write, as the kernel's handing out of pages is what takes long.
        """
        if size <= self._filled:
            return
        # Private, as the arrays of NumPy are: shared memory gets no huge pages on most systems.
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
