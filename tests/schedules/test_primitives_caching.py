"""CacheRead, CacheWrite and TransformLayout: private places for data, and when they refuse."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedule_fuzz.check import Pair, check_pair
from tests.support.schedules.workloads import (
    applied,
    bias_relu,
    check_meaning,
    convolution,
    loop_names,
    matmul,
    notation,
)
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.nest.loop_ir import Allocate, BufferScope, walk
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    BlockRead,
    CacheRead,
    CacheWrite,
    ComputeAt,
    Fuse,
    Merge,
    Parallel,
    Partition,
    Reorder,
    Split,
    TransformLayout,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace


def shapes(nest: object) -> dict[str, tuple[int, ...]]:
    found = (s for s in walk(nest.body) if isinstance(s, Allocate))  # type: ignore[attr-defined]
    return {s.buffer.name: s.buffer.shape for s in found}


def test_a_copy_holds_the_part_a_loop_reads(golden: Golden) -> None:
    nest = applied(
        matmul(), Split("s0.d1", 4), Reorder(("s0.d1o", "s0.d0")), CacheRead("i1", "s0.d1o", "p")
    )
    assert to_text(nest) == golden
    assert shapes(nest) == {"p": (5, 4)}
    assert loop_names(nest)[1:3] == ["p.0", "p.1"]


def test_padding_moves_into_the_copy() -> None:
    nest = applied(convolution(), CacheRead("i0", "s0.d0", "p"))
    reader = to_text(nest).split("s0[")[1]
    assert shapes(nest) == {"p": (3, 6, 3)}
    assert " if " not in reader


@pytest.mark.parametrize(("step", "tap", "pad"), [(2, 2, 3), (3, 3, 4), (4, 2, 1), (2, 4, 5)])
def test_padding_of_reads_in_steps_moves_into_the_copy(step: int, tap: int, pad: int) -> None:
    padded = notation(
        f"Y[i] += where({step}*i+{tap}*k >= {pad} and {step}*i+{tap}*k < 17+{pad},"
        f" X[{step}*i+{tap}*k-{pad}], 0) * W[k]",
        {"i": 7}, X="f32[17]", W="f32[3]",
    )  # fmt: skip
    steps = (CacheRead("i0", "s0.d0", "p"), Split("s0.r0", 2), Unroll("s0.r0i"))
    nest = applied(padded, *steps)
    assert " if " not in to_text(nest).split("s0[")[1]
    assert check_pair(Pair("steps", padded, Trace(steps), 1, 256))


def test_conditions_that_are_no_padding_stay() -> None:
    spread = notation("Y[i] = where(i%2 == 0, X[i//2], 0)", {"i": 10}, X="f32[5]")
    assert "i%2" in to_text(applied(spread, CacheRead("i0", "", "p"))).replace("s0.d0", "i")


def test_strided_reads_are_copied_without_gaps() -> None:
    strided = notation("Y[i] = X[3*i]", {"i": 4}, X="f32[10]")
    assert shapes(applied(strided, CacheRead("i0", "", "p"))) == {"p": (4,)}


def test_two_reads_with_a_fixed_distance_share_a_copy() -> None:
    nest = applied(
        notation("Y[i] = X[i] + X[i+2]", {"i": 4}, X="f32[6]"), Split("s0.d0", 2),
        CacheRead("i0", "s0.d0o", "p"),
    )  # fmt: skip
    assert shapes(nest) == {"p": (4,)}


def test_cache_read_says_what_it_cannot_copy() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match="there is no buffer 'Q'"):
        CacheRead("Q", "s0.d0", "p").apply(nest)
    with pytest.raises(ScheduleError, match="the name 'i1' is in use"):
        CacheRead("i0", "s0.d0", "i1").apply(nest)
    with pytest.raises(ScheduleError, match="the nest' does not read 's0'"):
        CacheRead("s0", "", "p").apply(nest)
    with pytest.raises(ScheduleError, match="the body writes 's0'"):
        CacheRead("s0", "", "p").apply(plain_nest(bias_relu()))
    vector = Trace((Reorder(("s0.r0", "s0.d1")), Vectorize("s0.d1"))).apply(nest)
    with pytest.raises(ScheduleError, match=r"'s0\.d1' is vectorized: nothing can be inserted"):
        CacheRead("i1", "s0.d1", "p").apply(vector)


def test_parts_without_a_fixed_size_are_not_copied() -> None:
    nest = Trace((Fuse("s0.d0", "s0.d1"), Split("s0.d0f", 4))).apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match="divides a sum of loops from inside and outside"):
        CacheRead("i0", "s0.d0fo", "p").apply(nest)
    gram = plain_nest(notation("C[i,j] += A[i,k] * A[j,k]", A="f32[4,3]"))
    with pytest.raises(ScheduleError, match="the distance of two accesses is not constant"):
        CacheRead("i0", "s0.d0", "p").apply(gram)


def test_what_is_written_in_full_is_copied_and_what_may_be_missing_is_not() -> None:
    applied(bias_relu(), Split("s0.d0", 2), CacheRead("s0", "s1.d0", "p"))
    blur = notation("T[i] = A[i] + 1; Y[i] = T[i-1] + T[i+1]", {"i": 9}, A="f32[9]")
    edges = Trace((Split("s1.d0", 3), ComputeAt("s0", "s1.d0o"))).apply(plain_nest(blur))
    with pytest.raises(ScheduleError, match="parts of 's0' may never be written"):
        CacheRead("s0", "s1.d0i", "p").apply(edges)


def test_accumulators_start_at_the_identity_and_are_written_once(golden: Golden) -> None:
    nest = applied(
        matmul(), Split("s0.d1", 2), Reorder(("s0.d1o", "s0.r0", "s0.d1i")), Unroll("s0.d1i"),
        CacheWrite("s0", "s0.d1o", "w"),
    )  # fmt: skip
    assert to_text(nest) == golden
    assert "for s0.d1i.init in range(2):" in to_text(nest)
    assert "for s0.d1i.out in range(2):" in to_text(nest)


def test_blocks_of_a_reduction_add_up_in_the_result() -> None:
    nest = applied(
        matmul(), Split("s0.r0", 2), Reorder(("s0.r0o", "s0.d0", "s0.d1", "s0.r0i")),
        CacheWrite("s0", "s0.d1", "w"),
    )  # fmt: skip
    assert "s0[s0.d0, s0.d1] += w" in to_text(nest)


@pytest.mark.parametrize("assign", ["+=", "*=", "max=", "min="])
@pytest.mark.parametrize("dtype", ["f32", "i32", "i8", "u8"])
def test_every_reducer_and_type_has_its_identity(assign: str, dtype: str) -> None:
    reduced = notation(f"C[i] {assign} A[i,k]", A=f"{dtype}[3,5]")
    applied(reduced, Split("s0.r0", 2), CacheWrite("s0", "s0.d0", "w", register=False))


def test_cache_write_says_what_it_cannot_collect() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match="there is no buffer 'Q'"):
        CacheWrite("Q", "s0.d0", "w").apply(nest)
    with pytest.raises(ScheduleError, match="the name 's0' is in use"):
        CacheWrite("s0", "s0.d0", "s0").apply(nest)
    with pytest.raises(ScheduleError, match="must write 'i0' in one place, found 0"):
        CacheWrite("i0", "s0.d0", "w").apply(nest)
    cut = Partition("s0.r0", 2).apply(nest)
    with pytest.raises(ScheduleError, match=r"'s0\.d0' must write 's0' in one place, found 2"):
        CacheWrite("s0", "s0.d0", "w").apply(cut)
    inner = Parallel("s0.d1").apply(nest)
    with pytest.raises(ScheduleError, match="a parallel loop is inside; cache within it"):
        CacheWrite("s0", "s0.d0", "w").apply(inner)


def test_registers_are_indexed_by_constants_once_unrolled() -> None:
    nest = CacheWrite("s0", "s0.d0", "w").apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match=r"registers of 'w': loops .*s0\.d1.* must be unrolled"):
        clean(nest)


def test_a_panel_layout(golden: Golden) -> None:
    panel = TransformLayout("p", ((1, 4),), ((1, 1), (0, 0), (1, 2)))
    nest = applied(matmul(), CacheRead("i1", "", "p"), panel)
    assert to_text(nest) == golden
    assert shapes(nest) == {"p": (2, 5, 4)}


def test_a_layout_keeps_every_part_once_and_is_for_private_buffers() -> None:
    nest = CacheRead("i1", "", "p").apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match="there is no buffer 'q'"):
        TransformLayout("q", (), ((0, 0),)).apply(nest)
    with pytest.raises(ScheduleError, match="'i1' is an argument, so its layout is fixed"):
        TransformLayout("i1", (), ((1, 0), (0, 0))).apply(nest)
    for split, dims in (
        ((), ((0, 0),)),
        ((), ((0, 0), (0, 0))),
        (((1, 4),), ((0, 0), (1, 0))),
    ):
        with pytest.raises(ScheduleError, match="dims must be a permutation of"):
            TransformLayout("p", split, dims).apply(nest)
    for factor in (0, 2**64):
        with pytest.raises(ScheduleError, match=r"dimension 1 may be divided by 1\.\.4096"):
            TransformLayout("p", ((1, factor),), ((0, 0), (1, 1), (1, 2))).apply(nest)


def test_copies_of_moved_stages_and_of_copies() -> None:
    applied(bias_relu(), ComputeAt("s0", "s1.d0"), CacheRead("i0", "s1.d0", "p"))
    applied(matmul(), CacheRead("i1", "", "p"), CacheRead("p", "s0.d1", "q"))


def test_scopes() -> None:
    nest = CacheRead("i0", "", "p", register=True).apply(plain_nest(matmul()))
    (allocated,) = (s for s in walk(nest.body) if isinstance(s, Allocate))
    assert allocated.buffer.scope is BufferScope.REGISTER


def test_a_copy_along_a_loop_is_read_where_it_moves_with_it_and_nowhere_else() -> None:
    square = notation("C[i,j] += A[i,k] * A[j,k]", A="f32[7,5]")
    split = (Split("s0.d1", 4), Reorder(("s0.d1o", "s0.d0", "s0.r0", "s0.d1i")))
    nest = applied(square, *split, CacheRead("i0", "s0.d1o", "p", along="s0.d1i"))
    assert shapes(nest) == {"p": (4, 5)}
    product = to_text(nest).split("+= ")[1]
    assert "i0[" in product
    assert "p[" in product
    trace = Trace((CacheRead("i0", "", "p", along="s0.d1"),))
    assert Trace.from_json(trace.to_json()) == trace


def test_a_copy_along_a_loop_needs_a_read_that_moves_with_it() -> None:
    nest = plain_nest(notation("C[i,j] += A[i,k] * B[j,k]", A="f32[7,5]", B="f32[6,5]"))
    with pytest.raises(ScheduleError, match=r"does not read 'i0' along 's0\.d1'"):
        CacheRead("i0", "s0.d0", "p", along="s0.d1").apply(nest)
    with pytest.raises(ScheduleError, match=r"'s0\.d0' is not inside 's0\.d1'"):
        CacheRead("i0", "s0.d1", "p", along="s0.d0").apply(nest)


def test_a_block_is_read_for_the_reads_that_walk_along_a_loop() -> None:
    both = notation("Y[i,j] = X[i,j] + X[j,i]", X="f32[6,6]")
    split = (Split("s0.d0", 3), Reorder(("s0.d0o", "s0.d1", "s0.d0i")))
    step = BlockRead("i0", "s0.d1", "b", "s0.d0i")
    steps = (*split, step, Unroll("b.0"), Unroll("s0.d0i"))
    nest = applied(both, *steps)
    assert shapes(nest) == {"b": (3,)}
    (buffer,) = (s.buffer for s in walk(nest.body) if isinstance(s, Allocate))
    assert buffer.scope is BufferScope.REGISTER
    total = to_text(nest).split("s0[")[1]
    assert "i0[" in total
    assert "b[" in total
    assert Trace.from_json(Trace((step,)).to_json()) == Trace((step,))
    assert check_pair(Pair("steps", both, Trace(steps), 1, 256))


def test_a_block_is_refused_where_no_read_walks_along_the_loop() -> None:
    nest = plain_nest(
        notation("Y[i,j] = X[i,j] + V[i] + W[0]", X="f32[6,7]", V="f32[6]", W="f32[1]")
    )
    with pytest.raises(ScheduleError, match=r"'i1' with 's0\.d1' in its last dimension"):
        BlockRead("i1", "s0.d0", "b", "s0.d1").apply(nest)
    with pytest.raises(ScheduleError, match="no buffer 'none'"):
        BlockRead("none", "s0.d0", "b", "s0.d1").apply(nest)
    with pytest.raises(ScheduleError, match="does not read 'i2' with"):
        BlockRead("i2", "s0.d0", "b", "s0.d1").apply(nest)
    with pytest.raises(ScheduleError, match=r"'s0\.d0' is not inside 's0\.d1'"):
        BlockRead("i0", "s0.d1", "b", "s0.d0").apply(nest)


def test_a_block_holds_what_iterations_read_where_an_index_divides() -> None:
    planes = notation("Y[h,w,c] = X[c,h,w]", X="f32[5,3,7]")
    fused = (Fuse("s0.d0", "s0.d1"), Split("s0.d0f", 4))
    step = BlockRead("i0", "s0.d0fo", "b", "s0.d0fi")
    with pytest.raises(ScheduleError, match="divides a sum of loops"):
        applied(planes, *fused, CacheRead("i0", "s0.d0fo", "b"))
    marks = (Unroll("b.0"), Unroll("b.1"), Unroll("s0.d0fi"), Unroll("s0.d2"))
    steps = (*fused, step, *marks)
    assert shapes(applied(planes, *steps)) == {"b": (5, 4)}
    assert check_pair(Pair("steps", planes, Trace(steps), 1, 256))


def test_a_block_is_of_one_read() -> None:
    shifted = notation("Y[i,j] = X[j,i] + X[j+1,i]", {"i": 4, "j": 4}, X="f32[5,4]")
    nest = applied(shifted, Reorder(("s0.d1", "s0.d0")))
    with pytest.raises(ScheduleError, match="several reads of 'i0'"):
        BlockRead("i0", "s0.d1", "b", "s0.d0").apply(nest)


def test_no_cache_of_what_a_merged_reduction_loop_moves() -> None:
    """Loop s1.r0 is of a reduction and moves what is written to s0: what comes after it has no
    place."""
    workload = notation("Y[i,k] = 2.0 * X[i,k]; S[i] += X[i,k]", X="f32[4,6]")
    merged = (Merge("s0.d0", "s1.d0"), Merge("s0.d1", "s1.r0"))
    nest = Trace(merged).apply(plain_nest(workload))
    for register in (False, True):
        with pytest.raises(ScheduleError, match="indexes the written element"):
            CacheWrite("s0", "s1.d0", "w", register).apply(nest)


def test_a_cache_inside_of_the_merged_loop_is_fine() -> None:
    """Inside of the loop it does not move anything."""
    workload = notation("Y[i,k] = 2.0 * X[i,k]; S[i] += X[i,k]", X="f32[4,6]")
    steps = (
        Merge("s0.d0", "s1.d0"), Merge("s0.d1", "s1.r0"), CacheWrite("s0", "s1.r0", "w"),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))
