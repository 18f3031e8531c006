"""Deadlines of work that may take for ever.

Choosing a default schedule and compiling are quick for what people write and have no bound for
what they might.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.schedules.errors import TilewrightError


class DeadlineError(TilewrightError):
    """A default was not chosen, or a kernel not compiled, by its deadline."""

    code = "took_too_long"
    title = "Not done by its deadline"
    advice = "Divide the expression into stages that store what they compute."


def late_message(what: str, secs: float) -> str:
    """What is said of work that was not done by its deadline."""
    return (
        f"{what} took longer than {secs:.3g} s; divide the expression into stages that store what"
        " they compute, or tune it: a search leaves out what compiles slowly"
    )


@contextmanager
def alarm(secs: float, what: str) -> Iterator[None]:
    """DeadlineError in the main thread of this process when the body takes longer than `secs`; for
    work in Python, which a signal interrupts, where nobody else waits."""

    def ring(number: int, frame: object) -> None:
        raise DeadlineError(late_message(what, secs))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(secs, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
