"""Deadlines of computations without a bound on their time.

Choosing a default schedule and compiling are quick for typical expressions; for others there is no
bound.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.schedules.errors import TilewrightError


class DeadlineError(TilewrightError):
    """A default schedule was not chosen, or a kernel not compiled, by its deadline."""

    code = "took_too_long"
    title = "Preparation deadline exceeded"
    advice = "Divide the expression into stages that store what they compute."


def late_message(what: str, secs: float) -> str:
    """Return the message about a computation that missed its deadline."""
    return (
        f"{what} took longer than {secs:.3g} s; divide the expression into stages that store what"
        " they compute, or tune it: a search leaves out what compiles slowly"
    )


@contextmanager
def alarm(secs: float, what: str) -> Iterator[None]:
    """Raise DeadlineError, by a signal, when the block takes longer than `secs`. For Python code on
    the main thread of a command."""

    def ring(number: int, frame: object) -> None:
        raise DeadlineError(late_message(what, secs))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(secs, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
