"""Counts that follow from a few knobs: asked for once for settings that agree in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from schedules.arrays import FloatArray, IntArray

Values = dict[str, IntArray]
"""Of each knob, (P,)."""

Shared = tuple[float, float]
"""Iterations of the parallel loop, a shorter one as a part; and parallel regions."""

ALONE: Shared = (1.0, 0.0)


def each_setting(
    v: Values, names: tuple[str, ...], count: Callable[..., tuple[float, ...]]
) -> list[FloatArray]:
    """(P,) each value of `count` for the knobs `names` of each setting."""
    rows = np.stack([v[name] for name in names], axis=1)
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    found = np.asarray([count(*row) for row in distinct.tolist()], np.float64)
    return [column[places.reshape(-1)] for column in found.T]
