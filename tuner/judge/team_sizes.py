"""The numbers of threads (OpenMP team sizes) with which a parallel kernel is checked."""

from __future__ import annotations

_ALL_UP_TO = 8


def checked_team_sizes(threads: int) -> tuple[int, ...]:
    """Return the team sizes for the full check of a kernel for `threads` threads, ascending.

    A kernel must be correct for every number from 1 to `threads`, because the runtime may give a
    region fewer threads than requested, but never more. All sizes up to eight are checked, because
    most machines and container limits are in that range. Beyond eight, the cost of all sizes would
    grow with the square of `threads`. A sample of them suffices, because one formula divides the
    iterations among the threads. The sample has powers of two and their neighbours, `threads`,
    `threads - 1` and `threads // 2`. With each other size (`further_team_sizes`), the kernel is
    called once if that takes little time.
    """
    teams = set(range(1, min(threads, _ALL_UP_TO) + 1)) | {threads, threads - 1, threads // 2}
    power = 2 * _ALL_UP_TO
    while power <= threads:
        teams |= {power - 1, power, power + 1}
        power *= 2
    return tuple(sorted(n for n in teams if 1 <= n <= threads))


def further_team_sizes(threads: int) -> tuple[int, ...]:
    """Return the sizes that `checked_team_sizes` omits. They are ordered so that the first n are
    spread evenly, for every n."""
    left = set(range(1, threads + 1)) - set(checked_team_sizes(threads))
    return tuple(sorted(left, key=lambda n: f"{n:032b}"[::-1]))
