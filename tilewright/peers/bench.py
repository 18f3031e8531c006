"""Times the best kernel and its peers in alternation, for the command `bench`.

A side is the kernel or one peer. Every side has its own process. One process runs while the others
are stopped, because the threads of a pool spin for up to a tenth of a second after a call, on a
core that another side needs. Sides take turns in short blocks. A speed-up is the median of the
ratios of neighbouring blocks, because a disturbance longer than a block slows both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.compiling.pool import Compiled, CompilePool
from tilewright.tuner.machine.machine_lock import machine_lock
from tilewright.tuner.process.child_command import module_command, tail
from tilewright.tuner.process.environment import KEPT_MEMORY, child_environment
from tilewright.tuner.process.frames import Frame, FrameReader, raise_refusal, write_frame
from tilewright.tuner.process.host import cpu_affinity
from tilewright.tuner.search.default import default_trace

from .variants import COMPILE_SECS

PEERS = ("numpy", "torch", "default")
WITH_PACKING = "with packing"
"""Name of the side that runs the kernel and packs its constant inputs in every call."""

MISALIGNED = "on misaligned arrays"
"""Name of the side that runs the kernel on arrays not aligned to a cache line."""

LINE_BYTES = 64

_BLOCK_SECS, _MIN_BLOCKS, _MAX_BLOCKS = 0.04, 5, 500
_SAMPLE_SECS = 1e-3
_SPIN_SECS = 0.15  # how long threads of a pool may spin after a call
# With several threads, the scheduler needs a call or two to place each on its own core.
_MIN_ROUNDS = {True: 8, False: 3}
_RESAMPLES = 1000
_DETAILS = (
    "way", "ways_secs", "compiled_secs", "dropped", "dispatch_secs", "rounding", "libraries",
)  # fmt: skip


class BenchError(TilewrightError):
    """An argument is invalid, or the kernel cannot be built or gives a wrong result."""


@dataclass(frozen=True, slots=True)
class PeerTiming:
    """The time of one side, relative to the kernel."""

    run_secs: float | None = None
    """Seconds per call, or None if the side was not timed; `detail` then has the reason."""
    speedup: float | None = None
    """How many times faster the kernel is, with a 95 % interval; None if the side was not timed."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    detail: str = ""
    way: str = ""
    """The name of the fastest variant of a library."""
    ways_secs: dict[str, float] = field(default_factory=dict)
    """Median seconds of each variant that was raced."""
    compiled_secs: dict[str, float] = field(default_factory=dict)
    """Seconds of PyTorch's calls (`eager`) and of the code of its compiler (`compiled`)."""
    dropped: dict[str, str] = field(default_factory=dict)
    """The variants that did not work, with reasons."""
    dispatch_secs: float | None = None
    """Seconds of the same calls on a tiny workload; None if not measured."""
    rounding: str = ""
    """Set if the results exceed a kernel's error bound, but differ by at most ROUNDING."""
    libraries: dict[str, str] = field(default_factory=dict)
    """Versions, and the code that the library chose for this processor."""


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The times of the kernel and of the other sides."""

    run_secs: float
    """Seconds per call of the kernel, on arrays aligned to a cache line. Constant inputs are packed
    before the calls."""
    blocks: int
    against: dict[str, PeerTiming] = field(default_factory=dict)
    """One entry per side, in the requested order."""
    packed_ahead: bool = False
    """Whether there are constant inputs."""
    run_secs_with_packing: float | None = None
    """Seconds per call that packs the constant inputs; None if there are none."""
    bytes_behind_line: int = 0
    """Distance of the misaligned arrays from a cache line, or 0 if they were not requested."""
    run_secs_misaligned: float | None = None
    """Seconds per call on arrays `bytes_behind_line` bytes after a cache line; None if not
    requested."""

    def to_json(self) -> dict[str, Any]:
        """Return the document of `bench --json`. For a side that was not timed, the times are null
        and `detail` has the reason."""
        kernel: dict[str, Any] = {"run_secs": self.run_secs, "packed_ahead": self.packed_ahead}
        if self.packed_ahead:
            kernel["run_secs_with_packing"] = self.run_secs_with_packing
        if self.run_secs_misaligned is not None:
            kernel["bytes_behind_line"] = self.bytes_behind_line
            kernel["run_secs_misaligned"] = self.run_secs_misaligned
        return {
            "kernel": kernel,
            "blocks": self.blocks,
            "against": {name: asdict(side) for name, side in self.against.items()},
        }


def bench(
    workload: Workload,
    trace: Trace,
    target: Target,
    *,
    against: Sequence[str] = ("numpy",),
    seconds: float = 5.0,
    seed: int = 0,
    bytes_behind_line: int = 0,
    compile_secs: float = COMPILE_SECS,
    environment: Mapping[str, str] | None = None,
    lock_path: Path | None = None,
) -> BenchReport:
    """Time the kernel of `trace` and its peers for about `seconds`. Every side's result is checked
    before it is timed. Raise BenchError if the kernel's result is wrong.

    `against` names "numpy", "torch" and "default", the default schedule. If `bytes_behind_line` is
    not 0, the kernel is also timed on arrays that begin that many bytes (at most 63, rounded down
    to whole elements) after a cache line. PyTorch's compiler may take `compile_secs` before timing;
    0 excludes it. `environment` has variables for the processes of all sides, for example those
    that hold the libraries to the instruction set of `target`.
    """
    if not 0 <= bytes_behind_line < LINE_BYTES:
        raise BenchError(
            f"arrays begin 0 to {LINE_BYTES - 1} bytes behind a line; got {bytes_behind_line}"
        )
    unknown = [name for name in against if name not in PEERS]
    if unknown:
        raise BenchError(f"against must be one of {', '.join(PEERS)}; got {unknown[0]!r}")
    traces = {"kernel": trace}
    if "default" in against:
        traces["default"] = default_trace(workload, target)
    built = _build(workload, traces, target)
    ours = ["kernel"]
    ours += [WITH_PACKING] if built["kernel"].constants else []
    ours += [MISALIGNED] if bytes_behind_line else []
    document = {
        "workload": workload.to_json(),
        "seed": seed,
        "threads": target.threads,
        "target": target.to_json(),
        "compile_secs": compile_secs,
    }
    with ExitStack() as stack:
        stack.enter_context(machine_lock(lock_path))
        sides: dict[str, _ContenderProcess] = {}
        missing: dict[str, str] = {}
        for name in (*ours, *against):
            contender = stack.enter_context(_ContenderProcess(target.threads, environment or {}))
            source = "kernel" if name in ours else name
            rewrites = Trace(traces[source].rewrites).to_json() if source in traces else []
            behind = bytes_behind_line if name == MISALIGNED else 0
            asked = {**document, "rewrites": rewrites, "bytes_behind_line": behind}
            problem = contender.open(name, asked, built.get(source))
            if problem is None:
                sides[name] = contender
            elif name in ours:
                raise BenchError(f"the kernel cannot be timed: {problem}")
            else:
                missing[name] = problem
        blocks = _alternate(list(sides.values()), seconds)
    times = dict(zip(sides, blocks, strict=True))
    details = {name: contender.details for name, contender in sides.items()}
    return _report(times, missing, details, against, seed, bytes_behind_line)


def _build(workload: Workload, traces: dict[str, Trace], target: Target) -> dict[str, Compiled]:
    """Build the kernel of each trace, each compiled in its own process."""
    with CompilePool(workers=len(traces)) as pool:
        for number, each in enumerate(traces.values()):
            document = {
                "workload": workload.to_json(),
                "trace": each.to_json(),
                "target": target.to_json(),
            }
            pool.submit(number, document)
        outcomes: list[Compiled] = []
        while pool.pending:
            outcomes += pool.poll(None)
    names = list(traces)
    return {names[outcome.key]: outcome for outcome in outcomes}


def _alternate(contenders: list[_ContenderProcess], seconds: float) -> list[NDArray[np.float64]]:
    """Time blocks of each contender in turn. Return the fastest sample of each block, in seconds
    per call."""
    end = time.monotonic() + seconds
    blocks: list[list[float]] = [[] for _ in contenders]
    while len(blocks[0]) < _MAX_BLOCKS:
        if len(blocks[0]) >= _MIN_BLOCKS and time.monotonic() >= end:
            break
        # The order alternates, so that no side always runs after the same one.
        order = range(len(contenders))
        for i in order if len(blocks[0]) % 2 == 0 else reversed(order):
            blocks[i].append(min(contenders[i].block()))
    return [np.asarray(b) for b in blocks]


def _report(
    times: dict[str, NDArray[np.float64]],
    missing: dict[str, str],
    details: dict[str, dict[str, Any]],
    against: Sequence[str],
    seed: int,
    bytes_behind_line: int,
) -> BenchReport:
    kernel = times["kernel"]
    rng = np.random.default_rng(seed)
    sides = {}
    for name in against:
        if name in missing:
            sides[name] = PeerTiming(detail=missing[name])
            continue
        low, middle, high = speedup_interval(times[name] / kernel, rng)
        sides[name] = PeerTiming(float(np.median(times[name])), middle, low, high, **details[name])
    packing, misaligned = times.get(WITH_PACKING), times.get(MISALIGNED)
    return BenchReport(
        float(np.median(kernel)),
        kernel.size,
        sides,
        packed_ahead=packing is not None,
        run_secs_with_packing=None if packing is None else float(np.median(packing)),
        bytes_behind_line=bytes_behind_line,
        run_secs_misaligned=None if misaligned is None else float(np.median(misaligned)),
    )


def speedup_interval(
    ratios: NDArray[np.float64], rng: np.random.Generator
) -> tuple[float, float, float]:
    """Return the median of `ratios` and its 95 % confidence interval, as (low, median, high). The
    interval is the percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap,
    1993, chapter 13)."""
    drawn = rng.choice(ratios, (_RESAMPLES, ratios.size))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(np.median(ratios)), float(high)


class _ContenderProcess:
    """The parent's side of a `contender` process, a context manager."""

    def __init__(self, threads: int, environment: Mapping[str, str]) -> None:
        self._threads = threads
        self._environment = environment
        self._calls = self._rounds = 1
        self.details: dict[str, Any] = {}

    def __enter__(self) -> _ContenderProcess:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        # The signal at a parent's death is sent at the end of the thread that started the process
        # (see runner_client). Without this signal, a stopped process might stay stopped for ever.
        self._dies_with_us = threading.current_thread() is threading.main_thread()
        cpus = cpu_affinity()[-1:] if self._threads == 1 else []
        self._process = subprocess.Popen(
            module_command(
                "tilewright.peers.contender",
                str(os.getpid() if self._dies_with_us else 0),
                ",".join(map(str, cpus)),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(
                self._threads, **{"GLIBC_TUNABLES": KEPT_MEMORY, **self._environment}
            ),
            start_new_session=True,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def open(self, name: str, document: dict[str, Any], built: Compiled | None) -> str | None:
        """Prepare the side and check its result. Return the reason why it cannot be timed, or None
        if it can."""
        blob = b""
        request = {"op": "open", **document, "name": name}
        if built is not None:
            if built.status is not MeasureStatus.OK:
                return f"{built.status}: {built.detail}"
            blob = built.object_bytes
            request |= {"symbol": built.symbol, "needs": asdict(built.needs)}
            request |= {"name": "kernel", "with_packing": name == WITH_PACKING}
        answer = self._ask(Frame(request, blob))
        if answer is None:
            return self._describe_end()
        if "detail" in answer:
            return str(answer["detail"])
        self.details = {k: answer[k] for k in _DETAILS if k in answer}
        call_secs = max(float(answer["call_secs"]), 1e-9)
        self._calls = max(1, ceil(_SAMPLE_SECS / call_secs))
        least = _MIN_ROUNDS[self._threads > 1]
        self._rounds = max(least, min(40, int(_BLOCK_SECS / (self._calls * call_secs))))
        self._pause()
        return None

    def block(self) -> list[float]:
        """Return one block's samples in seconds per call. Raise BenchError if the process ended."""
        request = {"op": "time", "calls": self._calls, "rounds": self._rounds}
        self._process.send_signal(signal.SIGCONT)
        answer = self._ask(Frame(request))
        self._pause()
        if answer is None:
            raise BenchError(f"while benchmarking, {self._describe_end()}")
        return [float(s) for s in answer["samples"]]

    def _pause(self) -> None:
        """Stop the process until its next block, or wait until its threads do not spin any more."""
        if self._dies_with_us:
            self._process.send_signal(signal.SIGSTOP)
        else:
            time.sleep(_SPIN_SECS)

    def _describe_end(self) -> str:
        lines = tail(self._errors).strip().splitlines()
        code = self._process.wait()
        return f"its process ended with exit code {code}" + (f": {lines[-1]}" if lines else "")

    def _ask(self, frame: Frame) -> dict[str, Any] | None:
        """Send `frame` and return the reply, or None if the process ended. Raise WorkloadError if
        the workload cannot be verified, RuntimeError if the contender has a bug."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_frame(self._process.stdin.fileno(), frame)
        except BrokenPipeError:
            return None
        answer = FrameReader(self._process.stdout.fileno()).read_frame()
        if answer is None:
            return None
        raise_refusal(answer.document)
        if "bug" in answer.document:
            bug = answer.document["bug"]
            raise RuntimeError(f"a benchmark process failed in our own code:\n{bug}")
        return answer.document
