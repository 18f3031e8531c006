"""Which object code a measurer keeps for races."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.schedules import operators
from tilewright.schedules.primitives.loops import Split
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.trace import Trace
from tilewright.tuner.compiling.pool import Compiled, CompilePool
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.checking.objects import MeasuredObjects, sha256
from tilewright.tuner.measure.local import LocalMeasurer
from tilewright.tuner.measure.protocol import MeasureRequest


def ok(secs: float) -> MeasureResult:
    return MeasureResult(MeasureStatus.OK, run_secs=(secs,), run_secs_estimate=secs)


def built(name: str, size: int = 10) -> Compiled:
    return Compiled(3, MeasureStatus.OK, 0.5, object_bytes=name.encode() * size, symbol=name)


def trace(number: int) -> Trace:
    return Trace((Split("i", 2 + number),))


def test_the_fastest_and_the_first_are_kept() -> None:
    objects = MeasuredObjects(most_bytes=25)
    for number, secs in enumerate((9.0, 5.0, 3.0, 7.0, 4.0)):
        objects.add(trace(number), built(str(number)), ok(secs))
    kept = [n for n in range(5) if objects.compiled(trace(n), 0) is not None]
    assert kept == [0, 2, 4]
    assert all(objects.sha256(trace(n)) == sha256(str(n).encode() * 10) for n in range(5))


def test_kept_code_took_no_time_and_has_a_new_key() -> None:
    objects = MeasuredObjects()
    objects.add(trace(0), built("a"), ok(1.0))
    found = objects.compiled(trace(0), 7)
    assert found is not None
    assert (found.key, found.secs, found.symbol) == (7, 0.0, "a")


def test_failures_are_not_kept() -> None:
    objects = MeasuredObjects()
    objects.add(trace(0), built("a"), MeasureResult(MeasureStatus.WRONG_RESULT))
    objects.add(trace(1), built("b"), None)
    assert objects.compiled(trace(0), 0) is None is objects.compiled(trace(1), 0)
    assert objects.sha256(trace(0)) == sha256(b"a" * 10)


def test_dropping_keeps_the_hashes() -> None:
    objects = MeasuredObjects()
    objects.add(trace(0), built("a"), ok(1.0))
    objects.drop()
    assert objects.compiled(trace(0), 0) is None
    assert objects.sha256(trace(0)) is not None


def test_a_race_compiles_nothing_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are compiled again: a session measures a candidate once."""
    submitted = list[int]()
    submit = CompilePool.submit

    def noted(self: CompilePool, key: int, document: dict[str, Any]) -> None:
        submitted.append(key)
        submit(self, key, document)

    monkeypatch.setattr(CompilePool, "submit", noted)
    workload = operators.build("matmul", M=16, N=16, K=16).normalised()
    one, raced = MeasureRequest(1, Trace()), MeasureRequest(1, Trace(), compared=True)
    with LocalMeasurer(workload, detect(), 0) as measurer:
        assert measurer.measure([one])[0].ok
        (again,) = measurer.measure([raced])
        assert again.ok
        assert again.compile_secs == 0.0
        assert again.run_secs
        assert submitted == [0]
        assert measurer.measure([one])[0].compile_secs > 0.0
        assert submitted == [0, 0]
        assert measurer.confirm(one).ok
