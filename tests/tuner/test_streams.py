"""Outputs written past the caches: the same numbers wherever the arrays lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tw
from tests.support.schedule_fuzz.check import SMALL_CACHES, Pair, check_pair, this_machine
from tests.support.schedules.workloads import notation
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.primitives import (
    Parallel,
    Partition,
    Primitive,
    Split,
    Stream,
    Unroll,
    Vectorize,
)
from tilewright.schedules.sketches import space_for
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.backend.cpu.loading.loader import load_object, use_openmp
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text

Array = npt.NDArray[Any]
FLAT: tuple[Primitive, ...] = (
    Split("s0.d0", 32), Split("s0.d0i", 8), Unroll("s0.d0io"), Vectorize("s0.d0ii"), Stream("s0"),
)  # fmt: skip


def sums(length: int, dtype: str = "f32") -> Workload:
    return notation("Y[i] = A[i] + B[i]", A=f"{dtype}[{length}]", B=f"{dtype}[{length}]")


def at(offset_bytes: int, values: Array) -> Array:
    """A copy of `values` that starts `offset_bytes` behind a multiple of 64."""
    memory = np.zeros(values.nbytes + 192, np.uint8)
    start = -memory.ctypes.data % 64 + offset_bytes
    placed = memory[start : start + values.nbytes].view(values.dtype)
    placed[:] = values
    return placed


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("offset", [0, 4, 16, 32, 60])
@pytest.mark.parametrize("length", [1, 7, 31, 32, 64, 1000])
def test_arrays_may_lie_anywhere(length: int, offset: int, threads: int) -> None:
    workload = sums(length)
    steps = (*FLAT, Parallel("s0.d0o")) if threads > 1 else FLAT
    kernel = compile_kernel(workload, Trace(steps), this_machine(threads))
    use_openmp()
    loaded = load_object(kernel.object_bytes, kernel.symbol)
    a, b = (at(offset, np.arange(n, n + length, dtype=np.float32)) for n in (0, 5))
    y = at(offset, np.full(length, np.nan, np.float32))
    assert loaded.caller(4)(a.ctypes.data, b.ctypes.data, y.ctypes.data, None) == 0
    assert (y == a + b).all()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
def test_streams_of_every_type_agree_with_the_interpreter(dtype: str) -> None:
    workload = notation("Y[i] = A[i]", A=f"{dtype}[200]")
    for bits in (128, 256, 512):
        for lanes in (2, 8, 16, 64):
            steps = (Split("s0.d0", lanes), Vectorize("s0.d0i"), Stream("s0"))
            assert check_pair(Pair("streamed", workload, Trace(steps), 1, bits))


def text(workload: Workload, steps: tuple[Primitive, ...], target: Target | None = None) -> str:
    return llvm_text(workload, Trace(steps), target or this_machine())


def test_a_store_is_streamed_where_the_array_is_aligned_and_a_fence_follows() -> None:
    written = text(sums(256), FLAT)
    assert written.count("!nontemporal !0") == 4
    assert written.count("align 32, !nontemporal") == 4
    assert written.count("call void @llvm.x86.sse.sfence()") == 1
    assert "!nontemporal" not in text(sums(256), FLAT[:-1])


def test_every_thread_ends_its_own_stores() -> None:
    written = text(sums(256), (*FLAT, Parallel("s0.d0o")), this_machine(2))
    assert written.count("call void @llvm.x86.sse.sfence()") == 2


def test_stores_of_one_thread_are_done_before_all_threads_begin() -> None:
    """Another thread may write the same array next, and then its store must stay the last one."""
    steps: tuple[Primitive, ...] = (
        Split("s0.d0", 8), Partition("s0.d0o", 16), *map(Vectorize, ("s0.d0i", "s0.d0i.t")),
        Stream("s0"), Parallel("s0.d0o.t"),
    )  # fmt: skip
    written = text(sums(256), steps, this_machine(2))
    kernel = next(part for part in written.split("define ") if part.startswith("i32 @kernel("))
    before, _, _ = kernel.partition("@GOMP_parallel(")
    assert "sfence()" in before.rsplit("!nontemporal", 1)[1]
    assert check_pair(Pair("streamed", sums(256), Trace(steps), 2))


def test_a_stream_is_offered_where_rows_begin_with_a_vector_or_are_walked_as_one() -> None:
    def offered(spelling: str) -> bool:
        target = this_machine(1, 512)
        sketches = space_for(parse_workload(spelling).normalised(), target).sketches
        return any(
            k.values == (0, 1) for k in sketches[0].knobs if k.name.endswith("nontemporal_stores")
        )

    assert offered("elementwise_add_relu:M=20000,N=1000")  # all rows are walked as one
    assert offered("softmax_mn:M=20000,N=1024")
    assert not offered("softmax_mn:M=20000,N=1000")
    assert offered("matmul:M=20000,N=1024,K=16")
    assert not offered("matmul:M=20000,N=1000,K=16")
    assert not offered("transpose_mn:M=1000,N=20000")


def test_rows_that_start_anywhere_are_not_streamed() -> None:
    """Half a line written past the caches costs more than a line that is fetched first."""
    ragged = notation("Y[i,j] = A[i,j]", A="f32[6,1000]")
    steps = (Split("s0.d1", 16), Vectorize("s0.d1i"), Stream("s0"))
    assert "!nontemporal" not in text(ragged, steps, this_machine(1, 512))
    whole = notation("Y[i,j] = A[i,j]", A="f32[6,1024]")
    assert "!nontemporal" in text(whole, steps, this_machine(1, 512))


def test_masked_ends_are_written_in_the_plain_way() -> None:
    written = text(
        notation("Y[i] = A[i]", A="f32[20]"), (Split("s0.d0", 8), Vectorize("s0.d0i"), Stream("s0"))
    )
    assert "!nontemporal" not in written
    assert "llvm.masked.store" in written


@pytest.mark.parametrize(
    ("text", "name", "vectors", "stored"),
    [
        ("S[i,j] = cumsum(X[i,j], i); Y[i,j] = f32(S[i,j])", "scan", "interleave", 4),
        (
            "Y[i,j] = X[i-1,j] + X[i,j+1]; Z[i,j] = f32(Y[i,j]); W[i,j] = Y[i,j] + 1.0",
            "stencils", "vectors", 4,
        ),
    ],
)  # fmt: skip
def test_lines_are_those_of_what_is_stored(text: str, name: str, vectors: str, stored: int) -> None:
    """A scan of f64 whose reader stores f32 stores half as many bytes as it computes."""
    workload, target = notation(text, X="f64[192,192]"), this_machine(1, 256, caches=SMALL_CACHES)
    lanes, found = target.lanes(DType.F64), 0
    for sketch in space_for(workload, target).sketches:
        names = [knob.name.rpartition(".")[2] for knob in sketch.knobs]
        if name not in sketch.name or "nontemporal_stores" not in names:
            continue
        sizes = [len(knob.values) for knob in sketch.knobs]
        drawn = np.random.default_rng(1).integers(0, sizes, (2000, len(sizes)))
        for row in drawn[sketch.feasible(drawn)]:
            value = {n: k.values[i] for n, k, i in zip(names, sketch.knobs, row, strict=True)}
            if value["nontemporal_stores"]:
                found += 1
                assert value[vectors] * lanes * stored % 64 == 0, (sketch.name, value)
    assert found


@pytest.mark.parametrize("bits", [256, 512])
def test_the_default_tile_of_a_streamed_chain_repeats_little(bits: int) -> None:
    """Vectors of half a line are no reason for tiles with higher halos."""
    chain = (f"T{n + 1}[i,j] = T{n}[i-1,j] + T{n}[i+1,j] + T{n}[i,j-1]" for n in range(8))
    extents = {"i": 4096, "j": 4096}
    workload = from_notation("; ".join(chain), {"T0": ("f32", (4096, 4096))}, extents)
    (sketch, *_) = space_for(workload, this_machine(2, bits)).sketches
    setting = dict(zip((knob.name for knob in sketch.knobs), sketch.default(), strict=True))
    rows = next(knob.values[setting[knob.name]] for knob in sketch.knobs if "rows" in knob.name)
    assert setting["nontemporal_stores"] == 1
    assert rows >= 16


def test_defaults_that_are_not_feasible_take_as_long_as_others() -> None:
    """Each part is emitted once for each setting of it that is tried, not with all parts before."""
    emitted = dict.fromkeys((256, 512), 0)
    x = tw.placeholder("x", (256, 256))
    workload = tw.Workload.of(*(x.T + float(n) for n in range(16)), inputs=[x])
    for bits in emitted:

        def count(bits: int = bits) -> None:
            emitted[bits] += 1

        space_for(workload, this_machine(1, bits, caches=SMALL_CACHES), count)
    assert emitted[256] < 6 * emitted[512]


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize(
    ("text", "name", "vectors"),
    [
        ("Y[i,j] = cumsum(X[i,j], j)", "scan", "interleave"),
        ("Y[i,j] = cumsum(X[i,j], i)", "scan", "interleave"),
        ("Y[i,j] += X[i,k] * X[k,j]", "tile", "tile_vectors"),
        ("Y[i,j] = X[i-1,j] + X[i,j-1] + X[i,j+1] + X[i+1,j]", "stencils", "vectors"),
    ],
)
def test_tiles_stream_whole_lines(text: str, name: str, vectors: str, bits: int) -> None:
    """A line that is stored in two parts may be written to memory twice."""
    workload = notation(text, X="f32[192,192]")
    target = this_machine(1, bits, caches=SMALL_CACHES)
    streamed = 0
    for sketch in space_for(workload, target).sketches:
        names = [knob.name for knob in sketch.knobs]
        if sketch.name != name or "nontemporal_stores" not in names:
            continue
        sizes = [len(knob.values) for knob in sketch.knobs]
        drawn = np.random.default_rng(1).integers(0, sizes, (4000, len(sizes)))
        assert sketch.feasible(np.asarray([sketch.default()])).all()
        for row in drawn[sketch.feasible(drawn)]:
            value = {n: k.values[i] for n, k, i in zip(names, sketch.knobs, row, strict=True)}
            if value["nontemporal_stores"]:
                streamed += 1
                in_order = text.endswith(", j)") and value[vectors] == 1
                along_rows = 1 if text.endswith(", j)") else value[vectors]
                assert in_order or along_rows * bits % (64 * 8) == 0, value
    assert streamed
