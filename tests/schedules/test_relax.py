"""Guards on private results are not dropped further than what the results are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.support.interpreter.interpret import interpret
from tests.support.schedules.hand_nests import load, loop, number, store, tensor
from tests.support.schedules.workloads import check_meaning, matmul, notation
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.comparisons import at_least, less
from tilewright.schedules.algebra.scalar import Select, walk
from tilewright.schedules.dtypes import DType
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.lowering.relax import relax_guards
from tilewright.schedules.nest.loop_ir import Allocate, Buffer, BufferScope, Nest, Update, leaves
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Merge,
    Partition,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace


def test_an_update_goes_no_further_than_what_starts_it() -> None:
    """The merged loop is of a reduction, so the start of `w` keeps its guard. The update must keep
    its own, or it combines with elements that were never written."""
    workload = notation(
        "T[i,p] += Z[i,p,r]; C[i,j] += A[i,k] * B[k,j]",
        Z="f32[3,2,4]", A="f32[3,5]", B="f32[5,6]",
    )  # fmt: skip
    steps = (
        Split("s1.d1", 4), Reorder(("s1.d1o", "s1.r0", "s1.d1i")),
        Merge("s0.d0", "s1.d0"), Merge("s0.d1", "s1.d1o"),
        CacheWrite("s1", "s1.d1o", "w", register=False),
        Merge("s0.r0", "s1.d1i.init"),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))


def test_what_stays_inside_a_private_buffer_was_also_written_there() -> None:
    """A read of a private buffer that needs one guard to stay inside it (4*io + ii < 6) needs the
    others too: 6*o + .. < 20 holds for o = 0, but the buffer is made anew for each o, and in the
    last block columns from 2 on are never written."""
    workload = notation("E[i,j] = X[i,j] + 1.0; S[j] += E[i,j]", X="f32[5,20]")
    steps = (
        Split("s1.d0", 6), ComputeAt("s0", "s1.d0o"), Split("s1.d0i", 4),
        Reorder(("s1.d0io", "s1.r0", "s1.d0ii")),
        CacheWrite("s1", "s1.d0io", "acc", register=False),
    )  # fmt: skip
    check_meaning(workload, Trace(steps).apply(plain_nest(workload)))


def test_parts_of_a_partitioned_copy_fill_it_together() -> None:
    """Every element of the copy is written, so rows beyond the last one are read without a
    condition."""
    workload = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[17,5]", B="f32[5,8]")
    steps = (
        Split("s0.d0", 6), Reorder(("s0.d0o", "s0.r0", "s0.d0i", "s0.d1")),
        CacheRead("i0", "", "p"), Partition("p.0", 16),
        CacheWrite("s0", "s0.d0o", "acc", register=False),
    )  # fmt: skip
    nest = Trace(steps).apply(plain_nest(workload))
    check_meaning(workload, nest)
    updates = [leaf for leaf in leaves(clean(nest).body) if isinstance(leaf, Update)]
    assert not [node for leaf in updates for node in walk(leaf.value) if isinstance(node, Select)]


def test_uneven_blocks_of_ragged_tiles_compute_whole_vectors() -> None:
    """The guard that ends the last block of rows stays on start and update alike: no reason to
    mask the multiply-adds of the tile."""
    steps = (
        Split("s0.d0", 6), Split("s0.d0i", 2), Split("s0.d1", 8),
        Reorder(("s0.d0o", "s0.d0io", "s0.d1o", "s0.r0", "s0.d0ii", "s0.d1i")),
        Vectorize("s0.d1i"), Unroll("s0.d0ii"), CacheWrite("s0", "s0.d1o", "acc", register=True),
    )  # fmt: skip
    workload = matmul(8, 13, 5)
    nest = Trace(steps).apply(plain_nest(workload))
    check_meaning(workload, nest)
    updates = [leaf for leaf in leaves(clean(nest).body) if isinstance(leaf, Update)]
    assert updates
    assert not any(leaf.guards for leaf in updates)


def test_a_guard_that_holds_elsewhere_does_not_end_another_there() -> None:
    """X has six elements and x <= a + 2, a + y <= 3 keep a read inside together.
    The first always holds for a = 7, where the second never does: to drop it because of that would
    read element 7 for a = y = 0."""
    a, y, x, z = (var(name) for name in "ayxz")
    zeros = loop("a0", 8, loop("y0", 4, loop("z0", 8, store(
        "Y", (var("a0"), var("y0"), var("z0")), number(0.0)))))  # fmt: skip
    second = less(a + y, 4)
    fill = loop("x", 8, store("W", (x,), load("X", x), at_least(a + 2, x), second))
    take = loop("z", 8, store("Y", (a, y, z), load("W", z), at_least(a + 2, z), second))
    private = Allocate(
        Buffer("W", (8,), DType.F32, BufferScope.WORKSPACE), (loop("y", 4, fill, take),)
    )
    nest = Nest((tensor("X", 6),), (tensor("Y", 8, 4, 8),), (zeros, loop("a", 8, private)))
    inputs = [np.arange(6, dtype=np.float32)]
    (wanted,) = interpret(nest, inputs)
    relaxed = replace(nest, body=relax_guards(nest.body, nest.argument_buffers))
    assert not unproven_accesses(relaxed)
    (found,) = interpret(relaxed, inputs)
    assert (wanted == found).all()
