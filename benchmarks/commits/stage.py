"""Times several kernels of one computation in one process, on the same arrays.

`python -m benchmarks.commits.stage` reads one JSON request a line and answers with one. Kernels
come as shared libraries with one entry (`benchmarks/suite/timer.c`), whichever commit made them,
so that nothing but their code differs: not the pages their arrays lie on, nor the process.

Where code lies makes up to 3 % of what a parallel kernel of some microseconds takes, as two copies
of one library in one process show. Every kernel is loaded several times, and each round calls
other copies: a ratio's spread has that luck in it, and its median does not.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.peer_types import Array
from benchmarks.suite.shelf import Shelf
from tilewright.schedules import DType, Workload
from tilewright.tuner.process.linux import die_with_parent

SAMPLE_SECS, TURN_SECS, MOST_SAMPLES = 1e-3, 0.03, 30
# The scheduler needs a call or two to find each thread a core of its own.
LEAST_SAMPLES = {True: 6, False: 3}
TOLERANCE = {DType.F32: 1e-4, DType.F64: 1e-10, DType.BF16: 2e-2}
"""Of the largest element, between two kernels. This only guards against timing something else:
every best passed the full verification of the commit that found it."""
COPIES = 6
"""Of each kernel in memory. A race that is settled early has called every one."""
MOST_INTEGERS_APART = 1
"""A requantised result is rounded from a float."""


class StageError(Exception):
    """The kernels cannot be compared."""


def make_input(shape: Sequence[int], dtype: DType, rng: np.random.Generator, shelf: Shelf) -> Array:
    """Values that no function is undefined for: floats in [0.5, 1.5), integers in 0..3."""
    array = shelf.array(shape, dtype.numpy)
    if dtype not in TOLERANCE:
        array[...] = rng.integers(0, 4, shape)
    elif dtype is DType.BF16:
        array[...] = rng.uniform(0.5, 1.5, shape).astype(np.float32).view(np.uint32) >> 16
    else:
        array[...] = rng.uniform(0.5, 1.5, shape)
    return array


def widened(array: Array, dtype: DType) -> Array:
    """The values of a result as numbers that can be subtracted."""
    if dtype is DType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array if dtype in TOLERANCE else array.astype(np.int64)


def difference(found: Array, expected: Array, dtype: DType) -> str | None:
    """How two kernels' results differ beyond what rounding explains; None if they do not."""
    one, other = widened(found, dtype), widened(expected, dtype)
    if dtype not in TOLERANCE:
        apart = int(np.abs(one - other).max())
        return None if apart <= MOST_INTEGERS_APART else f"integers are {apart} apart"
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return "one is infinite or no number where the other is finite"
    finite = np.isfinite(other)
    scale = float(np.abs(other[finite]).max(initial=0.0)) or 1.0
    worst = float(np.abs(one[finite] - other[finite]).max(initial=0.0)) / scale
    if worst <= TOLERANCE[dtype]:
        return None
    return f"results are {worst:.3g} of the largest element apart"


def loaded(library: Path) -> list[ctypes.CDLL]:
    """`COPIES` of a library, each of a file of its own: one file is loaded once."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.so" for number in range(COPIES)]
        return [ctypes.CDLL(str(shutil.copy(library, file))) for file in files]


class Stage:
    """Kernels by name, on arrays they share. `pace` fixes how often each is called a sample."""

    def __init__(self, workload: Workload, kernels: Mapping[str, Mapping[str, Any]], seed: int):
        rng, shelf = np.random.default_rng(seed), Shelf()
        self._inputs = [make_input(t.shape, t.dtype, rng, shelf) for t in workload.inputs]
        self._tensors = workload.output_tensors
        self._outputs = [shelf.array(t.shape, t.dtype.numpy) for t in self._tensors]
        most = max(int(kernel["workspace_bytes"]) for kernel in kernels.values())
        self._workspace = shelf.array([most], np.uint8)
        self._copies = {n: loaded(Path(kernel["library"])) for n, kernel in kernels.items()}
        self._turn = 0
        self._pointers = {
            name: self._addresses(int(kernel["workspace_bytes"]))
            for name, kernel in kernels.items()
        }
        self._calls = dict.fromkeys(kernels, 1)

    def _addresses(self, workspace_bytes: int) -> Any:
        arrays = [*self._inputs, *self._outputs]
        workspace = self._workspace.ctypes.data if workspace_bytes else None
        return (ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in arrays), workspace)

    def time(self, name: str, calls: int) -> float:
        """Seconds a call of this turn's copy, over `calls` of them, without an empty call's."""
        secs = ctypes.c_double()
        failed = self._copies[name][self._turn % COPIES].tw_time(
            self._pointers[name], ctypes.c_int64(calls), ctypes.c_int64(1), ctypes.byref(secs)
        )
        if failed:
            raise StageError(f"a kernel returned error {failed}")
        return secs.value

    def check(self) -> None:
        """Call each once. StageError where two kernels compute different things."""
        expected: list[Array] = []
        for name in self._copies:
            for output in self._outputs:
                output.view(np.uint8).fill(0xFF)  # what a kernel leaves out is not another's
            self.time(name, 1)
            if not expected:
                expected = [output.copy() for output in self._outputs]
            for tensor, output, other in zip(self._tensors, self._outputs, expected, strict=True):
                problem = difference(output, other, tensor.dtype)
                if problem is not None:
                    raise StageError(f"{tensor.name}: {problem}")

    def pace(self) -> dict[str, float]:
        """Seconds a call of each kernel; from now on a sample of each takes about a millisecond."""
        found = {}
        for name in self._calls:
            secs = max(min(self.time(name, 1) for _ in range(3)), 1e-8)
            if secs < SAMPLE_SECS:
                secs = max(self.time(name, ceil(SAMPLE_SECS / secs)), 1e-8)
            self._calls[name] = ceil(SAMPLE_SECS / secs)
            found[name] = secs
        return found

    def round(self, samples: int) -> dict[str, list[float]]:
        """`samples` of each kernel, in turn, there and back again; seconds a call."""
        found: dict[str, list[float]] = {name: [] for name in self._calls}
        self._turn += 1
        for name, calls in self._calls.items():
            self.time(name, calls)  # back from a pause: threads look for their cores
        for n in range(samples):
            for name in list(found) if n % 2 == 0 else reversed(list(found)):
                found[name].append(self.time(name, self._calls[name]))
        return found


def samples_of(call_secs: Mapping[str, float], threads: int) -> int:
    """How many samples a round has of each kernel, by the time one of the slowest takes."""
    slowest = max(*call_secs.values(), SAMPLE_SECS)
    return max(LEAST_SAMPLES[threads > 1], min(MOST_SAMPLES, int(TURN_SECS / slowest)))


def _opened(request: Mapping[str, Any]) -> tuple[Stage, dict[str, Any]]:
    threads = int(request["threads"])
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    workload = Workload.from_json(json.loads(Path(request["workload"]).read_text()))
    stage = Stage(workload, request["kernels"], int(request["seed"]))
    stage.check()
    call_secs = stage.pace()
    return stage, {"call_secs": call_secs, "samples": samples_of(call_secs, threads)}


def main() -> None:
    """Serve until stdin ends."""
    die_with_parent(os.getppid())  # it may be stopped when the benchmark is killed
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    np.seterr(all="ignore")
    stage: Stage | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "open":
                stage, answer = _opened(request)
            else:
                assert stage is not None
                answer = {"round": stage.round(int(request["samples"]))}
        except StageError as error:
            answer = {"failed": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
