"""Vectorize, Unroll, Parallel and Stream, and the proofs about dependences they rest on."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.support.interpreter.interpret import interpret
from tests.support.schedules.hand_nests import load, loop, plus, store, tensor, update
from tests.support.schedules.workloads import applied, bias_relu, matmul, notation
from tilewright.schedules.algebra.affine import Affine, IndexLike, Interval, affine, var
from tilewright.schedules.algebra.independence import separates
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Fuse,
    Parallel,
    Prefetch,
    Reorder,
    RFactor,
    Split,
    Stream,
    Unroll,
    Vectorize,
)
from tilewright.schedules.primitives.marks import MAX_UNROLLED
from tilewright.schedules.trace import Trace


def kinds(nest: object) -> dict[str, object]:
    return {loop.var: loop.kind for loop in loops(nest.body)}  # type: ignore[attr-defined]


def test_marks_change_nothing_but_the_kind_of_a_loop() -> None:
    nest = applied(
        matmul(), Reorder(("s0.r0", "s0.d1")), Vectorize("s0.d1"), Unroll("s0.r0"),
        Parallel("s0.d0"),
    )  # fmt: skip
    assert kinds(nest) == {
        "s0.d0": LoopKind.PARALLEL,
        "s0.r0": LoopKind.UNROLLED,
        "s0.d1": LoopKind.VECTORIZED,
    }


def test_vectorise_needs_an_innermost_loop_of_64_lanes_at_most() -> None:
    with pytest.raises(ScheduleError, match=r"'s0.d1' must be innermost, and it contains"):
        Vectorize("s0.d1").apply(plain_nest(matmul()))
    copied = notation("C[i] = A[i]", A="f32[65]")
    with pytest.raises(ScheduleError, match="at most 64 lanes, the loop has 65"):
        Vectorize("s0.d0").apply(plain_nest(copied))


def test_a_vectorised_loop_cannot_be_marked_again() -> None:
    copied = plain_nest(notation("C[i] = A[i]", A="f32[8]"))
    vectorised = Vectorize("s0.d0").apply(copied)
    for step in (Vectorize("s0.d0"), Unroll("s0.d0"), Parallel("s0.d0")):
        with pytest.raises(ScheduleError, match="is vectorized; this needs a serial loop"):
            step.apply(vectorised)


def test_lanes_of_a_reduction_need_their_first_update_elsewhere() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match="first update of 's0' would be in one lane"):
        Vectorize("s0.r0").apply(nest)
    applied(matmul(), CacheWrite("s0", "s0.d1", "w"), Vectorize("s0.r0"))


def test_a_reduction_that_runs_outside_may_not_become_lanes() -> None:
    nest = Reorder(("s0.r0", "s0.d1")).apply(plain_nest(matmul()))
    factored = Trace((CacheRead("i0", "s0.r0", "p"),)).apply(nest)
    with pytest.raises(ScheduleError, match="must be innermost"):
        Vectorize("s0.r0").apply(factored)


def test_lanes_that_combine_into_one_element_are_no_spatial_lanes() -> None:
    nest = plain_nest(notation("C[i] max= A[i,j]", A="f32[3,4]"))
    with pytest.raises(ScheduleError, match=r"must be innermost|may write the same element"):
        Vectorize("s0.d0").apply(nest)


def test_unrolling_is_refused_where_it_makes_too_many_copies() -> None:
    nest = plain_nest(notation("C[i,j] = A[i,j]", A="f32[65,65]"))
    unrolled = Unroll("s0.d0").apply(nest)
    with pytest.raises(
        ScheduleError, match=f"unrolling makes 4225 copies; at most {MAX_UNROLLED} are allowed"
    ):
        Unroll("s0.d1").apply(unrolled)
    inner_first = Unroll("s0.d1").apply(nest)
    with pytest.raises(ScheduleError, match="unrolling makes 4225 copies"):
        Unroll("s0.d0").apply(inner_first)


def test_a_reduction_is_not_parallel_until_it_is_factored() -> None:
    nest = plain_nest(matmul())
    with pytest.raises(ScheduleError, match="combine into the same elements; RFactor it first"):
        Parallel("s0.r0").apply(nest)
    summed = notation("C[i] += A[i,j]", A="f32[2,12]")
    applied(summed, Split("s0.r0", 4), RFactor("s0.r0o", "p"), Reorder(("s0.r0o", "s0.d0")),
            Parallel("s0.r0o"))  # fmt: skip


def test_parallel_loops_stand_in_serial_loops_and_do_not_nest() -> None:
    nest = Parallel("s0.d0").apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match=r"parallel loops do not nest, and 's0.d0' is one"):
        Parallel("s0.d1").apply(nest)
    inner = Parallel("s0.d1").apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match=r"parallel loops do not nest, and 's0.d1' is one"):
        Parallel("s0.d0").apply(inner)
    unrolled = Unroll("s0.d0").apply(plain_nest(matmul()))
    with pytest.raises(ScheduleError, match="may be nested in serial loops only"):
        Parallel("s0.d1").apply(unrolled)


def test_a_loop_over_a_buffer_that_all_iterations_share_is_not_parallel() -> None:
    nest = Trace((CacheWrite("s0", "", "w", False),)).apply(
        plain_nest(notation("C[i] += A[i,j]", A="f32[3,4]"))
    )
    assert Parallel("s0.d0").apply(nest)  # each iteration has its own element of w
    tiled = Trace((ComputeAt("s0", "s1.d0"),)).apply(plain_nest(bias_relu()))
    assert Parallel("s1.d0").apply(tiled)  # s0 is private to an iteration


def running_sums(*read: IndexLike) -> Nest:
    """X[i, k] += X[read], after a first loop that fills X with A."""
    at, shape = (var("i") + 1, var("k") + 1), (5, 8)
    fill = loop(
        "x", 5, loop("y", 8, store("X", (var("x"), var("y")), load("A", var("x"), var("y"))))
    )
    scan = store("X", at, plus(load("X", *at), load("X", *read)))
    rows = loop("i", 4, loop("k", 6, scan))
    return Nest((tensor("A", *shape),), (tensor("X", *shape),), (fill, rows))


def test_rows_of_a_recurrence_run_in_parallel_and_its_steps_do_not() -> None:
    rows = running_sums(var("i") + 1, var("k"))
    with pytest.raises(ScheduleError, match="iteration of 'k' may read what another writes to 'X'"):
        Parallel("k").apply(rows)
    with pytest.raises(ScheduleError, match="iteration of 'k' may read what another writes to 'X'"):
        Vectorize("k").apply(rows)
    turned = Reorder(("k", "i")).apply(rows)
    lanes = Vectorize("i").apply(turned)
    inputs = [np.arange(40, dtype=np.float32).reshape(5, 8)]
    (expected,) = interpret(rows, inputs)
    for nest in (Parallel("i").apply(rows), turned, lanes):
        assert np.array_equal(interpret(nest, inputs)[0], expected)


def test_a_dependence_along_two_loops_keeps_their_order() -> None:
    wave = running_sums(var("i"), var("k") + 2)  # of the row before, one element further on
    with pytest.raises(ScheduleError, match=r"depend on each other through 'X', in \['i', 'k'\]"):
        Reorder(("k", "i")).apply(wave)
    with pytest.raises(ScheduleError, match="iteration of 'i' may read what another writes"):
        Parallel("i").apply(wave)
    Parallel("k").apply(wave)  # within one row nothing is read that the row writes


def test_halves_of_a_buffer_and_its_odd_elements_are_elements_of_their_own() -> None:
    fill = loop("x", 9, store("X", (var("x"),), load("A", var("x"))))

    def reading(index: Affine, step: int) -> Nest:
        body = store("X", (var("i") * step,), load("X", index))
        return Nest((tensor("A", 9),), (tensor("X", 9),), (fill, loop("i", 4, body)))

    for index, step in ((var("i") + 4, 1), (var("i") * 2 + 1, 2)):
        Parallel("i").apply(reading(index, step))
    for index, step in ((var("i") + 3, 1), (var("i") * 2 + 2, 2)):
        with pytest.raises(ScheduleError, match="may read what another writes"):
            Parallel("i").apply(reading(index, step))


def test_lanes_that_combine_read_nothing_of_what_they_combine_into() -> None:
    sums = For("k", 4, (update("X", (var("i"),), load("X", var("i"))),), reduce=True)
    fill = loop("x", 4, store("X", (var("x"),), load("A", var("x"))))
    nest = Nest((tensor("A", 4),), (tensor("X", 4),), (fill, loop("i", 4, sums)))
    with pytest.raises(ScheduleError, match="'X' is accessed in another way while 'k' reduces"):
        Vectorize("k").apply(nest)


RANGES = {"a": Interval(0, 3), "b": Interval(0, 4), "f": Interval(0, 8)}


@pytest.mark.parametrize(
    ("index", "name", "expected"),
    [
        ((var("a") * 5 + var("b"),), "a", True),
        ((var("a") * 5 + var("b"),), "b", True),
        ((var("a") + var("b") * 2,), "b", False),
        ((var("f") % 3 + var("a") * 3 + (var("f") // 3) * 12,), "f", True),
        ((var("a") * 4 + var("b"),), "a", False),
        ((var("a") + var("b"),), "b", False),
        ((var("a"), affine(0)), "b", False),
        ((var("a"), var("b")), "b", True),
        ((var("b") // 2, var("b") % 2), "b", True),
        ((var("f") // 3, var("b") + (var("f") % 3) * 5), "f", True),
        ((var("f") // 3, var("b") + (var("f") % 3) * 4), "f", False),
        ((var("f") // 3, var("o") + (var("f") % 3) * 5), "f", True),
        ((var("b") // 2,), "b", False),
        ((var("b") % 2,), "b", False),
        ((var("o") * 9 + var("a"),), "a", True),
    ],
)
def test_separation_of_iterations(index: tuple, name: str, expected: bool) -> None:  # type: ignore[type-arg]
    assert separates(index, name, RANGES) is expected


@pytest.mark.parametrize("seed", range(80))
def test_walks_along_several_axes_are_proved_apart(seed: int) -> None:
    """Axes of which some are of one element, fused and divided again and again: an element for each
    iteration of the inner loop, whatever the loops around it are."""
    rng = random.Random(seed)
    shape = [rng.choice((1, 2, 3, 5, 6, 8, 10, 20)) for _ in range(rng.choice((2, 3, 4)))]
    names = [f"x{n}" for n in range(len(shape))]
    at = ",".join(names)
    spec = f"f32[{','.join(map(str, shape))}]"
    workload = notation(f"Y[{at}] = X[{at}] * 2", X=spec).normalised()
    (output,) = workload.outputs
    loop_names = [f"{output}.d{n}" for n in range(len(shape))]
    nest = plain_nest(workload)
    while len(loop_names) > 1:
        n = rng.randrange(len(loop_names) - 1)
        outer, inner = loop_names[n : n + 2]
        nest = Fuse(outer, inner).apply(nest)
        loop_names[n : n + 2] = [f"{outer}f"]
    (loop,) = loop_names
    widths = (8, 4, 2)[rng.randrange(3) :]
    for width in rng.sample(widths, len(widths)):
        nest, loop = Split(loop, width).apply(nest), f"{loop}o"
    inner = next(x.var for x in reversed(list(loops(nest.body))))
    assert Vectorize(inner).apply(nest) != nest


def test_what_separation_claims_is_true() -> None:
    """Against brute force over all pairs of iterations, for every small index of two variables."""
    for ca in range(-4, 5):
        for cb in range(-4, 5):
            x = var("a") * ca + var("b") * cb
            for index in (
                (x,),
                (x // 6, x // 2 % 3, x % 2),
                (x // 12, x // 4 % 3, x // 2 % 2, x % 2),
                (x // 3, x % 3),
                ((var("a") * ca + var("b")) // 2, var("b") * cb),
                (var("a") // 2, var("b") * cb + (var("a") % 2) * ca),
            ):
                if not separates(index, "a", RANGES):
                    continue
                seen: dict[tuple[int, ...], int] = {}
                for a in range(4):
                    for b in range(5):
                        at = tuple(i.evaluate({"a": a, "b": b}) for i in index)
                        assert seen.setdefault(at, a) == a, (index, at)


def test_quotients_and_remainders_of_congruent_sums_are_joined_only_if_they_belong_together() -> (
    None
):
    """Lanes of tiles that a flattened axis is divided into, and indices that resemble theirs:
    against brute force."""
    ranges = {"f": Interval(0, 8), "a": Interval(0, 3)}
    proved = set()
    for tile, rows, width, factor in product((2, 4, 6), (3, 9), (6, 4, 5), (1, 2, 4, -2)):
        lanes = (var("f") % rows) * tile + var("a")
        index = (var("f") // rows, lanes // width, (var("f") * (tile * factor) + var("a")) % width)
        seen: dict[tuple[int, ...], set[int]] = {}
        for f, a in product(range(9), range(4)):
            at = tuple(i.evaluate({"f": f, "a": a}) for i in index)
            seen.setdefault(at, set()).add(a)
        if separates(index, "a", ranges):
            proved.add((tile, rows, width, factor))
            assert all(len(values) == 1 for values in seen.values()), index
    assert (4, 3, 6, 1) in proved


def test_fused_loops_separate_like_the_loops_they_are_made_of() -> None:
    applied(matmul(4, 6, 2), Fuse("s0.d0", "s0.d1"), Parallel("s0.d0f"))
    applied(matmul(4, 6, 2), Fuse("s0.d0", "s0.d1"), Split("s0.d0f", 4), Parallel("s0.d0fo"))


def test_prefetches_may_stand_in_vectorised_loops() -> None:
    copied = notation("C[i,j] = A[i,j] + 1", A="f32[7,8]")
    applied(copied, Prefetch("i0", "s0.d1", 1), Vectorize("s0.d1"))


def test_an_output_may_be_streamed_once() -> None:
    nest = applied(notation("C[i] = A[i]", A="f32[8]"), Stream("s0"))
    assert nest.streamed == ("s0",)
    assert "-> s0: f32[8] streamed" in to_text(nest)
    with pytest.raises(ScheduleError, match="'s0' is streamed already"):
        Stream("s0").apply(nest)


def test_what_is_read_or_no_output_is_not_streamed() -> None:
    copied = plain_nest(notation("C[i] = A[i]", A="f32[8]"))
    with pytest.raises(ScheduleError, match="'i0' is not an output; outputs: s0"):
        Stream("i0").apply(copied)
    workload = from_notation("T[i] = A[i] + 1.0; C[i] += T[i] * A[j]", {"A": ("f32", (8,))}, {})
    both = replace(workload, outputs=("T", "C")).normalised()
    first = both.stages[0].name
    with pytest.raises(ScheduleError, match=f"'{first}' is read by the nest"):
        Stream(first).apply(plain_nest(both))
