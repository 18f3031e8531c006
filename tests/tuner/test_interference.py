"""When a round of timing counts: replayed bursts, no real time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tilewright.tuner.backend.cpu.checker.interference import DISTURBED_RATIO, InterferenceGuard

BURST_SECS = 50e-6


@dataclass
class FakeTime:
    """A clock that only sleeping moves."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, secs: float) -> None:
        self.slept.append(secs)
        self.now += secs


def quiet(
    monkeypatch: pytest.MonkeyPatch,
    own: Iterator[float],
    team: Iterator[float],
    threads: int,
    team_burst_secs: float | None = BURST_SECS,
) -> tuple[InterferenceGuard, FakeTime]:
    fake = FakeTime()
    monkeypatch.setattr(InterferenceGuard, "_burst", lambda self: next(own))
    monkeypatch.setattr(InterferenceGuard, "_team_burst", lambda self: next(team))
    made = InterferenceGuard(
        cast(Any, None),
        1,
        BURST_SECS,
        threads,
        team_burst_secs,
        clock=lambda: fake.now,
        sleep=fake.sleep,
    )
    return made, fake


def test_an_undisturbed_round_counts_and_costs_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, fake = quiet(monkeypatch, iter(()), iter(()), threads=1)
    assert cores.counts(BURST_SECS * (DISTURBED_RATIO - 0.01))
    assert fake.slept == []


def test_a_slow_clock_is_waited_out_and_the_round_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores, fake = quiet(monkeypatch, iter([2 * BURST_SECS, BURST_SECS]), iter(()), threads=1)
    assert not cores.counts(2 * BURST_SECS)
    assert len(fake.slept) == 2


def test_a_second_core_at_half_speed_is_seen_though_the_first_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = iter([2 * BURST_SECS, 2 * BURST_SECS, BURST_SECS])
    cores, fake = quiet(monkeypatch, iter([BURST_SECS] * 3), team, threads=2)
    assert not cores.counts(BURST_SECS)
    assert len(fake.slept) == 2


def test_cores_that_are_always_slower_together_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = iter([2 * BURST_SECS, 2.1 * BURST_SECS, 2 * BURST_SECS])
    cores, fake = quiet(monkeypatch, iter(()), team, threads=2, team_burst_secs=None)
    assert [cores.counts(BURST_SECS) for _ in range(3)] == [True, True, True]
    assert fake.slept == []
    assert cores.team_burst_secs == 2 * BURST_SECS


def test_a_repeated_round_uses_up_patience_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    own = iter([BURST_SECS] * 100)
    cores, _ = quiet(monkeypatch, own, iter(()), threads=1)
    rounds = 0
    while not cores.counts(2 * BURST_SECS, round_secs=0.5):
        rounds += 1
    assert rounds == 2


def test_patience_ends_once_for_all_rounds_of_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    def for_ever() -> Iterator[float]:
        while True:
            yield 3 * BURST_SECS

    cores, fake = quiet(monkeypatch, for_ever(), for_ever(), threads=1)
    assert cores.counts(3 * BURST_SECS)
    assert fake.now == pytest.approx(cores.patience_secs)
    assert cores.counts(3 * BURST_SECS)
    assert fake.now == pytest.approx(cores.patience_secs)


def test_the_first_undisturbed_burst_is_the_last() -> None:
    calls = 0

    def burst() -> None:
        nonlocal calls
        calls += 1

    cores = InterferenceGuard(cast(Any, None), 1, BURST_SECS, threads=1)
    assert cores._fastest(burst, undisturbed_secs=1e9) < 1e9
    assert calls == 1
    cores._fastest(burst, undisturbed_secs=0.0)
    assert calls == 1 + 40


def test_the_burst_of_a_team_runs_on_openmp() -> None:
    from tilewright.tuner.backend.cpu.loading import loader
    from tilewright.tuner.backend.cpu.loading.native import build_helpers
    from tilewright.tuner.backend.cpu.memory.guarded import GUARD_BYTES

    try:
        loader.load_openmp()
    except loader.MissingLibraryError as missing:
        pytest.skip(str(missing))
    helpers = build_helpers(1, 4, GUARD_BYTES)
    assert InterferenceGuard(helpers, 1000, BURST_SECS, threads=2)._team_burst() > 0
