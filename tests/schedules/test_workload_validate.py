"""Rules of a valid workload, on workloads put together node by node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.schedules.algebra.affine import Affine, Interval, affine, floor_div, modulo, var
from tilewright.schedules.algebra.comparisons import Eq0, Ge0, less
from tilewright.schedules.algebra.conditions import NEVER, follows, needed, normal_cond, tidy
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)  # fmt: skip
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.workload.tensors import Axis, Reduction, Stage, Tensor
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload

I, J = var("i"), var("j")
X = Tensor("X", (8, 8), DType.F32)
N = Tensor("N", (8,), DType.I32)
BODY: Scalar = Load("X", (I, J), DType.F32)
ONE = Const(1.0, DType.F32)
RANGES = {"i": Interval(0, 7), "j": Interval(0, 7)}


def workload(body: Scalar = BODY, dtype: DType = DType.F32, **changes: object) -> Workload:
    axes = (Axis("i", 8), Axis("j", 8))
    stage = replace(Stage(Tensor("Y", (8, 8), dtype), axes, body), **changes)  # type: ignore[arg-type]
    return Workload((X, N), (stage,), ("Y",))


def nested(levels: int) -> Affine:
    """A division in a division, which no rule of the normal form joins."""
    index = I
    for level in range(levels):
        index = floor_div(index * 3 + J + level, 2)
    return index


def test_a_plain_copy_is_valid() -> None:
    validate(workload())


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (Const(0, DType.BOOL), "dtype_clash", "stores f32, its expression is bool"),
        (Cast(BODY, DType.BOOL), "dtype_clash", "stores f32, its expression is bool"),
        (Binary(BinaryOp.ADD, *[Cast(BODY, DType.BOOL)] * 2), "bad_dtype", "no arithmetic on it"),
        (Compare(CompareOp.LT, *[Cast(BODY, DType.BOOL)] * 2), "bad_dtype", "no arithmetic on it"),
        (Binary(BinaryOp.BIT_AND, BODY, BODY), "bad_dtype", "only integers have it"),
        (Binary(BinaryOp.POW, *[Cast(BODY, DType.I32)] * 2), "bad_dtype", "only floats have it"),
        (Load("X", (I, J), DType.F64), "dtype_clash", "reads 'X' as f64, it is f32"),
        (Load("Z", (I, J), DType.F32), "unknown_tensor", r"not an input or an earlier stage \(X"),
        (Load("X", (I,), DType.F32), "bad_rank", "has 2 dimensions, got 1 indices"),
        (Load("X", (I, nested(10) * 0 + nested(10)), DType.F32), "too_deep", "nested too deeply"),
        (Load("X", (I, modulo(I * 3 + J, 2**40)), DType.F32), "bad_index", r"within \+-2147483647"),
        (Load("X", (I, var("q")), DType.F32), "unknown_axis", r"uses q, .* axes \(i, j\)"),
        (IndexValue(I, DType.BF16), "bad_dtype", "of type i32, i64, f32 or f64, got bf16"),
        (IndexValue(I * 2**30, DType.I32), "bad_index", "more than 32 bits hold"),
        (Unary(UnaryOp.EXP, IndexValue(I, DType.I32)), "bad_dtype", "exp of i32: cast"),
        (Binary(BinaryOp.ADD, BODY, IndexValue(I, DType.I32)), "dtype_clash", "add of f32 and i32"),
        (Binary(BinaryOp.DIV, *[IndexValue(I, DType.I32)] * 2), "bad_dtype", "only floats divide"),
        (Binary(BinaryOp.ADD, *[Cast(ONE, DType.BF16)] * 2), "bad_dtype", "no arithmetic on it"),
        (Select(BODY, BODY, BODY), "bad_dtype", "needs a condition, got a value of type f32"),
        (Select(All((less(I, J),)), BODY, Const(1, DType.I32)), "dtype_clash", "are f32 and i32"),
        (Select(All((less(I, J),)), *[Compare(CompareOp.LT, BODY, ONE)] * 2), "dtype_clash",
         "stores f32, its expression is bool"),
        (All(()), "bad_node", r"needs 1\.\.24 conditions, got 0"),
        (All((less(I, J),) * 25), "bad_node", r"needs 1\.\.24 conditions, got 25"),
        (All((less(I, J),)), "dtype_clash", "stores f32, its expression is bool"),
    ],
)  # fmt: skip
def test_malformed_bodies_are_refused(body: Scalar, code: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        validate(workload(body))
    assert caught.value.code == code


def test_malformed_stages_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"has the shape \(8, 8\), its axes have \(8, 4\)"):
        validate(workload(axes=(Axis("i", 8), Axis("j", 4))))
    many = tuple(Axis(f"r{n}", 2) for n in range(9))
    with pytest.raises(WorkloadError, match="at most 8 reduction axes, got 9"):
        validate(workload(kind=Reduction(Reducer.SUM, many)))
    with pytest.raises(WorkloadError, match="a reducer and reduction axes"):
        validate(workload(kind=Reduction(Reducer.SUM, ())))
    with pytest.raises(WorkloadError, match="two axes named 'i'"):
        validate(workload(axes=(Axis("i", 8), Axis("i", 8))))
    with pytest.raises(WorkloadError, match="reduces over 'k', which its expression never uses"):
        validate(workload(kind=Reduction(Reducer.SUM, (Axis("k", 2),))))
    body = Cast(IndexValue(var("k"), DType.F32), DType.BF16)
    with pytest.raises(WorkloadError, match="reduces in bf16; reduce in f32"):
        validate(workload(body, DType.BF16, kind=Reduction(Reducer.SUM, (Axis("k", 2),))))


def test_malformed_workloads_are_refused() -> None:
    base = workload()
    with pytest.raises(WorkloadError, match="at most 64 inputs are allowed, got 65"):
        validate(replace(base, inputs=(X,) * 65))
    with pytest.raises(WorkloadError, match="two tensors are named 'X'"):
        validate(replace(base, inputs=(X, X)))
    counted = workload(
        Cast(BODY, DType.BOOL), DType.BOOL, kind=Reduction(Reducer.SUM, (Axis("k", 2),))
    )
    with pytest.raises(WorkloadError, match="combines bools by sum; bools have max"):
        validate(counted)
    with pytest.raises(WorkloadError, match="output 'X' is not computed by a stage; stages: Y"):
        validate(replace(base, outputs=("X",)))
    deep = BODY
    for _ in range(3000):
        deep = Unary(UnaryOp.NEG, deep)
    with pytest.raises(WorkloadError, match="may be 56 levels deep"):
        validate(workload(deep))
    wide = BODY
    for _ in range(11):
        wide = Binary(BinaryOp.ADD, wide, wide)
    with pytest.raises(WorkloadError, match="or more JSON values, at most 10000"):
        validate(workload(wide))
    guarded = BODY
    for n in range(24):
        conds = tuple(less(I * (n + 1) + m, J * 9) for m in range(24))
        guarded = Select(All(conds), guarded, ONE)
    with pytest.raises(WorkloadError, match="576 or more conditions, at most 512"):
        validate(workload(guarded))


def test_tensors_are_found_by_name() -> None:
    base = workload()
    assert base.stage("Y") is base.stages[0]
    with pytest.raises(KeyError, match="X"):
        base.stage("X")
    assert [t.name for t in base.arguments] == ["X", "N", "Y"]
    assert base.min_bytes == base.traffic_bytes == 4 * (64 + 8 + 64)


def test_conditions_have_one_form() -> None:
    assert normal_cond(Ge0(floor_div(I, 3) - 2)) == Ge0(I - 6)
    assert normal_cond(Ge0(2 - floor_div(I, 3))) == Ge0(8 - I)
    assert normal_cond(Ge0(4 * I - 6 * J - 3)) == Ge0(2 * I - 3 * J - 2)
    assert normal_cond(Eq0(4 * J - 2 * I)) == normal_cond(Eq0(I - 2 * J))
    assert normal_cond(Eq0(2 * I - 1)) == NEVER
    assert normal_cond(Eq0(affine(3))) == NEVER


def test_what_follows_from_two_conditions_is_dropped() -> None:
    kept = needed([Ge0(I - 2), Ge0(J - 3), Ge0(I + J - 4)], RANGES)
    assert kept == (Ge0(I - 2), Ge0(J - 3))
    assert follows(Ge0(2 * I - 4), (Ge0(I - 2),), RANGES)
    assert follows(Ge0(I - 2), (Eq0(I - J), Ge0(J - 2)), RANGES)
    assert not follows(Ge0(I - 3), (Ge0(I - 2),), RANGES)
    assert not follows(Ge0(I - 2), (Ge0(2 - I),), RANGES)


def test_a_guard_that_never_holds_leaves_the_other_side() -> None:
    never = Select(All((Ge0(I - 8),)), BODY, ONE)
    assert tidy(never, RANGES) == ONE
    contradiction = Select(All((Ge0(I - 5),)), Select(All((Ge0(3 - I),)), BODY, ONE), BODY)
    assert tidy(contradiction, RANGES) == Select(All((Ge0(I - 5),)), ONE, BODY)


def test_nested_guards_with_the_same_other_side_become_one() -> None:
    inner = Select(All((Ge0(J - 2),)), BODY, ONE)
    middle = Select(All((Ge0(J - 1), Ge0(I - 1))), inner, ONE)
    outer = Select(All((Ge0(I - 3),)), Unary(UnaryOp.NEG, middle), ONE)
    assert tidy(middle, RANGES) == Select(All((Ge0(I - 1), Ge0(J - 2))), BODY, ONE)
    assert tidy(outer, RANGES) == Select(
        All((Ge0(I - 3),)), Unary(UnaryOp.NEG, Select(All((Ge0(J - 2),)), BODY, ONE)), ONE
    )
