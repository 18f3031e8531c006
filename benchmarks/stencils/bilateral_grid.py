"""The bilateral grid: a smoothing filter that preserves edges.

Blocks of 8 by 8 pixels vote into a grid with brightness as its third axis. The grid is blurred
along its three axes. Each pixel of the result is interpolated in the grid at its place and
brightness.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw

BLOCK = 8
"""Rows and columns of pixels of one block."""

LEVELS = 10
"""Steps of brightness from 0 to 1."""

SLOTS = LEVELS + 6
"""Positions of the grid along brightness: those of 0 to 1, one more for the interpolation, and two
on either side for the blur."""

REACH = 2
"""Blocks on either side that the blur reads."""

HALO = 2 * (REACH * BLOCK + BLOCK // 2)
"""Rows and columns by which the image exceeds the result."""

TAPS = (1.0, 4.0, 6.0, 4.0, 1.0)


def build(image: Any, rows: int, columns: int) -> Any:
    """Return the result of so many rows and columns."""
    slots = tw.compute("slots", image.shape, lambda y, x: _slot(image[y, x]))
    weights, values = (_blurred(image, slots, rows, columns, name) for name in ("weight", "value"))

    def value(y: Any, x: Any) -> Any:
        at = _brightness(image[y + HALO // 2, x + HALO // 2])
        return _interpolated(values, at, y, x) / _interpolated(weights, at, y, x)

    return tw.compute("out", (rows, columns), value)


def _blurred(image: Any, slots: Any, rows: int, columns: int, name: str) -> Any:
    """Return the blurred grid of the sums of pixels, or of their numbers."""
    down, across = rows // BLOCK + 1, columns // BLOCK + 1
    r, s = tw.reduce_axis(BLOCK, "r"), tw.reduce_axis(BLOCK, "s")

    def vote(y: Any, x: Any, z: Any) -> Any:
        at = _brightness(image[y * BLOCK + r, x * BLOCK + s])
        slot = slots[y * BLOCK + r, x * BLOCK + s]
        return tw.sum(tw.select(tw.eq(slot, z), at if name == "value" else 1.0, 0.0), axis=(r, s))

    blocks = (down + 2 * REACH, across + 2 * REACH)
    grid = tw.compute(f"{name}_grid", (*blocks, SLOTS), vote)
    along_z = tw.compute(
        f"{name}_z",
        (*blocks, SLOTS - 2 * REACH),
        lambda y, x, z: _smooth([grid[y, x, z + d] for d in range(5)]),
    )
    along_x = tw.compute(
        f"{name}_x",
        (blocks[0], across, SLOTS - 2 * REACH),
        lambda y, x, z: _smooth([along_z[y, x + d, z] for d in range(5)]),
    )
    return tw.compute(
        f"{name}_y",
        (down, across, SLOTS - 2 * REACH),
        lambda y, x, z: _smooth([along_x[y + d, x, z] for d in range(5)]),
    )


def _slot(at: Any) -> Any:
    return tw.cast(_brightness(at) * float(LEVELS) + 0.5, "i32") + REACH


def _brightness(at: Any) -> Any:
    return tw.minimum(tw.maximum(at, 0.0), 1.0)


def _smooth(at: Any) -> Any:
    return at[0] + at[4] + (at[1] + at[3]) * 4.0 + at[2] * 6.0


def _interpolated(grid: Any, at: Any, y: Any, x: Any) -> Any:
    """Return the value of `grid` between its eight elements around a pixel of brightness `at`."""
    place = at * float(LEVELS)
    low = tw.cast(place, "i32")
    down, across = ((tw.cast(i % BLOCK, "f32")) * (1 / BLOCK) for i in (y, x))

    def plane(z: Any) -> Any:
        first, second = (
            _between(
                grid[y // BLOCK + d, x // BLOCK, tw.clamp(z)],
                grid[y // BLOCK + d, x // BLOCK + 1, tw.clamp(z)],
                across,
            )
            for d in range(2)
        )
        return _between(first, second, down)

    return _between(plane(low), plane(low + 1), place - tw.cast(low, "f32"))


def _between(a: Any, b: Any, share: Any) -> Any:
    return a + (b - a) * share


def expected(image: Any) -> Any:
    """Return the result in f64, by slices of NumPy. Places in the grid are those of f32."""
    rows, columns = (n - HALO for n in image.shape)
    blocks = tuple(n // BLOCK for n in image.shape)
    slots = (image * np.float32(LEVELS) + np.float32(0.5)).astype(np.int64) + REACH
    y, x = np.ogrid[: image.shape[0], : image.shape[1]]
    grids = []
    for votes in (image.astype(np.float64), np.ones(image.shape)):
        grid = np.zeros((*blocks, SLOTS))
        np.add.at(grid, (y // BLOCK, x // BLOCK, slots), votes)
        for axis in (2, 1, 0):
            count = grid.shape[axis] - 2 * REACH
            parts = (np.take(grid, np.arange(count) + d, axis) * TAPS[d] for d in range(5))
            grid = sum(parts, np.zeros(()))
        grids.append(grid)
    at = image[HALO // 2 :, HALO // 2 :][:rows, :columns] * np.float32(LEVELS)
    low, (y, x) = at.astype(np.int64), np.ogrid[:rows, :columns]
    total = [np.zeros((rows, columns)) for _ in grids]
    for corner in np.ndindex(2, 2, 2):
        shares = (y % BLOCK / BLOCK, x % BLOCK / BLOCK, at - low)
        weight = np.ones(())
        for share, end in zip(shares, corner, strict=True):
            weight = weight * (share if end else 1 - share)
        place = (y // BLOCK + corner[0], x // BLOCK + corner[1], low + corner[2])
        total = [have + weight * grid[place] for have, grid in zip(total, grids, strict=True)]
    return total[0] / total[1]
