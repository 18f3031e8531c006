"""The image pipelines in Tilewright, and their results in f64 by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw

from . import bilateral_grid, local_laplacian

ROWS, COLUMNS = 1536, 2560

Read = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`halo` is the number of rows and columns by which the image exceeds the result."""

    name: str
    halo: int
    build: Callable[[Any, int, int], Any]
    """`build(image, rows, columns)` returns the result of so many rows and columns."""

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The shapes of the image and of the result."""
        return (ROWS, COLUMNS), (ROWS - self.halo, COLUMNS - self.halo)


def _blur(image: Any, rows: int, columns: int) -> Any:
    across = tw.compute(
        "across",
        (rows + 2, columns),
        lambda y, x: (image[y, x] + image[y, x + 1] + image[y, x + 2]) * (1 / 3),
    )
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: (across[y, x] + across[y + 1, x] + across[y + 2, x]) * (1 / 3),
    )


def _unsharp(image: Any, rows: int, columns: int) -> Any:
    down = tw.compute(
        "down", (rows, columns + 6), lambda y, x: _gaussian(lambda d: image[y + d, x])
    )
    across = tw.compute("across", (rows, columns), lambda y, x: _gaussian(lambda d: down[y, x + d]))
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: image[y + 3, x + 3] * 2.5 - across[y, x] * 1.5,
    )


def _gaussian(at: Read) -> Any:
    pairs = (at(2) + at(4)) * 0.1907 + (at(1) + at(5)) * 0.1311
    return at(3) * 0.2161 + pairs + (at(0) + at(6)) * 0.0702


def _right(f: Any, y: Any, x: Any) -> Any:
    first = (f[y, x + 2] - f[y, x]) + 2.0 * (f[y + 1, x + 2] - f[y + 1, x])
    return first + (f[y + 2, x + 2] - f[y + 2, x])


def _down(f: Any, y: Any, x: Any) -> Any:
    first = (f[y + 2, x] - f[y, x]) + 2.0 * (f[y + 2, x + 1] - f[y, x + 1])
    return first + (f[y + 2, x + 2] - f[y, x + 2])


def _sobel(image: Any, rows: int, columns: int) -> Any:
    right = tw.compute("right", (rows, columns), lambda y, x: _right(image, y, x))
    down = tw.compute("down", (rows, columns), lambda y, x: _down(image, y, x))
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: tw.sqrt(right[y, x] * right[y, x] + down[y, x] * down[y, x]),
    )


def _harris(image: Any, rows: int, columns: int) -> Any:
    wide = (rows + 2, columns + 2)
    right = tw.compute("right", wide, lambda y, x: _right(image, y, x) * (1 / 12))
    down = tw.compute("down", wide, lambda y, x: _down(image, y, x) * (1 / 12))
    pairs = {"xx": (right, right), "yy": (down, down), "xy": (right, down)}
    products = {
        name: tw.compute(name, wide, lambda y, x, a=a, b=b: a[y, x] * b[y, x])
        for name, (a, b) in pairs.items()
    }
    xx, yy, xy = (
        tw.compute(f"sum_{name}", (rows, columns), lambda y, x, f=f: _box(f, y, x))
        for name, f in products.items()
    )
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: (
            xx[y, x] * yy[y, x]
            - xy[y, x] * xy[y, x]
            - 0.04 * (xx[y, x] + yy[y, x]) * (xx[y, x] + yy[y, x])
        ),
    )


def _box(f: Any, y: Any, x: Any) -> Any:
    rows = [f[y + d, x] + f[y + d, x + 1] + f[y + d, x + 2] for d in range(3)]
    return rows[0] + rows[1] + rows[2]


PIPELINES = (
    Pipeline("blur", 2, _blur),
    Pipeline("unsharp", 6, _unsharp),
    Pipeline("sobel", 2, _sobel),
    Pipeline("harris", 4, _harris),
    Pipeline("bilateral_grid", bilateral_grid.HALO, bilateral_grid.build),
    Pipeline("local_laplacian", local_laplacian.HALO, local_laplacian.build),
)


def expected(name: str, image: Any) -> Any:
    """Return the result in f64, by slices of NumPy."""
    if name == "bilateral_grid":
        return bilateral_grid.expected(image)
    if name == "local_laplacian":
        return local_laplacian.expected(image)
    f = image.astype(np.float64)
    if name == "blur":
        across = (f[:, :-2] + f[:, 1:-1] + f[:, 2:]) / 3
        return (across[:-2] + across[1:-1] + across[2:]) / 3
    if name == "unsharp":
        rows, columns = f.shape[0] - 6, f.shape[1] - 6
        down = _gaussian(lambda d: f[d : d + rows])
        across = _gaussian(lambda d: down[:, d : d + columns])
        return f[3:-3, 3:-3] * 2.5 - across * 1.5
    top, middle, bottom = f[:-2], f[1:-1], f[2:]
    down = (bottom - top)[:, :-2] + 2 * (bottom - top)[:, 1:-1] + (bottom - top)[:, 2:]
    column = top + 2 * middle + bottom
    right = column[:, 2:] - column[:, :-2]
    if name == "sobel":
        return np.sqrt(right * right + down * down)
    xx, yy, xy = (_boxes(a * b) / 144 for a, b in ((right, right), (down, down), (right, down)))
    return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2


def _boxes(f: Any) -> Any:
    across = f[:, :-2] + f[:, 1:-1] + f[:, 2:]
    return across[:-2] + across[1:-1] + across[2:]
