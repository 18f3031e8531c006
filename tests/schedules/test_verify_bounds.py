"""Accesses in bounds: what the proofs find, and that they are never wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.interpreter.interpret import interpret
from tests.support.interpreter.memory import InterpretError
from tests.support.schedules.affine_cases import build, trees
from tests.support.schedules.hand_nests import (
    load,
    loop,
    matmul,
    number,
    over,
    store,
    tensor,
    tiled_matmul,
)
from tilewright.schedules.algebra.affine import Affine, affine, floor_div, modulo, var
from tilewright.schedules.algebra.comparisons import Cond, at_least, equal, less
from tilewright.schedules.algebra.scalar import All, Clamped, Load, Select
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    Nest,
    PrefetchHint,
    Stmt,
)
from tilewright.schedules.nest.verify_nest import unproven_accesses, verify
from tilewright.schedules.workload.tensors import Tensor

I, J, K = var("i"), var("j"), var("k")


def unproven(nest: Nest) -> list[str]:
    verify(nest)
    return [str(access) for access in unproven_accesses(nest)]


def test_everything_in_a_matmul_is_proved() -> None:
    assert unproven(matmul(5, 3, 7)) == []
    assert unproven(tiled_matmul(30, 20, 10, 4, 16)) == []
    assert unproven(tiled_matmul(32, 32, 8, 4, 16)) == []


@pytest.mark.parametrize(
    ("index", "proved"),
    [
        (I, True),
        (I + 1, False),
        (I - 1, False),
        (3 - I, True),
        (floor_div(I + 6, 2), False),
        (floor_div(I + 4, 3), True),
        (modulo(I + 7, 4), True),
        (modulo(I, 5), True),
    ],
)
def test_plain_ranges(index: Affine, proved: bool) -> None:
    found = unproven(over(4, store("C", (I,), load("A", index))))
    text = f"A[{index}]: index 0, {index}, may leave 0..3"
    assert found == ([] if proved else [text])


def guarded(*conds: Cond) -> list[str]:
    """C[100], written at 10*i + j for i and j in 0..15, where all conditions hold."""
    leaf = store("C", (10 * I + J,), number(0), *conds)
    return unproven(Nest((), (tensor("C", 100),), (loop("i", 16, loop("j", 16, leaf)),)))


@pytest.mark.parametrize(
    ("conds", "proved"),
    [
        ((), False),
        ((less(I, 10),), False),
        ((less(I, 10), less(J, 10)), True),
        ((less(10 * I + J, 100),), True),
        ((less(10 * I + J, 101),), False),
        ((less(20 * I + 2 * J, 200),), True),
        ((less(5 * I, 25), less(J, 11)), True),
        ((equal(I, 8),), True),
        ((equal(I, 9),), False),
        ((equal(I + J, 10), less(I, 10)), True),
        ((less(I + J, 10),), True),
        ((less(I, 0),), True),
        ((less(I, 3), at_least(I, 5)), True),
    ],
)
def test_guards_are_known_to_hold(conds: tuple[Cond, ...], proved: bool) -> None:
    assert (guarded(*conds) == []) is proved


def test_a_guard_on_a_fused_index_bounds_its_parts() -> None:
    flat = 4 * I + J
    leaf = store("C", (floor_div(flat, 3), modulo(flat, 3)), number(0), less(flat, 9))
    nest = Nest((), (tensor("C", 3, 3),), (loop("i", 3, loop("j", 4, leaf)),))
    assert unproven(nest) == []
    split = 3 * I + floor_div(J, 4)
    leaf = store("C", (split,), number(0), less(12 * I + J, 16))
    assert unproven(Nest((), (tensor("C", 4),), (loop("i", 2, loop("j", 12, leaf)),))) == []


def test_bounds_of_loops_are_known_to_hold() -> None:
    inner = For("j", 4, (store("C", (4 * I + J,), number(0)),), bounds=(less(4 * I + J, 6),))
    assert unproven(Nest((), (tensor("C", 6),), (loop("i", 2, inner),))) == []
    assert len(unproven(Nest((), (tensor("C", 5),), (loop("i", 2, inner),)))) == 1


@pytest.mark.parametrize(
    ("conds", "proved"),
    [
        ((at_least(I, 1), less(I, 5)), True),
        ((at_least(I, 1),), False),
        ((less(I, 5), at_least(I + J, 2), less(J, 2)), True),
    ],
)
def test_a_padded_read_is_proved_under_its_select(conds: tuple[Cond, ...], proved: bool) -> None:
    padded = Select(All(conds), load("A", I - 1), number(0))
    leaf = store("C", (I, J), padded)
    nest = Nest((tensor("A", 4),), (tensor("C", 6, 4),), (loop("i", 6, loop("j", 4, leaf)),))
    assert (unproven(nest) == []) is proved


def test_the_other_side_of_a_select_knows_the_opposite() -> None:
    wrapped = Select(All((less(I, 3),)), load("A", I), load("A", I - 3))
    assert (
        unproven(
            Nest((tensor("A", 3),), (tensor("C", 6),), (loop("i", 6, store("C", (I,), wrapped)),))
        )
        == []
    )


def test_the_condition_of_a_select_is_looked_at_too() -> None:
    value = Select(All(()), Select(All((less(I, 1),)), load("A", I + 9), number(0)), number(1))
    assert unproven(over(4, store("C", (I,), value))) == [
        "A[i + 9]: index 0, i + 9, may leave 0..3"
    ]


def test_a_read_inside_an_index_is_looked_at_too() -> None:
    def gathered(place: Affine) -> list[str]:
        datum = Clamped(Load("P", (place,), DType.I32), 4)
        value = Load("A", (Affine(((datum, 1),), 0),), DType.F32)
        tables = (tensor("A", 4), Tensor("P", (6,), DType.I32))
        leaf = store("C", (I,), value)
        return unproven(Nest(tables, (tensor("C", 6),), (loop("i", 6, leaf),)))

    assert gathered(I) == []
    assert gathered(I + 1) == ["P[i + 1]: index 0, i + 1, may leave 0..5"]


def test_prefetches_may_be_anywhere_and_allocations_have_bounds() -> None:
    scratch = Buffer("T", (2,), DType.F32, BufferScope.WORKSPACE)
    body: tuple[Stmt, ...] = (
        PrefetchHint("A", (I + 100,)),
        store("T", (I,), load("A", I)),
        store("C", (I,), number(0)),
    )
    nest = Nest((tensor("A", 4),), (tensor("C", 4),), (loop("i", 4, Allocate(scratch, body)),))
    assert unproven(nest) == ["T[i]: index 0, i, may leave 0..1"]


conditions = st.lists(
    st.builds(
        lambda index, strict: at_least(index, 0) if strict else equal(index, 0),
        trees().map(build),
        st.booleans(),
    ),
    max_size=2,
)


@given(trees().map(build), conditions, st.integers(1, 20))
def test_a_proved_access_is_never_out_of_bounds(
    index: Affine, conds: list[Cond], extent: int
) -> None:
    leaf = store("C", (affine(0),), load("T", index), *conds)
    scratch = Buffer("T", (extent,), DType.F32, BufferScope.WORKSPACE)
    fill = loop("f", extent, store("T", (var("f"),), number(1)))
    body: Stmt = leaf
    for name in "abc":
        body = loop(name, 5, body)
    start = store("C", (0,), number(0))
    nest = Nest((), (tensor("C", 1),), (start, Allocate(scratch, (fill, body))))
    verify(nest)
    proved = not unproven_accesses(nest)
    try:
        interpret(nest, [])
    except InterpretError:
        assert not proved


def test_a_nest_is_proved_in_the_order_of_its_program() -> None:
    first = store("C", (I + 1,), number(0))
    second = store("C", (I - 1,), load("A", I + 2))
    nest = Nest((tensor("A", 4),), (tensor("C", 4),), (loop("i", 4, first, second, first),))
    assert [a.buffer + str(a.index[0]) for a in unproven_accesses(nest)] == [
        "Ci + 1",
        "Ai + 2",
        "Ci - 1",
    ]
