"""Several ways of asking one library for the same thing: all are tried, the fastest one counts.

Every way is checked first: one that the library does not have, or that gives something else, is
dropped and named. The others race in turn, there and back again, so that a slow moment of the
machine meets all of them; what is far behind leaves early.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

RACE_SECS = 0.2
COMPILE_SECS = 60.0
"""How long compiling a way may take by default, all modes of a compiler together."""

_SAMPLE_SECS = 2e-4
_LOOKS, _LOOK_SECS = 5, 0.01
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 25
_FAR_BEHIND, _BEHIND = 3.0, 1.5
"""How many times the best one's seconds end a way's part: after one call, after a few rounds."""

_WARM_CALLS, _DISPATCH_CALLS, _DISPATCH_ROUNDS = 20, 50, 20

Call = Callable[[], Any]


class NoPeerError(Exception):
    """The other library has no way of computing this that would be a fair comparison."""


@dataclass(frozen=True, slots=True)
class Way:
    """A `name` to show, and `prepare`, which makes a call; what it prepares is not timed."""

    name: str
    prepare: Callable[[], Call]


@dataclass(frozen=True, slots=True)
class FastestPeer:
    """The fastest way. `secs` has the median seconds of each that was raced, `dropped` why each of
    the others was not."""

    name: str
    call: Call
    secs: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"way": self.name, "ways_secs": dict(self.secs), "dropped": dict(self.dropped)}


@dataclass(frozen=True, slots=True)
class Step:
    """So many `stages` of a workload, asked for together in the way of this name."""

    stages: int
    way: str


@dataclass(frozen=True, slots=True)
class Asked:
    """How a library was asked: `steps` in order, or `whole`, the way of all of them at once."""

    steps: tuple[Step, ...]
    whole: str | None = None


def secs_of(choices: Sequence[FastestPeer]) -> dict[str, float]:
    """Median seconds of every way that was raced, with the number of its step where they are
    several."""
    several = len(choices) > 1
    return {
        f"{number}: {name}" if several else name: secs
        for number, choice in enumerate(choices, start=1)
        for name, secs in choice.secs.items()
    }


def prepared(way: Way) -> tuple[Call | None, Any, str | None]:
    """Its call and what that gave the first time; or None, None and why it does not work."""
    try:
        call = way.prepare()
        return call, call(), None
    # What a library raises for a type, a layout or an operation it does not have.
    except (RuntimeError, AttributeError, TypeError, ValueError, IndexError) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return None, None, f"{type(error).__name__}: {first_line[:120]}"


def choose(
    ways: Sequence[Way], check: Callable[[Any], str | None], seconds: float = RACE_SECS
) -> FastestPeer:
    """Race `ways` for about `seconds`. `check` gets what a call returned: None, or what is wrong.

    NoPeerError if no way works.
    """
    ready: dict[str, Call] = {}
    dropped: dict[str, str] = {}
    for way in ways:
        call, result, problem = prepared(way)
        if call is not None:
            problem = check(result)
        if call is not None and problem is None:
            ready[way.name] = call
        else:
            dropped[way.name] = problem or ""
    if not ready:
        reasons = "; ".join(f"{name}: {why}" for name, why in dropped.items())
        raise NoPeerError(reasons or "the library has no way of this name")
    if len(ready) == 1:
        ((name, call),) = ready.items()
        return FastestPeer(name, call, {}, dropped)
    secs = _race(ready, seconds)
    best = min(secs, key=secs.__getitem__)
    return FastestPeer(best, ready[best], secs, dropped)


def seconds_a_call(call: Call, calls: int, rounds: int) -> list[float]:
    """Seconds a call in each of `rounds` rounds of `calls`, without those of Python's loop and of a
    call of nothing. What the library itself does before it computes stays in."""
    empty_secs = min(_sample(_nothing, calls) for _ in range(5))
    return [max(_sample(call, calls) - empty_secs, 1e-9) for _ in range(rounds)]


def dispatch_secs(call: Call) -> float:
    """The least seconds of a call, of one that computes next to nothing."""
    for _ in range(_WARM_CALLS):
        call()
    return min(seconds_a_call(call, _DISPATCH_CALLS, _DISPATCH_ROUNDS))


def _nothing() -> None:
    """What an empty call costs."""


def _race(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Median seconds of a call, by name."""
    once = {name: _first_look(call) for name, call in calls.items()}
    nearest = min(once.values())
    running = [name for name in calls if once[name] <= _FAR_BEHIND * nearest]
    samples = {name: [once[name]] for name in calls}
    if len(running) == 1:
        return once
    counts = {name: max(1, ceil(_SAMPLE_SECS / max(once[name], 1e-9))) for name in running}
    for name in running:
        samples[name].clear()
    end = time.perf_counter() + seconds
    for number in range(_MOST_ROUNDS):
        if number >= 1 and time.perf_counter() >= end:
            break
        for name in running if number % 2 == 0 else reversed(running):
            samples[name].append(_sample(calls[name], counts[name]))
        if number + 1 == _LEAST_ROUNDS:
            least = min(min(samples[name]) for name in running)
            running = [name for name in running if min(samples[name]) <= _BEHIND * least]
    return {name: statistics.median(each) for name, each in samples.items()}


def _first_look(call: Call) -> float:
    """Seconds of a call after the first one; the least of a few where that takes no time, since
    libraries go on preparing themselves for some calls."""
    looks = [_sample(call, 1)]
    while len(looks) < _LOOKS and sum(looks) < _LOOK_SECS:
        looks.append(_sample(call, 1))
    return min(looks)


def _sample(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls
