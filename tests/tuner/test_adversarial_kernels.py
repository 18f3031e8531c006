"""Cases made to break proofs: vectors that end where a tensor ends, steps of rows with one row more
than cuts, blocks at an end, divisors written between two walks."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tests.support.schedules.workloads import check_meaning, notation, softmax
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.finding import reads_of
from tilewright.schedules.primitives import (
    BlockRead,
    CacheRead,
    CacheWrite,
    ComputeAt,
    Merge,
    Parallel,
    Partition,
    Primitive,
    Reorder,
    SkipZeros,
    Split,
    Stagger,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace
from tilewright.tuner.backend.cpu.loading.loader import load_object, use_openmp
from tilewright.tuner.backend.cpu.memory.guarded import Flush, guarded
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.oracle import Oracle

# --- whole vectors with lanes apart or repeated: nothing outside the tensor is read --------------

READS: list[tuple[str, dict[str, int], dict[str, str], int]] = [
    ("Y[i] = X[2*i+1]", {"i": 32}, {"X": "f32[64]"}, 16),
    ("Y[i] = X[2*i]", {"i": 32}, {"X": "f32[63]"}, 16),
    ("Y[i] = X[2*i] - X[2*i+1]", {"i": 32}, {"X": "f32[64]"}, 8),
    ("Y[i] = X[3*i+2] - X[3*i]", {"i": 32}, {"X": "f32[96]"}, 16),
    ("Y[i] = X[3*i+1]", {"i": 32}, {"X": "f32[95]"}, 8),
    ("Y[i] = X[4*i+3]", {"i": 64}, {"X": "i8[256]"}, 64),
    ("Y[i] = X[4*i]", {"i": 64}, {"X": "i8[253]"}, 64),
    ("Y[i] = X[62-2*i]", {"i": 32}, {"X": "f32[63]"}, 16),
    ("Y[i] = X[i//2]", {"i": 32}, {"X": "f32[16]"}, 16),
    ("Y[i] = X[i//3]", {"i": 36}, {"X": "f32[12]"}, 12),
    ("Y[i] = X[(i+1)//2]", {"i": 32}, {"X": "f32[17]"}, 16),
    ("Y[i] = X[(i+1)//2]", {"i": 32}, {"X": "f32[25]"}, 16),
    ("Y[i] = X[i%4]", {"i": 32}, {"X": "f32[4]"}, 16),
    ("Y[i] = X[i%3]", {"i": 33}, {"X": "f32[3]"}, 3),
    ("Y[i] = X[15-i//2]", {"i": 32}, {"X": "f32[16]"}, 16),
    ("Y[i] = X[i//2] + X[i//2+1]", {"i": 32}, {"X": "f64[17]"}, 8),
]


@pytest.mark.parametrize("number", range(len(READS)))
@pytest.mark.parametrize("flush", list(Flush))
def test_no_read_leaves_the_tensor(number: int, flush: Flush) -> None:
    text, ranges, tensors, lanes = READS[number]
    workload = notation(text, ranges, **tensors)
    steps: tuple[Primitive, ...] = (Split("s0.d0", lanes), Vectorize("s0.d0i"))
    check_pair(Pair("reads", workload, Trace(steps), 1, 512))
    kernel = compile_kernel(workload, Trace(steps), this_machine(1, 512))
    case = Oracle(workload).quick
    child = os.fork()
    if not child:  # a read outside ends the child with a signal
        status = 2
        try:
            use_openmp()
            inputs = []
            for tensor, array in zip(workload.inputs, case.inputs, strict=True):
                buffer = guarded(tensor.name, tensor.bytes, flush)
                buffer.view()[:] = np.frombuffer(array.tobytes(), np.uint8)
                inputs.append(buffer)
            (out,) = workload.output_tensors
            output = guarded(out.name, out.bytes, flush)
            space = guarded("workspace", max(kernel.workspace_bytes, 64), Flush.LEFT, 64)
            loaded = load_object(kernel.object_bytes, kernel.symbol)
            addresses = [b.address for b in (*inputs, output, space)]
            code = loaded.caller(len(addresses))(*addresses)
            found = output.view().view(out.dtype.numpy).reshape(out.shape)
            status = 0 if not code and case.check([found]) is None else 1
        finally:
            os._exit(status)
    _, answer = os.waitpid(child, 0)
    assert answer == 0, f"signal {answer & 127}, status {answer >> 8}"


# --- Stagger -------------------------------------------------------------------------------------

ROWS: tuple[Primitive, ...] = (
    ComputeAt("s2", "s3.d0"), ComputeAt("s1", "s3.d0"), ComputeAt("s0", "s3.d0"),
    CacheWrite("s2", "s3.d0", "total"), CacheWrite("s0", "s3.d0", "top"), Merge("s1.1", "s2.r0"),
)  # fmt: skip


@pytest.mark.parametrize("rows", [3, 4])
def test_one_staggered_iteration_more_than_cuts(rows: int) -> None:
    steps = (*ROWS, Stagger("s3.d0", ("s2.r0", "s3.d1")), Merge("s3.d1", "s2.r0"),
             Merge("s2.r0", "s0.r0"))  # fmt: skip
    assert check_pair(Pair("steps", softmax(rows, 5), Trace(steps), 1, 256))


@pytest.mark.parametrize("dtype", ["i32", "f64"])
def test_staggered_maxima_and_integers(dtype: str) -> None:
    """What a reduction of one row leaves in its buffer is not where the next row starts."""
    workload = notation(
        "m[i] max= X[i,j]; s[i] += X[i,j] * m[i]; Y[i,j] = X[i,j] * s[i]", X=f"{dtype}[5,7]"
    )
    steps = (
        ComputeAt("s1", "s2.d0"), ComputeAt("s0", "s2.d0"), Stagger("s2.d0", ("s1.r0", "s2.d1")),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))
    assert check_pair(Pair("steps", workload, Trace(steps), 1, 256))


def test_a_staggered_reduction_starts_once() -> None:
    """The loop that is staggered is that of two sums: copies for iteration 0 store."""
    workload = notation("S[i] += X[k,i]; T[i] max= X[k,i]", X="f32[4,6]")
    steps = (
        Reorder(("s0.r0", "s0.d0")), Reorder(("s1.r0", "s1.d0")), Merge("s0.r0", "s1.r0"),
        Stagger("s1.r0", ("s1.d0",)),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))
    assert check_pair(Pair("steps", workload, Trace(steps), 1, 256))


def test_staggered_rows_with_a_tail_and_threads() -> None:
    """Rows that threads do not divide evenly: guards speak of the staggered loop."""
    steps: tuple[Primitive, ...] = (
        Split("s3.d0", 5), ComputeAt("s2", "s3.d0i"), ComputeAt("s1", "s3.d0i"),
        ComputeAt("s0", "s3.d0i"), CacheWrite("s2", "s3.d0i", "total"),
        CacheWrite("s0", "s3.d0i", "top"), Merge("s1.1", "s2.r0"),
        Stagger("s3.d0i", ("s2.r0", "s3.d1")), Parallel("s3.d0o"),
    )  # fmt: skip
    assert check_pair(Pair("steps", softmax(13, 6), Trace(steps), 2, 256))


# --- Merge ---------------------------------------------------------------------------------------


def test_what_must_follow_the_first_comes_after_both() -> None:
    workload = notation(
        "A[i] = X[i] + 1.0; B[i] = A[i] * 2.0; C[i] = X[i] - 1.0; D[i] = A[7-i] + B[i]",
        X="f32[8]",
    )
    for first, second in (("s0.d0", "s2.d0"), ("s0.d0", "s1.d0"), ("s1.d0", "s2.d0")):
        check_meaning(workload, Merge(first, second).apply(plain_nest(workload)))


# --- padding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("reducer", "outside"), [("+", "0"), ("max", "-inf")])
def test_padding_outer_loops_decide(stride: int, dilation: int, reducer: str, outside: str) -> None:
    height = 7
    inside = f"0<={stride}*h+{dilation}*r-2<{height} and 0<=w+s-1<5"
    read = f"where({inside}, X[{stride}*h+{dilation}*r-2,w+s-1], {outside})"
    workload = notation(
        f"Y[h,w] {reducer}= {read}", {"h": 4, "w": 5, "r": 3, "s": 3}, X=f"f32[{height},5]"
    )
    nest = plain_nest(workload)
    # The normal form orders the taps: those of rows are around those of columns here.
    taps = ("s0.r0", "s0.r1")
    row = reads_of(nest.body, "i0")[0].index[0]
    rows, columns = taps if taps[0] in row.vars() else taps[::-1]
    steps = (
        Reorder((rows, columns, "s0.d1")),
        CacheWrite("s0", "s0.d0", "acc", register=False), SkipZeros("acc", columns),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(nest))
    if outside == "0":
        copied = (*steps, CacheRead("i0", "s0.d0", "rows"))
        check_meaning(workload, Trace(copied).apply(nest))


# --- BlockRead -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 7])
def test_blocks_at_the_end_of_a_tensor(n: int) -> None:
    workload = notation("Y[i,j] = X[i,j] + X[j,i]", X=f"f32[{n},{n}]")
    steps: tuple[Primitive, ...] = (
        Split("s0.d0", 4), Split("s0.d1", 4), Reorder(("s0.d0o", "s0.d1o", "s0.d1i", "s0.d0i")),
        BlockRead("i0", "s0.d1o", "b", "s0.d0i"), Unroll("b.0"), Vectorize("b.1"),
        Unroll("s0.d1i"), Unroll("s0.d0i"),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))
    assert check_pair(Pair("steps", workload, Trace(steps), 1, 256))


def test_a_block_read_under_padding_and_a_negative_step() -> None:
    workload = notation("Y[i,j] = X[i,j] + X[j-1,6-i]", {"i": 7, "j": 7}, X="f32[7,7]")
    steps: tuple[Primitive, ...] = (
        Split("s0.d0", 4), Reorder(("s0.d0o", "s0.d1", "s0.d0i")),
        BlockRead("i0", "s0.d1", "b", "s0.d0i"), Unroll("b.0"), Unroll("s0.d0i"),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))
    assert check_pair(Pair("steps", workload, Trace(steps), 1, 256))


# --- slow values that are computed in advance ----------------------------------------------------


@pytest.mark.parametrize("at", [1, 5])
def test_a_divisor_written_in_an_earlier_part_of_the_loop(at: int) -> None:
    """The divisor of columns is written by the same loop over rows, in another part of it."""
    workload = notation(
        "T[i,j] = X[i,j] + 3.0; Y[i,j] = X[i,j] / T[i,j]; Z[i,j] = Y[i,j] / T[0,j]", X="f32[6,16]"
    )
    steps = (
        Vectorize("s0.d1"), Vectorize("s1.d1"), Vectorize("s2.d1"), Partition("s2.d0", at),
    )  # fmt: skip
    check_pair(Pair("steps", workload, Trace(steps), 1, 512))


def test_a_divisor_updated_between_two_walks_of_one_loop() -> None:
    workload = notation(
        "S[j] += X[i,j]; Y[i,j] = X[i,j] / S[j]; T[j] += Y[i,j]; Z[i,j] = Y[i,j] / T[j]",
        X="f32[5,16]",
    )
    steps = (
        Reorder(("s0.r0", "s0.d0")), Vectorize("s0.d0"), Vectorize("s1.d1"),
        Reorder(("s2.r0", "s2.d0")), Vectorize("s2.d0"), Vectorize("s3.d1"), Unroll("s3.d0"),
    )  # fmt: skip
    check_pair(Pair("steps", workload, Trace(steps), 1, 512))
