"""Repeated and interpolated arrays against a plain formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.schedules import Workload, WorkloadError, placeholder, repeat, resize
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.tuner import compile as compile_to_call
from tilewright.tuner.machine.native_target import native_target

Array = npt.NDArray[Any]


def value_of(array: Any, *inputs: Array) -> Array:
    (found,) = evaluate(Workload.of(array), list(inputs))
    return found


NOT_A_NAME: Any = ["linear"]


def linear(values: Array, extent: int, axis: int) -> Array:
    """`values` interpolated along `axis`; np.interp continues with the first and last value."""
    old = values.shape[axis]
    if old == extent:
        return values
    centres = (np.arange(extent) + 0.5) * old / extent - 0.5
    return np.apply_along_axis(lambda row: np.interp(centres, np.arange(old), row), axis, values)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 17), st.integers(1, 17))
def test_images_of_every_size_are_interpolated(h: int, w: int, new_h: int, new_w: int) -> None:
    x = placeholder("x", (2, h, w), "f64")
    values = np.random.default_rng(0).normal(size=(2, h, w))
    found = value_of(resize(x, (new_h, new_w), mode="linear"), values)
    np.testing.assert_allclose(found, linear(linear(values, new_h, 1), new_w, 2), atol=1e-12)
    rows, columns = np.arange(new_h) * h // new_h, np.arange(new_w) * w // new_w
    found = value_of(resize(x, (new_h, new_w)), values)
    np.testing.assert_array_equal(found, values[:, rows][:, :, columns])


def test_linear_modes_have_the_names_that_others_use() -> None:
    image, volume = placeholder("x", (2, 6, 8)), placeholder("x", (3, 4, 5))
    plain = Workload.of(resize(image, (9, 4), mode="linear"))
    assert Workload.of(resize(image, (9, 4), mode="bilinear")).key == plain.key
    deep = Workload.of(resize(volume, (5, 8, 3), axes=(0, 1, 2), mode="linear"))
    named = resize(volume, (5, 8, 3), axes=(0, 1, 2), mode="trilinear")
    assert Workload.of(named).key == deep.key


@given(st.integers(1, 4), st.integers(-2, 1))
def test_repeat_is_that_of_numpy(count: int, axis: int) -> None:
    x = placeholder("x", (3, 5), "i32")
    values = np.arange(15, dtype=np.int32).reshape(3, 5)
    np.testing.assert_array_equal(
        value_of(repeat(x, count, axis), values), np.repeat(values, count, axis)
    )


def test_a_kernel_interpolates_and_one_axis_may_be_chosen() -> None:
    x = placeholder("x", (7, 5, 3))
    workload = Workload.of(resize(x, 12, axes=1, mode="linear") * 2.0)
    values = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(np.float32)
    out = np.empty((7, 12, 3), np.float32)
    compile_to_call(workload, target=native_target(threads=1))(values, out=out)
    np.testing.assert_allclose(out, 2 * linear(values, 12, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x: resize(x, (3, 4, 5)), "an extent >= 1 for each of 2 axes"),
        (lambda x: resize(x, (0, 4)), "an extent >= 1"),
        (lambda x: resize(x, (3, 4), mode="cubic"), 'the modes are "nearest" and "linear"'),
        (lambda x: resize(x, (3, 4), mode=NOT_A_NAME), 'the modes are "nearest" and "linear"'),
        (lambda x: resize(x, (3, 4), mode="trilinear"), "'trilinear' is for 3 axes, got 2"),
        (lambda x: resize(x.astype("i32"), (3, 4), mode="linear"), "astype"),
        (lambda x: repeat(x, 0, 1), "repeats >= 1"),
        (lambda x: repeat(x, 2, 5), "axes are -2..1"),
    ],
)
def test_mistakes_are_explained(build: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        build(placeholder("x", (6, 8)))
