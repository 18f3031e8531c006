"""Deadlines of computations that may take arbitrarily long, such as compiling a large kernel."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.schedules.errors import TilewrightError


class DeadlineError(TilewrightError):
    """A computation exceeded its deadline: choosing a default schedule, or compiling a kernel."""

    code = "took_too_long"
    title = "Preparation deadline exceeded"
    advice = "Divide the expression into several stages."


def late_message(what: str, secs: float) -> str:
    """Return the message that computation `what` exceeded its deadline of `secs`."""
    return (
        f"{what} took longer than {secs:.3g} s; divide the expression into several stages, or tune"
        " it: a search skips schedules that compile slowly"
    )


@contextmanager
def alarm(secs: float, what: str) -> Iterator[None]:
    """Raise DeadlineError when the block takes longer than `secs`. A signal raises it.

    Use it only for Python code on the main thread of a command.
    """

    def ring(number: int, frame: object) -> None:
        raise DeadlineError(late_message(what, secs))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(secs, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
