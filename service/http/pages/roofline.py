"""The roofline chart: speed over arithmetic intensity, both logarithmic.

Source: Williams, Waterman and Patterson, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 44
LABEL_STEP = 15


@dataclass(frozen=True, slots=True)
class Tick:
    """The position of a label on its axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel: its position, the position of its label, its name, and its kind of mark."""

    x: float
    y: float
    label_y: float
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Slope:
    """A level of the memory hierarchy: its bandwidth, and its line in the chart."""

    name: str
    gbs: float
    line: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The chart, in pixels of a `WIDTH` x `HEIGHT` drawing. The first of `slopes` is the memory
    level that contains the data; its line is the roof."""

    slopes: tuple[Slope, ...]
    points: tuple[Point, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    peak_gflops: float
    intensity: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def roofline(
    peak_gflops: float,
    bandwidth_gbs: float,
    flops: float,
    moved_bytes: float,
    kernels: list[tuple[str, str, float]],
    nearer: tuple[str, float] | None = None,
) -> Roofline | None:
    """Return the chart of `kernels` (name, kind, seconds per call), or None if there are no kernels
    or a number is 0. `nearer` (name, GB/s) is a cache that contains all data: its line is then the
    roof, and the line of memory is also drawn."""
    if not (flops > 0 and moved_bytes > 0 and peak_gflops > 0 and bandwidth_gbs > 0 and kernels):
        return None
    rates = [("memory", bandwidth_gbs)]
    if nearer is not None and nearer[1] > 0:
        rates.insert(0, nearer)
    intensity = flops / moved_bytes
    ridge = peak_gflops / min(gbs for _, gbs in rates)
    speeds = [flops / secs / 1e9 for _, _, secs in kernels]
    low_x = floor(log2(min(intensity, ridge))) - 2
    high_x = ceil(log2(max(intensity, ridge))) + 2
    low_y = floor(log2(min([*speeds, peak_gflops / 8])))
    high_y = ceil(log2(max([*speeds, peak_gflops]))) + 1

    def x(value: float) -> float:
        share = (log2(value) - low_x) / (high_x - low_x)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = (log2(value) - low_y) / (high_y - low_y)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def slope(name: str, gbs: float) -> Slope:
        begin, top = max(2.0**low_x, 2.0**low_y / gbs), peak_gflops / gbs
        ends = [(begin, begin * gbs), (max(top, begin), peak_gflops), (2.0**high_x, peak_gflops)]
        return Slope(name, gbs, tuple((x(a), y(b)) for a, b in ends))

    points: list[Point] = []
    for (name, kind, _), speed in sorted(zip(kernels, speeds, strict=True), key=lambda k: -k[1]):
        above = points[-1].label_y + LABEL_STEP if points else 0.0
        points.append(Point(x(intensity), y(speed), max(y(speed) + 4, above), name, kind))
    return Roofline(
        slopes=tuple(slope(name, gbs) for name, gbs in rates),
        points=tuple(points),
        x_ticks=_ticks(low_x, high_x, x),
        y_ticks=_ticks(low_y, high_y, y),
        peak_gflops=peak_gflops,
        intensity=intensity,
    )


def level_of(binds: str, bound_secs: float, moved_bytes: float) -> tuple[str, float] | None:
    """Return the cache that determines the bound, with its rate in GB/s, or None if none does."""
    if not binds.startswith("L") or bound_secs <= 0:
        return None
    return binds, moved_bytes / bound_secs / 1e9


def _ticks(low: int, high: int, place: object) -> tuple[Tick, ...]:
    assert callable(place)
    step = max(1, (high - low) // 6)
    return tuple(Tick(place(2.0**n), _power(n)) for n in range(low, high + 1, step))


def _power(exponent: int) -> str:
    """Format two to the power `exponent`, as `64` or `1/4`."""
    return f"{2**exponent:,}".replace(",", " ") if exponent >= 0 else f"1/{2**-exponent}"
