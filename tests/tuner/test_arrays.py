from __future__ import annotations

import numpy as np
import pytest

from tilewright import tuner


@pytest.mark.parametrize("shape", [(), 5, (3, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_empty_arrays_begin_at_a_line(shape: int | tuple[int, ...], dtype: type) -> None:
    for _ in range(5):
        made = tuner.empty(shape, dtype)
        assert made.shape == np.empty(shape).shape
        assert made.dtype == dtype
        assert made.ctypes.data % 64 == 0
        assert made.flags.c_contiguous
        assert made.flags.writeable


def test_aligned_copies_only_what_is_not() -> None:
    at_a_line = tuner.empty((4, 5))
    assert tuner.aligned(at_a_line) is at_a_line
    behind = tuner.empty(33)[1:].reshape(4, 8)
    behind[...] = np.arange(32).reshape(4, 8)
    copy = tuner.aligned(behind)
    assert copy.ctypes.data % 64 == 0
    np.testing.assert_array_equal(copy, behind)
    turned = tuner.aligned(behind.T)
    assert turned.flags.c_contiguous
    np.testing.assert_array_equal(turned, behind.T)


@pytest.mark.parametrize("shape", [-1, (-1, 2), (-2, -3)])
def test_no_dimension_is_negative(shape: int | tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        tuner.empty(shape)
