"""Scans, positions (argmax, argmin) and gathers against the functions of NumPy and PyTorch.

    python -m benchmarks.scans [--threads 2] [--only TEXT] [--out FILE.jsonl]

Each row is tuned from nothing. Then its kernel, NumPy's function and PyTorch's (if it can be
imported) are called in turn on the same arrays, with outputs made before, and the medians are
compared. Every result is compared with that of NumPy in f64. Run it on a quiet machine, with
`OMP_NUM_THREADS` set to `--threads` for PyTorch.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw

from .gathers import GATHERS, Gather

ROUNDS, ROUND_SECS = 30, 0.02
"""Calls of 0.02 s or more are single ones. The rows of 64 million elements are beyond the caches of
most machines, and the bound of these rows is that of memory."""
_ACCUMULATE = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum}


@dataclass(frozen=True, slots=True)
class Row:
    """`function` is the name of a function of NumPy and PyTorch, applied along `axis`."""

    expr: str
    tensor: str
    function: str
    axis: int
    reverse: bool = False

    @property
    def tensors(self) -> list[str]:
        return [self.tensor]

    def arrays(self, workload: tw.Workload) -> list[Any]:
        """Return the inputs of `workload`."""
        shape, dtype = workload.inputs[0].shape, workload.inputs[0].dtype.numpy
        rng = np.random.default_rng(0)
        x = rng.normal(size=shape)
        if self.function == "cumprod":
            x = rng.uniform(0.99, 1.01, shape)
        return [(10 * x if np.dtype(dtype).kind == "i" else x).astype(dtype)]

    def numpy(self, given: Sequence[Any], out: Any) -> Callable[[], object]:
        """Return NumPy's call, into `out` if NumPy can write its type."""
        (x,) = given
        if self.function in _ACCUMULATE:
            ufunc = _ACCUMULATE[self.function]
            values, into = (np.flip(a, self.axis) if self.reverse else a for a in (x, out))
            return lambda: ufunc.accumulate(values, axis=self.axis, out=into)
        return lambda: getattr(np, self.function)(x, axis=self.axis)

    def torch(self, torch: Any, given: Sequence[Any], out: Any) -> Callable[[], object]:
        x = torch.from_numpy(given[0])
        function = getattr(torch, self.function)
        if self.reverse:
            return lambda: function(x.flip(self.axis), dim=self.axis).flip(self.axis)
        if self.function in ("cumsum", "cumprod"):
            into = torch.from_numpy(out)
            return lambda: function(x, dim=self.axis, out=into)
        return lambda: function(x, dim=self.axis)

    def right(self, given: Sequence[Any]) -> Any:
        """Return the result of NumPy in f64, or for integers in their type."""
        (x,) = given
        wide = x if x.dtype.kind == "i" else x.astype(np.float64)
        exact = np.empty(wide.shape, wide.dtype)
        found = self.numpy([wide], exact)()
        return exact if self.function in _ACCUMULATE else found

    @property
    def name(self) -> str:
        return f"{self.function} {self.tensor[2:]} axis {self.axis}{' reverse' * self.reverse}"


ROWS = (
    Row("S[i,k] = cumsum(X[i,k], k)", "X=f32[1024,4096]", "cumsum", 1),
    Row("S[i,k] = cumsum(X[i,k], k)", "X=f32[64,256]", "cumsum", 1),
    Row("S[i,k] = cumsum(X[i,k], k)", "X=f32[333,1001]", "cumsum", 1),
    Row("S[k] = cumsum(X[k], k)", "X=f32[4000000]", "cumsum", 0),
    Row("S[k] = cumsum(X[k], k)", "X=f64[100003]", "cumsum", 0),
    Row("S[k,j] = cumsum(X[k,j], k)", "X=f32[1024,4096]", "cumsum", 0),
    Row("S[k,j] = cumsum(X[k,j], k)", "X=f32[500,100]", "cumsum", 0),
    Row("S[i,k,j] = cumsum(X[i,k,j], k)", "X=f32[16,512,256]", "cumsum", 1),
    Row("S[i,k] = cumsum(X[i,k], k, reverse)", "X=f32[1024,4096]", "cumsum", 1, reverse=True),
    Row("S[i,k] = cumprod(X[i,k], k)", "X=f32[1024,4096]", "cumprod", 1),
    Row("S[i,k] = cummax(X[i,k], k)", "X=f32[1024,4096]", "cummax", 1),
    Row("S[i,k] = cumsum(X[i,k], k)", "X=i64[1024,2048]", "cumsum", 1),
    Row("S[k,j] = cumsum(X[k,j], k)", "X=f32[1000000,3]", "cumsum", 0),
    Row("S[i,k] = cumsum(X[i,k], k)", "X=f32[3,1500000]", "cumsum", 1),
    Row("S[k] = cummax(X[k], k)", "X=f64[1000003]", "cummax", 0),
    Row("S[i,k] = cumsum(X[i,k], k)", "X=f32[8192,8192]", "cumsum", 1),
    Row("S[i,k] = cumsum(X[i,k], k)", "X=f32[16,4000000]", "cumsum", 1),
    Row("S[k] = cumsum(X[k], k)", "X=f32[64000000]", "cumsum", 0),
    Row("S[k,j] = cumsum(X[k,j], k)", "X=f32[8192,8192]", "cumsum", 0),
    Row("A[i] = argmax(X[i,k], k)", "X=f32[1024,4096]", "argmax", 1),
    Row("A[i] = argmax(X[i,k], k)", "X=f32[4000,256]", "argmax", 1),
    Row("A[i] = argmin(X[i,k], k)", "X=f32[8,500000]", "argmin", 1),
    Row("A[i,j] = argmax(X[i,k,j], k)", "X=f32[16,512,256]", "argmax", 1),
    Row("A[j] = argmin(X[k,j], k)", "X=f32[1024,4096]", "argmin", 0),
)


def medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median seconds of each call. The calls take turns, so that changes of the clock
    frequency affect all of them alike."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(int(ROUND_SECS / max(time.perf_counter() - start, 1e-7)), 1)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            found[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(secs) for name, secs in found.items()}


def measured(row: Row | Gather, threads: int, torch: Any) -> dict[str, Any]:
    """Return one row of the table: seconds of each side, and the share of the bound."""
    workload = tw.parse(row.expr, tensors=row.tensors)
    began = time.perf_counter()
    report = tw.tune(workload, threads=threads)
    tune_secs = time.perf_counter() - began
    assert report.best is not None, report.stopped_because
    kernel = tw.build(workload, threads=threads, trace=report.best.trace)
    arrays = row.arrays(workload)
    (output,) = workload.output_tensors
    # Outputs that a kernel allocates are aligned, so that non-temporal stores are possible.
    out: Any = kernel(*arrays)
    theirs = np.empty(output.shape, output.dtype.numpy)
    calls = {"tilewright": lambda: kernel(*arrays, out=out), "numpy": row.numpy(arrays, theirs)}
    if torch is not None:
        calls["torch"] = row.torch(torch, arrays, theirs)
    secs = medians(calls)
    right: Any = row.right(arrays)
    scale = 1e-4 * float(np.abs(right).max())
    np.testing.assert_allclose(out, right, rtol=1e-3, atol=scale)
    return {
        "name": row.name,
        "threads": threads,
        "tune_secs": tune_secs,
        "fraction_of_bound": report.best.fraction_of_bound,
        "seconds": secs,
    }


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| row | us | of the bound | NumPy | PyTorch | tuned in, s |"
    yield "|---|---|---|---|---|---|"
    ratios = []
    for one in found:
        own, others = one["seconds"]["tilewright"], one["seconds"]
        cells = [f"{others[n] / own:.2f}x" if n in others else "" for n in ("numpy", "torch")]
        ratios.append(min(secs for name, secs in others.items() if name != "tilewright") / own)
        yield (
            f"| {one['name']} | {own * 1e6:.1f} | {one['fraction_of_bound']:.2f} |"
            f" {cells[0]} | {cells[1]} | {one['tune_secs']:.1f} |"
        )
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    yield f"\nagainst the better library: geometric mean {mean:.2f}x, least {min(ratios):.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(asked.threads)
    except ImportError:
        torch = None
    found = []
    for row in (*ROWS, *GATHERS):
        if asked.only in row.name:
            found.append(measured(row, asked.threads, torch))
            print(json.dumps(found[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
