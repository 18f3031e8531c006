"""Windows of arrays against NumPy's, and convolutions and pooling by them against the library's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.schedules import (
    Workload,
    WorkloadError,
    einsum,
    exp,
    operators,
    pad,
    placeholder,
    windows,
)
from tilewright.schedules.reference.evaluate import evaluate

Array = npt.NDArray[Any]
NOT_A_NUMBER: Any = "a"


def numpy_windows(
    x: Array, taps: tuple[int, ...], axes: tuple[int, ...], stride: int, dilation: int
) -> Array:
    spans = tuple(dilation * (t - 1) + 1 for t in taps)
    found = np.lib.stride_tricks.sliding_window_view(x, spans, axes)
    starts = [slice(None)] * x.ndim
    for axis in axes:
        starts[axis] = slice(None, None, stride)
    return found[(*starts, *(slice(None, None, dilation) for _ in axes))]


@given(st.data())
def test_windows_are_those_of_numpy(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple))
    axes = data.draw(
        st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3, unique=True).map(tuple)
    )
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    taps = tuple(data.draw(st.integers(1, (shape[a] - 1) // dilation + 1)) for a in axes)
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    wanted = numpy_windows(values, taps, axes, stride, dilation)
    found = windows(placeholder("x", shape, "f64"), taps, axes, stride=stride, dilation=dilation)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(evaluate(Workload.of(found), [values])[0], wanted)


def test_the_last_axes_are_the_default() -> None:
    x = placeholder("x", (2, 7, 8), "f64")
    values = np.arange(112.0).reshape(2, 7, 8)
    for size, axes in ((3, (2,)), ((3, 2), (1, 2))):
        taps = (size,) if isinstance(size, int) else size
        wanted = numpy_windows(values, taps, axes, 1, 1)
        np.testing.assert_array_equal(evaluate(Workload.of(windows(x, size)), [values])[0], wanted)


def test_sums_of_windows_have_the_keys_of_convolutions() -> None:
    x, w = placeholder("x", (2, 4, 9, 8)), placeholder("w", (6, 4, 3, 3))
    inside = pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    y = einsum("nchwrs,ocrs->nohw", windows(inside, (3, 3), stride=2, dilation=2), w)
    sizes = {"N": 2, "H": 9, "W": 8}
    conv = operators.conv2d_nchw(**sizes, CI=4, CO=6, K=3, pad=2, stride=2, dilation=2)
    assert Workload.of(y, inputs=[x, w]).key == conv.key
    pooled = windows(x, (3, 2), stride=(2, 1)).max((-2, -1))
    pool = operators.max_pool2d_nchw(**sizes, C=4, KH=3, KW=2, stride_h=2, stride_w=1)
    assert Workload.of(pooled).key == pool.key
    mean = operators.avg_pool2d_nchw(**sizes, C=4, K=2, stride=2)
    assert Workload.of(windows(x, (2, 2), stride=2).mean((-2, -1))).key == mean.key


def test_what_overlapping_windows_read_is_computed_once() -> None:
    x = placeholder("x", (4, 16))
    assert len(Workload.of(windows(exp(x), 3).max(-1)).stages) == 2
    assert len(Workload.of(windows(exp(x), 4, stride=4).max(-1)).stages) == 1


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x: windows(x, 9), "9 taps spans 9 elements, more than the extent 8 of dimension 1"),
        (lambda x: windows(x, 3, 0, dilation=3), "3 taps spans 7 elements"),
        (lambda x: windows(x, 0), "a number of taps, a stride and a dilation >= 1"),
        (lambda x: windows(x, ()), "a number of taps, a stride and a dilation >= 1"),
        (lambda x: windows(x, 2, stride=0), "stride 0"),
        (lambda x: windows(x, 2, stride=(1, 1)), r"each of 1 axes; got size 2, stride \(1, 1\)"),
        (lambda x: windows(x, (2, 2), 0), "each of 1 axes"),
        (lambda x: windows(x, (2, 2, 2)), "axes are -2..1, got -3"),
        (lambda x: windows(x, 2, 5), "axes are -2..1, got 5"),
        (lambda x: windows(x, NOT_A_NUMBER), "windows takes a number of taps"),
        (lambda x: windows(x, 2, dilation=NOT_A_NUMBER), "one stride and one dilation >= 1"),
    ],
)
def test_mistakes_are_explained(build: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        build(placeholder("x", (6, 8)))
