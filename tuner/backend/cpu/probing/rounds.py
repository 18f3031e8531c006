"""Repetition of measurements in rounds. The result is the best rates, and whether the machine was
quiet.

Interference only makes a burst slower, so the best of several rounds is closest to the true rate.
Source of the estimator: Chen and Revels, arXiv:1608.04295.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

QUIET_ROUNDS = 3
MAX_ROUNDS = 7
STEADY_RATIO = 1.02
EXTRA_LOOKS = 2

Figure: TypeAlias = tuple[str, int]
"""The key of a measured rate: its name and the number of threads."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The best rate of each figure over all rounds."""

    rates: dict[Figure, float]
    quiet: bool
    """Whether enough rounds were undisturbed."""


def best_of_rounds(
    measure: Callable[[], dict[Figure, float]],
    others_worked: Callable[[], bool],
    pause: Callable[[], None],
) -> Rounds:
    """Repeat all measurements and return the best rate of each figure. Disturbed rounds are
    included.

    `others_worked` returns whether other programs used the cores since its last call. The
    repetition ends after `QUIET_ROUNDS` quiet rounds if the last round improved no figure
    noticeably, or after `MAX_ROUNDS`.
    """
    best: dict[Figure, float] = {}
    quiet = 0
    for _ in range(MAX_ROUNDS):
        others_worked()
        rates = measure()
        busy = others_worked()
        quiet += not busy
        steady = bool(best) and all(rates[f] <= STEADY_RATIO * best[f] for f in rates)
        best = {figure: max(rate, best.get(figure, 0.0)) for figure, rate in rates.items()}
        if quiet >= QUIET_ROUNDS and steady:
            break
        if busy:
            pause()
    return Rounds(best, quiet >= QUIET_ROUNDS)


def look_again(
    private: Mapping[str, Callable[[int], float]],
    rates: dict[str, dict[int, float]],
    pause: Callable[[], None],
) -> None:
    """Repeat measurements whose rates did not grow with the number of cores. Store better rates in
    `rates`.

    A hypervisor may run two virtual CPUs on one core for a while, which a guest cannot detect. A
    peak that was measured during that time is too low, and correct kernels would seem implausibly
    fast.
    """
    for _ in range(EXTRA_LOOKS):
        short = [
            (name, n)
            for name in private
            for n in rates[name]
            if rates[name][n] < 0.9 * n * rates[name][1]
        ]
        if not short:
            return
        pause()
        for name, n in short:
            rates[name][n] = max(rates[name][n], private[name](n))


def thread_counts(cores: int) -> list[int]:
    """Return the numbers of threads to measure: 1, 2, 4, ... and all cores."""
    return sorted({1 << i for i in range(cores.bit_length()) if 1 << i <= cores} | {cores})


def spread(measured: dict[int, float], cores: int) -> list[float]:
    """Return a value for each thread count 1..cores. Values between measured counts are
    interpolated."""
    known = sorted(measured)
    values = []
    for n in range(1, cores + 1):
        high = next(k for k in known if k >= n)
        low = max(k for k in known if k <= n)
        share = (n - low) / (high - low) if high > low else 0.0
        value = measured[low] + share * (measured[high] - measured[low])
        values.append(float(f"{value:.4g}"))
    return values
