"""The interpreter: what nests mean, and every undefined act is an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.interpreter.arithmetic import UndefinedOperationError
from tests.support.interpreter.interpret import interpret
from tests.support.interpreter.memory import InterpretError
from tests.support.schedules.hand_nests import (
    as_serial,
    load,
    loop,
    matmul,
    number,
    over,
    plus,
    store,
    tensor,
    tiled_matmul,
    times,
    update,
    with_body,
)
from tilewright.schedules.algebra.affine import affine, floor_div, modulo, var
from tilewright.schedules.algebra.comparisons import at_least, equal, less
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    IndexValue,
    Reducer,
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
)

Array = npt.NDArray[Any]
I, J, K = var("i"), var("j"), var("k")


def small_integers(rng: np.random.Generator, *shape: int) -> Array:
    """Exact in any order of summation."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def test_matmul_is_matmul(rng: np.random.Generator) -> None:
    a, b = small_integers(rng, 5, 7), small_integers(rng, 7, 3)
    (c,) = interpret(matmul(5, 3, 7), [a, b])
    assert c.dtype == np.float32
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(("m", "n", "k"), [(8, 8, 4), (5, 7, 3), (1, 1, 1), (9, 13, 2)])
def test_a_tiled_matmul_means_the_same(m: int, n: int, k: int, rng: np.random.Generator) -> None:
    a, b = small_integers(rng, m, k), small_integers(rng, k, n)
    nest = tiled_matmul(m, n, k, mr=4, nr=4)
    np.testing.assert_array_equal(interpret(nest, [a, b])[0], a @ b)
    np.testing.assert_array_equal(interpret(as_serial(nest), [a, b])[0], a @ b)


def test_inputs_stay_as_they_are(rng: np.random.Generator) -> None:
    a, b = small_integers(rng, 2, 2), small_integers(rng, 2, 2)
    before = a.copy()
    interpret(matmul(2, 2, 2), [a, b])
    np.testing.assert_array_equal(a, before)


def test_outputs_come_in_argument_order() -> None:
    outputs = (tensor("D", 2), tensor("C", 2))
    body = loop("i", 2, store("C", (I,), number(1)), store("D", (I,), load("C", I)))
    (d, c) = interpret(Nest((), outputs, (body,)), [])
    np.testing.assert_array_equal(c, d)


def test_a_guard_stops_only_its_leaf() -> None:
    body = (
        store("C", (I,), number(1), less(I, 2)),
        store("C", (I,), number(2), at_least(I, 2)),
    )
    nest = with_body(over(4, body[0]), loop("i", 4, *body))
    np.testing.assert_array_equal(interpret(nest, [floats(0, 0, 0, 0)])[0], [1, 1, 2, 2])


def test_bounds_end_a_loop() -> None:
    inner = For("j", 4, (store("C", (4 * I + J,), number(7)),), bounds=(less(4 * I + J, 6),))
    nest = Nest((), (tensor("C", 6),), (loop("i", 2, inner),))
    np.testing.assert_array_equal(interpret(nest, [])[0], np.full(6, 7))


def test_first_stores_elsewhere_combines() -> None:
    leaf = update("C", (affine(0),), IndexValue(K + 1, DType.F32), (equal(K, 0),), Reducer.PROD)
    nest = Nest((), (tensor("C", 1),), (loop("k", 5, leaf),))
    assert interpret(nest, [])[0] == [120]


def test_an_update_that_is_always_first_is_a_store() -> None:
    leaf = update("C", (affine(0),), IndexValue(K, DType.F32), first=())
    assert interpret(Nest((), (tensor("C", 1),), (loop("k", 5, leaf),)), [])[0] == [4]


def test_an_update_that_is_never_first_needs_a_value() -> None:
    leaf = update("C", (affine(0),), IndexValue(K, DType.F32), first=None)
    start = store("C", (0,), number(10))
    nest = Nest((), (tensor("C", 1),), (start, loop("k", 5, leaf)))
    assert interpret(nest, [])[0] == [20]
    with pytest.raises(InterpretError, match=r"C\[0\] is read before it is written"):
        interpret(with_body(nest, loop("k", 5, leaf)), [])


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [(Reducer.SUM, 4), (Reducer.MAX, 5), (Reducer.MIN, -3), (Reducer.PROD, -30)],
)
def test_reducers(reducer: Reducer, expected: int) -> None:
    leaf = update("C", (affine(0),), load("A", K), (equal(K, 0),), reducer)
    nest = Nest((tensor("A", 3),), (tensor("C", 1),), (loop("k", 3, leaf),))
    assert interpret(nest, [floats(5, -3, 2)])[0] == [expected]


def test_a_select_reads_only_the_side_it_takes() -> None:
    padded = Select(All((at_least(I, 1), less(I, 4))), load("A", I - 1), number(0))
    nest = Nest((tensor("A", 3),), (tensor("C", 5),), (loop("i", 5, store("C", (I,), padded)),))
    np.testing.assert_array_equal(interpret(nest, [floats(1, 2, 3)])[0], [0, 1, 2, 3, 0])


def test_a_select_by_value() -> None:
    relu = Select(Compare(CompareOp.LT, load("A", I), number(0)), number(0), load("A", I))
    (c,) = interpret(over(3, store("C", (I,), relu)), [floats(-1, 0, 2)])
    np.testing.assert_array_equal(c, [0, 0, 2])


def test_indices_with_divisions_and_remainders() -> None:
    flat = store("C", (I,), load("A", floor_div(I, 3), modulo(I, 3)))
    nest = Nest((tensor("A", 2, 3),), (tensor("C", 6),), (loop("i", 6, flat),))
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(interpret(nest, [a])[0], a.ravel())


def test_tensors_without_axes() -> None:
    nest = Nest((tensor("A"),), (tensor("C"),), (store("C", (), plus(load("A"), load("A"))),))
    (c,) = interpret(nest, [np.array(3, np.float32)])
    assert c.shape == ()
    assert c == 6


def test_prefetch_means_nothing_even_out_of_bounds() -> None:
    body = loop("i", 3, PrefetchHint("A", (I + 100,)), store("C", (I,), load("A", I)))
    nest = with_body(over(3, store("C", (I,), load("A", I))), body)
    np.testing.assert_array_equal(interpret(nest, [floats(1, 2, 3)])[0], [1, 2, 3])


def test_float_arithmetic_is_done_in_the_type_of_the_values() -> None:
    tiny = plus(load("A", I), number(2.0**-24))
    (c,) = interpret(over(1, store("C", (I,), tiny)), [floats(1)])
    assert c[0] == 1


def test_integers_wrap() -> None:
    nest = over(
        2,
        store("C", (I,), times(load("A", I, dtype=DType.I8), load("A", I, dtype=DType.I8))),
        dtype=DType.I8,
    )
    np.testing.assert_array_equal(interpret(nest, [np.array([16, 100], np.int8)])[0], [0, 16])


def test_overflow_and_division_by_zero_are_values_not_warnings() -> None:
    ratio = Binary(BinaryOp.DIV, number(1), load("A", I))
    (c,) = interpret(over(3, store("C", (I,), ratio)), [floats(0, -0.0, np.nan)])
    np.testing.assert_array_equal(c, [np.inf, -np.inf, np.nan])


def test_a_buffer_is_new_and_empty_in_every_run() -> None:
    scratch = Buffer("T", (1,), DType.F32, BufferScope.REGISTER)
    once = store("T", (0,), number(1), equal(I, 0))
    use = store("C", (I,), load("T", 0))
    inside = with_body(over(2, use), loop("i", 2, Allocate(scratch, (once, use))))
    outside = with_body(inside, Allocate(scratch, (loop("i", 2, once, use),)))
    np.testing.assert_array_equal(interpret(outside, [floats(0, 0)])[0], [1, 1])
    with pytest.raises(InterpretError, match=r"T\[0\] is read before it is written"):
        interpret(inside, [floats(0, 0)])


@pytest.mark.parametrize("offset", [-1, 1])
def test_reads_out_of_bounds_name_the_access(offset: int) -> None:
    nest = over(3, store("C", (I,), load("A", I + offset)))
    with pytest.raises(InterpretError, match=r"A\[i . 1\] is out of bounds: its index is \[-?\d\]"):
        interpret(nest, [floats(1, 2, 3)])


def test_writes_out_of_bounds_are_checked_in_every_axis() -> None:
    # 1*4 + -1 is an element of C, but not C[1, -1].
    nest = Nest((), (tensor("C", 2, 4),), (loop("i", 2, store("C", (I, I - 2), number(0))),))
    with pytest.raises(InterpretError, match=r"C\[i, i - 2\].*its index is \[0, -2\].*\[2, 4\]"):
        interpret(nest, [])


def test_an_output_left_unwritten_is_an_error() -> None:
    nest = over(4, store("C", (I,), load("A", I), less(I, 3)))
    with pytest.raises(InterpretError, match=r"C\[3\] is an output and was never written \(1 of 4"):
        interpret(nest, [floats(0, 0, 0, 0)])


def test_inputs_are_never_written() -> None:
    nest = over(2, store("A", (I,), number(0)))
    with pytest.raises(InterpretError, match="A is an input; inputs are never written"):
        interpret(nest, [floats(0, 0)])


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (store("C", (J,), number(0)), "variable j has no loop around it; there are: i"),
        (store("D", (I,), number(0)), "buffer D does not exist here; there are: A, C"),
        (store("C", (I, I), number(0)), r"C\[i, i\] has 2 indices, the shape of C is \[4\]"),
        (store("C", (I,), number(0, DType.F64)), "C holds f32, the value written is f64"),
        (
            store("C", (I,), plus(number(0), number(0, DType.F64))),
            "operands of Binary need one type, got f32 and f64",
        ),
    ],
)
def test_nests_that_mean_nothing(leaf: Any, message: str) -> None:
    with pytest.raises(InterpretError, match=message):
        interpret(over(4, leaf), [floats(0, 0, 0, 0)])


def test_operations_without_meaning_for_their_type() -> None:
    leaf = store("C", (I,), Unary(UnaryOp.EXP, load("A", I, dtype=DType.I32)))
    with pytest.raises(UndefinedOperationError, match="exp is defined on f32 and f64, got i32"):
        interpret(over(1, leaf, dtype=DType.I32), [np.array([1], np.int32)])


def test_inputs_must_fit() -> None:
    nest = over(2, store("C", (I,), load("A", I)))
    with pytest.raises(ValueError, match=r"takes 1 inputs \(A\), got 0"):
        interpret(nest, [])
    with pytest.raises(ValueError, match=r"input A is float32\[2\], got float32\[3\]"):
        interpret(nest, [floats(1, 2, 3)])
    with pytest.raises(ValueError, match=r"input A is float32\[2\], got float64\[2\]"):
        interpret(nest, [np.zeros(2)])


INDEPENDENT = [LoopKind.PARALLEL, LoopKind.VECTORIZED]


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_iterations_must_not_write_one_element(kind: LoopKind) -> None:
    nest = over(4, store("C", (floor_div(I, 2),), number(1)), kind)
    message = rf"the {kind} loop i depend .* C\[0\] is written by iteration 1 and was written by it"
    with pytest.raises(InterpretError, match=message):
        interpret(nest, [floats(0, 0, 0, 0)])


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_iterations_must_not_read_what_others_write(kind: LoopKind) -> None:
    start = store("C", (0,), number(1))
    forward = store("C", (I + 1,), load("C", I))
    nest = Nest((), (tensor("C", 4),), (start, loop("i", 3, forward, kind=kind)))
    with pytest.raises(InterpretError, match=r"C\[1\] is read by iteration 1 and was written by"):
        interpret(nest, [])
    np.testing.assert_array_equal(interpret(as_serial(nest), [])[0], [1, 1, 1, 1])


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_iterations_must_not_write_what_others_read(kind: LoopKind) -> None:
    fill = loop("j", 4, store("C", (J,), number(1)))
    backward = store("C", (I,), load("C", I + 1))
    nest = Nest((), (tensor("C", 4),), (fill, loop("i", 3, backward, kind=kind)))
    with pytest.raises(InterpretError, match=r"C\[1\] is written by iteration 1 and was read by"):
        interpret(nest, [])


def test_an_element_read_by_several_iterations_must_not_be_written() -> None:
    read = store("C", (I + 1,), load("C", 0))
    write = store("C", (0,), number(2), equal(I, 2))
    body = loop("i", 3, read, write, kind=LoopKind.PARALLEL)
    nest = Nest((), (tensor("C", 4),), (store("C", (0,), number(1)), body))
    with pytest.raises(InterpretError, match=r"C\[0\] is written by .* read by several iterations"):
        interpret(nest, [])


def summed(kind: LoopKind, *after: Any) -> Nest:
    leaf = update("C", (affine(0),), load("A", K), (equal(K, 0),))
    return Nest((tensor("A", 4),), (tensor("C", 4),), (loop("k", 4, leaf, *after, kind=kind),))


def test_lanes_may_update_one_element_together_but_threads_may_not() -> None:
    rest = loop("i", 3, store("C", (I + 1,), number(0)))
    lanes, threads = summed(LoopKind.VECTORIZED), summed(LoopKind.PARALLEL)
    (c,) = interpret(with_body(lanes, *lanes.body, rest), [floats(1, 2, 3, 4)])
    np.testing.assert_array_equal(c, [10, 0, 0, 0])
    with pytest.raises(InterpretError, match="parallel loop k depend on each other"):
        interpret(threads, [floats(1, 2, 3, 4)])


def test_a_lane_must_not_read_what_lanes_are_summing_up() -> None:
    nest = summed(LoopKind.VECTORIZED, store("C", (K,), load("C", 0), at_least(K, 1)))
    with pytest.raises(InterpretError, match=r"C\[0\] is .* a reduction over all iterations"):
        interpret(nest, [floats(1, 2, 3, 4)])


def test_buffers_of_one_iteration_are_its_own() -> None:
    scratch = Buffer("T", (1,), DType.F32, BufferScope.WORKSPACE)
    steps = (store("T", (0,), load("A", I)), store("C", (I,), load("T", 0)))
    shared = over(3, steps[0], LoopKind.PARALLEL)
    private = loop("i", 3, Allocate(scratch, steps), kind=LoopKind.PARALLEL)
    (c,) = interpret(with_body(shared, private), [floats(1, 2, 3)])
    np.testing.assert_array_equal(c, [1, 2, 3])
    common = Allocate(scratch, (loop("i", 3, *steps, kind=LoopKind.PARALLEL),))
    with pytest.raises(InterpretError, match=r"T\[0\] is written by iteration 1"):
        interpret(with_body(shared, common), [floats(1, 2, 3)])


def test_each_run_of_a_parallel_loop_is_watched_for_itself() -> None:
    inner = loop("i", 3, update("C", (I,), number(1), (equal(K, 0),)), kind=LoopKind.PARALLEL)
    nest = Nest((), (tensor("C", 3),), (loop("k", 4, inner),))
    np.testing.assert_array_equal(interpret(nest, [])[0], [4, 4, 4])
