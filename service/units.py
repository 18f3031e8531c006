"""Formats seconds, bytes and counts for output. All other code uses unscaled values."""

from __future__ import annotations


def duration(secs: float | None) -> str:
    """Format a time with three digits and a unit, as `1.03 ms`."""
    if secs is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if secs >= scale:
            return f"{secs / scale:.3g} {unit}"
    return f"{secs * 1e9:.3g} ns"


LONGEST_CLOCK_SECS = 100 * 3600.0
"""Longer times are shown as "over 4 days"."""


def clock(secs: float | None) -> str:
    """Format a remaining time in minutes and seconds, as `2:10`."""
    if secs is None:
        return "-:--"
    if secs >= LONGEST_CLOCK_SECS:
        return "over 4 days"
    whole = max(round(secs), 0)
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def byte_size(count: float) -> str:
    """Format a number of bytes in binary units, as `1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def quantity(count: float) -> str:
    """Format a large count with an SI prefix, as `310k` or `2.1G`."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}"
    return f"{count:.3g}"


def gflops(flops: float, run_secs: float | None) -> float | None:
    """Return the speed in GFLOP/s, or None if the time or the number of operations is unknown."""
    return flops / run_secs / 1e9 if run_secs and flops else None


def speed(flops: float, run_secs: float | None) -> str:
    rate = gflops(flops, run_secs)
    return f"{rate:.4g} GFLOP/s" if rate is not None else duration(run_secs)


def percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.0f}%"
