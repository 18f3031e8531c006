"""The bilateral grid and local Laplacian filters in Halide, with schedules written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import halide as hl  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import bilateral_grid as grid
from . import local_laplacian as laplacian

Func = Any
Apply = Callable[[Func, dict[str, Func]], None]
Schedules = Iterator[tuple[str, Apply]]

X, Y, Z, C, K = (hl.Var(name) for name in ("x", "y", "z", "c", "k"))
SHIFT = hl.TailStrategy.ShiftInwards


def _f32(value: float) -> Any:
    return hl.f32(value)


def bilateral_grid(image: Any) -> tuple[Func, dict[str, Func]]:
    """Votes and their sums are two channels of one grid."""
    f = {name: hl.Func(name) for name in ("slots", "grid", "z", "x", "y")}
    r = hl.RDom([(0, grid.BLOCK), (0, grid.BLOCK)])
    pixel = hl.clamp(image[X, Y], _f32(0), _f32(1))
    f["slots"][X, Y] = hl.cast(hl.Int(32), pixel * _f32(grid.LEVELS) + _f32(0.5))
    place = X * grid.BLOCK + r.x, Y * grid.BLOCK + r.y
    at, slot = hl.clamp(image[place], _f32(0), _f32(1)), f["slots"][place]
    f["grid"][X, Y, Z, C] = _f32(0)
    f["grid"][X, Y, hl.clamp(slot, 0, grid.LEVELS), C] += hl.mux(C, [at, _f32(1)])
    f["z"][X, Y, Z, C] = _smooth([f["grid"][X, Y, Z + d - 2, C] for d in range(5)])
    f["x"][X, Y, Z, C] = _smooth([f["z"][X + d, Y, Z, C] for d in range(5)])
    f["y"][X, Y, Z, C] = _smooth([f["x"][X, Y + d, Z, C] for d in range(5)])
    half, block = grid.HALO // 2, grid.BLOCK
    place = hl.clamp(image[X + half, Y + half], _f32(0), _f32(1)) * _f32(grid.LEVELS)
    low = hl.clamp(hl.cast(hl.Int(32), place), 0, grid.LEVELS)
    shares = [hl.cast(hl.Float(32), i % block) * _f32(1 / block) for i in (X, Y)]
    shares.append(place - hl.cast(hl.Float(32), low))

    def between(axis: int, corner: tuple[int, ...], channel: int) -> Any:
        if axis < 0:
            dx, dy, dz = corner
            return f["y"][X // block + dx, Y // block + dy, low + dz, channel]
        a, b = (between(axis - 1, (end, *corner), channel) for end in (0, 1))
        return a + (b - a) * shares[axis]

    out = hl.Func("out")
    out[X, Y] = between(2, (), 0) / between(2, (), 1)
    return out, f


def _smooth(at: list[Any]) -> Any:
    return at[0] + at[4] + (at[1] + at[3]) * _f32(4) + at[2] * _f32(6)


@dataclass(frozen=True, slots=True)
class GridSchedule:
    lanes: int
    rows: int
    """Rows of the result per task."""
    is_grouped: bool
    """Whether the channels and the brightness are the innermost dimensions in memory."""
    fuses_blurs: bool
    """Whether the blurs along rows and columns are computed row by row."""
    stores_slots: bool
    """Whether the places of votes are computed in vectors, and stored."""

    def __call__(self, out: Func, f: dict[str, Func]) -> None:
        task = hl.Var("task")
        f["z"].compute_root().reorder(C, Z, X, Y).parallel(Y).vectorize(X, self.lanes).unroll(C)
        f["grid"].compute_at(f["z"], Y)
        if self.stores_slots:
            f["slots"].compute_at(f["z"], Y).vectorize(X, self.lanes)
        f["grid"].update().reorder(C, *self._taps(f["grid"]), X, Y).unroll(C)
        if self.fuses_blurs:
            f["y"].compute_root().reorder(X, Z, C, Y).parallel(Y).vectorize(X, self.lanes)
            f["x"].compute_root().reorder(X, Z, C, Y).parallel(Y).vectorize(X, self.lanes)
        else:
            for name in ("x", "y"):
                one = f[name].compute_root().reorder(C, X, Y, Z).parallel(Z)
                one.vectorize(X, self.lanes).unroll(C)
        if self.is_grouped:
            f["y"].reorder_storage(Z, C, X, Y)
        out.split(Y, task, Y, self.rows, SHIFT).parallel(task).vectorize(X, self.lanes, SHIFT)

    @staticmethod
    def _taps(histogram: Func) -> list[Any]:
        r = histogram.rvars(0)
        return [r[0], r[1]]


def grid_schedules(lanes: int) -> Schedules:
    flags = product((False, True), repeat=3)
    for (wide, rows), chosen in product(product((8, lanes), (8, 32)), flags):
        grouped, fused, slots = chosen
        name = f"{wide} lanes, {rows} rows, {grouped=}, {fused=}, {slots=}"
        yield name, GridSchedule(wide, rows, grouped, fused, slots)


def local_laplacian(image: Any) -> tuple[Func, dict[str, Func]]:
    """`g1` to `g3` are the pyramid at all intensities, `i1` to `i3` that of the image, and `out1`
    to `out3` that of the result. Their intermediate functions end with `_down`."""
    f: dict[str, Func] = {}

    def named(name: str) -> Func:
        f[name] = hl.Func(name)
        return f[name]

    steps = _f32(laplacian.INTENSITIES - 1)
    around, given = [named("g0")], [named("i0")]
    given[0][X, Y] = image[X, Y]
    apart = image[X, Y] * steps - hl.cast(hl.Float(32), K)
    curve = apart * hl.exp(apart * apart * _f32(-0.5))
    finest = named("finest")
    for one in (around[0], finest):  # one is read at data, the other one at all intensities
        one[X, Y, K] = image[X, Y] + curve * _f32(laplacian.STRENGTH)
    for level in range(1, laplacian.LEVELS):
        for pyramid, other in ((around, (K,)), (given, ())):
            kind = "g" if other else "i"
            before = finest if other and level == 1 else pyramid[-1]
            down, pair = named(f"{kind}{level}_down"), named(f"{kind}{level}")
            down[(X, Y, *other)] = _weighted([before[(X, 2 * Y + d, *other)] for d in range(4)])
            pair[(X, Y, *other)] = _weighted([down[(2 * X + d, Y, *other)] for d in range(4)])
            pyramid.append(pair)
    coarser: Func = None
    for level in reversed(range(laplacian.LEVELS)):
        out = named(f"out{level}")
        _level(out, level, around, given, coarser)
        coarser = out
    return f.pop("out0"), f


def _level(out: Func, level: int, around: list[Func], given: list[Func], coarser: Func) -> None:
    own, steps = laplacian.OFFSETS[level], laplacian.INTENSITIES - 1
    place = given[level][X + own, Y + own] * _f32(steps)
    low = hl.clamp(hl.cast(hl.Int(32), place), 0, steps - 1)
    share = place - hl.cast(hl.Float(32), low)

    def details(k: Any) -> Any:
        found = around[level][X + own, Y + own, k]
        if coarser is None:
            return found
        return found - _doubled(lambda x, y: around[level + 1][x, y, k], X + own - 3, Y + own - 3)

    found = details(low) * (_f32(1) - share) + details(low + 1) * share
    out[X, Y] = found if coarser is None else _doubled(lambda x, y: coarser[x, y], X, Y) + found


def _weighted(at: list[Any]) -> Any:
    return (at[0] + at[3] + (at[1] + at[2]) * _f32(3)) * _f32(0.125)


def _doubled(f: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    def across(row: Any) -> Any:
        return f(x // 2 + 2 * (x % 2), row) * _f32(0.25) + f(x // 2 + 1, row) * _f32(0.75)

    return across(y // 2 + 2 * (y % 2)) * _f32(0.25) + across(y // 2 + 1) * _f32(0.75)


@dataclass(frozen=True, slots=True)
class PyramidSchedule:
    lanes: int
    rows: int
    """Rows of the result per task."""
    is_grouped: bool
    """Whether rows of all intensities are next to each other in memory."""
    stores_down: bool
    """Whether sums along columns are stored, a row at a time."""
    slides: bool
    """Whether the finer levels of the result are computed row by row in a strip of the result."""
    stores_finest: bool
    """Whether rows of the remapped image are stored, so that each is computed once in a strip."""

    def __call__(self, out: Func, f: dict[str, Func]) -> None:
        task, strip = hl.Var("task"), hl.Var("strip")
        out.split(Y, task, Y, self.rows, SHIFT).parallel(task).vectorize(X, self.lanes, SHIFT)
        for level in range(1, laplacian.LEVELS):
            pyramid, given = f[f"g{level}"], f[f"i{level}"]
            pyramid.compute_root().split(Y, strip, Y, 16 if self.stores_finest else 8)
            if self.stores_finest:
                pyramid.reorder(X, Y, K, strip)
            else:
                pyramid.reorder(X, K, Y, strip)
            pyramid.vectorize(X, self.lanes).parallel(strip)
            if self.is_grouped:
                pyramid.reorder_storage(X, K, Y)
            given.compute_root().split(Y, strip, Y, 16).parallel(strip).vectorize(X, self.lanes)
            if self.stores_down:
                inner = Y if self.stores_finest else K
                f[f"g{level}_down"].compute_at(pyramid, inner).vectorize(X, self.lanes)
                f[f"i{level}_down"].compute_at(given, Y).vectorize(X, self.lanes)
            if self.stores_finest and level == 1:
                f["finest"].store_at(pyramid, K).compute_at(pyramid, Y).vectorize(X, self.lanes)
            sums = f[f"out{level}"].vectorize(X, self.lanes)
            if self.slides and level < laplacian.LEVELS - 1:
                sums.store_at(out, task).compute_at(out, Y)
            else:
                sums.compute_root().split(Y, strip, Y, 8).parallel(strip)


def pyramid_schedules(lanes: int) -> Schedules:
    flags = product((False, True), repeat=4)
    for (wide, rows), chosen in product(((8, 64), (lanes, 32), (lanes, 64)), flags):
        grouped, down, slides, finest = chosen
        name = f"{wide} lanes, {rows} rows, {grouped=}, {down=}, {slides=}, {finest=}"
        yield name, PyramidSchedule(wide, rows, grouped, down, slides, finest)
