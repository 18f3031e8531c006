"""Reads whose index is data: notations, policies, errors, and what is proved about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.support.interpreter.interpret import interpret
from tests.support.schedules.workloads import notation
from tilewright.schedules import ScheduleError, Workload, WorkloadError
from tilewright.schedules.algebra.affine import Affine, Interval, interval, simplify, var
from tilewright.schedules.algebra.independence import ElementAccess, meet_only_within
from tilewright.schedules.algebra.scalar import (
    All,
    Clamped,
    Const,
    Ge0,
    Load,
    Select,
    conditional_loads,
    loads,
    rename_tensors,
    rewrite,
    substitute,
    to_scalar_text,
    vars_of,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend import expr
from tilewright.schedules.lowering.lower import lower, plain_nest
from tilewright.schedules.nest.loop_ir import StoreElement
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.nest.verify_nest import MalformedNest, verify
from tilewright.schedules.primitives import (
    BlockRead,
    CacheRead,
    ComputeAt,
    Inline,
    Parallel,
    Primitive,
    Unroll,
)
from tilewright.schedules.reference.error_bound import bounded_outputs
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.sample import demanded, places_of
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.validate import validate

Array = npt.NDArray[Any]

TYPES = ("i8", "u8", "i32", "i64")
POLICIES = ("zero", "clamp", "wrap")


def rows(policy: str, dtype: str = "i32", extent: int = 7, count: int = 12) -> Workload:
    text = f"Y[i,j] = T[{policy}(I[i]), j]"
    return notation(text, T=f"f32[{extent},3]", I=f"{dtype}[{count}]")


def selected(table: Array, at: int, policy: str) -> Array:
    """What the documentation says, for one integer of any size."""
    extent, zeros = len(table), np.zeros_like(table[0])
    if policy == "zero":
        place = at if 0 <= at < extent else -1
    elif policy == "wrap":
        place = at - extent * (at // extent)
    else:
        place = min(max(at, 0), extent - 1)
    found: Array = zeros if place < 0 else table[place]
    return found


def integers(dtype: str, extent: int) -> st.SearchStrategy[list[int]]:
    info = np.iinfo(dtype.replace("i", "int").replace("u8", "uint8"))
    edges = [0, extent - 1, extent, -1, -extent, -extent - 1, 2**32, 2**32 + 1, -(2**32) + 2]
    edges = [e for e in [*edges, int(info.min), int(info.max)] if info.min <= e <= info.max]
    number = st.sampled_from(edges) | st.integers(int(info.min), int(info.max))
    return st.lists(number, min_size=12, max_size=12)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_reference_and_interpreter_give_the_documented_element(policy: str, dtype: str) -> None:
    workload = rows(policy, dtype)
    table = np.arange(1, 22, dtype=np.float32).reshape(7, 3)
    nest = plain_nest(workload.normalised())

    @settings(max_examples=20)
    @given(integers(dtype, 7))
    def agree(drawn: list[int]) -> None:
        given = [table, np.array(drawn, workload.inputs[1].dtype.numpy)]
        wanted = np.array([selected(table, at, policy) for at in drawn])
        np.testing.assert_array_equal(evaluate(workload, given)[0], wanted)
        np.testing.assert_array_equal(interpret(nest, given)[0], wanted)

    agree()


# --- notations ---------------------------------------------------------------------------------


def test_a_plain_integer_reads_zeros_outside() -> None:
    plain = notation("Y[i,j] = T[I[i], j]", T="f32[7,3]", I="i32[12]")
    assert plain.key == rows("zero").key
    assert len({rows(policy).key for policy in POLICIES}) == 3


def in_python(policy: Callable[[Any], Any]) -> Workload:
    table, index = tw.placeholder("T", (7, 3)), tw.placeholder("I", (12,), "i32")
    y = tw.compute("Y", (12, 3), lambda i, j: table[policy(index[i]), j])
    return Workload.of(y, inputs=[table, index])


def in_arrays(mode: str) -> Workload:
    table, index = tw.placeholder("T", (7, 3)), tw.placeholder("I", (12,), "i32")
    return Workload.of(tw.take(table, index, 0, mode), inputs=[table, index])


@pytest.mark.parametrize("mode", ["zero", "clamp", "wrap"])
def test_a_table_is_an_argument_before_its_indices(mode: str) -> None:
    table, index = tw.placeholder("x", (9,)), tw.placeholder("i", (5,), "i32")
    first = tw.placeholder("b", (5,))
    found = Workload.of(first + tw.take(table, index, 0, mode))
    assert [tensor.name for tensor in found.inputs] == ["b", "x", "i"]
    again = Workload.of(tw.take(table, index, 0, mode) + index.astype("f32"))
    assert [tensor.name for tensor in again.inputs] == ["x", "i"]
    before = Workload.of(index.astype("f32") + tw.take(table, index, 0, mode))
    assert [tensor.name for tensor in before.inputs] == ["i", "x"]


@pytest.mark.parametrize("policy", POLICIES)
def test_python_notation_arrays_and_json_give_one_key(policy: str) -> None:
    key = rows(policy).key
    assert in_python(getattr(expr, policy)).key == key
    assert in_arrays(policy).key == key
    assert Workload.from_json(rows(policy).to_json()).key == key


def test_an_array_in_brackets_is_take_along_its_dimension() -> None:
    table, index = tw.placeholder("T", (4, 7, 3)), tw.placeholder("I", (5, 2), "i32")
    assert table[index].shape == (5, 2, 7, 3)
    assert table[:, index].shape == (4, 5, 2, 3)
    assert table[..., index].shape == (4, 7, 5, 2)
    assert table[1:3, index, ::2].shape == (2, 5, 2, 2)
    values, at = np.arange(84, dtype=np.float32).reshape(4, 7, 3), np.array([[0, 6]] * 5, np.int32)
    for ours, wanted in (
        (table[:, index], values[:, at]),
        (tw.take(table, index), values.take(at)),
        (table[1:3, index, ::2], values[1:3, at, ::2]),
    ):
        workload = Workload.of(ours, inputs=[table, index])
        np.testing.assert_array_equal(evaluate(workload, [values, at])[0], wanted)


def test_take_along_axis_broadcasts_as_numpy() -> None:
    x, index = tw.placeholder("X", (4, 7, 1)), tw.placeholder("I", (1, 2, 3), "i32")
    y = tw.take_along_axis(x, index, axis=1)
    assert y.shape == (4, 2, 3)
    values, at = np.arange(28, dtype=np.float32).reshape(4, 7, 1), np.array([[[0, 6, 3]] * 2])
    found = evaluate(Workload.of(y, inputs=[x, index]), [values, at.astype(np.int32)])[0]
    wide = np.broadcast_to(values, (4, 7, 3)), np.broadcast_to(at, (4, 2, 3))
    wanted = np.take_along_axis(*wide, 1)
    np.testing.assert_array_equal(found, wanted)


def test_an_inserted_dimension_has_one_position() -> None:
    x, index = tw.placeholder("X", (3,)), tw.placeholder("I", (2,), "i32")
    workload = Workload.of(tw.take(x[None], index, 0), inputs=[x, index])
    given = [np.ones(3, np.float32), np.array([0, 1], np.int32)]
    np.testing.assert_array_equal(evaluate(workload, given)[0], [[1, 1, 1], [0, 0, 0]])


def test_what_is_read_at_data_is_a_tensor() -> None:
    x, index = tw.placeholder("X", (7, 3)), tw.placeholder("I", (2,), "i32")
    doubled = Workload.of(tw.take(x * 2, index, 0) + 1, inputs=[x, index])
    assert len(doubled.stages) == 2


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Y[i] = T[I[i]]", "(T[clamp(I[i])] if I[i] < 16 else 0.0) if 0 <= I[i] else 0.0"),
        ("Y[i] = T[clamp(I[i] + i)]", "T[clamp(I[i] + i32(i))]"),
        ("Y[i] = T[wrap(I[i])]", "T[clamp(I[i] % 16)]"),
        ("Y[i] = T[I[i] & 15]", "T[clamp(I[i] & 15)]"),
        ("Y[i] = T[I[i] % 16]", "T[clamp(I[i] % 16)]"),
    ],
)
def test_tests_that_the_operation_decides_are_left_out(text: str, printed: str) -> None:
    workload = notation(text, T="f32[16]", I="i32[12]")
    assert to_scalar_text(workload.stages[0].body) == printed


def test_a_table_of_all_bytes_needs_no_test() -> None:
    workload = notation("Y[i] = L[X[i]]", L="u8[256]", X="u8[12]")
    assert to_scalar_text(workload.stages[0].body) == "L[clamp(i32(X[i]))]"


def test_arguments_of_commutative_operations_in_an_index_are_ordered() -> None:
    one = notation("Y[i] = T[clamp(I[i] + J[i])]", T="f32[9]", I="i32[4]", J="i32[4]")
    other = notation("Y[i] = T[clamp(J[i] + I[i])]", T="f32[9]", I="i32[4]", J="i32[4]")
    assert one.key == other.key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Y[i] = T[X[i]]", "an index is made of index names and integers, or it is a value of"),
        ("Y[i] = clamp(I[i])", "clamp is for the index of a read"),
        ("Y[i] = T[clamp(I[i], 3)]", "clamp takes 1 values, got 2"),
        ("Y[I[i]] = T[i]", "the left side has distinct index names"),
        ("Y[i] = T[clamp(X[i])]", "a value in an index is an integer, got f32"),
        ("Y[i] = where(I[i] == 1, T[J[i], 0], 0)", "T has 1 dimensions"),
    ],
)
def test_the_notation_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        notation(text, T="f32[7]", X="f32[12]", I="i32[12]", J="i32[12]")


def test_python_names_what_is_wrong() -> None:
    table, index = tw.placeholder("T", (7, 3)), tw.placeholder("I", (12,), "i32")
    floats = tw.placeholder("F", (12,))
    with pytest.raises(WorkloadError, match="a value in an index is an integer, got f32"):
        tw.compute("Y", (12,), lambda i: table[floats[i], 0])
    with pytest.raises(WorkloadError, match="take: indices are integers, got f32"):
        tw.take(table, floats, 0)
    with pytest.raises(WorkloadError, match="one of zero, clamp, wrap, got 'clip'"):
        tw.take(table, index, 0, mode="clip")
    with pytest.raises(WorkloadError, match="as many dimensions as the array, 2"):
        tw.take_along_axis(table, index)
    with pytest.raises(WorkloadError, match="beside an array, an index has only slices"):
        table[index, 0]
    with pytest.raises(WorkloadError, match="only tensors are indexed by values"):
        tw.compute("Y", (12,), lambda i: (table * 2)[index[i], 0])


def document(index: object) -> dict[str, Any]:
    found = rows("clamp").to_json()
    found["stages"][0]["body"]["index"][0] = index
    return found


@pytest.mark.parametrize(
    ("index", "message", "pointer"),
    [
        ({"clamp": {"op": "load", "tensor": "T", "index": ["i", "j"]}}, "is i32 or i64, got f32",
         "/stages/0/body/index/0"),
        ({"clamp": {"op": "load", "tensor": "I", "index": ["i + 1"]}}, "may be out of bounds",
         "/stages/0/body/index/0/clamp/index/0"),
        ({"clamp": {"op": "load", "tensor": "I", "index": ["q"]}}, "is not one of its axes",
         "/stages/0/body/index/0/clamp/index/0"),
        ({"clip": 1}, "clip", "/stages/0/body/index/0"),
        ({"clamp": 3}, 'needs an object with "op"', "/stages/0/body/index/0/clamp"),
    ],
)  # fmt: skip
def test_documents_say_where_an_index_is_wrong(index: object, message: str, pointer: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        Workload.from_json(document(index))
    assert caught.value.pointer.startswith(pointer)


def with_index(index: Affine) -> Workload:
    workload = rows("clamp")
    (stage,) = workload.stages
    read = Load("T", (index, var("j")), DType.F32)
    return Workload(workload.inputs, (replace(stage, body=read),), ("Y",))


def datum(extent: int = 7, name: str = "i") -> Affine:
    return Affine(((Clamped(Load("I", (var(name),), DType.I32), extent), 1),), 0)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (datum() + 1, "or it is one integer"),
        (datum(7) + datum(8), "or it is one integer"),
        (datum(6), "clamped to 0..6, the positions of its dimension, got 0..5"),
        (datum() // 2, "or it is one integer"),
    ],
)
def test_a_whole_index_is_one_integer(index: Affine, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        validate(with_index(index))


# --- what is known about data in an index --------------------------------------------------------


def test_a_datum_is_a_function_of_its_variables_with_a_range() -> None:
    index = datum() * 3 + var("j")
    assert index.vars() == {"i", "j"}
    assert index.mentions("i")
    assert not index.is_linear_in("i")
    assert index.is_linear_in("j")
    assert interval(index, {"j": Interval(0, 2)}) == Interval(0, 20)
    assert str(index) == "j + 3*(clamp(I[i]))"
    moved = index.substitute({"i": var("a") * 4 + var("b")})
    assert moved.vars() == {"a", "b", "j"}
    assert str(datum(1)) == "clamp(I[i])"
    assert simplify(datum(1), {}) == Affine((), 0)
    with pytest.raises(KeyError, match="clamp"):
        index.evaluate({"i": 0, "j": 0})


def test_reads_inside_an_index_are_part_of_the_expression() -> None:
    read = Load("T", (datum(), var("j")), DType.F32)
    assert [load.tensor for load in loads(read)] == ["T", "I"]
    assert vars_of(read) == {"i", "j"}
    guard = (Ge0(var("j") - 1),)
    chosen = Select(All(guard), read, Const(0.0, DType.F32))
    assert [(x.tensor, conds) for x, conds in conditional_loads(chosen)] == [
        ("T", guard), ("I", guard),
    ]  # fmt: skip
    assert to_scalar_text(substitute(read, {"i": var("k") + 1})) == "T[clamp(I[k + 1]), j]"
    assert to_scalar_text(rename_tensors(read, {"I": "J", "T": "U"})) == "U[clamp(J[i]), j]"
    assert rewrite(read, lambda node: None) is read


def test_equal_data_do_not_separate_iterations() -> None:
    """What is read may change between two iterations, although its index does not."""
    i, ranges = var("i"), {"i": Interval(0, 6)}
    fixed = Affine(((Clamped(Load("I", (var("k"),), DType.I32), 7), 7),), 0)
    access = ElementAccess((fixed + i,))
    assert not meet_only_within(access, access, "i", ranges, {"k": Interval(0, 3)})
    beside = ElementAccess((fixed, i))
    assert meet_only_within(beside, beside, "i", ranges, {"k": Interval(0, 3)})


PAIR = notation(
    "U[i,j] = T[i,j] * 2.0; Y[i,j] = U[clamp(I[i]), j]", T="f32[7,3]", I="i32[12]"
).normalised()


def test_a_region_read_at_data_is_the_whole_dimension() -> None:
    for step in (ComputeAt("s0", "s1.d0"), CacheRead("s0", "s1.d0", "P")):
        nest = lower(PAIR, Trace((step,)))
        assert "f32[7, 3]" in to_text(nest)
        verify(nest)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Inline("s0"), "'s0' is read at an index that is data"),
        (BlockRead("s0", "s1.d0", "P", "s1.d1"), "'s0' is read at an index that is data"),
    ],
)
def test_steps_that_would_move_data_elsewhere_are_refused(step: Primitive, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        lower(PAIR, Trace((step,)))


def test_registers_have_no_index_that_is_data() -> None:
    steps = (ComputeAt("s0", "s1.d0", register=True), Unroll("s0.0"), Unroll("s0.1"))
    with pytest.raises(ScheduleError, match="an index of it is data"):
        lower(PAIR, Trace((*steps, Unroll("s1.d1"))))


def test_iterations_that_read_at_data_run_in_parallel_but_not_those_that_read_themselves() -> None:
    lower(PAIR, Trace((Parallel("s1.d0"),)))
    own = notation("Y[i] = cumsum(T[clamp(I[i])], i)", T="f32[7]", I="i32[12]").normalised()
    with pytest.raises(ScheduleError, match="may read what another writes"):
        lower(own, Trace((Parallel("s0.d0"),)))


def test_a_nest_may_not_write_at_data() -> None:
    nest = plain_nest(rows("clamp").normalised())

    def moved(stmt: Any) -> Any:
        if isinstance(stmt, StoreElement):
            return replace(stmt, index=(datum(12, "s0.d0"), stmt.index[1]))
        return replace(stmt, body=tuple(map(moved, stmt.body)))

    with pytest.raises(MalformedNest, match="depends on data; only a read may"):
        verify(replace(nest, body=tuple(map(moved, nest.body))))


# --- numbers -------------------------------------------------------------------------------------


def test_an_integer_that_may_differ_leaves_the_element_open() -> None:
    workload = notation("Y[i] = T[clamp(i32(X[i] * 0.1))]", T="f32[7]", X="f32[2]")
    given = [np.arange(7, dtype=np.float32), np.array([10.0, 15.0], np.float32)]
    (found,) = bounded_outputs(workload, given)
    assert found[1] is not None
    errors = np.broadcast_to(found[1], (2,))
    assert np.isinf(errors[0])
    assert errors[1] == 0


def test_samples_demand_whole_dimensions_that_are_read_at_data() -> None:
    grid = places_of([3], 12)
    found = demanded(PAIR, {"s1": (grid, None)})
    assert found["s0"] == (None, None)


def test_bytes_of_selected_rows_count_once_for_each_read() -> None:
    few = notation("Y[i,j] = T[I[i], j]", T="f32[1000,8]", I="i32[10]")
    assert few.min_bytes == 10 * 8 * 4 + 10 * 4 + 10 * 8 * 4
    many = notation("Y[i,j] = T[I[i], j]", T="f32[10,8]", I="i32[1000]")
    assert many.min_bytes == 10 * 8 * 4 + 1000 * 4 + 1000 * 8 * 4
