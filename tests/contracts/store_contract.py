"""What every store keeps to, whatever it is made of. Subclass it and give the fixtures.

`store` knows WORKLOAD on TARGET; `clock` is its clock, and `damage(SQL)` edits behind its back.
Jobs are in `job_store_contract.py`, what answers are made with in `answer_store_contract.py`.
"""

from __future__ import annotations

from tests.contracts.best_contract import BestContract
from tests.contracts.copies_contract import CopiesContract
from tests.contracts.damage_contract import DamageContract
from tests.contracts.files_contract import FilesContract
from tests.contracts.models_contract import ModelsContract
from tests.contracts.record_sink_contract import RecordSinkContract
from tests.contracts.records_contract import RecordsContract
from tests.contracts.spellings_contract import SpellingsContract
from tests.contracts.store_values import WORKLOAD
from tilewright.db import Store, open_store


class StoreContract(
    RecordSinkContract,
    RecordsContract,
    ModelsContract,
    BestContract,
    FilesContract,
    CopiesContract,
    DamageContract,
    SpellingsContract,
):
    """All of them, and what a store says of itself."""

    def test_a_store_tells_what_it_is(self, store: Store) -> None:
        assert "postgres@" not in store.name
        assert store.path is None or str(store.path) == store.name
        with open_store(store.url, create=False, upgrade=False) as again:
            assert again.workload(WORKLOAD) is not None
