"""Halide's side: the same pipelines with schedules written by hand, and with
Halide's autoschedulers (the package `halide`, `pip install halide==21.0.0`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import halide as hl  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from . import halide_pyramids as pyramids
from .halide_pyramids import Apply, Func, Schedules

AUTOSCHEDULERS = ("Mullapudi2016", "Adams2019", "Li2018")
RUNS = 10
L2_BYTES = 1 << 20

X, Y = hl.Var("x"), hl.Var("y")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`build(image)` returns the output and the other functions by name. `by_hand(lanes)` yields
    the schedules written by hand, with their names."""

    build: Callable[[Any], tuple[Func, dict[str, Func]]]
    by_hand: Callable[[int], Schedules]


def _constant(value: float) -> Any:
    return hl.f32(value)


def _blur(image: Any) -> tuple[Func, dict[str, Func]]:
    across, out = hl.Func("across"), hl.Func("out")
    third = _constant(1 / 3)
    across[X, Y] = (image[X, Y] + image[X + 1, Y] + image[X + 2, Y]) * third
    out[X, Y] = (across[X, Y] + across[X, Y + 1] + across[X, Y + 2]) * third
    return out, {"across": across}


def _unsharp(image: Any) -> tuple[Func, dict[str, Func]]:
    down, across, out = hl.Func("down"), hl.Func("across"), hl.Func("out")
    down[X, Y] = _gaussian(lambda d: image[X, Y + d])
    across[X, Y] = _gaussian(lambda d: down[X + d, Y])
    out[X, Y] = image[X + 3, Y + 3] * _constant(2.5) - across[X, Y] * _constant(1.5)
    return out, {"down": down, "across": across}


def _gaussian(at: Callable[[int], Any]) -> Any:
    pairs = (at(2) + at(4)) * _constant(0.1907) + (at(1) + at(5)) * _constant(0.1311)
    return at(3) * _constant(0.2161) + pairs + (at(0) + at(6)) * _constant(0.0702)


def _gradients(f: Any) -> tuple[Any, Any]:
    two = _constant(2)
    right = (f[X + 2, Y] - f[X, Y]) + two * (f[X + 2, Y + 1] - f[X, Y + 1])
    down = (f[X, Y + 2] - f[X, Y]) + two * (f[X + 1, Y + 2] - f[X + 1, Y])
    return right + (f[X + 2, Y + 2] - f[X, Y + 2]), down + (f[X + 2, Y + 2] - f[X + 2, Y])


def _sobel(image: Any) -> tuple[Func, dict[str, Func]]:
    right, down, out = hl.Func("right"), hl.Func("down"), hl.Func("out")
    right[X, Y], down[X, Y] = _gradients(image)
    out[X, Y] = hl.sqrt(right[X, Y] * right[X, Y] + down[X, Y] * down[X, Y])
    return out, {"right": right, "down": down}


def _harris(image: Any) -> tuple[Func, dict[str, Func]]:
    names = ("right", "down", "xx", "yy", "xy", "sum_xx", "sum_yy", "sum_xy", "out")
    f = {name: hl.Func(name) for name in names}
    right, down = _gradients(image)
    twelfth = _constant(1 / 12)
    f["right"][X, Y], f["down"][X, Y] = right * twelfth, down * twelfth
    a, b = f["right"][X, Y], f["down"][X, Y]
    f["xx"][X, Y], f["yy"][X, Y], f["xy"][X, Y] = a * a, b * b, a * b
    for name in ("xx", "yy", "xy"):
        f[f"sum_{name}"][X, Y] = _box(f[name])
    xx, yy, xy = (f[f"sum_{name}"][X, Y] for name in ("xx", "yy", "xy"))
    out = f.pop("out")
    out[X, Y] = xx * yy - xy * xy - _constant(0.04) * (xx + yy) * (xx + yy)
    return out, f


def _box(f: Any) -> Any:
    rows = [f[X, Y + d] + f[X + 1, Y + d] + f[X + 2, Y + d] for d in range(3)]
    return rows[0] + rows[1] + rows[2]


def by_hand(*stored: str) -> Callable[[int], Schedules]:
    """Return schedules that store the functions `stored`; the others are inlined."""
    return lambda lanes: _stencil_schedules(stored, lanes)


def _stencil_schedules(stored: tuple[str, ...], lanes: int) -> Schedules:
    """Yield schedules with their names: strips whose stored functions slide along the rows, tiles
    in which they are computed with their halos, and no stored functions."""
    for rows in (8, 16, 32, 64, 128):
        for columns in (0, 256, 512, 1280):
            yield f"strips {rows}x{columns or 'all'}", _strips(stored, rows, columns, lanes)
    for rows in (8, 16, 32, 64):
        for columns in (64, 128, 256, 512):
            for once in (1, 2, 4):
                name = f"tiles {rows}x{columns}, {once} rows at once"
                yield name, _tiles(stored, rows, columns, once, lanes)
    for once in (1, 2, 4, 8):
        yield f"inlined, {once} rows at once", _inlined(once, lanes)


def _strips(stored: tuple[str, ...], rows: int, columns: int, lanes: int) -> Apply:
    def apply(out: Func, functions: dict[str, Func]) -> None:
        yo, yi, xo, xi = (hl.Var(name) for name in ("yo", "yi", "xo", "xi"))
        out.split(Y, yo, yi, rows, hl.TailStrategy.ShiftInwards)
        if columns:
            out.split(X, xo, xi, columns, hl.TailStrategy.ShiftInwards).reorder(xi, yi, xo, yo)
        out.vectorize(xi if columns else X, lanes).parallel(yo)
        for name in stored:
            one = functions[name].store_at(out, xo if columns else yo).compute_at(out, yi)
            one.vectorize(X, lanes)

    return apply


def _tiles(stored: tuple[str, ...], rows: int, columns: int, once: int, lanes: int) -> Apply:
    def apply(out: Func, functions: dict[str, Func]) -> None:
        yo, yi, xo, xi, row = (hl.Var(name) for name in ("yo", "yi", "xo", "xi", "row"))
        tail = hl.TailStrategy.ShiftInwards
        out.tile(X, Y, xo, yo, xi, yi, columns, rows, tail).vectorize(xi, lanes).parallel(yo)
        if once > 1:
            out.split(yi, yi, row, once).reorder(row, xi, yi, xo, yo).unroll(row)
        for name in stored:
            functions[name].compute_at(out, xo).vectorize(X, lanes)

    return apply


def _inlined(once: int, lanes: int) -> Apply:
    def apply(out: Func, functions: dict[str, Func]) -> None:
        yo, yi, row = (hl.Var(name) for name in ("yo", "yi", "row"))
        out.split(Y, yo, yi, 8 * once, hl.TailStrategy.ShiftInwards).parallel(yo)
        out.vectorize(X, lanes)
        if once > 1:
            out.split(yi, yi, row, once).reorder(row, X, yi, yo).unroll(row)

    return apply


PIPELINES = {
    "blur": Pipeline(_blur, by_hand("across")),
    "unsharp": Pipeline(_unsharp, by_hand("down")),
    "sobel": Pipeline(_sobel, by_hand()),
    "harris": Pipeline(_harris, by_hand("right", "down")),
    "bilateral_grid": Pipeline(pyramids.bilateral_grid, pyramids.grid_schedules),
    "local_laplacian": Pipeline(pyramids.local_laplacian, pyramids.pyramid_schedules),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled pipeline with its own output."""

    schedule: str
    call: Callable[[], object]
    output: Any


def compiled(
    name: str, image: Any, shape: tuple[int, int], schedule: str, apply: Apply | None, threads: int
) -> Compiled:
    """Compile a pipeline with a schedule. `apply` is None for an autoscheduler."""
    pipeline, target = PIPELINES[name], hl.get_jit_target_from_environment()
    given = hl.ImageParam(hl.Float(32), 2, "image")
    out, functions = pipeline.build(given)
    whole = hl.Pipeline(out)
    if apply is None:
        rows, columns = image.shape
        given.set_estimates([(0, columns), (0, rows)])
        out.set_estimates([(0, shape[1]), (0, shape[0])])
        options = {"parallelism": str(threads)}
        if schedule == "Mullapudi2016":
            options["last_level_cache_size"] = str(L2_BYTES)
        whole.apply_autoscheduler(target, hl.AutoschedulerParams(schedule, options))
    else:
        apply(out, functions)
    result = np.empty(shape, np.float32)
    into = hl.Buffer(result)
    given.set(hl.Buffer(image))
    whole.compile_jit(target)
    return Compiled(schedule, lambda: whole.realize(into), result)


def best(
    name: str, image: Any, shape: tuple[int, int], lanes: int, threads: int
) -> tuple[Compiled, Compiled]:
    """Return the fastest pipeline of all schedules, and the fastest of the autoschedulers. Each is
    timed by the least time of `RUNS` runs."""
    plugins = Path(hl.__file__).parent / "lib64"
    for one in AUTOSCHEDULERS:
        hl.load_plugin(str(plugins / f"libautoschedule_{one.lower()}.so"))
    assert os.environ.get("HL_NUM_THREADS") == str(threads), "set HL_NUM_THREADS to the threads"
    found: list[tuple[float, Compiled]] = []
    written: list[tuple[str, Apply | None]] = [*PIPELINES[name].by_hand(lanes)]
    for schedule, apply in [*written, *((one, None) for one in AUTOSCHEDULERS)]:
        try:
            made = compiled(name, image, shape, schedule, apply, threads)
            made.call()
        except hl.HalideError as error:
            print(f"Halide cannot use {schedule} for {name}: {error}".splitlines()[0])
            continue
        found.append((min(_secs(made.call) for _ in range(RUNS)), made))
    first = min(found, key=lambda one: one[0])[1]
    automatic = (one for one in found if one[1].schedule in AUTOSCHEDULERS)
    return first, min(automatic, key=lambda one: one[0])[1]


def _secs(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
