"""How long verification of a kernel takes: the quick check's inputs, and a full check.

    python benchmarks/check_times.py [--only NAME,...] [--threads N] [--json]

Without `--threads`, both are times in the process that checks: to draw the inputs, to compute
values and bounds, and to compare an output with them, which is the reference's own, rounded. What a
kernel takes to run, twice or more a case, is not in them.

With `--threads`, they are what a user waits for, of the default schedule for that many: the quick
check of a trial and its timing, and all of `LocalMeasurer.confirm`, rebuilds and timing included.
Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tilewright.schedules import operators  # noqa: E402
from tilewright.schedules.algebra.narrow import narrowed  # noqa: E402
from tilewright.schedules.dtypes import DType  # noqa: E402
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec  # noqa: E402
from tilewright.schedules.workload.workload import Workload  # noqa: E402
from tilewright.tuner.judge.compare import Case  # noqa: E402
from tilewright.tuner.judge.oracle import Oracle  # noqa: E402
from tilewright.tuner.machine.native_target import detect  # noqa: E402
from tilewright.tuner.measure.local import LocalMeasurer  # noqa: E402
from tilewright.tuner.measure.protocol import MeasureRequest  # noqa: E402
from tilewright.tuner.search.default import default_trace  # noqa: E402

_SOFTMAX = (
    "M[b,h,i] max= X[b,h,i,j]; E[b,h,i,j] = exp(X[b,h,i,j] - M[b,h,i]); "
    "S[b,h,i] += E[b,h,i,j]; Y[b,h,i,j] = E[b,h,i,j] / S[b,h,i]"
)
_SCORES = "D[b,h,i,j] += Q[b,h,i,d] * K[b,h,j,d]; X[b,h,i,j] = D[b,h,i,j] * 0.125; " + _SOFTMAX


def _notation(text: str, **tensors: str) -> Callable[[], Workload]:
    return lambda: from_notation(text, [parse_tensor_spec(f"{n}={t}") for n, t in tensors.items()])


def _operator(name: str, **sizes: int | str) -> Callable[[], Workload]:
    return lambda: operators.build(name, sizes)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "add 4096x4096": _notation("C[i,j] = A[i,j] + B[i,j]", A="f32[4096,4096]", B="f32[4096,4096]"),
    "add relu 4000x4000": _operator("elementwise_add_relu", M=4000, N=4000),
    "add relu 4096x4096": _operator("elementwise_add_relu", M=4096, N=4096),
    "softmax 4096x4096": _operator("softmax_mn", M=4096, N=4096),
    "softmax 4000x4000": _operator("softmax_mn", M=4000, N=4000),
    "softmax 16x12x128x128": _notation(_SOFTMAX, X="f32[16,12,128,128]"),
    "scores 16x12x128x128": _notation(_SCORES, Q="f32[16,12,128,64]", K="f32[16,12,128,64]"),
    "softmax 32x32000": _operator("softmax_mn", M=32, N=32000),
    "softmax 64x1000": _operator("softmax_mn", M=64, N=1000),
    "layernorm 64x8192": _operator("layernorm_mn", M=64, N=8192),
    "attention scores": _operator(
        "transpose_batch_matmul_softmax", batch=16, seq=128, heads=12, dim=64
    ),
    "matmul 512": _operator("matmul", M=512, N=512, K=512),
    "matmul 1024": _operator("matmul", M=1024, N=1024, K=1024),
    "matmul 2048": _operator("matmul", M=2048, N=2048, K=2048),
    "matmul 16x16x16384": _operator("matmul", M=16, N=16, K=16384),
    "conv 3x3 56x56x64": _operator("conv2d_nhwc", H=56, W=56, CI=64, CO=64, K=3, pad=1),
    "sum of sigmoids 4x100000": _notation("S[i] += sigmoid(X[i,j])", X="f32[4,100000]"),
}


def rounded(case: Case) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """The reference's values as the outputs of a kernel."""
    return [
        narrowed(e.values, DType.BF16)
        if e.tensor.dtype is DType.BF16
        else e.values.astype(e.tensor.dtype.numpy)
        for e in case.expected
    ]


def check_secs(workload: Workload) -> tuple[float, float, int]:
    """Seconds to build the quick case and of a full check after that, and its number of cases."""
    start = time.perf_counter()
    oracle = Oracle(workload)
    quick = oracle.quick
    quick_secs = time.perf_counter() - start
    outputs = rounded(quick)
    full_secs, cases = 0.0, 0
    start = time.perf_counter()
    for case in oracle.full():
        full_secs += time.perf_counter() - start
        outputs = rounded(case)
        start = time.perf_counter()
        problem = case.check(outputs)
        full_secs += time.perf_counter() - start
        assert problem is None, problem
        cases += 1
        start = time.perf_counter()
    return quick_secs, full_secs, cases


def confirm_secs(workload: Workload, threads: int) -> dict[str, float]:
    """Seconds of the default schedule's trial and full check on this machine."""
    target = replace(detect(), threads=threads)
    request = MeasureRequest(1, default_trace(workload, target))
    with LocalMeasurer(workload, target, 0) as measurer:
        (trial,) = measurer.measure([request])
        assert trial.ok, trial.detail
        measurer.measure([request])  # the first one's pages were new
        start = time.perf_counter()
        full = measurer.confirm(request)
        secs = time.perf_counter() - start
        assert full.ok, full.detail
        quick = measurer.costs[1]
    return {
        "quick_secs": quick["verify_secs"],
        "timing_secs": quick["measure_secs"],
        "run_secs": trial.run_secs_estimate or 0.0,
        "verify_secs": full.verify_secs,
        "confirm_secs": secs,
    }


def _confirmed(name: str, workload: Workload, threads: int, as_json: bool) -> None:
    found = confirm_secs(workload.normalised(), threads)
    if as_json:
        print(json.dumps({"workload": name, "threads": threads} | found), flush=True)
        return
    print(
        f"{name:28} {found['run_secs'] * 1e3:9.2f} {found['quick_secs'] * 1e3:10.1f} "
        f"{found['timing_secs'] * 1e3:10.1f} {found['verify_secs']:8.2f} "
        f"{found['confirm_secs']:9.2f}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--json", action="store_true", help="one JSON document a line")
    parser.add_argument("--threads", type=int, help="time whole checks of kernels for so many")
    options = parser.parse_args()
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    if not options.json and options.threads:
        columns = f"{'call, ms':>9} {'quick, ms':>10} {'timing, ms':>10} {'full, s':>8}"
        print(f"{'workload':28} {columns} {'confirm, s':>9}")
    elif not options.json:
        print(f"{'workload':28} {'quick, ms':>10} {'full, s':>8} {'cases':>6}")
    for name, build in WORKLOADS.items():
        if only and name not in only:
            continue
        if options.threads:
            _confirmed(name, build(), options.threads, options.json)
            continue
        quick_secs, full_secs, cases = check_secs(build())
        if options.json:
            row = {"workload": name, "quick_secs": quick_secs, "full_secs": full_secs}
            print(json.dumps(row | {"cases": cases}), flush=True)
        else:
            print(f"{name:28} {quick_secs * 1e3:10.1f} {full_secs:8.2f} {cases:6}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
