"""Values for tests of positions of extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}


def drawn(dtype: str, rows: int = 60, columns: int = 7) -> Array:
    """Many equals, and of floats, rows of infinities and NaN."""
    rng = np.random.default_rng(0)
    values = rng.integers(-2, 3, (rows, columns)).astype(DTYPES[dtype])
    if dtype.startswith("f"):
        values[rng.random(values.shape) < 0.1] = np.nan
        values[rng.random(values.shape) < 0.2] = -np.inf
        values[:4] = np.asarray([[-np.inf], [np.inf], [np.nan], [0.0]])
    else:
        values[0] = np.iinfo(values.dtype).min
        values[1] = np.iinfo(values.dtype).max
    return values
