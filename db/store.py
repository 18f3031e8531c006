"""`Store`: the public interface of the database, on SQLite and on PostgreSQL.

`Store` inherits from one class per subject. The docstring of a public method is its contract.
`tests/contracts/store_contract.py` tests both databases against these contracts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

from .answers.evidence import EvidenceStore
from .answers.preparations import PreparationStore
from .jobs.history import HistoryStore
from .jobs.jobs import JobStore
from .jobs.keys import KeyStore
from .jobs.leases import LeaseStore
from .records.best import BestStore
from .records.blobs import FileStore
from .records.claims import ClaimStore
from .records.records import RecordStore
from .records.related import RelatedStore
from .records.works import WorkStore
from .whole.catalogue import Catalogue
from .whole.check import CheckStore
from .whole.copying import CopyStore
from .whole.prune import PruneStore
from .whole.stats import StatsStore
from .whole.transfer import TransferStore
from .whole.upgraded import UpgradeStore


class Store(
    WorkStore,
    RecordStore,
    RelatedStore,
    BestStore,
    ClaimStore,
    FileStore,
    JobStore,
    LeaseStore,
    HistoryStore,
    KeyStore,
    EvidenceStore,
    PreparationStore,
    TransferStore,
    CheckStore,
    CopyStore,
    PruneStore,
    StatsStore,
    UpgradeStore,
):
    """Workloads, targets, records, jobs, answers and keys, stored durably. It is a `RecordSink`.

    **Acknowledgement.** When a call returns, its changes are on disk: they survive `kill -9`, a
    lost connection and power loss. A call that raised StoreError may be repeated safely, because
    every write is identified by its content, its key or its epoch.

    **One transaction per call.** A call reads one snapshot of the database, and writes everything
    or nothing. `import_`, which commits batch by batch, is the exception.

    **Threads and processes.** Any thread may call. A forked child must open its own store, or its
    calls raise RuntimeError. Any number of processes may open the database; at most one of them is
    its coordinator.

    **Damage.** Every row has a hash, which is checked when the row is read. A damaged row counts as
    missing: a lookup returns None, and a list omits it. A warning is logged to `tilewright.db`, and
    `check` lists the row. Storing the same value again repairs it if possible.

    **Errors.** Any call may raise StoreError: the database cannot be used, only temporarily if the
    error is `transient`. RefusedError means that the database works and the call is not valid.
    """

    @cached_property
    def catalogue(self) -> Catalogue:
        """Read-only queries for the dashboard: lists of jobs, bests and trials."""
        return Catalogue(self._database)

    @property
    def url(self) -> str:
        """The URL of the database. It may contain a password: never display it."""
        return self._database.url

    def close(self) -> None:
        """Close the connections, and release the coordinator's lock."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
