"""ArrayExpr operations compute what NumPy computes, on random shapes and in random chains."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import tilewright as tw
from tilewright.schedules.frontend.array.arrays import ArrayExpr
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.workload import Workload

EXTENTS = st.integers(1, 5)
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).map(tuple)


class Pair:
    """An array expression, and the array that NumPy computes."""

    def __init__(self, array: ArrayExpr, wanted: np.ndarray) -> None:
        assert array.node.shape == wanted.shape
        self.array, self.wanted = array, wanted


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Small numbers, of which many are equal or zero."""
    return np.random.default_rng(seed).integers(-6, 7, shape).astype(np.float64) / 4


def check(array: ArrayExpr, wanted: np.ndarray, *inputs: tuple[ArrayExpr, np.ndarray]) -> None:
    """That `array` is `wanted`. `inputs` are placeholders and their values."""
    wanted = np.asarray(wanted)
    assert array.node.shape == wanted.shape
    data = {tensor.node.source.name: v for tensor, v in inputs if tensor.node.source is not None}
    workload = Workload.of(array)  # type: ignore[arg-type]  # a lazy array or a tensor
    (found,) = evaluate(workload, [data[t.name] for t in workload.inputs])
    assert found.shape == (wanted.shape or (1,))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9)


def tensor(name: str, data: np.ndarray, dtype: str = "f64") -> Any:
    return tw.placeholder(name, data.shape, dtype)


def checked(build: Callable[..., Any], wanted: Callable[..., Any], *data: np.ndarray) -> None:
    """That `build` of placeholders is what `wanted` returns for their values."""
    tensors = [tensor(f"x{n}", d) for n, d in enumerate(data)]
    check(build(*tensors), wanted(*data), *zip(tensors, data, strict=True))


BINARY: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, b: a + b, np.add),
    (lambda a, b: a - b, np.subtract),
    (lambda a, b: a * b, np.multiply),
    (lambda a, b: a / (b * b + 1), lambda a, b: a / (b * b + 1)),
    (tw.maximum, np.maximum),
    (tw.minimum, np.minimum),
    (lambda a, b: tw.where(a > b, a, b - 1), lambda a, b: np.where(a > b, a, b - 1)),
    (lambda a, b: tw.where(a <= b, 2, b), lambda a, b: np.where(a <= b, 2, b)),
    (
        lambda a, b: tw.where(tw.eq(a, b) | ~(a < 0), a, 1.5),
        lambda a, b: np.where((a == b) | ~(a < 0), a, 1.5),
    ),
    (
        lambda a, b: tw.where((a >= b) & tw.ne(a, 0), 3.0, b),
        lambda a, b: np.where((a >= b) & (a != 0), 3.0, b),
    ),
]


@settings(max_examples=60, deadline=None)
@given(
    shapes=mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, max_side=4),
    which=st.integers(0, len(BINARY) - 1),
)
def test_two_arrays_are_broadcast_as_in_numpy(shapes: Any, which: int) -> None:
    a, b = (values(shape, n) for n, shape in enumerate(shapes.input_shapes))
    ours, theirs = BINARY[which]
    checked(ours, theirs, a, b)


def test_numbers_and_elements_stand_on_either_side() -> None:
    data = values((3, 4))
    checked(lambda x: 2 - x, lambda x: 2 - x, data)
    checked(lambda x: 1 / (3 + -x), lambda x: 1 / (3 - x), data)
    checked(lambda x: 0.5 * x + 1, lambda x: 0.5 * x + 1, data)
    checked(lambda x: abs(x) - tw.relu(x), lambda x: np.abs(x) - np.maximum(x, 0), data)
    checked(lambda x: x[0, 1] * x, lambda x: x[0, 1] * x, data)
    checked(lambda x: x - x[2, 3], lambda x: x - x[2, 3], data)
    checked(
        lambda x: tw.where(x[0, 1] < x, x, x[1, 1]),
        lambda x: np.where(x[0, 1] < x, x, x[1, 1]),
        data,
    )
    checked(lambda x: (x > 0).astype("f64") * x, lambda x: (x > 0) * x, data)


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "sqrt", "floor", "sin", "log", "erf"])
def test_functions_take_arrays(name: str) -> None:
    theirs: Any = {
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "erf": np.vectorize(math.erf),
    }.get(name) or getattr(np, name)
    data = np.abs(values((3, 4))) + 0.3
    checked(getattr(tw, name), theirs, data)


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_reductions_take_axes_and_keep_dimensions(shape: tuple[int, ...], data: Any) -> None:
    rank = len(shape)
    axes = st.integers(-rank, rank - 1)
    several = st.lists(st.integers(0, rank - 1), min_size=1, unique=True).map(tuple)
    axis = data.draw(st.none() | axes | several)
    name = data.draw(st.sampled_from(["sum", "prod", "max", "min", "mean"]))
    keep = data.draw(st.booleans())
    checked(
        lambda x: getattr(x, name)(axis=axis, keepdims=keep),
        lambda x: getattr(x, name)(axis=axis, keepdims=keep),
        values(shape),
    )


def test_the_reducers_of_values_reduce_arrays_too() -> None:
    data = values((3, 4, 2))
    for ours, theirs in ((tw.sum, np.sum), (tw.max, np.max), (tw.min, np.min), (tw.prod, np.prod)):
        checked(lambda x, f=ours: f(x, axis=1), lambda x, f=theirs: f(x, axis=1), data)
        checked(
            lambda x, f=ours: f(x, (0, -1), keepdims=True),
            lambda x, f=theirs: f(x, (0, -1), keepdims=True),
            data,
        )
        checked(lambda x, f=ours: f(x), lambda x, f=theirs: f(x), data)


SUBSCRIPTS = [
    ("ik,kj->ij", (3, 4), (4, 5)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij->ji", (2, 3)),
    ("ba", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (4, 4)),
    ("ij->", (2, 3)),
    ("i,i", (4,), (4,)),
    ("i,j->ij", (3,), (2,)),
    ("bik,bkj->bij", (2, 3, 4), (2, 4, 3)),
    ("...ik,...kj->...ij", (2, 3, 4), (4, 3)),
    ("...ik,...kj", (5, 1, 3, 4), (2, 4, 3)),
    ("i...,i...->...", (3, 2, 2), (3, 2, 2)),
    ("...->...", (2, 3)),
    ("i...->...i", (2, 3, 4)),
    ("iij,jk->ki", (3, 3, 2), (2, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("i,ij->j", (1,), (3, 2)),
    ("A,a->aA", (2,), (3,)),
    (" i j , j -> i ", (2, 3), (3,)),
]  # fmt: skip


@pytest.mark.parametrize("case", SUBSCRIPTS, ids=lambda case: case[0])
def test_einsum_computes_what_numpy_computes(case: Any) -> None:
    subscripts, *shapes = case
    data = [values(shape, n) for n, shape in enumerate(shapes)]
    checked(lambda *x: tw.einsum(subscripts, *x), lambda *x: np.einsum(subscripts, *x), *data)


def stages_of_einsum(subscripts: str, *shapes: tuple[int, ...]) -> list[int]:
    """The number of iteration points of each stage."""
    arrays = [tw.placeholder(f"x{n}", shape) for n, shape in enumerate(shapes)]
    workload = tw.Workload.of(tw.einsum(subscripts, *arrays), inputs=arrays)
    return [math.prod(axis.extent for axis in stage.all_axes) for stage in workload.stages]


def test_three_operands_are_multiplied_pair_by_pair_where_that_takes_less() -> None:
    chain = stages_of_einsum("ij,jk,kl->il", (20, 30), (30, 40), (40, 8))
    assert chain == [30 * 40 * 8, 20 * 30 * 8]
    assert stages_of_einsum("bi,oij,bj->bo", (9, 30), (7, 30, 40), (9, 40)) == [
        9 * 30 * 40,
        9 * 7 * 30 * 40,
    ]
    assert stages_of_einsum("i,i,i->i", (90,), (90,), (90,)) == [90]
    assert stages_of_einsum("ab,bc,ca->", (2, 2), (2, 2), (2, 2)) == [8, 4]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_subscripts_compute_what_numpy_computes(data: Any) -> None:
    extents = dict(zip("abcd", data.draw(st.tuples(*[st.integers(1, 4)] * 4)), strict=True))
    labels = st.text("abcd", min_size=1, max_size=3)
    terms = data.draw(st.lists(labels, min_size=1, max_size=3))
    letters = sorted(set("".join(terms)))
    output = data.draw(st.none() | st.lists(st.sampled_from(letters), unique=True).map("".join))
    subscripts = ",".join(terms) + ("" if output is None else f"->{output}")
    arrays = [values(tuple(extents[c] for c in term), n) for n, term in enumerate(terms)]
    checked(lambda *x: tw.einsum(subscripts, *x), lambda *x: np.einsum(subscripts, *x), *arrays)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
     ((2, 3), (5, 3, 4)), ((4, 1, 2, 3), (5, 3, 2)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)),
     ((2, 1), (1, 3))],
)  # fmt: skip
def test_matrix_products_follow_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    checked(lambda a, b: a @ b, lambda a, b: a @ b, values(left), values(right, 1))


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """A basic index of an array of `shape` that selects at least one element."""
    found: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["slice", "integer", "new", "all"]))
        if kind == "new":
            found.append(None)
        if kind == "integer":
            found.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "all":
            found.append(slice(None))
        else:
            chosen = draw(st.slices(extent))
            assume(range(*chosen.indices(extent)))
            found.append(chosen)
    if draw(st.booleans()):
        dims = sum(1 for k in found if k is not None)
        found.append(...) if dims == len(found) or draw(st.booleans()) else found.insert(0, None)
    return tuple(found)


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_basic_indexing_follows_numpy(shape: tuple[int, ...], data: Any) -> None:
    key = data.draw(keys(shape))
    checked(lambda x: (x * 1)[key], lambda x: x[key], values(shape))


def test_an_index_from_the_end_and_dots_in_the_middle() -> None:
    data = values((3, 4, 5))
    for key in (
        -1,
        (0, ..., -2),
        (..., None),
        np.s_[:, 1:-1, ::2],
        np.s_[::-1],
        np.s_[1, ..., 3:0:-1],
    ):
        checked(lambda x, k=key: x[k], lambda x, k=key: x[k], data)
    checked(lambda x: x[-1, -2, -3] + x, lambda x: x[-1, -2, -3] + x, data)


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_reshape_keeps_the_order_of_elements(shape: tuple[int, ...], data: Any) -> None:
    left = int(np.prod(shape))
    factors: list[int] = []
    while left > 1 and len(factors) < 5:
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        factors.append(data.draw(st.sampled_from(divisors)))
        left //= factors[-1]
    target = [*factors, left]
    if data.draw(st.booleans()):
        target[data.draw(st.integers(0, len(target) - 1))] = -1
    checked(lambda x: x.reshape(*target), lambda x: x.reshape(target), values(shape))
    checked(lambda x: x.reshape(target), lambda x: x.reshape(target), values(shape))


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_padding_follows_numpy(shape: tuple[int, ...], data: Any) -> None:
    width = st.integers(0, 7)
    pairs = st.tuples(*[st.tuples(width, width)] * len(shape))
    widths = data.draw(width | st.tuples(width, width) | pairs)
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect"]))
    if np.prod(np.pad(values(shape), widths).shape) > 20_000:
        widths = 1
    if len(shape) > 2 and mode != "constant":
        shape = shape[:2]
        widths = 2
    checked(
        lambda x: tw.pad(x, widths, mode=mode, value=7),
        lambda x: np.pad(x, widths, mode, **({"constant_values": 7} if mode == "constant" else {})),
        values(shape),
    )


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_joining_and_cutting_follow_numpy(shape: tuple[int, ...], data: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    extents = data.draw(st.lists(EXTENTS, min_size=1, max_size=4))
    parts = []
    for n, extent in enumerate(extents):
        other = list(shape)
        other[axis] = extent
        parts.append(values(tuple(other), n))
    checked(lambda *x: tw.concat(list(x), axis), lambda *x: np.concatenate(x, axis), *parts)
    same = [values(shape, n) for n in range(len(extents))]
    at = data.draw(st.integers(-len(shape) - 1, len(shape)))
    checked(lambda *x: tw.stack(x, at), lambda *x: np.stack(x, at), *same)
    whole = values(shape)
    for n, piece in enumerate(np.split(whole, shape[axis], axis)):
        checked(lambda x, n=n: tw.split(x, shape[axis], axis)[n], lambda x, p=piece: p, whole)
    if shape[axis] > 1:
        cut = data.draw(st.integers(1, shape[axis] - 1))
        for n in range(2):
            checked(
                lambda x, n=n: tw.split(x, [cut], axis)[n],
                lambda x, n=n: np.split(x, [cut], axis)[n],
                whole,
            )


@settings(max_examples=60, deadline=None)
@given(shape=SHAPES, data=st.data())
def test_moving_elements_follows_numpy(shape: tuple[int, ...], data: Any) -> None:
    rank = len(shape)
    axis = data.draw(st.none() | st.integers(-rank, rank - 1))
    shift = data.draw(st.integers(-7, 7))
    x = values(shape)
    checked(lambda x: tw.roll(x, shift, axis), lambda x: np.roll(x, shift, axis), x)
    checked(lambda x: tw.flip(x, axis), lambda x: np.flip(x, axis), x)
    order = data.draw(st.permutations(range(rank)))
    checked(lambda x: x.transpose(*order), lambda x: x.transpose(order), x)
    checked(lambda x: x.T, lambda x: x.T, x)
    reps = data.draw(st.integers(1, 3) | st.lists(st.integers(1, 3), min_size=1, max_size=rank + 1))
    checked(lambda x: tw.tile(x, reps), lambda x: np.tile(x, reps), x)


def test_several_shifts_and_axes() -> None:
    data = values((3, 4))
    checked(lambda x: tw.roll(x, (1, -2), axis=(0, 1)), lambda x: np.roll(x, (1, -2), (0, 1)), data)
    checked(lambda x: tw.flip(x, (0, 1)), lambda x: np.flip(x, (0, 1)), data)
    checked(lambda x: x.transpose((1, 0)), lambda x: x.T, data)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["i32", "u8"])
def test_one_hot_marks_the_class_of_each_element(axis: int, dtype: str) -> None:
    x = tw.placeholder("x", (2, 3), dtype)
    data = np.array([[0, 3, 2], [1, 0, 9]], x.dtype.numpy)
    wanted = np.moveaxis((data[..., None] == np.arange(4)).astype(np.float64), -1, axis)
    check(tw.one_hot(x, 4, axis=axis), wanted, (x, data))


def test_types_are_cast_and_kept_by_the_rules_of_values() -> None:
    x = tw.placeholder("x", (4,), "i8")
    assert x.astype("f16").dtype == "f16"
    assert (x + 1).dtype == "i32"
    assert x.sum().dtype == "i32"
    assert tw.maximum(x, 0).dtype == "i8"
    assert tw.concat([x, x]).dtype == "i8"
    assert tw.cast(x, "f32").mean().dtype == "f32"
    assert tw.where(x > 0, 1, 0).dtype == "i32"
    data = np.array([-3, 0, 5, 100], np.int8)
    check(x.astype("f32") / 2, data / 2, (x, data))
    check((x * 100).astype("i8"), (data.astype(np.int32) * 100).astype(np.int8), (x, data))


STEPS: list[Callable[[Any, Any, Any], tuple[Any, Any]]] = []


def _step(ours: Callable[..., Any], theirs: Callable[..., Any] | None = None) -> None:
    STEPS.append(lambda a, d, draw: (ours(a, tw, draw), (theirs or ours)(d, np, draw)))


_step(lambda x, m, _: x + 1)
_step(lambda x, m, _: x * x)
_step(lambda x, m, _: m.exp(-m.abs(x)))
_step(lambda x, m, _: m.maximum(x, 0.25))
_step(lambda x, m, _: x.T)
_step(lambda x, m, _: x - x.max(-1, keepdims=True))
_step(lambda x, m, _: x / (x * x + 1).sum(0, keepdims=True))
_step(lambda x, m, _: x.mean(0))
_step(lambda x, m, _: x.sum())
_step(lambda x, m, _: x[..., None])
_step(lambda x, m, _: x[::-1])
_step(lambda x, m, _: x[..., ::2])
_step(lambda x, m, _: x[None] + x.T[..., None] if x.ndim == 1 else x + 1)
_step(lambda x, m, _: x.reshape(-1))
_step(lambda x, m, _: m.roll(x, 2, 0))
_step(lambda x, m, _: m.pad(x, 1))
_step(lambda x, m, _: m.pad(x, ((1, 1),) + ((0, 0),) * (x.ndim - 1), mode="reflect"))
_step(lambda x, m, _: m.tile(x, 2))
_step(lambda x, m, _: m.where(x > 0, x, 2))
_step(lambda x, m, _: m.einsum("...i,...i->...i", x, x))
_step(lambda x, m, _: m.einsum("...i->...", x))
_step(lambda x, m, _: m.stack([x, x + 1], -1).min(-1))
_step(lambda x, m, _: x @ x.T if x.ndim == 2 else x)
_step(
    lambda x, m, _: m.concat([x, -x], 0),
    lambda x, m, _: np.concatenate([x, -x], 0),
)


@settings(max_examples=150, deadline=None)
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), data=st.data())
def test_random_chains_compute_what_numpy_computes(shape: tuple[int, ...], data: Any) -> None:
    a, b = values(shape), values(shape, 1)
    x, y = tensor("x", a), tensor("y", b)
    found: list[tuple[Any, np.ndarray]] = [(x, a), (y, b)]
    for _ in range(data.draw(st.integers(1, 7))):
        array, wanted = data.draw(st.sampled_from(found[-3:]))
        if wanted.ndim < 1:
            continue
        array, wanted = data.draw(st.sampled_from(STEPS))(array, wanted, None)
        wanted = np.asarray(wanted)
        if wanted.ndim < 6 and wanted.size < 2000:
            found.append((array, wanted))
    ends = found[-2:]
    workload = Workload.of(*(tw.minimum(end, 1e30) for end, _ in ends))
    given_values = {"x": a, "y": b}
    results = evaluate(workload, [given_values[t.name] for t in workload.inputs])
    for result, (_, wanted) in zip(results, ends, strict=True):
        np.testing.assert_allclose(
            result.reshape(wanted.shape), np.minimum(wanted, 1e30), rtol=1e-7, atol=1e-7
        )
