"""One case of any kind: what came of it, or a finding with its computation made small."""

from __future__ import annotations

import json
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .computation import Computation
from .fronts import check_fronts
from .generate import random_computation
from .kernels import check_document, check_space, check_trace
from .mutations import check_mutations
from .shrink import shrunk
from .spell_notation import to_notation

KINDS: dict[str, Callable[[Computation, int], str]] = {
    "documents": check_document,
    "spaces": check_space,
    "traces": check_trace,
    "fronts": check_fronts,
    "mutations": check_mutations,
}
DEADLINE_SECS = 40
"""Of one case. Most take a tenth of a second, a slow machine may be ten times slower."""

SHRINK_SECS = 20.0


class Overdue(BaseException):
    """A case was not done by its deadline."""


@contextmanager
def deadline(secs: int) -> Iterator[None]:
    """Overdue in this thread, which must be the main one, after `secs`."""

    def ring(signum: int, frame: object) -> None:
        raise Overdue(f"not done after {secs} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(secs)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def computation_of(kind: str, seed: int, number: int) -> Computation:
    """The computation of one case."""
    rng = random.Random(f"{seed}:{number}")
    return random_computation(rng)


def run_case(kind: str, seed: int, number: int, *, shrink: bool = True) -> dict[str, Any]:
    """`{"number", "outcome"}`, or "failure" with what it was and the smallest text found."""
    computation = computation_of(kind, seed, number)
    inner = seed * 1_000_003 + number
    failure = _failure(kind, computation, inner)
    if isinstance(failure, str):
        return {"number": number, "outcome": failure}
    found: dict[str, Any] = {"number": number, "failure": _told(failure)}
    if shrink and not isinstance(failure, Overdue):
        same = _what(failure)

        def fails(smaller: Computation) -> bool:
            again = _failure(kind, smaller, inner)
            return not isinstance(again, str) and _what(again) == same

        computation = shrunk(computation, fails, SHRINK_SECS)
        smallest = _failure(kind, computation, inner)
        if not isinstance(smallest, str):
            found["smallest"] = _told(smallest)
    notation = to_notation(computation, random.Random(0))
    found["text"], found["tensors"] = notation.text, list(notation.tensors)
    found["ranges"] = notation.ranges
    return found


def _failure(kind: str, computation: Computation, seed: int) -> str | BaseException:
    try:
        with deadline(DEADLINE_SECS):
            return KINDS[kind](computation, seed)
    except (Exception, Overdue) as error:  # noqa: BLE001 (whatever it is, it is the finding)
        return error


def _what(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)[:12]


def _told(error: BaseException) -> str:
    notes = "; ".join(getattr(error, "__notes__", []))
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
    return json.dumps(f"{type(error).__name__}: {error} ({place}) {notes}"[:4000])[1:-1]
