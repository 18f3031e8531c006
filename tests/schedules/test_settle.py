"""One form of a body and one set of rules, whoever wrote it: documents, notation and Python."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.schedules import cast, compute, placeholder, reduce_axis, select, sum
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

X8 = {"X": ("f32", (8,))}


def document(body: dict[str, Any], dtype: str = "f32", **reduction: Any) -> Workload:
    """A document with the stage `Y[i] = body` over i in 0..7 and the input X f32[8]."""
    stage = {"name": "Y", "dtype": dtype, "axes": [["i", 8]], "body": body, **reduction}
    inputs = [{"name": "X", "dtype": "f32", "shape": [8]}]
    return Workload.from_json({"inputs": inputs, "stages": [stage], "outputs": ["Y"]})


def load(index: str) -> dict[str, Any]:
    return {"op": "load", "tensor": "X", "index": [index]}


def guarded(conds: list[str], value: dict[str, Any]) -> dict[str, Any]:
    zero = {"op": "const", "value": 0, "dtype": "f32"}
    return {
        "op": "select", "cond": {"op": "all", "conds": conds}, "on_true": value, "on_false": zero,
    }  # fmt: skip


@pytest.mark.parametrize("of", ["i32", "i64", "f64", "f32"])
def test_an_index_may_be_cast_before_or_after(of: str) -> None:
    number = {"op": "cast", "dtype": "f32", "x": {"op": "index", "index": "i", "dtype": of}}
    found = document({"op": "add", "a": load("i"), "b": number})
    assert found.key == from_notation("Y[i] = X[i] + i", X8).key
    assert found.key == from_notation(f"Y[i] = X[i] + f32({of}(i))", X8).key


def test_an_index_that_f32_rounds_is_rounded_before_the_cast() -> None:
    text = "Y[i] = i32(f32(i)) + X[0]"
    large = from_notation(text, {"X": ("i32", (1,))}, {"i": 1 << 25})
    assert '"op":"cast"' in large.canonical_bytes.decode()
    small = from_notation(text, {"X": ("i32", (1,))}, {"i": 1 << 24})
    assert '"op":"cast"' not in small.canonical_bytes.decode()


def test_an_index_is_a_narrow_number_by_a_cast() -> None:
    index = {"op": "index", "index": "i", "dtype": "i32"}
    wanted = document({"op": "cast", "x": index, "dtype": "i8"}, dtype="i8").normalised()
    x = placeholder("X", (8,))

    def narrow(i: Any) -> Any:
        return select(i > 99, cast(x[i], "i8"), cast(i, "i8"))

    made = Workload.of(compute("Y", (8,), narrow), inputs=[x])
    assert made.normalised() == wanted


def test_a_constant_index_is_a_constant_and_a_cast_to_the_same_type_nothing() -> None:
    two = {"op": "index", "index": "i - i + 2", "dtype": "f32"}
    twice = {"op": "cast", "x": {"op": "mul", "a": load("i"), "b": two}, "dtype": "f32"}
    assert document(twice).key == from_notation("Y[i] = X[i] * 2", X8).key


@pytest.mark.parametrize("conds", [["i >= 8"], ["i >= 5", "i <= 3"], ["2*i == 5"]])
def test_a_read_that_never_happens_may_be_anywhere(conds: list[str]) -> None:
    body = {"op": "add", "a": load("i"), "b": guarded(conds, load("i + 100"))}
    x = placeholder("X", (8,))
    python = compute("Y", (8,), lambda i: x[i] + select(i >= 8, x[i + 100], 0))
    assert document(body).key == Workload.of(python, inputs=[x]).key
    again = document(body)
    assert Workload.from_json(again.to_json()) == again


def test_where_it_points_is_where_it_was_written() -> None:
    body = {"op": "add", "a": guarded(["i >= 8"], load("i + 100")), "b": load("i + 1")}
    with pytest.raises(WorkloadError, match="may be out of bounds") as refused:
        document(body)
    assert refused.value.pointer == "/stages/0/body/b/index/0"
    nonsense = guarded(["i >= 8"], {"op": "load", "tensor": "Z", "index": ["i"]})
    with pytest.raises(WorkloadError, match="not an input"):
        document(nonsense)


def test_a_reduction_keeps_an_axis_that_only_padding_used() -> None:
    conds = ["i + k >= 50", "i + k < 58"]
    body = guarded(conds, load("i + k - 50"))
    once = document(body, reducer="sum", reduce_axes=[["k", 3]])
    for cond in reversed(conds):
        body = guarded([cond, "k >= 0"], body)
    x, k = placeholder("X", (8,)), reduce_axis(3, "k")
    python = compute("Y", (8,), lambda i: sum(select(i + k >= 50, x[i], 0), axis=k))
    keys = {
        once.key,
        document(body, reducer="sum", reduce_axes=[["k", 3]]).key,
        from_notation("Y[i] += X[i + k - 50]", X8, {"i": 8, "k": 3}).key,
        Workload.of(python, inputs=[x]).key,
    }
    assert len(keys) == 1
    assert once.normalised().normalised() == once.normalised()


def test_conditions_that_follow_from_each_other_are_cut_alike_under_any_names() -> None:
    keys = set()
    for i, k in (("i", "k"), ("z", "a"), ("a", "z")):
        text = f"Y[{i}] += X[0, {i}] + X[{i}, {k} - {i}]"
        keys.add(from_notation(text, {"X": ("f32", (1, 7))}, {i: 7, k: 1}).key)
    assert len(keys) == 1


def test_a_stage_only_read_where_nothing_is_evaluated_keeps_its_inputs_arguments() -> None:
    text = "T[i] = W[i] + 1; Y[i] = X[i] + where(i > 9, T[i], 0)"
    found = from_notation(text, {"X": ("f32", (8,)), "W": ("f32", (8,))})
    assert [t.name for t in found.inputs] == ["X", "W"]
    assert len(found.normalised().stages) == 1


@pytest.mark.parametrize("text", ["i >= 0.5", "0.5 <= i", "i < 2.5", "2.5 > i"])
def test_an_index_beside_a_float_is_a_number(text: str) -> None:
    found = from_notation(f"Y[i] = where({text}, X[i], 0)", X8)
    assert '"op":"le"' in found.canonical_bytes.decode() or "lt" in found.canonical_bytes.decode()
