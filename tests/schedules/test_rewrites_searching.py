"""SearchBlocks: the position of an extreme is searched in one block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.extremes import DTYPES, Array, drawn
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Update, leaves, loops
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import SearchBlocks
from tilewright.schedules.sketches import space_for
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner import compile

FUNCTIONS = ("argmax", "argmin")


def searching(function: str, tensor: str, last: bool = False) -> Workload:
    call = f"{function}(X[i,k], k{', last' if last else ''})"
    return notation(f"P[i] = {call}", X=tensor).normalised()


def expected(function: str, values: Array, last: bool) -> Array:
    """Return the positions that NumPy finds."""
    if last:
        found: Array = values.shape[1] - 1 - expected(function, values[:, ::-1], False)
        return found
    positions: Array = getattr(np, function)(values, axis=1)
    return positions


@given(
    st.sampled_from(FUNCTIONS), st.sampled_from(sorted(DTYPES)), st.booleans(), st.integers(3, 20),
    st.data(),
)  # fmt: skip
def test_positions_are_those_of_numpy(
    function: str, dtype: str, last: bool, columns: int, data: st.DataObject
) -> None:
    length = data.draw(st.integers(2, columns - 1))
    values = drawn(dtype, 40, columns)
    workload = searching(function, f"{dtype}[40,{columns}]", last)
    (found,) = evaluate(SearchBlocks("s1", length).rewrite(workload), [values])
    np.testing.assert_array_equal(found, expected(function, values, last))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.parametrize("length", [4, 5])
def test_nests_of_the_rewritten_form_are_right(dtype: str, last: bool, length: int) -> None:
    workload = searching("argmin", f"{dtype}[5,20]", last)
    trace = Trace((SearchBlocks("s1", length),))
    check_meaning(workload, lower(workload, trace))
    values = drawn(dtype, 5, 20)
    found = compile(workload, trace)(values)
    np.testing.assert_array_equal(found, expected("argmin", values, last))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("last", [False, True])
def test_default_kernels_of_long_rows_are_right(function: str, dtype: str, last: bool) -> None:
    rows, columns = 40, 3001
    workload = searching(function, f"{dtype}[{rows},{columns}]", last)
    sketch = space_for(workload, this_machine()).sketches[0]
    trace = sketch.trace(sketch.default())
    assert any(isinstance(step, SearchBlocks) for step in trace.rewrites)
    rng = np.random.default_rng(1)
    kind = np.dtype({**DTYPES, "i8": np.int8}[dtype])
    values = rng.integers(-99, 99, (rows, columns)).astype(kind)
    if kind.kind == "f":
        rare = np.asarray(rng.random(values.shape))
        values[:20][rare[:20] < 1 / columns] = np.nan
        values[10:30][rare[10:30] > 1 - 1 / columns] = np.inf
        values[30], values[31], values[32] = -np.inf, np.inf, np.nan
        values[33, -1] = values[34, 0] = np.nan
    found = compile(workload, trace)(values)
    np.testing.assert_array_equal(found, expected(function, values, last))


def test_other_readers_of_the_extreme_keep_it() -> None:
    text = "M[i] max= X[i,k]; P[i] min= where(X[i,k] == M[i], k, 20); Y[i] = P[i] + 100 * M[i]"
    workload = notation(text, X="i32[5,20]").normalised()
    values = drawn("i32", 5, 20).clip(-9, 9)
    for one in (workload, SearchBlocks("s1", 7).rewrite(workload)):
        (found,) = evaluate(one, [values])
        np.testing.assert_array_equal(found, values.argmax(axis=1) + 100 * values.max(axis=1))


@pytest.mark.parametrize("words", ["", ", last"])
def test_searches_of_parts_of_nearly_the_same_length_are_apart(words: str) -> None:
    """Their blocks have equal axes, and differ in where the last one ends."""
    text = f"P[i] = argmax(X[i,k], k{words}); Q[i] = argmax(X[i,j], j{words})"
    workload = notation(text, {"k": 3001, "j": 3005}, X="f32[8,3005]")
    sketch = space_for(workload, this_machine()).sketches[0]
    trace = sketch.trace(sketch.default())
    lengths = [step.length for step in trace.rewrites if isinstance(step, SearchBlocks)]
    assert len(lengths) == 2
    assert len(set(lengths)) == 1
    values = np.random.default_rng(0).random((8, 3005), np.float32)
    for row, place in enumerate((3004, 3002, 3000, 2656, 2650, 2652)):
        values[row, place] = 9
    found = compile(workload, trace)(values)
    for positions, part in zip(found, (values[:, :3001], values), strict=True):
        np.testing.assert_array_equal(positions, expected("argmax", part, bool(words)))


@pytest.mark.parametrize("read", ["X[i,3000-k]", "X[0,3000-k] * Y[2*i]"])
def test_default_kernels_of_rows_read_from_the_end_are_right(read: str) -> None:
    tensors = {"X": "f32[16,3001]", "Y": "f32[33]"}
    used = {name: spec for name, spec in tensors.items() if name in read}
    workload = notation(f"P[i] = argmax({read}, k)", {"i": 16, "k": 3001}, **used)
    sketch = space_for(workload, this_machine()).sketches[0]
    trace = sketch.trace(sketch.default())
    assert any(isinstance(step, SearchBlocks) for step in trace.rewrites)
    rng = np.random.default_rng(2)
    x, y = rng.integers(-99, 99, (16, 3001)), rng.integers(-3, 4, 33)
    given = [a.astype(np.float32) for a in (x, y)][: len(used)]
    found = compile(workload, trace)(*given)
    numbers = x[:, ::-1] if "Y" not in read else x[:1, ::-1] * y[:32:2, None]
    np.testing.assert_array_equal(found, expected("argmax", numbers, False))


@pytest.mark.parametrize(
    ("text", "steps", "reason"),
    [
        ("P[i] = argmax(X[i,k], k)", SearchBlocks("s0", 4), "does not look for an extreme"),
        ("P[i] = argmax(X[i,k], k)", SearchBlocks("s1", 1), "blocks of 1"),
        ("P[i] = argmax(X[i,k], k)", SearchBlocks("s1", 20), "20 positions"),
        ("P[i] = argmax(X[i,k//2], k)", SearchBlocks("s1", 4), "not a plain index"),
        ("P[i] = argmax(X[i,k] * i32(k), k)", SearchBlocks("s1", 4), "not a plain index"),
        ("P[i] = argmax(where(k < 9, X[i,k], 0), k)", SearchBlocks("s1", 4), "not a plain index"),
    ],
)
def test_other_searches_are_refused(text: str, steps: SearchBlocks, reason: str) -> None:
    workload = notation(text, X="i32[5,20]", ranges={"k": 20}).normalised()
    with pytest.raises(ScheduleError, match=reason):
        steps.rewrite(workload)


@pytest.mark.parametrize(
    ("tensor", "lengths"),
    [
        ("f32[64,500]", []),
        ("f32[2,5000000]", [13440]),
        ("f64[2,5000000]", [13440]),
        ("i8[64,4096]", [384]),
    ],
)
def test_blocks_are_chosen_for_long_rows(tensor: str, lengths: list[int]) -> None:
    first = space_for(searching("argmax", tensor), this_machine()).sketches[0]
    steps = first.trace(first.default()).rewrites
    assert [step.length for step in steps if isinstance(step, SearchBlocks)] == lengths


def test_numbers_and_nans_of_a_block_are_found_in_one_pass() -> None:
    workload = searching("argmax", "f32[8,6000]")
    sketch = space_for(workload, this_machine()).sketches[0]
    _, nest = sketch.lowered(sketch.default())
    inner = [
        loop
        for loop in loops(nest.body)
        if loop.reduce and loop.kind.value == "serial" and loop.extent > 1
    ]
    reads = [
        sum(isinstance(leaf, Update) and "i0" in str(leaf.value) for leaf in leaves((loop,)))
        for loop in inner
    ]
    assert max(reads) == 2
