"""Blocks of registers read by columns: the shuffle network, and kernels that transpose with it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.paths import example_target
from tests.support.schedule_fuzz.check import Pair, check_pair
from tests.support.schedules.workloads import notation
from tilewright.schedules.dtypes import DType
from tilewright.schedules.primitives import (
    CacheRead,
    Partition,
    Primitive,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.codegen.transposing import Transposed, network
from tilewright.tuner.codegen.values import Val
from tilewright.tuner.emit.kernel import assembly_text


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_a_network_transposes_its_block_in_log2_steps(size: int, bits: int) -> None:
    found = network(size, bits)
    held = [[(row, column) for column in range(size)] for row in range(size)]
    for shuffle in found.shuffles:
        both = held[shuffle.a] + held[shuffle.b]
        held.append([both[lane] for lane in shuffle.lanes])
    for column, vector in enumerate(found.columns):
        assert held[vector] == [(row, column) for row in range(size)]
    assert len(found.shuffles) == size * (size.bit_length() - 1)


def test_only_the_shuffles_a_column_needs_are_written() -> None:
    lines: list[str] = []

    def assign(text: str, hint: str) -> str:
        lines.append(text)
        return f"%{hint}{len(lines)}"

    transposed = Transposed(assign, [Val(f"%r{n}", DType.F32, 8) for n in range(8)])
    first = transposed.column(0)
    assert len(lines) == 4 + 2 + 1
    assert transposed.column(0) == first
    for column in range(8):
        transposed.column(column)
    assert len(lines) == 8 * 3


def transposed(dtype: str, rows: int, columns: int, lanes: int) -> tuple[Workload, Trace]:
    """The first lines of `schedules/sketches/transpose/copies.py`, with a part for each end."""
    workload = notation("Y[i,j] = X[j,i]", X=f"{dtype}[{columns},{rows}]")
    steps: list[Primitive] = [
        Split("s0.d0", lanes), Split("s0.d1", lanes),
        Reorder(("s0.d0o", "s0.d1o", "s0.d0i", "s0.d1i")),
        CacheRead("i0", "s0.d1o", "block", register=True),
        Unroll("block.0"), Vectorize("block.1"), Unroll("s0.d0i"), Vectorize("s0.d1i"),
    ]  # fmt: skip
    for loop, extent in (("s0.d1o", columns), ("s0.d0o", rows)):
        if extent % lanes and extent > lanes:
            steps.append(Partition(loop, extent // lanes))
    return workload, Trace(tuple(steps))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i8", "bf16"])
@pytest.mark.parametrize(
    ("rows", "columns", "lanes"),
    [(16, 16, 16), (20, 37, 16), (37, 20, 8), (33, 17, 8), (5, 3, 2), (9, 35, 4), (17, 19, 16)],
)
@pytest.mark.parametrize("vector_bits", [128, 256, 512])
def test_blocks_are_transposed(
    dtype: str, rows: int, columns: int, lanes: int, vector_bits: int
) -> None:
    workload, trace = transposed(dtype, rows, columns, lanes)
    assert check_pair(Pair("transposed", workload, trace, 1, vector_bits))


@pytest.mark.parametrize(("rows", "columns"), [(3, 20), (20, 3), (5, 11), (11, 5)])
def test_blocks_need_not_be_square(rows: int, columns: int) -> None:
    workload = notation("Y[i,j] = X[j,i] * 2", X=f"f32[{columns},{rows}]")
    trace = Trace(
        (
            CacheRead("i0", "", "block", register=True),
            Unroll("block.0"), Vectorize("block.1"), Unroll("s0.d0"), Vectorize("s0.d1"),
        )
    )  # fmt: skip
    assert check_pair(Pair("transposed", workload, trace, 1))


def test_a_block_of_16_floats_is_64_shuffles_and_no_element_is_moved_alone() -> None:
    target = example_target("znver5")
    workload, trace = transposed("f32", 64, 64, 16)
    text = assembly_text(workload, trace, target)
    used = Counter(line.split()[0] for line in text.splitlines() if line.startswith("\tv"))
    assert sum(n for name, n in used.items() if "unpck" in name or "shuf" in name) == 64
    assert not [name for name in used if "gather" in name or "insert" in name or name == "vmovss"]
