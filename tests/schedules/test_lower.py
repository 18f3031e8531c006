"""Lowering and cleaning: guards go where they belong, or away; never one that someone sees."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.hand_nests import loop, number, store, tensor
from tests.support.schedules.workloads import (
    applied,
    bias_relu,
    convolution,
    matmul,
    notation,
    softmax,
)
from tilewright.schedules.algebra.affine import floor_div, var
from tilewright.schedules.algebra.scalar import All, Load, Select
from tilewright.schedules.algebra.scalar import walk as walk_scalar
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, lower, plain_nest
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    BufferScope,
    For,
    LoopKind,
    Nest,
    StoreElement,
    Update,
    leaves,
    loops,
    walk,
)
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.nest.verify_nest import MalformedNest
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Fuse,
    Partition,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace
from tilewright.tuner.compiling import worker
from tilewright.tuner.compiling.requests import compile_document
from tilewright.tuner.emit.kernel import generated


def test_the_plain_nest_is_the_expression_written_out(golden: Golden) -> None:
    assert to_text(plain_nest(softmax())) == golden


def test_names_come_from_the_normal_form() -> None:
    other = notation("Zed[q,w] += Aa[q,e] * Bb[e,w]", Aa="f32[7,5]", Bb="f32[5,6]")
    assert plain_nest(other) == plain_nest(matmul())
    assert lower(other, Trace((Split("s0.d0", 2),))) == lower(matmul(), Trace((Split("s0.d0", 2),)))


def test_intermediate_stages_are_workspace_and_outputs_are_not() -> None:
    allocated = [s.buffer for s in walk(plain_nest(softmax()).body) if isinstance(s, Allocate)]
    assert [b.name for b in allocated] == ["s0", "s1", "s2"]
    assert {b.scope for b in allocated} == {BufferScope.WORKSPACE}


def test_a_guard_shared_by_all_leaves_ends_the_loop() -> None:
    cleaned = clean(applied(matmul(), Split("s0.d0", 4)))
    (_, inner, *_) = loops(cleaned.body)
    assert [str(b) for b in inner.bounds] == ["s0.d0i + 4*s0.d0o <= 6"]
    assert not any(
        leaf.guards for leaf in leaves(cleaned.body) if isinstance(leaf, StoreElement | Update)
    )


def test_unrolled_and_vector_loops_keep_guards() -> None:
    cleaned = clean(
        applied(matmul(), Split("s0.d1", 4), Reorder(("s0.d1o", "s0.r0", "s0.d1i")),
                Vectorize("s0.d1i"))
    )  # fmt: skip
    assert any(
        leaf.guards for leaf in leaves(cleaned.body) if isinstance(leaf, StoreElement | Update)
    )
    assert not any(loop.bounds for loop in loops(cleaned.body))


def test_loops_shrink_to_what_they_run() -> None:
    cleaned = clean(applied(matmul(), Split("s0.d0", 16)))
    assert [loop.extent for loop in loops(cleaned.body)] == [7, 6, 5]


def test_partition_leaves_both_parts_without_guards() -> None:
    cleaned = clean(applied(matmul(), Split("s0.d0", 4), Partition("s0.d0o", 1)))
    text = to_text(cleaned)
    assert "if" not in text
    assert "while" not in text


def test_divisions_go_where_ranges_decide_them() -> None:
    cleaned = clean(applied(matmul(8, 6, 5), Fuse("s0.d0", "s0.d1"), Split("s0.d0f", 6)))
    assert "//" not in to_text(cleaned)
    assert "%" not in to_text(cleaned)


def test_padding_that_is_decided_is_gone() -> None:
    cleaned = clean(applied(convolution(), Partition("s0.d0", 1), Partition("s0.d0.t", 3)))
    middle = to_text(cleaned).split("for s0.d0.t in range(3)")[1].split("for s0.d1.t.t")[0]
    assert "s0.d0.t" in middle


def test_accumulators_lose_guards_nobody_sees(golden: Golden) -> None:
    nest = applied(
        matmul(), Split("s0.d1", 4), Reorder(("s0.d0", "s0.d1o", "s0.r0", "s0.d1i")),
        Vectorize("s0.d1i"), CacheWrite("s0", "s0.d1o", "w"),
    )  # fmt: skip
    assert to_text(clean(nest)) == golden


def test_each_read_gets_the_guards_that_concern_it() -> None:
    nest = applied(
        matmul(), Split("s0.d0", 4), Split("s0.d1", 4),
        Reorder(("s0.d0o", "s0.d1o", "s0.r0", "s0.d0i", "s0.d1i")), Unroll("s0.d0i"),
        Vectorize("s0.d1i"), CacheWrite("s0", "s0.d1o", "w"),
    )  # fmt: skip
    (update,) = (leaf for leaf in leaves(clean(nest).body) if isinstance(leaf, Update))
    assert not update.guards
    guarded = {
        n.on_true.tensor: {name for c in n.cond.conds for name in c.index.vars()}
        for n in walk_scalar(update.value)
        if isinstance(n, Select) and isinstance(n.on_true, Load) and isinstance(n.cond, All)
    }
    assert guarded == {"i0": {"s0.d0o", "s0.d0i"}, "i1": {"s0.d1o", "s0.d1i"}}


def test_guards_on_results_that_are_read_stay() -> None:
    for first, second in ((2, 2), (2, 3), (4, 2)):
        applied(bias_relu(), Split("s0.d0", first), Split("s1.d0", second))
        applied(bias_relu(), Split("s0.d1", first), Split("s1.d1", second))


def test_private_results_read_outside_their_guard_keep_it() -> None:
    blur = notation("T[i] = A[i] * 2; Y[i] = T[i] + T[i+1]", {"i": 7}, A="f32[7]")
    for factor in (2, 3, 4):
        applied(blur, Split("s0.d0", factor))
        applied(blur, Split("s1.d0", factor), ComputeAt("s0", "s1.d0o"), Split("s0.0", 2))
        applied(blur, Split("s1.d0", factor), CacheRead("i0", "", "p"), Split("p.0", factor))


@pytest.mark.parametrize("kind", [None, Unroll])
def test_registers_need_constant_indices(kind: type[Unroll] | None) -> None:
    steps = [CacheWrite("s0", "s0.d0", "w")]
    wanted = ["s0.d1", "s0.d1.init", "s0.d1.out"]
    trace = Trace((*steps, *(Unroll(name) for name in wanted if kind)))
    if kind is None:
        with pytest.raises(ScheduleError, match=r"registers of 'w': loops .* must be unrolled"):
            lower(matmul(), trace)
    else:
        assert lower(matmul(), trace)


I, J = var("i"), var("j")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            loop("i", 4, store("C", (I + 1,), number(0))),
            r"the lowered nest: .* C\[i \+ 1\]: index 0, i \+ 1, may leave 0\.\.3",
        ),
        (
            loop("i", 4, store("C", (floor_div(I, 2),), number(0)), kind=LoopKind.PARALLEL),
            "the lowered nest: iterations of 'i' may write the same element of 'C'",
        ),
        (
            loop("i", 4, store("C", (floor_div(I, 2),), number(0)), kind=LoopKind.VECTORIZED),
            "the lowered nest: iterations of 'i' may write the same element of 'C'",
        ),
    ],
)
def test_no_code_is_generated_from_a_nest_that_is_wrong(
    body: For, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step or pass made it: here the last one gives another nest."""
    nest = Nest((), (tensor("C", 4),), (body,))
    monkeypatch.setattr("tilewright.schedules.lowering.lower.clean", lambda _: nest)
    with pytest.raises(ScheduleError, match=message):
        generated(matmul(), Trace(), this_machine())


def test_a_malformed_nest_is_a_bug_and_no_illegal_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What measures candidates records a ScheduleError and goes on; this ends the run."""
    nest = Nest((), (tensor("C", 4),), (loop("i", 4, store("C", (J,), number(0))),))
    monkeypatch.setattr("tilewright.schedules.lowering.lower.clean", lambda _: nest)
    document = {
        "workload": matmul().to_json(),
        "trace": Trace().to_json(),
        "target": this_machine().to_json(),
    }
    with pytest.raises(MalformedNest, match="uses j"):
        worker._answer(compile_document, document)
