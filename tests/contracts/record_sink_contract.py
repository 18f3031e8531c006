"""What the tuner relies on of a store: records that stay, and a best that only gets better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.store_values import (
    TARGET,
    TOOLCHAIN,
    WORKLOAD,
    a_record,
    full,
    promoted,
)
from tilewright.db import Store
from tilewright.db.errors import InvalidRecord, NotRegistered
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain


class RecordSinkContract:
    """What the tuner relies on. The fixture `store` knows WORKLOAD on TARGET."""

    def test_records_come_back_as_they_were_in_the_order_they_came(self, store: Store) -> None:
        first, second = a_record(2), a_record(1, None)
        store.add([first])
        store.add([second])
        assert store.records(WORKLOAD, TARGET.key) == [first, second]
        assert [r.key for r in store.records(WORKLOAD, TARGET.key)] == [first.key, second.key]

    def test_adding_again_changes_nothing(self, store: Store) -> None:
        record = a_record()
        store.add([record, record])
        store.add([replace(record, created_at="2020-01-01T00:00:00Z")])
        assert len(store.records(WORKLOAD, TARGET.key)) == 1

    def test_a_record_without_a_time_of_day_gets_the_stores(self, store: Store) -> None:
        store.add([a_record(1), a_record(2, created_at="2026-02-01T13:00:00+01:00")])
        moments = [r.created_at for r in store.records(WORKLOAD, TARGET.key)]
        assert moments == ["2026-01-31T12:00:00.000000Z", "2026-02-01T12:00:00.000000Z"]

    def test_all_or_none_of_a_batch_is_stored(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match=r"call register\(\) first"):
            store.add([a_record(1), a_record(2, workload_key="sha256:unknown")])
        assert store.records(WORKLOAD, TARGET.key) == []

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"result": MeasureResult(MeasureStatus.OK)}, "status ok needs a time"),
            (
                {"result": MeasureResult(MeasureStatus.RUN_CRASH, (1.0,))},
                "status run_crash must carry no time",
            ),
            *(
                ({"result": MeasureResult(MeasureStatus.OK, (), secs)}, r"must be in 0\.\.1e\+06 s")
                for secs in (float("nan"), float("inf"), 0.0, -1.0, 1e6)
            ),
            (
                {"result": MeasureResult(MeasureStatus.OK, (1.0, float("nan")), 1.0)},
                "got nan",
            ),
            (
                {"result": MeasureResult(MeasureStatus.LOST, compile_secs=float("inf"))},
                "compile_secs: must be a duration",
            ),
            ({"threads": 0}, r"threads: must be a whole number in 1\.\.65535, got 0"),
            ({"seed": -1}, "seed: must be a whole number"),
            ({"trial": True}, "trial: must be a whole number"),
            ({"trace": {}}, "trace: must be a list, got dict"),
            ({"trace": [float("nan")]}, "trace: not JSON data"),
            ({"verified_level": ""}, r"verified_level: must be text of 1\.\.16 characters"),
            ({"created_at": "yesterday"}, "created_at: must be an RFC 3339 time"),
            ({"created_at": "2026-01-01T00:00:00"}, "created_at: must be .* with its zone"),
        ],
    )
    def test_a_record_that_contradicts_itself_is_refused(
        self, store: Store, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidRecord, match=message):
            store.add([a_record(**changes)])
        assert store.records(WORKLOAD, TARGET.key) == []

    def test_only_a_strictly_faster_fully_verified_record_becomes_best(self, store: Store) -> None:
        slow, equal, fast = full(1, 2e-3), full(2, 2e-3), full(3, 1e-3)
        assert not promoted(store, a_record(9, 1e-6)), "checked quickly only"
        assert not promoted(store, a_record(8, None, verified_level="full")), "it crashed"
        assert store.best(WORKLOAD, TARGET.key) is None
        assert promoted(store, slow)
        assert not promoted(store, equal), "equal times leave the older"
        assert promoted(store, fast)
        assert store.promote(fast), "it still is"
        assert not store.promote(slow)
        assert store.best(WORKLOAD, TARGET.key) == fast

    def test_a_record_that_is_not_stored_cannot_be_best(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match="add it first"):
            store.promote(full(1, 1e-3))

    def test_a_newer_toolchain_takes_over_and_an_older_never_does(self, store: Store) -> None:
        new = replace(TOOLCHAIN, llvm="22.10.0")  # 10 is later than 9: numbers, not text
        old = replace(TOOLCHAIN, llvm="22.9.0")
        assert promoted(store, full(1, 1e-3, toolchain=old))
        assert promoted(store, full(2, 3e-3, toolchain=new))
        assert not promoted(store, full(3, 1e-6, toolchain=old))
        reasons = [move.reason for move in store.best_history(WORKLOAD, TARGET.key)]
        assert reasons == ["first", "newer toolchain"]

    def test_mocked_timings_compare_by_time_and_give_way_to_real_ones(self, store: Store) -> None:
        one, other = Toolchain(0, "simulated", "9c1"), Toolchain(0, "simulated", "3f2")
        assert promoted(store, full(1, 2e-3, toolchain=one))
        assert promoted(store, full(2, 1e-3, toolchain=other))
        assert promoted(store, full(3, 3e-3))
        assert not promoted(store, full(4, 1e-9, toolchain=one))
