"""Of several ways the fastest right one counts, and what does not work is named."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.peers.variants import (
    NoPeerError,
    PeerVariant,
    choose,
    dispatch_secs,
    seconds_a_call,
)

NOW = [100.0]
"""Time passes when somebody works, and a little whenever it is looked at."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> float:
        NOW[0] += 1e-7
        return NOW[0]

    monkeypatch.setattr("tilewright.peers.variants.time.perf_counter", look)


def variant(
    name: str, secs: float = 0.0, result: Any = 1, error: Exception | None = None
) -> PeerVariant:
    def call() -> Any:
        if error is not None:
            raise error
        NOW[0] += secs
        return result

    return PeerVariant(name, lambda: call)


def is_one(result: Any) -> str | None:
    return None if result == 1 else f"gives {result}"


def test_the_fastest_way_is_taken() -> None:
    choice = choose(
        [variant("slow", 2e-3), variant("fast", 1e-4), variant("far behind", 2e-2)], is_one, 0.02
    )
    assert choice.name == "fast"
    assert choice.call() == 1
    assert set(choice.secs) == {"slow", "fast", "far behind"}
    assert choice.dropped == {}


def test_a_fast_way_that_is_wrong_or_fails_is_dropped_and_named() -> None:
    missing = PeerVariant("not there", lambda: getattr(object(), "linear_pointwise"))  # noqa: B009
    failing = variant("refused", error=RuntimeError("no kernel for f64\nC++ stack"))
    choice = choose(
        [variant("wrong", result=2), missing, failing, variant("right", 1e-3)], is_one, 0.01
    )
    assert choice.name == "right"
    assert choice.dropped["wrong"] == "gives 2"
    assert choice.dropped["refused"] == "RuntimeError: no kernel for f64"
    assert choice.dropped["not there"].startswith("AttributeError: ")
    assert choice.to_json()["way"] == "right"


def test_without_a_way_there_is_no_peer() -> None:
    with pytest.raises(NoPeerError, match="wrong: gives 2"):
        choose([variant("wrong", result=2)], is_one)


def test_a_bug_of_ours_is_not_a_way_that_fails() -> None:
    with pytest.raises(AssertionError):
        choose([variant("ours", error=AssertionError("bug"))], is_one)


def test_seconds_are_those_beyond_a_call_of_nothing() -> None:
    """The clock moves by 2 ms a call here, and hardly for Python."""
    found = seconds_a_call(variant("works", 2e-3).prepare(), calls=10, rounds=3)
    assert found == pytest.approx([2e-3] * 3, rel=1e-3)
    assert dispatch_secs(variant("works", 3e-6).prepare()) == pytest.approx(3e-6, rel=0.05)
