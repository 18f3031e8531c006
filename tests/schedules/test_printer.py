"""The printer: one text per nest, nothing left out."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden_text import Golden
from tests.support.schedules.hand_nests import (
    load,
    loop,
    matmul,
    number,
    plus,
    store,
    tensor,
    tiled_matmul,
    times,
    update,
    with_body,
)
from tilewright.schedules.algebra.affine import affine, var
from tilewright.schedules.algebra.comparisons import at_least, less
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    IndexValue,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
)
from tilewright.schedules.nest.printer import to_scalar_text, to_text
from tilewright.schedules.workload.tensors import Tensor

I, J = var("i"), var("j")
A, B, C = load("A", I), load("B", I), load("C", I)


def test_a_plain_matmul(golden: Golden) -> None:
    assert to_text(matmul(30, 10, 20)) == golden


def test_a_tiled_and_packed_matmul(golden: Golden) -> None:
    assert to_text(tiled_matmul(30, 20, 10, mr=4, nr=16)) == golden


def test_a_long_header_has_a_line_for_each_argument(golden: Golden) -> None:
    inputs = tuple(Tensor(f"operand_{n}", (1000, 1000), DType.BF16, n == 1) for n in range(4))
    outputs = (tensor("first", 3), tensor("second", 3))
    body = (loop("i", 3, store("first", (I,), number(0)), store("second", (I,), number(1))),)
    assert to_text(Nest(inputs, outputs, body)) == golden


def test_everything_else_a_nest_can_hold(golden: Golden) -> None:
    scratch = Buffer("T", (4,), DType.F32, BufferScope.WORKSPACE)
    guard = less(I, 3)
    body: tuple[Stmt, ...] = (
        Allocate(scratch, (store("T", (0,), number(1)),)),
        For(
            "i",
            4,
            (
                PrefetchHint("A", (I + 16,)),
                PrefetchHint("C", (I,), for_write=True),
                store("C", (I,), A, guard, at_least(I, 1)),
                update("C", (I,), A, None, Reducer.MAX, (guard,)),
                update("C", (I,), A, (), Reducer.MIN, (guard,)),
                update("C", (I,), A, (at_least(I, 1), guard), Reducer.PROD),
            ),
            LoopKind.PARALLEL,
            bounds=(less(I, 3), less(2 * I, 9)),
        ),
    )
    assert to_text(Nest((tensor("A", 4),), (tensor("C", 4),), body)) == golden


def variants() -> list[Nest]:
    """One nest, changed in one respect at a time."""
    base = matmul(4, 4, 4)
    outer = base.body[0]
    assert isinstance(outer, For)
    leaf = update("C", (I, J), load("A", I, J), ())
    alone = with_body(base, loop("i", 4, loop("j", 4, leaf)))
    scratch = Buffer("T", (4,), DType.F32, BufferScope.WORKSPACE)

    def around(stmt: Stmt) -> Nest:
        return with_body(base, loop("i", 4, loop("j", 4, stmt)))

    return [
        base,
        alone,
        *(with_body(base, replace(outer, kind=kind)) for kind in LoopKind if kind != "serial"),
        with_body(base, replace(outer, reduce=True)),
        with_body(base, replace(outer, extent=3)),
        with_body(base, replace(outer, bounds=(less(I, 3),))),
        with_body(base, replace(outer, bounds=(less(I, 2),))),
        around(replace(leaf, first=None)),
        around(replace(leaf, first=(less(I, 1),))),
        around(replace(leaf, guards=(less(I, 1),))),
        around(replace(leaf, reducer=Reducer.MAX)),
        around(replace(leaf, index=(J, I))),
        around(store("C", (I, J), load("A", I, J))),
        around(PrefetchHint("C", (I, J))),
        around(PrefetchHint("C", (I, J), for_write=True)),
        with_body(base, Allocate(scratch, base.body)),
        with_body(base, Allocate(replace(scratch, scope=BufferScope.REGISTER), base.body)),
        with_body(base, Allocate(replace(scratch, shape=(2, 2)), base.body)),
        with_body(base, Allocate(replace(scratch, dtype=DType.F64), base.body)),
        with_body(base, Allocate(scratch, alone.body), *base.body),
        with_body(base, Allocate(scratch, (*alone.body, *base.body))),
        replace(base, outputs=(tensor("C", 4, 5),)),
        replace(base, inputs=(replace(base.inputs[0], constant=True), base.inputs[1])),
    ]


def test_different_nests_have_different_texts() -> None:
    nests = variants()
    assert len({to_text(n) for n in nests}) == len(set(nests)) == len(nests)


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        (plus(A, times(B, C)), "A[i] + B[i] * C[i]"),
        (times(plus(A, B), C), "(A[i] + B[i]) * C[i]"),
        (plus(plus(A, B), C), "A[i] + B[i] + C[i]"),
        (plus(A, plus(B, C)), "A[i] + (B[i] + C[i])"),
        (Binary(BinaryOp.SUB, A, plus(B, C)), "A[i] - (B[i] + C[i])"),
        (Binary(BinaryOp.DIV, A, times(B, C)), "A[i] / (B[i] * C[i])"),
        (times(Binary(BinaryOp.DIV, A, B), C), "A[i] / B[i] * C[i]"),
        (Binary(BinaryOp.MAX, A, number(0)), "max(A[i], 0.0)"),
        (Unary(UnaryOp.NEG, plus(A, B)), "-(A[i] + B[i])"),
        (Unary(UnaryOp.NEG, Unary(UnaryOp.NEG, A)), "-(-A[i])"),
        (times(A, Unary(UnaryOp.NEG, B)), "A[i] * -B[i]"),
        (Unary(UnaryOp.EXP, Unary(UnaryOp.NEG, A)), "exp(-A[i])"),
        (plus(A, number(-1.5)), "A[i] + -1.5"),
        (number(3, DType.I32), "3"),
        (number(3), "3.0"),
        (number(float("-inf")), "-inf"),
        (number(1, DType.BOOL), "true"),
        (load("S"), "S[]"),
        (load("A", 2 * I + J - 1, 0), "A[2*i + j - 1, 0]"),
        (Cast(load("Q", I, dtype=DType.I8), DType.I32), "i32(Q[i])"),
        (IndexValue(I + 1, DType.F32), "f32(i + 1)"),
        (All(()), "true"),
        (All((less(I, 3), at_least(J, 1))), "i <= 2 and j >= 1"),
        (
            Select(All((less(I, 3), at_least(J, 1))), A, number(0)),
            "A[i] if i <= 2 and j >= 1 else 0.0",
        ),
        (plus(Select(All((less(I, 3),)), A, B), C), "(A[i] if i <= 2 else B[i]) + C[i]"),
        (
            Select(Compare(CompareOp.LT, plus(A, B), C), A, Select(All((less(I, 3),)), B, C)),
            "A[i] if A[i] + B[i] < C[i] else B[i] if i <= 2 else C[i]",
        ),
        (
            Select(All((less(I, 3),)), Select(All((less(J, 3),)), A, B), C),
            "(A[i] if j <= 2 else B[i]) if i <= 2 else C[i]",
        ),
    ],
)
def test_scalars_have_the_parentheses_they_need(scalar: Scalar, text: str) -> None:
    assert to_scalar_text(scalar) == text


operations = st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV])
numbers = st.integers(-9, 9).map(number)
formulas: st.SearchStrategy[Scalar] = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.builds(Binary, operations, inner, inner),
        st.builds(Unary, st.just(UnaryOp.NEG), inner),
        st.builds(
            Select, st.builds(Compare, st.sampled_from(list(CompareOp)), inner, inner), inner, inner
        ),
    ),
    max_leaves=8,
)


def in_parentheses(node: Scalar) -> str:
    """`node` as Python, with every parenthesis there can be."""
    match node:
        case Binary(op, a, b):
            sign = {"add": "+", "sub": "-", "mul": "*", "div": "/"}[op]
            return f"({in_parentheses(a)} {sign} {in_parentheses(b)})"
        case Unary(_, x):
            return f"(-{in_parentheses(x)})"
        case Compare(op, a, b):
            sign = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[op]
            return f"({in_parentheses(a)} {sign} {in_parentheses(b)})"
        case Select(cond, a, b):
            return f"({in_parentheses(a)} if {in_parentheses(cond)} else {in_parentheses(b)})"
        case _:
            return f"({to_scalar_text(node)})"


@given(formulas)
def test_left_out_parentheses_change_nothing(formula: Scalar) -> None:
    # Python reads both texts to the same tree; its compiler's constant folding needs none.
    assert ast.dump(ast.parse(to_scalar_text(formula))) == ast.dump(
        ast.parse(in_parentheses(formula))
    )


def test_a_nest_without_inputs() -> None:
    nest = Nest((), (tensor("C"),), (store("C", (), number(1)),))
    assert to_text(nest) == "kernel() -> C: f32[]\nC[] = 1.0"


def test_marks_stand_in_one_column() -> None:
    lines = [t for t in to_text(tiled_matmul(30, 20, 10, mr=4, nr=16)).splitlines() if "#" in t]
    assert len(lines) > 5
    assert len({line.index("#") for line in lines if line.index("#") <= 56}) == 1


def test_indices_are_written_as_affine_writes_them() -> None:
    assert to_scalar_text(load("A", affine(3) - I)) == "A[-i + 3]"


def test_long_lines_go_on_further_in_and_lose_nothing(golden: Golden) -> None:
    inside = All((at_least(I + J, 1), less(I + J, 7), at_least(3 * I, J), less(J, 3)))
    read = load("padded_operand", 4 * I + J - 1, 2 * I + 3 * J + 1)
    value = times(load("filter_of_a_convolution", I, J), Select(inside, read, number(0)))
    leaf = update("C", (I, J), value, (less(I, 1),), guards=inside.conds)
    text = to_text(with_body(matmul(4, 4, 4), loop("i", 4, loop("j", 4, leaf))))
    assert text == golden
    assert max(map(len, text.splitlines())) <= 100
    assert to_scalar_text(value) in " ".join(text.split())
