"""A process that tunes, or times one side of a row: `python -m benchmarks.collection.serving`.

It reads one JSON request a line and answers with one. It serves many rows, because PyTorch takes
seconds to import, and is replaced if it fails (`measuring.py`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.collection.row import Row
from benchmarks.collection.table import rows, workload_of
from benchmarks.suite.shelf import Shelf
from tilewright.peers.variants import choose, seconds_a_call
from tilewright.tuner.process.linux import die_with_parent

TOLERANCE = 1e-4
"""The largest difference from the result in float64, relative to its largest element. PyTorch's own
is permitted, too, if it is greater."""
PEER_TOLERANCE = 1e-2
"""The same for PyTorch: this only guards against another computation. Its norm of 17 million
elements in float32 is off by 7e-4."""
Array = np.ndarray[Any, Any]


def inputs_of(row: Row, seed: int) -> list[Array]:
    """Return the arrays of a row, the same in every process."""
    rng, shelf = np.random.default_rng(seed), Shelf()
    found = []
    for each in row.inputs:
        dtype = tw.placeholder(each.name, each.shape, each.dtype).dtype.numpy
        array = shelf.array(each.shape, dtype)
        array[...] = each.drawn(rng)
        found.append(array)
    return found


def difference(found: Array, expected: Array) -> float:
    """Return the largest difference of two arrays, relative to the largest element of `expected`.
    It is infinite if `found` has another shape, apart from extents of 1, or is not finite."""
    if [e for e in found.shape if e > 1] != [e for e in expected.shape if e > 1]:
        return float("inf")
    worst = float(np.abs(found.reshape(expected.shape) - expected).max())
    return worst / (float(np.abs(expected).max()) or 1.0) if np.isfinite(worst) else float("inf")


class Session:
    """What is kept from request to request: the calls of the row that is timed."""

    def __init__(self) -> None:
        self._calls: dict[str, Callable[[], object]] = {}
        self._library: Any = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        row = rows()[request["row"]] if "row" in request else None
        match request["op"], row:
            case "tune", Row():
                return _tuned(row, request)
            case "kernel", Row():
                return self._kernel(row, request)
            case "torch", Row():
                # Start-up: PyTorch takes seconds to import, and only this side needs it.
                from benchmarks.collection.torch_side import TorchSide

                self._library = TorchSide(row, request["seed"], request["threads"])
                return self._chosen("eager", self._library.reference(request["reference"]))
            case "compile", _:
                return self._chosen("compiled", {})
            case "time", _:
                call = self._calls[request["way"]]
                return {"samples": seconds_a_call(call, request["calls"], request["rounds"])}
            case _:
                self._calls, self._library = {}, None
                return {}

    def _kernel(self, row: Row, request: Mapping[str, Any]) -> dict[str, Any]:
        workload = workload_of(row)
        schedule = {"trace": request["trace"]} if request["trace"] else {"database": ":memory:"}
        # OpenMP has bound this thread to a core, so that it cannot see what the machine has.
        kernel = tw.build(workload, tw.Target.from_json(request["target"]), **schedule)
        (output,) = workload.output_tensors
        out = Shelf().array(output.shape, output.dtype.numpy)
        call = kernel.bind(*inputs_of(row, request["seed"]), out=out)
        call()
        self._calls["ours"] = call
        expected = np.load(request["reference"])
        return {"max_error": difference(out, expected), "call_secs": _call_secs(call)}

    def _chosen(self, way: str, said: dict[str, Any]) -> dict[str, Any]:
        """Choose the fastest of PyTorch's calls whose result is right. NoPeerError without one."""
        side = self._library
        variants = side.compiled() if way == "compiled" else side.eager()
        errors: dict[str, float] = {}

        def check(result: Any) -> str | None:
            errors[way] = difference(result.numpy(), side.expected)
            return f"off by {errors[way]:.2g}" if errors[way] > PEER_TOLERANCE else None

        fastest = choose(variants, check)
        self._calls[way] = fastest.call
        secs = _call_secs(fastest.call)
        return {**said, **fastest.to_json(), "max_error": errors[way], "call_secs": secs}


def _tuned(row: Row, request: Mapping[str, Any]) -> dict[str, Any]:
    threads = request["threads"]
    target = tw.native_target(threads)  # the probes are no part of tuning
    start = time.perf_counter()
    try:
        workload = workload_of(row)
    except tw.WorkloadError as error:
        return {"cannot_be_expressed": f"{error.code}: {error}"}
    if not request["trials"]:
        return {"trace": None, "target": target.to_json(), "tune_secs": 0.0}
    budget = tw.Budget(trials=request["trials"])
    report = tw.tune(
        workload, target, budget=budget, seed=request["seed"], database=request["database"]
    )
    found: dict[str, Any] = {"tune_secs": time.perf_counter() - start}
    found["phases"] = report.to_json()["wall_secs_by_phase"]
    found["stopped_because"] = report.stopped_because
    if report.best is None:
        return found | {"failed": f"no candidate passed: {report.to_json()['trials']}"}
    return found | {
        "trace": list(report.best.trace),
        "target": target.to_json(),
        "fraction_of_bound": report.best.fraction_of_bound,
    }


def _call_secs(call: Callable[[], object]) -> float:
    return min(seconds_a_call(call, 1, 3))


def main() -> None:
    """Serve until stdin ends. Libraries may write to stdout, so answers go to a copy of it."""
    die_with_parent(os.getppid())  # it may be stopped when the benchmark is killed
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = Session()
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("pin"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        try:
            answer = session.answer(request)
        except tw.TilewrightError as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
