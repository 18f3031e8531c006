"""What a primitive says it makes is what the nest then has; how steps are written down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.schedules.instructions import MARK, narrow, schedule
from tests.support.schedules.tuples import ARGMAX
from tests.support.schedules.workloads import (
    bias_relu,
    convolution,
    loop_names,
    matmul,
    notation,
    softmax,
)
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.loop_ir import Nest, loops
from tilewright.schedules.primitives import (
    PRIMITIVES,
    BlockRead,
    CacheRead,
    CacheWrite,
    CarryScan,
    ComputeAt,
    Extend,
    Fuse,
    Initialise,
    Inline,
    KeepElements,
    Merge,
    PackAhead,
    Parallel,
    Partition,
    Prefetch,
    PrefetchStores,
    Primitive,
    Reorder,
    ReverseComputeAt,
    RFactor,
    ScanBlocks,
    SkipBlocks,
    SkipZeros,
    Solve,
    Split,
    Stagger,
    Stream,
    TakeSelected,
    TransformLayout,
    Unroll,
    Vectorize,
)
from tilewright.schedules.primitives.primitive import LoopMaker
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

ROWS = (
    ComputeAt("s2", "s3.d0"), ComputeAt("s1", "s3.d0"), ComputeAt("s0", "s3.d0"),
    CacheWrite("s2", "s3.d0", "total"), CacheWrite("s0", "s3.d0", "top"), Merge("s1.1", "s2.r0"),
)  # fmt: skip
PADDED = (
    Reorder(("s0.r0", "s0.r1", "s0.r2", "s0.d2")),
    CacheWrite("s0", "s0.d1", "acc", register=False),
)
GRAM = notation("C[i,j] += A[i,k] * A[j,k]", A="f32[6,5]")
BOTH_WAYS = notation("Y[i,j] = X[i,j] + X[j,i]", X="f32[6,6]")
CONSTANT = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[7,5]", B="const f32[5,6]")
TRANSPOSED = notation(
    "Y[x,o] += where((x + 1 - r) % 2 == 0, X[(x + 1 - r)//2, c], 0) * W[r,c,o]",
    {"x": 10}, X="f32[5,2]", W="f32[4,2,3]",
)  # fmt: skip
HISTOGRAM = notation("H[v] += where(I[n] == v, 1, 0)", {"v": 5}, I="i32[9]")
TRIANGLE = notation("Y[i,j] += where(k <= i, A[i,k], 0) * B[k,j]", A="f32[7,5]", B="f32[5,6]")
SUMS = notation("S[i,k] = X[i,k] + 1; Y[i,k] = S[i,k] * 2", X="f32[3,37]")
SCAN = notation("S[i,k] = cumsum(X[i,k], k); Y[i,k] = S[i,k] * 2", X="f32[3,37]")

CASES: list[tuple[Workload, tuple[Primitive, ...]]] = [
    (matmul(), (Split("s0.d0", 3),)),
    (matmul(), (Fuse("s0.d0", "s0.d1"),)),
    (matmul(), (Extend("s0.d0", 9), Split("s0.d0", 3))),
    (matmul(), (Reorder(("s0.r0", "s0.d1")), Vectorize("s0.d1"))),
    (matmul(), (Partition("s0.d0", 4), Partition("s0.d0", 2), Partition("s0.r0", 3))),
    (matmul(), (CacheRead("i1", "s0.d0", "p"), Partition("s0.d0", 4))),
    (matmul(), (Unroll("s0.r0"), Parallel("s0.d0"), Stream("s0"))),
    (matmul(), (RFactor("s0.r0", "parts"),)),
    (matmul(), (CacheRead("i1", "", "p"), TransformLayout("p", (), ((1, 0), (0, 0))))),
    (matmul(), (Prefetch("i1", "s0.d0", 1), Prefetch("i1", "s0.d0", 1, "s0.r0", "", 4))),
    (matmul(), (PrefetchStores("s0", "s0.d1", 4),)),
    (CONSTANT, (CacheRead("i1", "", "p"), PackAhead("p"))),
    (GRAM, (CacheRead("i0", "s0.d0", "p", along="s0.d1"),)),
    (BOTH_WAYS, (BlockRead("i0", "s0.d0", "b", "s0.d1"),)),
    (convolution(), (*PADDED, SkipZeros("acc"))),
    (TRIANGLE, (CacheWrite("s0", "s0.d0", "acc", False), SkipBlocks("acc", "s0.r0"))),
    (convolution(), (*PADDED, SkipZeros("acc", "s0.r1"))),
    (bias_relu(), (ComputeAt("s0", "s1.d0"),)),
    (notation("D[i] = A[i] + 1; C[i] = D[i] * D[i]", A="f32[6]"), (Inline("s0"),)),
    (TRANSPOSED, (Split("s0.d0", 2), Split("s0.r0", 2), Solve("s0.r0i"))),
    (HISTOGRAM, (Reorder(("s0.r0", "s0.d0")), Initialise("s0", ""), TakeSelected("s0.d0"))),
    (narrow(), (*schedule(MARK),)),
    (softmax(6, 8), (*ROWS, Stagger("s3.d0", ("s2.r0", "s3.d1")))),
    (SCAN, (ReverseComputeAt("s1", "s0"),)),
    (SCAN, (Split("s0.d1", 8), Reorder(("s0.d1o", "s0.d0")), ScanBlocks("s0.d1o", "t", "c"))),
    (SCAN, (ReverseComputeAt("s1", "s0"), CarryScan("s0", "s0.d1", "kept", 4))),
    (SUMS, (ReverseComputeAt("s1", "s0"), KeepElements("s0", "s0.d1", "kept", False))),
    (ARGMAX, (Partition("s0.r0", 1), KeepElements("s0", "s0.d0", "kept", False))),
]  # fmt: skip


def check_made(nest: Nest, step: Primitive) -> Nest:
    """The nest after `step`, which makes the loops it says, in the order of the program."""
    made = step.made(nest)
    before = set(loop_names(nest))
    new = [loop.var for loop in loops(made.nest.body) if loop.var not in before]
    assert list(made.loops) == new
    known = before | buffers_in(made.nest).keys()
    assert known.issuperset(made.loops.values()), "made of loops, or to fill a buffer"
    assert made.nest == step.apply(nest)
    assert isinstance(step, LoopMaker) or not made.loops
    return made.nest


@pytest.mark.parametrize(("workload", "steps"), CASES, ids=[str(steps[-1]) for _, steps in CASES])
def test_a_step_makes_the_loops_it_says(workload: Workload, steps: tuple[Primitive, ...]) -> None:
    nest = plain_nest(workload)
    for step in steps:
        nest = check_made(nest, step)


def test_every_primitive_is_looked_at() -> None:
    looked_at = {type(step) for _, steps in CASES for step in steps}
    assert looked_at == set(PRIMITIVES)


OLD: list[tuple[Primitive, dict[str, Any]]] = [
    (CacheRead("i0", "", "p"), {"do": "CacheRead", "tensor": "i0", "loop": "", "name": "p",
                                "register": False}),
    (CacheRead("i0", "", "p", along="k"), {"do": "CacheReadAlong", "tensor": "i0", "loop": "",
                                           "name": "p", "along": "k"}),
    (Prefetch("i0", "k", 2), {"do": "Prefetch", "tensor": "i0", "loop": "k", "ahead": 2}),
    (Prefetch("i0", "k", 2, "j", "", 16), {"do": "FetchAhead", "tensor": "i0", "loop": "k",
                                           "ahead": 2, "within": "j", "deal": "", "step": 16}),
    (SkipZeros("acc"), {"do": "SkipZeros", "buffer": "acc"}),
    (SkipZeros("acc", "k"), {"do": "SkipZerosAround", "buffer": "acc", "loop": "k"}),
]  # fmt: skip


@pytest.mark.parametrize(("step", "document"), OLD, ids=[d["do"] for _, d in OLD])
def test_steps_are_written_as_stored_traces_have_them(
    step: Primitive, document: dict[str, Any]
) -> None:
    """Records are found by the bytes of their traces: a step keeps its spelling."""
    assert json.dumps(Trace((step,)).to_json()) == json.dumps([document])
    assert Trace.from_json([document]) == Trace((step,))
    assert str(step).startswith(f"{document['do']}({list(document)[1]}=")


def test_a_spelling_says_what_only_it_can_say() -> None:
    both = CacheRead("i0", "", "p", register=True, along="k")
    assert Trace.from_json(Trace((both,)).to_json()) == Trace((both,))
    with pytest.raises(ScheduleError, match="step 0: SkipZerosAround needs all of"):
        Trace.from_json([{"do": "SkipZerosAround", "buffer": "acc", "loop": ""}])
    with pytest.raises(ScheduleError, match=r"SkipZeros takes \['buffer'\], found"):
        Trace.from_json([{"do": "SkipZeros", "buffer": "acc", "register": True}])
