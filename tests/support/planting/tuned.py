"""Right kernels of the sizes people tune, made for this machine: long rows, deep sums, odd extents.

`bases` holds small kernels whose mistakes are known one by one. These are generated: the
default schedule of each workload and others drawn from its space. What gets through is told from
what changes nothing by `examiner`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.planting.bases import Base
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.spelling import parse_operator
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

OPERATORS = (
    "matmul:M=192,N=256,K=224",
    "matmul:M=127,N=131,K=137",
    "matmul:M=24,N=64,K=16384",
    "matmul:M=8,N=1024,K=512",
    "matmul_nt:M=96,N=144,K=256",
    "matmul_tn:M=100,N=90,K=300",
    "matmul:M=128,N=128,K=96,epilogue=bias+relu",
    "matmul:M=64,N=96,K=128,dtype=f64",
    "matmul:M=64,N=96,K=128,dtype=i8",
    "batch_matmul:B=6,M=64,N=80,K=48",
    "gemv:N=1000,K=1024",
    "conv2d_nhwc:H=28,W=28,CI=32,CO=64,K=3,pad=1,epilogue=bias+relu",
    "conv2d_nhwc:H=29,W=29,CI=16,CO=48,K=3,stride=2,pad=1",
    "conv2d_nhwc:H=14,W=14,CI=128,CO=72,K=1",
    "conv2d_nhwc:H=20,W=20,CI=64,CO=64,K=3,pad=1,groups=4",
    "depthwise_conv2d_nhwc:H=28,W=28,C=96,K=3,pad=1",
    "depthwise_conv2d_nhwc:H=30,W=30,C=40,K=5,stride=2,pad=2",
    "conv2d_transpose_nhwc:H=12,W=12,CI=32,CO=32,K=4,stride=2,pad=1",
    "max_pool2d_nhwc:H=28,W=28,C=64,K=3,stride=2,pad=1",
    "softmax_mn:M=64,N=1000",
    "softmax_mn:M=512,N=700",
    "softmax_mn:M=32,N=32000",
    "layernorm_mn:M=64,N=8192",
    "layernorm_mn:M=256,N=768",
    "norm_bmn:B=2,M=300,N=512",
    "colsum_mn:M=500,N=300",
    "global_avg_pool_nhwc:H=14,W=14,C=200",
    "elementwise_add_relu:M=300,N=1000",
    "transpose_mn:M=300,N=520",
)
EXPRESSIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "quotient": ("Y[i,j] = X[i,j] / Z[i,j]", ("X=f32[200,333]", "Z=f32[200,333]")),
    "sum of sigmoids": ("S[i] += sigmoid(X[i,j])", ("X=f32[4,100000]",)),
    "gelu": (
        "Y[i,j] = 0.5 * X[i,j] * (1.0 + erf(X[i,j] * 0.70710678))",
        ("X=f32[128,500]",),
    ),
    "rms norm": (
        "Q[i] += X[i,j] * X[i,j]; Y[i,j] = X[i,j] * rsqrt(Q[i] / 4096.0 + 0.00001) * G[j]",
        ("X=f32[48,4096]", "G=f32[4096]"),
    ),
    "log-sum-exp": (
        "M[i] max= X[i,j]; S[i] += exp(X[i,j] - M[i]); Y[i] = M[i] + log(S[i])",
        ("X=f32[40,5000]",),
    ),
    "squared distances": (
        "D[i,j] += (A[i,k] - B[j,k]) * (A[i,k] - B[j,k])",
        ("A=f32[96,100]", "B=f32[120,100]"),
    ),
    "scores": (
        "S[i,j] += Q[i,k] * K[j,k]; M[i] max= S[i,j]; E[i,j] = exp(S[i,j] * 0.125 - M[i] * 0.125);"
        " T[i] += E[i,j]; Y[i,j] = E[i,j] / T[i]",
        ("Q=f32[128,64]", "K=f32[128,64]"),
    ),
    "least and greatest": (
        "A[i] min= X[i,j]; B[i] max= X[i,j]; Y[i,j] = (X[i,j] - A[i]) / (B[i] - A[i] + 1.0)",
        ("X=f32[96,1500]",),
    ),
    "tanh of columns": ("Y[j] += tanh(X[i,j]) * W[i]", ("X=f32[700,260]", "W=f32[700]")),
}
THREADS = (1, 2)


def tuned_workloads() -> Iterator[tuple[str, Workload]]:
    """All of them by name, in normal form."""
    for text in OPERATORS:
        yield text, parse_operator(text).normalised()
    for name, (expression, tensors) in EXPRESSIONS.items():
        specs = [parse_tensor_spec(t) for t in tensors]
        yield name, from_notation(expression, specs).normalised()


def tuned_bases(target: Target, settings: int, seed: int) -> Iterator[Base]:
    """`settings` kernels of each workload, the default first; every other one for two threads."""
    for number, (name, workload) in enumerate(tuned_workloads()):
        for which in range(settings):
            threads = THREADS[(number + which) % len(THREADS)]
            space = space_for(workload, target.with_threads(threads))
            point = space.default() if which == 0 else drawn(space, f"{seed} {name} {which}")
            try:
                trace = space.trace(point)
            except ScheduleError:  # a sketch may find out late; the default always exists
                trace = space.trace(space.default())
            yield Base(f"{name} #{which} t{threads}", workload, trace, space.target)


def drawn(space: ScheduleSpace, chance: str) -> Candidate:
    """A feasible point drawn by chance; the default where none of many is feasible."""
    rng = np.random.default_rng(list(chance.encode()))
    for _ in range(200):
        sketch = int(rng.integers(len(space.sketches)))
        sizes = [len(k.values) for k in space.sketches[sketch].knobs]
        settings = rng.integers(0, sizes, (256, len(sizes)))
        good = settings[space.sketches[sketch].feasible(settings)]
        if len(good):
            return Candidate(sketch, tuple(int(v) for v in good[0]))
    return space.default()
