"""What array operations refuse, and what their errors name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.workload.workload import Workload

# Typed `Any`, because mypy refuses many of these mistakes, too.
X: Any = tw.placeholder("X", (3, 4))
B: Any = tw.placeholder("b", (5,))
I8: Any = tw.placeholder("I8", (3, 4), "i8")
LIST: Any = [X * 2]
I: Any = tw.reduce_axis(3, "i")

REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: X + B, "shape_clash", r"\(3, 4\) and \(5,\) do not broadcast.*-1 has 4 and 5"),
    (lambda: tw.where(X > 0, X, B), "shape_clash", "do not broadcast"),
    (lambda: tw.exp(I8), "bad_dtype", "exp of i32: cast"),
    (lambda: I8 / 2, "bad_dtype", "only floats divide"),
    (I8.mean, "bad_dtype", "only floats divide"),
    (lambda: X + I8, "dtype_clash", "f32 and i32"),
    (lambda: X.astype("f31"), "bad_dtype", "unknown element type 'f31'; choices"),
    (lambda: X.sum(2), "unknown_axis", r"the array has 2 dimensions, axes are -2\.\.1, got 2"),
    (lambda: X.sum((0, 0)), "duplicate", "axis 0 is given twice"),
    (lambda: X.max(I), "unknown_axis", "an axis of an array is an integer"),
    (lambda: tw.sum(X, axis=I), "unknown_axis", "an axis of an array is an integer"),
    (lambda: X.sum().sum(), "bad_reduction", r"needs an axis.*shape \(\)"),
    (lambda: X.sum().sum(0), "unknown_axis", "there are no axes"),
    (lambda: X.transpose(0), "bad_rank", r"each of the axes 0\.\.1 once"),
    (lambda: X.reshape(5, -1), "shape_clash", "12 elements, to"),
    (lambda: X.reshape(-1, -1), "shape_clash", "one extent may be -1"),
    (lambda: X.reshape("a"), "bad_shape", "reshape takes integers"),
    (lambda: X[:, :, 0], "bad_rank", "at most that many indices"),
    (lambda: X[..., ...], "bad_rank", "one ..."),
    (lambda: Workload.of(X[1, 2]), "bad_node", "got an object of type Expr"),
    (lambda: tw.build(LIST), "bad_node", "got an object of type list"),
    (lambda: X[3], "out_of_bounds", "index 3 is out of bounds: dimension 0 has the extent 3"),
    (lambda: X[2:1], "bad_extent", "selects nothing"),
    (lambda: X[::0], "bad_index", "a step that is not 0"),
    (lambda: X[X], "bad_index", r'indices are integers, got f32; write indices\.astype\("i32"\)'),
    (lambda: X[0, "a"], "bad_index", "integers, slices"),
    (lambda: X[I], "bad_rank", "X has 2 dimensions"),
    (lambda: (X + 1)[I], "bad_rank", "has 2 dimensions, got 1 indices"),
    (lambda: X[I, :], "bad_index", "an index is an integer or made of index variables"),
    (lambda: X + X[I, 0], "bad_node", "index the array"),
    (lambda: X[I, 0] + X, "bad_node", "index the array"),
    (lambda: X + I, "bad_node", "index the array"),
    (lambda: I + X, "bad_node", "index the array"),
    (lambda: X + True, "bad_node", "an array or a number; got bool True"),
    (lambda: X * [1, 2], "bad_node", r"got list \[1, 2\]"),
    (lambda: X @ 2, "bad_node", "the right side of @"),
    (lambda: X @ X, "shape_clash", "last extent on the left, 4, .* last but one on the right, 3"),
    (lambda: X.sum() @ X, "bad_rank", "at least one dimension"),
    (lambda: bool(X > 0), "bad_node", "no truth value"),
    (lambda: 0 < X < 1, "bad_node", "no truth value"),
    (lambda: tw.where(X == X, X, 0), "bad_node", "write eq or ne"),
    (lambda: tw.where(X, X, 0), "bad_node", "must be bools, such as x > 0"),
    (lambda: (X > 0) & X, "bad_dtype", "only integers have it"),
    (lambda: tw.einsum("ik,kj->ij", X), "bad_syntax", "has 2 operands, got 1"),
    (lambda: tw.einsum("ijk->i", X), "bad_rank", "2 dimensions .* name 3"),
    (lambda: tw.einsum("i->i", X), "bad_rank", "2 dimensions .* name 1"),
    (lambda: tw.einsum("i...jk->i", X), "bad_rank", r"name 3 besides \.\.\."),
    (lambda: tw.einsum("ij->ik", X), "bad_syntax", "'k', which no operand has"),
    (lambda: tw.einsum("ij->ii", X), "bad_syntax", "'i' twice"),
    (lambda: tw.einsum("i1->i", X), "bad_syntax", "'1' is no subscript"),
    (lambda: tw.einsum("i..->i", X), "bad_syntax", r"'\.' is no subscript"),
    (lambda: tw.einsum("...j->j", X), "bad_syntax", r"the output needs \.\.\."),
    (lambda: tw.einsum("ii", X), "shape_clash", "'i' has the extents 3 and 4"),
    (lambda: tw.einsum("...,...", X, B), "shape_clash", "do not broadcast"),
    (lambda: tw.einsum(X, "ij"), "bad_node", "takes a list of arrays"),  # type: ignore[arg-type]
    (lambda: tw.einsum(3, X), "bad_syntax", "takes subscripts"),  # type: ignore[arg-type]
    (lambda: tw.concat([X, B]), "shape_clash", "equal other extents"),
    (lambda: tw.concat([X, I8]), "dtype_clash", r'write x\.astype\("f32"\)'),
    (lambda: tw.concat(X), "bad_node", "takes a list of arrays"),
    (lambda: tw.concat([X], 2), "unknown_axis", "concat"),
    (lambda: tw.stack([X, B]), "shape_clash", "equal other extents"),
    (lambda: tw.split(X, 3, 1), "shape_clash", "the extent 4 of axis 1 is not a multiple"),
    (lambda: tw.split(X, [2, 2], 1), "bad_extent", "selects nothing"),
    (lambda: tw.pad(X, -1), "bad_shape", "a width >= 0"),
    (lambda: tw.pad(X, ((1, 1),) * 3), "bad_shape", "each of 2 dimensions"),
    (lambda: tw.pad(X, 1, value=X[0, 0]), "bad_constant", "a number, got a f32 value"),
    (lambda: tw.const(X[0, 0]), "bad_constant", "a number, got a f32 value"),
    (lambda: tw.pad(X, 1, mode="wrap"), "bad_node", '"constant", "edge" and "reflect"'),
    (lambda: tw.roll(X, (1, 2), 0), "bad_shape", "1 axes, 2 shifts"),
    (lambda: tw.tile(X, 0), "bad_extent", ">= 1"),
    (lambda: tw.flip(X, 5), "unknown_axis", "flip"),
    (lambda: tw.flip(3), "bad_node", "the argument of flip"),  # type: ignore[arg-type]
    (lambda: tw.one_hot(X, 3), "bad_dtype", "needs integers"),
    (lambda: tw.one_hot(I8, 0), "bad_extent", "1.."),
    (lambda: tw.tile(X, (1,) * 9), "bad_shape", r"0\.\.8 dimensions"),
    (lambda: X.T.named("a b"), "bad_name", "the name of a tensor"),
    (lambda: tw.compute("Y", (3,), lambda i: X), "bad_node", "X is a tensor; index it"),
    (lambda: tw.compute("Y", (3,), lambda i: X.T), "bad_node", "is an array; index it"),
    (lambda: Workload.of(X), "unknown_tensor", "output 'X' is an input"),
    (lambda: Workload.of(X + tw.placeholder("X", (4,))), "duplicate", "two tensors are named 'X'"),
    (lambda: Workload.of((X + 1).named("X")), "duplicate", "two tensors are named 'X'"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_mistakes_are_named_where_they_are_made(case: int) -> None:
    build, code, message = REFUSED[case]
    with pytest.raises(WorkloadError, match=message) as caught:
        build()
    assert caught.value.code == code


def test_arrays_of_numpy_are_refused() -> None:
    with pytest.raises(WorkloadError, match="got ndarray"):
        _ = X + np.ones((3, 4), np.float32)
    with pytest.raises(WorkloadError, match="got ndarray"):
        _ = np.ones((3, 4), np.float32) + X


def test_arrays_are_not_iterated_and_say_what_they_are() -> None:
    with pytest.raises(TypeError, match="cannot be iterated; index it or use split"):
        list(X + 1)
    assert repr(X) == "<tensor X: f32[3, 4]>"
    assert repr(X.T) == "<array f32[4, 3]>"
    assert repr(X > 0) == "<mask [3, 4]>"
    assert (X > 0).shape == (3, 4)
    assert X.T.ndim == 2
