"""Other spellings of a computation, by which searches for one of them begin."""

from __future__ import annotations

from typing import Any

from tests.contracts.models_contract import RELATED, SETTING
from tests.contracts.store_values import TARGET, a_record
from tilewright.db import Store, related_records
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

ROWS, PIXELS, PLANES = (
    parse_workload(expr=f"Y[{axes}] = exp(X[{axes}])", tensors=[f"X=f32[{shape}]"])
    for axes, shape in (("i,j", "12,20"), ("i", "240"), ("i,j,k", "3,4,20"))
)
OTHER = parse_workload(expr="Y[i,j] = exp(X[j,i])", tensors=["X=f32[20,12]"])


def keep(
    store: Store, workload: Workload, secs: float, target: Target = TARGET, **more: Any
) -> str:
    """Store a record of a workload; return its key."""
    document = workload.to_json()
    store.register(workload.key, document, workload.name, 240, target.key, target.to_json())
    record = a_record(
        1, secs, workload_key=workload.key, target_key=target.key, setting=SETTING,
        prior_secs=1e-3, **more,
    )  # fmt: skip
    store.add([record])
    return record.key


class SpellingsContract:
    """Workloads of one form are found, on exactly the target, by their records' times."""

    def test_other_spellings_come_first_the_fastest_first(self, store: Store) -> None:
        keep(store, PLANES, 3e-3)
        keep(store, ROWS, 2e-3)
        keep(store, OTHER, 1e-3)
        found = store.related(PIXELS, TARGET, 4)
        assert [one.spelling.key for one in found if one.spelling] == [ROWS.key, PLANES.key]
        assert [one.distance for one in found] == [0.0, 0.0]
        assert related_records(store.url, PIXELS, TARGET) == found
        assert store.related(PIXELS, TARGET, 1) == found[:1]
        keep(store, PIXELS, 1e-3)
        own = [one.spelling for one in store.related(PIXELS, TARGET, 4) if one.is_same_workload]
        assert own == [None], "its own records are no spelling"
        assert all(one.spelling is None for one in store.related(OTHER, TARGET, 4))

    def test_records_that_are_of_no_use_are_no_spellings(self, store: Store) -> None:
        keep(store, ROWS, 2e-3, RELATED)
        keep(store, PLANES, 2e-3, verified_level="imported")
        assert store.related(PIXELS, TARGET, 4) == []
        store.withdraw(keep(store, ROWS, 2e-3), "wrong")
        assert store.related(PIXELS, TARGET, 4) == []
        keep(store, ROWS, 4e-3)
        (found,) = store.related(PIXELS, TARGET, 4)
        assert [r.result.run_secs_estimate for r in found.records] == [4e-3]
        assert store.related(PIXELS, TARGET, 4, before="2000") == []
