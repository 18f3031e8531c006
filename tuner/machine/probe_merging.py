"""Merging of the probes of one machine, and their correction by a measured kernel.

Probes are lower bounds. Load, a low clock or another program on the same physical core only reduce
a rate. Therefore the larger of two rates is more accurate. A kernel is a probe too: the machine can
do the kernel's operations and transfers in the measured time.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Probes, Target


class ProbingLateError(TargetError):
    """Probing took longer than its time limit."""


CLOCK_DRIFT = 1.1
"""The largest ratio of clocks between two undisturbed probes of one core. If the ratio is larger,
one of them was disturbed."""

MISLEADING_RATIO = 1.25
"""A rate that is wrong by more than this factor misleads a search."""


def merged_probes(target: Target, old: Probes, new: Probes) -> Probes:
    """Return the best rates of `old` and `new`, which are probes of `target`. The result is
    doubtful if `new` is. The probes in `target` are ignored.

    If a reliable `new` ran at a lower clock than `old`, its rates that are proportional to the
    core's clock are scaled to the higher clock. Otherwise a disturbed rate of `old` could remain.
    """
    clock = 1.0 if new.doubtful else _clock_ratio(old, new)
    own = {f"L{i + 1}" for i, cache in enumerate(target.caches) if not cache.shared}
    return Probes(
        _best(old.peak_gflops, new.peak_gflops, dict.fromkeys(new.peak_gflops, clock)),
        _best(old.bandwidth_gbs, new.bandwidth_gbs, dict.fromkeys(own, clock)),
        min(old.parallel_region_secs, new.parallel_region_secs)
        if old.peak_gflops
        else new.parallel_region_secs,
        new.doubtful,
        max(old.clock_ghz, float(f"{new.clock_ghz * clock:.4g}")),
        _best(old.strided_gbs, new.strided_gbs, dict.fromkeys(own, clock)),
    )


def is_misleading(old: Probes, new: Probes) -> bool:
    """Return whether a search with `old` would choose differently than with `new`.

    It would if, by more than `MISLEADING_RATIO`, (1) a rate or the clock of `old` is too low, or
    (2) its time of a parallel region is too long. A rate of 0 is missing, and too low.
    """
    pairs = [
        (before, now)
        for known, found in (
            (old.peak_gflops, new.peak_gflops),
            (old.bandwidth_gbs, new.bandwidth_gbs),
            (old.strided_gbs, new.strided_gbs),
        )
        for name in known.keys() & found.keys()
        for before, now in zip(known[name], found[name], strict=False)
    ]
    pairs.append((new.parallel_region_secs, old.parallel_region_secs))
    pairs.append((old.clock_ghz, new.clock_ghz))
    return any(now > MISLEADING_RATIO * before for before, now in pairs)


def _clock_ratio(old: Probes, new: Probes) -> float:
    before, now = old.peak(DType.F32, 1), new.peak(DType.F32, 1)
    return min(max(before / now, 1.0), CLOCK_DRIFT) if now > 0 else 1.0


def _best(
    old: dict[str, list[float]], new: dict[str, list[float]], scale: dict[str, float]
) -> dict[str, list[float]]:
    found = {}
    for name in {**old, **new}:
        before = old.get(name, [])
        now = [float(f"{value * scale.get(name, 1.0):.4g}") for value in new.get(name, [])]
        if len(before) == len(now):
            found[name] = [max(pair) for pair in zip(before, now, strict=True)]
        else:
            found[name] = now or before
    return found


def raised_peak(probes: Probes, name: str, threads: int, gflops: float) -> Probes:
    """Return `probes` in which `threads` threads compute at least `gflops`. `name` is a type or an
    instruction.

    The rate is raised to at most `threads` times the peak of one core, because a higher rate means
    that operations were counted wrongly.
    """
    known = probes.peak_gflops.get(name, [])
    most = threads * probes.peak_of(name, 1)
    return replace(
        probes,
        peak_gflops={**probes.peak_gflops, name: _at_least(known, threads, min(gflops, most))},
        doubtful=True,
    )


def raised_bandwidth(probes: Probes, level: str, threads: int, gbs: float) -> Probes:
    """Return `probes` in which `threads` threads read at least `gbs` from `level`.

    The rate is raised to at most that of the level before, because a higher rate means that bytes
    were counted wrongly.
    """
    known = probes.bandwidth_gbs.get(level, [])
    inner = [name for name in sorted(probes.bandwidth_gbs) if name < level]  # "memory" is last
    if inner:
        gbs = min(gbs, max(probes.bandwidth(inner[-1], threads), probes.bandwidth(level, threads)))
    return replace(
        probes,
        bandwidth_gbs={**probes.bandwidth_gbs, level: _at_least(known, threads, gbs)},
        doubtful=True,
    )


def _at_least(values: list[float], threads: int, least: float) -> list[float]:
    """Return `values` (one per number of threads) in which the values for `threads` and more
    threads are at least `least`."""
    return [max(v, least) if n + 1 >= threads else v for n, v in enumerate(values)]
