"""Full checks of one work: what is disproved stays so, what a machine could not do does not."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tilewright.schedules.full_checks import MOCKED, NONE_KNOWN, FullChecks
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord

HERE = Toolchain(7, "0.50.0", "22.1.0")
TRACE: list[Any] = [{"do": "Unroll", "loop": "s0.d0"}]
OK, WRONG = MeasureStatus.OK, MeasureStatus.WRONG_RESULT
LATE, LOST = MeasureStatus.RUN_TIMEOUT, MeasureStatus.LOST


def a_check(
    status: MeasureStatus, level: str = "full", toolchain: Toolchain = HERE, seed: int = 0
) -> TuningRecord:
    secs = 1e-3 if status is OK else None
    result = MeasureResult(status, (1e-3,) if secs else (), secs, detail="" if secs else "why")
    return TuningRecord("w", "t", 1, TRACE, result, toolchain, seed, 1, level)


@pytest.mark.parametrize(
    ("statuses", "refused"),
    [
        ((), False),
        ((OK,), False),
        ((WRONG,), True),
        ((MeasureStatus.OUT_OF_BOUNDS, OK), True),
        ((WRONG, OK, LATE), True),
        ((LATE,), True),
        ((LATE, MeasureStatus.OUT_OF_MEMORY), True),
        ((LATE, OK), False),
        ((LOST,), False),
    ],
)
def test_checks_of_one_schedule_say_the_same_in_any_order(
    statuses: tuple[MeasureStatus, ...], refused: bool
) -> None:
    for order in permutations(statuses):
        records = [a_check(status, seed=n) for n, status in enumerate(order)]
        checks = FullChecks.of((record, None) for record in records)
        assert (checks.refusal(TRACE, HERE) is not None) == refused
        assert checks.refusal([], HERE) is None


def test_only_full_checks_and_withdrawals_count() -> None:
    quick = a_check(WRONG, "quick")
    assert FullChecks.of([(quick, None), (a_check(OK, "imported"), None)]) == NONE_KNOWN
    withdrawn = FullChecks.of([(a_check(OK), "element 7 is wrong"), (a_check(OK, seed=1), None)])
    assert str(withdrawn.refusal(TRACE, HERE)) == ("wrong_result: withdrawn: element 7 is wrong")


def test_a_check_is_of_code_that_one_toolchain_made() -> None:
    newer = Toolchain(8, "0.50.0", "22.1.0")
    checks = FullChecks.of([(a_check(WRONG), None)])
    assert checks.refusal(TRACE, newer) is None
    assert checks.refusal(TRACE, Toolchain(7, "0.50.0", "")) is not None, "llvmlite fixes LLVM"


def test_mocked_checks_count_until_code_was_run() -> None:
    mocked = a_check(WRONG, toolchain=Toolchain(MOCKED, "simulated", "abc"))
    only = FullChecks.of([(mocked, None)])
    assert only.refusal(TRACE, HERE) is not None
    assert [str(check) for check in only.failures(HERE)] == ["wrong_result: why"]
    run = FullChecks.of([(mocked, None), (a_check(OK), None)])
    assert run.refusal(TRACE, HERE) is None
