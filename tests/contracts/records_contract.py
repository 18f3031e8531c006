"""Workloads, targets and records of a store: as they were given, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.contracts.store_values import (
    OTHER_WORKLOAD,
    TARGET,
    WORKLOAD,
    WORKLOADS,
    a_record,
    all_records,
    full,
    probes_of,
    promoted,
    register,
)
from tilewright.db import Store
from tilewright.db.errors import BadPageToken, KeyConflict, RefusedError


class RecordsContract:
    """What is measured, and of what. `damage(SQL)` edits behind the back of `store`."""

    def test_the_first_name_stays_and_probes_are_renewed(self, store: Store) -> None:
        renamed = json.dumps(WORKLOADS[WORKLOAD].to_json()).replace('"A"', '"Z"')
        probed = TARGET.to_json() | {"probes": {"peak_gflops": {"f32": [100.0]}}}
        store.register(WORKLOAD, json.loads(renamed), "another name", 7, TARGET.key, probed)
        workload = store.workload(WORKLOAD)
        assert workload is not None
        assert (workload.name, workload.flops) == ("neg:1", 1024)
        assert workload.document == WORKLOADS[WORKLOAD].to_json(), "the first spelling"
        assert probes_of(store) == {"f32": [100.0]}
        register(store)  # mocked timings have no probes, and take none away
        assert probes_of(store) == {"f32": [100.0]}
        assert store.workload("none") is None
        assert store.target("none") is None

    def test_one_key_cannot_stand_for_two_computations(self, store: Store) -> None:
        other = WORKLOADS[OTHER_WORKLOAD].to_json()
        with pytest.raises(KeyConflict, match=f"the one given has the key {OTHER_WORKLOAD}"):
            store.register(WORKLOAD, other, "x", 1, TARGET.key, TARGET.to_json())

    def test_keys_and_flops_are_held_to_their_range(self, store: Store) -> None:
        with pytest.raises(RefusedError, match=r"flops: must be in 0\.\.2\*\*63-1"):
            store.register("w", {}, "x", 2**63, TARGET.key, TARGET.to_json())
        with pytest.raises(RefusedError, match=r"key: must be text of 1\.\.80 characters"):
            store.register("", {}, "x", 1, TARGET.key, TARGET.to_json())

    def test_a_damaged_workload_is_not_served_and_mended_by_registering(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        damage("UPDATE workload SET flops = 1025")
        damage("UPDATE target SET document = '{}'")
        assert store.workload(WORKLOAD) is None
        assert store.target(TARGET.key) is None
        assert {p.kind for p in store.check()} == {"workload", "target"}
        register(store)
        assert store.workload(WORKLOAD) is not None
        assert probes_of(store) == {}
        assert store.check() == []

    def test_records_are_given_in_the_order_of_arrival(self, store: Store) -> None:
        records = [a_record(trial) for trial in (3, 1, 2)]
        store.add(records)
        store.add(records[:2])
        assert store.records(WORKLOAD, TARGET.key) == records == all_records(store)
        assert store.counts().records == 3
        assert store.records(OTHER_WORKLOAD, TARGET.key) == []

    @pytest.mark.parametrize("token", ["x", "-1", "1; DROP TABLE record", "9" * 30, ""])
    def test_a_foreign_page_token_is_refused(self, store: Store, token: str) -> None:
        with pytest.raises(BadPageToken, match="give the next_token"):
            store.list_jobs(token)

    @pytest.mark.parametrize(
        "change",
        [
            "estimate_secs = 0.0005",
            "status = 'run_crash', estimate_secs = NULL",
            "document = replace(document, '0.001', '0.002')",
            "document = CAST(x'ff' AS TEXT)",
            "document = x'00'",
            "verified_level = 'imported'",
            "row_sha256 = ''",
            "trial = 3",
            "created_at = ''",
        ],
    )
    def test_a_damaged_record_is_never_served(
        self, store: Store, damage: Callable[[str], None], change: str
    ) -> None:
        record = full(1, 1e-3)
        assert promoted(store, record)
        damage(f"UPDATE record SET {change}")
        assert store.best(WORKLOAD, TARGET.key) is None
        assert store.record(record.key) is None
        assert store.records(WORKLOAD, TARGET.key, include_imported=True) == []
        assert "record" in {p.kind for p in store.check()}
        assert promoted(store, full(2, 5e-3)), "a sound one takes its place"
        assert store.best_history(WORKLOAD, TARGET.key)[-1].reason == "incumbent damaged"
