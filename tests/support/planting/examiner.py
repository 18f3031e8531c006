"""Tell survivors that compute the same from those that do not, independently of verification.

What passed the full check runs beside the right kernel on inputs of its own making. A mutant that
gives the same bits on all of them changed nothing that a caller can see. One that only rounds
otherwise must be as close to the float64 reference as the right kernel is. Everything else got
through, and needs a look. Runs in a process of its own: a survivor may still crash.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.paths import ROOT
from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

Array = npt.NDArray[Any]

SAME = "gives the same bits on every input tried"
ROUNDS = "rounds otherwise, and is as close to the exact result as the right kernel"
TIMEOUT_SECS = 120.0


@dataclass(frozen=True)
class Examined:
    """`reason` says why a survivor is right; None where it is not, and `detail` says how."""

    reason: str | None
    detail: str = ""


def examine(
    workload: Workload, jobs: tuple[dict[str, Any], dict[str, Any]], right: bytes, mutant: bytes
) -> Examined:
    """Run `mutant` beside `right`, object files whose needs `jobs` tell, the right one's first."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "right.o"), Path(folder, "mutant.o")]
        for file, blob in zip(files, (right, mutant), strict=True):
            file.write_bytes(blob)
        document = {
            "workload": workload.to_json(),
            "jobs": jobs,
            "files": [str(f) for f in files],
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tests.support.planting.examiner"],
                input=json.dumps(document),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECS,
                check=False,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": str(jobs[0]["threads"])},
            )
        except subprocess.TimeoutExpired:
            return Examined(None, "did not end")
    if done.returncode:
        return Examined(None, f"ended with {done.returncode}: {done.stderr[-300:]}")
    return Examined(**json.loads(done.stdout.splitlines()[-1]))


_KINDS = ("usual", "wide", "outliers", "positive", "alike", "few", "spread")


def inputs_of(workload: Workload) -> Iterator[tuple[str, list[Array]]]:
    """Named inputs: usual ones, of many sizes, with outliers at chance places, all alike, with few
    that exponentials do not make zero, and spread so far that some of them nearly are."""
    for number in range(2 * len(_KINDS)):
        rng = np.random.default_rng(1000 + number)
        kind = _KINDS[number % len(_KINDS)]
        yield kind, [_drawn(t, kind, rng) for t in workload.inputs]


def _drawn(tensor: Tensor, kind: str, rng: np.random.Generator) -> Array:
    if not tensor.dtype.is_float:
        whole = tensor.dtype.numpy
        if tensor.dtype is DType.BOOL:
            return rng.integers(0, 2, tensor.shape).astype(whole)
        low, high = tensor.dtype.integer_range
        drawn: Array = rng.integers(low, high, tensor.shape, whole.type, endpoint=True)
        return drawn
    values = rng.standard_normal(tensor.shape)
    match kind:
        case "wide":
            values = np.ldexp(values, rng.integers(-12, 12, tensor.shape))
        case "outliers":
            chosen = rng.random(tensor.shape) < max(2e-3, 2 / max(tensor.elements, 1))
            values = np.where(chosen, values * 300, values)
        case "positive":
            values = 0.5 + rng.random(tensor.shape)
        case "few":
            values = np.where(rng.random(tensor.shape) < 0.01, values, -(2.0**14))
        case "spread":
            values *= 32.0
        case "alike":
            values = np.full(tensor.shape, values.flat[0] if values.size else 1.0)
        case _:
            pass
    if tensor.dtype is DType.BF16:
        return narrowed(values, DType.BF16)
    return values.astype(tensor.dtype.numpy)


def compare(exact: Sequence[Array], right: Sequence[Array], mutant: Sequence[Array]) -> Examined:
    """The verdict on one set of inputs: values of the reference, of the right kernel and of the
    mutant, output by output."""
    reason = SAME
    for known, a, b in zip(exact, right, mutant, strict=True):
        same = (a == b) | ((a != a) & (b != b))
        if same.all():
            continue
        reason = ROUNDS
        wide = known.astype(np.float64)
        with np.errstate(all="ignore"):
            # Nowhere is less than the least normal number promised.
            size = np.maximum(np.abs(wide), _least_size(a.dtype))
            errors = [np.abs(y.astype(np.float64) - wide) for y in (a, b)]
        finite = np.isfinite(errors[0])
        if not np.isfinite(errors[1][finite]).all():
            return Examined(None, "not finite where the right kernel is")
        # Where terms cancel the right kernel errs more as well: by the worst of all elements.
        allowed = np.maximum(4 * errors[0], 8 * np.abs(np.spacing(wide.astype(a.dtype))))
        worst = 3 * float(errors[0][finite].max(initial=0.0))
        beyond = finite & (errors[1] > allowed) & (errors[1] > worst)
        # Not the mean: where terms cancel single elements decide it, in any order of the terms.
        common = [_quantiles(e[finite] / size[finite]) for e in errors]
        if beyond.any() or (common[1] > 2 * common[0] + 1e-7).any():
            at = int(np.argmax(np.where(finite, errors[1], 0)))
            pair = f"{b.flat[at]} for {wide.flat[at]}, right kernel {a.flat[at]}"
            return Examined(None, f"{int(beyond.sum())} elements further off, worst {pair}")
    return Examined(reason)


def _quantiles(errors: Array) -> Array:
    return np.quantile(errors, (0.5, 0.9, 0.99)) if errors.size else np.zeros(3)


def _least_size(dtype: np.dtype[Any]) -> float:
    """What an error as large as the least normal number is one unit in the last place of."""
    if dtype.kind != "f":
        return 1.0
    return float(np.finfo(dtype).tiny) / float(np.finfo(dtype).eps)


def _examine_here(document: dict[str, Any]) -> Examined:
    from tilewright.tuner.backend.cpu.loading import loader
    from tilewright.tuner.backend.cpu.loading.entries import whole_entry
    from tilewright.tuner.codegen.abi import Needs

    workload = Workload.from_json(document["workload"])
    jobs = document["jobs"]
    loader.use_openmp(None)  # a mistake may be a parallel loop in a kernel for one thread
    # A mistake may make the workspace smaller: the right kernel needs its own.
    needs = [Needs(job["workspace_bytes"]) for job in jobs]
    count = len(workload.arguments)
    kernels = [
        loader.load_object(Path(f).read_bytes(), jobs[0]["symbol"]) for f in document["files"]
    ]
    entries = [whole_entry(k, n, count) for k, n in zip(kernels, needs, strict=True)]
    found = Examined(SAME)
    for number, (kind, inputs) in enumerate(inputs_of(workload)):
        with np.errstate(all="ignore"):
            exact = evaluate(workload, inputs)
        results = []
        for entry, needed in zip(entries, needs, strict=True):
            arrays = [_placed(array, 4 * number) for array in inputs]
            outputs = [
                _placed(np.zeros(t.shape, t.dtype.numpy), 4 * number)
                for t in workload.output_tensors
            ]
            workspace = _placed(np.full(needed.workspace_bytes, 0x5A, np.uint8), 0)
            addresses = [a.ctypes.data for a in (*arrays, *outputs)]
            entry.call(*entry.pointers(addresses, 0, workspace.ctypes.data))
            results.append(
                [_values(t, o) for t, o in zip(workload.output_tensors, outputs, strict=True)]
            )
        one = compare(exact, *results)
        if one.reason is None:
            return Examined(None, f"{kind}: {one.detail}")
        found = one if one.reason == ROUNDS else found
    return found


def _values(tensor: Tensor, stored: Array) -> Array:
    if tensor.dtype is DType.BF16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored


def _placed(array: Array, skip_bytes: int) -> Array:
    """A copy that begins `skip_bytes`, rounded down to whole elements, behind a cache line."""
    skip = skip_bytes // max(array.itemsize, 1) * array.itemsize
    raw = np.empty(array.nbytes + 192, np.uint8)
    start = -raw.ctypes.data % 64 + skip
    placed = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


if __name__ == "__main__":
    found = _examine_here(json.load(sys.stdin))
    print(json.dumps({"reason": found.reason, "detail": found.detail}))
