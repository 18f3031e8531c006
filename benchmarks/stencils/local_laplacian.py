"""Local Laplacian filters: details of an image are enhanced without halos around edges.

The image is remapped around several intensities, and each result is divided into a pyramid of
levels of detail. The pyramid of the result interpolates between those of the two intensities next
to each pixel, and is then summed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw

LEVELS = 4
"""Levels of the pyramids, each with half as many rows and columns as the one before."""

INTENSITIES = 8
STRENGTH = 1 / (INTENSITIES - 1)
"""The factor of details that are added."""

HALO = 44
"""Rows and columns by which the image exceeds the result. The first level of the result begins at
row 21 of the image, the others begin at `OFFSETS`."""

OFFSETS = (21, 9, 3, 0)

Element = Callable[[Any, Any, Any], Any]
"""The element of a level at an intensity, a row and a column."""


def build(image: Any, rows: int, columns: int) -> Any:
    """Return the result of so many rows and columns."""
    sizes = pyramid_sizes(rows + HALO, columns + HALO)
    around: list[Element] = [lambda k, y, x: remapped(image[y, x], tw.cast(k, "f32"))]
    given: list[Any] = [image]
    finest = tw.compute("g0", (INTENSITIES, *sizes[0]), around[0])
    before: Element = lambda k, y, x: finest[k, y, x]  # noqa: E731
    for level, size in enumerate(sizes[1:], start=1):
        before = _halved_all(before, size, f"g{level}")
        around.append(before)
        given.append(_halved(given[-1], size, f"i{level}"))
    result: Any = None
    for level in reversed(range(LEVELS)):
        shape = result_sizes(rows, columns)[level]
        result = _level(level, shape, around, given, result)
    return result


def pyramid_sizes(rows: int, columns: int) -> list[tuple[int, int]]:
    """Return the rows and columns of each level of the pyramid of an image."""
    found = [(rows, columns)]
    for _ in range(1, LEVELS):
        found.append((found[-1][0] // 2 - 1, found[-1][1] // 2 - 1))
    return found


def result_sizes(rows: int, columns: int) -> list[tuple[int, int]]:
    """Return the rows and columns of each level of the result."""
    found = [(rows, columns)]
    for _ in range(1, LEVELS):
        found.append((found[-1][0] // 2 + 2, found[-1][1] // 2 + 2))
    return found


def remapped(at: Any, k: Any) -> Any:
    """Return a value with its details around intensity number `k` enhanced."""
    apart = at * float(INTENSITIES - 1) - k
    return at + apart * tw.exp(apart * apart * -0.5) * STRENGTH


def _weighted(at: Callable[[int], Any]) -> Any:
    return (at(0) + at(3) + (at(1) + at(2)) * 3.0) * 0.125


def _halved_all(before: Element, size: tuple[int, int], name: str) -> Element:
    rows, columns = size
    down = tw.compute(
        f"{name}_down",
        (INTENSITIES, rows, 2 * columns + 2),
        lambda k, y, x: _weighted(lambda d: before(k, 2 * y + d, x)),
    )
    found = tw.compute(
        name,
        (INTENSITIES, rows, columns),
        lambda k, y, x: _weighted(lambda d: down[k, y, 2 * x + d]),
    )
    return lambda k, y, x: found[k, y, x]


def _halved(before: Any, size: tuple[int, int], name: str) -> Any:
    rows, columns = size
    down = tw.compute(
        f"{name}_down",
        (rows, 2 * columns + 2),
        lambda y, x: _weighted(lambda d: before[2 * y + d, x]),
    )
    return tw.compute(name, (rows, columns), lambda y, x: _weighted(lambda d: down[y, 2 * x + d]))


def _doubled(f: Callable[[Any, Any], Any], y: Any, x: Any) -> Any:
    """Return the element at twice the resolution."""

    def across(row: Any) -> Any:
        return f(row, x // 2 + 2 * (x % 2)) * 0.25 + f(row, x // 2 + 1) * 0.75

    return across(y // 2 + 2 * (y % 2)) * 0.25 + across(y // 2 + 1) * 0.75


def _level(
    level: int, shape: tuple[int, int], around: list[Element], given: list[Any], coarser: Any
) -> Any:
    """Return a level of the result: its details, added to the coarser levels."""
    own = OFFSETS[level]

    def details(k: Any, y: Any, x: Any) -> Any:
        found = around[level](tw.clamp(k) if level else k, y + own, x + own)
        if level == LEVELS - 1:
            return found
        up = own - 3
        next_level = around[level + 1]
        return found - _doubled(lambda r, c: next_level(tw.clamp(k), r, c), y + up, x + up)

    def value(y: Any, x: Any) -> Any:
        place = given[level][y + own, x + own] * float(INTENSITIES - 1)
        low = tw.minimum(tw.maximum(tw.cast(place, "i32"), 0), INTENSITIES - 2)
        share = place - tw.cast(low, "f32")
        first, second = (details(low + n, y, x) for n in range(2))
        found = first * (1.0 - share) + second * share
        if coarser is None:
            return found
        return _doubled(lambda r, c: coarser[r, c], y, x) + found

    return tw.compute(f"out{level}" if level else "out", shape, value)


def expected(image: Any) -> Any:
    """Return the result in f64, by slices of NumPy. Intensities are selected as in f32."""
    given = [image.astype(np.float64)]
    k = np.arange(float(INTENSITIES))[:, None, None]
    around = [remapped_exactly(given[0], k)]
    for _ in range(1, LEVELS):
        given.append(_half(given[-1]))
        around.append(_half(around[-1]))
    result = around[-1][:0]
    for level in reversed(range(LEVELS)):
        details = around[level]
        if level < LEVELS - 1:
            details = details[:, 3:, 3:]
            up = _double(around[level + 1])
            details = details[:, : up.shape[1], : up.shape[2]] - up
        own = OFFSETS[level]
        rows, columns = result_sizes(image.shape[0] - HALO, image.shape[1] - HALO)[level]
        start = own - 3 if level < LEVELS - 1 else 0
        details = details[:, start:, start:][:, :rows, :columns]
        place = given[level][own:, own:][:rows, :columns] * (INTENSITIES - 1)
        low = np.clip(place.astype(np.int64), 0, INTENSITIES - 2)
        first, second = (np.take_along_axis(details, (low + n)[None], 0)[0] for n in range(2))
        found = first + (second - first) * (place - low)
        result = found if level == LEVELS - 1 else found + _double(result)
    return result


def remapped_exactly(at: Any, k: Any) -> Any:
    apart = at * (INTENSITIES - 1) - k
    return at + apart * np.exp(apart * apart * -0.5) * STRENGTH


def _half(f: Any) -> Any:
    rows, columns = f.shape[-2] // 2 - 1, f.shape[-1] // 2 - 1
    down = _weighted(lambda d: f[..., d : d + 2 * rows : 2, :])
    return _weighted(lambda d: down[..., d : d + 2 * columns : 2])


def _double(f: Any) -> Any:
    for _ in range(2):
        f = np.swapaxes(f, -1, -2)
        first = f[..., :-2] * 0.25 + f[..., 1:-1] * 0.75
        second = f[..., 1:-1] * 0.75 + f[..., 2:] * 0.25
        f = np.stack([first, second], -1).reshape(*f.shape[:-1], -1)
    return f
