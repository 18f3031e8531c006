"""Chooses among the variants of one computation in one library. A variant is a call, or several
calls, that compute the same result. All variants are checked and raced, and the fastest is used.

A variant that the library does not have, or that returns another result, is dropped and reported.
The others take turns, in alternating order, so that a disturbance of the machine slows all of them.
A variant that is far slower than the fastest one is timed only a few times.
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
"""The default time limit of `torch.compile`, for all of its modes together."""

_SAMPLE_SECS = 2e-4
_WARMUP_CALLS_MAX, _WARMUP_SECS = 5, 0.01
_MIN_ROUNDS, _MAX_ROUNDS = 3, 25
_ONE_CALL_CUTOFF, _ROUNDS_CUTOFF = 3.0, 1.5
"""A variant leaves the race if it takes this many times the fastest variant's seconds: after one
call, and after _MIN_ROUNDS rounds."""

_WARM_CALLS, _DISPATCH_CALLS, _DISPATCH_ROUNDS = 20, 50, 20

Call = Callable[[], Any]


class NoPeerError(Exception):
    """The library cannot compute this workload in a fair comparison."""


@dataclass(frozen=True, slots=True)
class PeerVariant:
    """A variant. `prepare`, which is not timed, returns the call that is timed. `name` is shown."""

    name: str
    prepare: Callable[[], Call]


@dataclass(frozen=True, slots=True)
class FastestVariant:
    """The winner of a race. `secs` has the median seconds of each variant that was raced, by name;
    `dropped` has the reasons for the other variants."""

    name: str
    call: Call
    secs: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"way": self.name, "ways_secs": dict(self.secs), "dropped": dict(self.dropped)}


@dataclass(frozen=True, slots=True)
class StepVariant:
    """The next `stages` stages of a workload, which the variant of this name computes together."""

    stages: int
    variant: str


@dataclass(frozen=True, slots=True)
class ChosenVariants:
    """The variant of each step, or `whole`, one variant that computes all steps together."""

    steps: tuple[StepVariant, ...]
    whole: str | None = None


def variant_secs(choices: Sequence[FastestVariant]) -> dict[str, float]:
    """Return median seconds by the variant's name, preceded by the number of the step if there are
    several steps."""
    several = len(choices) > 1
    return {
        f"{number}: {name}" if several else name: secs
        for number, choice in enumerate(choices, start=1)
        for name, secs in choice.secs.items()
    }


def prepared(variant: PeerVariant) -> tuple[Call | None, Any, str | None]:
    """Prepare and call the variant once. Return (call, first result, None), or (None, None, error)
    if the variant does not work."""
    try:
        call = variant.prepare()
        return call, call(), None
    # Libraries raise these for a type, layout or operation they do not have.
    except (RuntimeError, AttributeError, TypeError, ValueError, IndexError) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return None, None, f"{type(error).__name__}: {first_line[:120]}"


def ready(name: str, call: Callable[..., Any]) -> PeerVariant:
    """Return a variant that needs no preparation."""
    return PeerVariant(name, lambda: call)


def transformed(
    variant: PeerVariant, transform: Callable[[Any], Any], prefix: str = ""
) -> PeerVariant:
    """Return `variant` with `transform` applied to its result, and `prefix` before its name."""

    def prepare() -> Call:
        call = variant.prepare()
        return lambda: transform(call())

    return PeerVariant(f"{prefix}{variant.name}", prepare)


def choose(
    variants: Sequence[PeerVariant], check: Callable[[Any], str | None], seconds: float = RACE_SECS
) -> FastestVariant:
    """Race `variants` for about `seconds`; `check` returns the error of a call's result, or None.

    Raise NoPeerError if no variant works.
    """
    calls: dict[str, Call] = {}
    dropped: dict[str, str] = {}
    for variant in variants:
        call, result, problem = prepared(variant)
        if call is not None:
            problem = check(result)
        if call is not None and problem is None:
            calls[variant.name] = call
        else:
            dropped[variant.name] = problem or ""
    if not calls:
        reasons = "; ".join(f"{name}: {why}" for name, why in dropped.items())
        raise NoPeerError(reasons or "the library has no variant of this name")
    if len(calls) == 1:
        ((name, call),) = calls.items()
        return FastestVariant(name, call, {}, dropped)
    secs = _race(calls, seconds)
    best = min(secs, key=secs.__getitem__)
    return FastestVariant(best, calls[best], secs, dropped)


def seconds_a_call(call: Call, calls: int, rounds: int) -> list[float]:
    """Return the seconds per call in each of `rounds` rounds of `calls` calls, without the time of
    an empty Python call. The library's own dispatch is included."""
    empty_secs = min(_sample(_nothing, calls) for _ in range(5))
    return [max(_sample(call, calls) - empty_secs, 1e-9) for _ in range(rounds)]


def dispatch_secs(call: Call) -> float:
    """Return the least seconds of a call. On a shrunken workload this is the library's call
    overhead."""
    for _ in range(_WARM_CALLS):
        call()
    return min(seconds_a_call(call, _DISPATCH_CALLS, _DISPATCH_ROUNDS))


def _nothing() -> None:
    """The empty call whose time is subtracted."""


def _race(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Return the median seconds per call, by name."""
    once = {name: _warm_call_secs(call) for name, call in calls.items()}
    nearest = min(once.values())
    running = [name for name in calls if once[name] <= _ONE_CALL_CUTOFF * nearest]
    samples = {name: [once[name]] for name in calls}
    if len(running) == 1:
        return once
    counts = {name: max(1, ceil(_SAMPLE_SECS / max(once[name], 1e-9))) for name in running}
    for name in running:
        samples[name].clear()
    end = time.perf_counter() + seconds
    for number in range(_MAX_ROUNDS):
        if number >= 1 and time.perf_counter() >= end:
            break
        for name in running if number % 2 == 0 else reversed(running):
            samples[name].append(_sample(calls[name], counts[name]))
        if number + 1 == _MIN_ROUNDS:
            least = min(min(samples[name]) for name in running)
            running = [name for name in running if min(samples[name]) <= _ROUNDS_CUTOFF * least]
    return {name: statistics.median(each) for name, each in samples.items()}


def _warm_call_secs(call: Call) -> float:
    """Return the least seconds of the first few calls, during which libraries still initialise."""
    looks = [_sample(call, 1)]
    while len(looks) < _WARMUP_CALLS_MAX and sum(looks) < _WARMUP_SECS:
        looks.append(_sample(call, 1))
    return min(looks)


def _sample(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls
