"""The time of a call of a tiny kernel from Python, beside the same addition in NumPy and PyTorch.

    python -m benchmarks.call_overhead

The kernel adds 16 numbers, which takes a few nanoseconds, so almost all of the time is overhead of
the call. "Same arrays" calls with the same three arrays again and again; "fresh arrays" calls once
with each of many arrays that were never passed before. All rows are timed in turns in one process.
A row shows the median over the turns in nanoseconds per call, without the time of the loop, and the
ratio to NumPy with the same arrays. PyTorch is left out if it cannot be imported.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

import tilewright as tw

LENGTH = 16
Arrays = tuple[Any, ...]
Call = Callable[..., object]


def arrays() -> Arrays:
    """Return two inputs and an output that no call has seen."""
    return tuple(np.ones(LENGTH, np.float32) for _ in range(3))


def loop_ns(call: Call, given: Sequence[Arrays]) -> float:
    """Return the nanoseconds per call over all of `given`, with the time of the loop."""
    start = perf_counter_ns()
    for a, b, c in given:
        call(a, b, c)
    return (perf_counter_ns() - start) / len(given)


def torch_row() -> tuple[str, Call, Callable[[Arrays], Arrays]] | None:
    """Return PyTorch's addition and the conversion of arrays to its tensors, or None."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    add = torch.add
    return (
        "torch.add(a, b, out=c)",
        lambda a, b, c: add(a, b, out=c),
        lambda given: tuple(map(torch.from_numpy, given)),
    )


def measured(calls: int, turns: int) -> dict[tuple[str, str], float]:
    """Return the median nanoseconds per call by (call, arrays)."""
    shape = f"f32[{LENGTH}]"
    workload = tw.parse("C[i] = A[i] + B[i]", tensors=[f"A={shape}", f"B={shape}"])
    kernel = tw.build(workload, database=":memory:")
    add = np.add
    same = arrays()
    bound = kernel.bind(*same[:2], out=same[2])

    rows: list[tuple[str, Call, Callable[[Arrays], Arrays]]] = [
        ("empty loop", lambda a, b, c: None, tuple),
        ("np.add(a, b, out=c)", lambda a, b, c: add(a, b, out=c), tuple),
        ("kernel(a, b, out=c)", lambda a, b, c: kernel(a, b, out=c), tuple),
        ("np.add(a, b)", lambda a, b, c: add(a, b), tuple),
        ("kernel(a, b)", lambda a, b, c: kernel(a, b), tuple),
        ("bound()", lambda a, b, c: bound(), tuple),
    ]
    if torch := torch_row():
        rows.append(torch)
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(turns):
        for name, call, converted in rows:
            repeated = [converted(same)] * calls
            times.setdefault((name, "same"), []).append(loop_ns(call, repeated))
            fresh = [converted(arrays()) for _ in range(calls)]
            times.setdefault((name, "fresh"), []).append(loop_ns(call, fresh))
    medians = {row: statistics.median(taken) for row, taken in times.items()}
    return {(n, kind): t - medians["empty loop", kind] for (n, kind), t in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2000, help="calls per turn")
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    found = measured(arguments.calls, arguments.turns)
    numpy_ns = found["np.add(a, b, out=c)", "same"]
    print(f"{'call':26}{'same arrays':>22}{'fresh arrays':>22}")
    for name in dict.fromkeys(name for name, _ in found):
        if name != "empty loop":
            cells = [found[name, kind] for kind in ("same", "fresh")]
            print(f"{name:26}" + "".join(f"{ns:10.0f} ns {ns / numpy_ns:7.2f}x" for ns in cells))


if __name__ == "__main__":
    main()
