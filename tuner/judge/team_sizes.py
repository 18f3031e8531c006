"""Which numbers of threads a parallel kernel is checked with."""

from __future__ import annotations

_ALL_UP_TO = 8


def checked_team_sizes(threads: int) -> tuple[int, ...]:
    """Team sizes for the full check of a kernel made for `threads`, ascending; `further_team_sizes`
    are the others, each called once where that takes little time.

    Promised is the whole output for every number from 1 to `threads`: the runtime may give fewer
    than a region asks for, and never gives more. Up to eight, each is checked: machines and limits
    of containers are mostly there. Beyond, the cost of all would grow with the square of `threads`
    and shares follow from one formula in the number of threads, so a sample does: powers of two and
    their neighbours (shares that are even, and those that just are not), `threads` itself, one less
    and half of it.
    """
    teams = set(range(1, min(threads, _ALL_UP_TO) + 1)) | {threads, threads - 1, threads // 2}
    power = 2 * _ALL_UP_TO
    while power <= threads:
        teams |= {power - 1, power, power + 1}
        power *= 2
    return tuple(sorted(n for n in teams if 1 <= n <= threads))


def further_team_sizes(threads: int) -> tuple[int, ...]:
    """The team sizes up to `threads` that `checked_team_sizes` leaves out, in an order in which the
    first of them are spread: the last binary digits of a number count most."""
    left = set(range(1, threads + 1)) - set(checked_team_sizes(threads))
    return tuple(sorted(left, key=lambda n: f"{n:032b}"[::-1]))
