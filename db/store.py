"""`Store`: the public interface of the database, on SQLite and on PostgreSQL.

Each part is a class for one subject; a public method is one transaction and states its contract.
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
):
    """Workloads, targets, records, jobs, answers and keys, stored durably. A `Store` satisfies the
    tuner's `RecordSink`.

    **Acknowledgement.** A call that returned has been committed to disk: it survives `kill -9`, a
    lost connection and power loss. A call that raised StoreError was not acknowledged; repeating it
    is safe, since every write is identified by its content, its key or its epoch.

    **One transaction per call.** A call reads one snapshot of the database, and writes everything
    or nothing. `import_`, which commits batch by batch, is the exception.

    **Threads and processes.** Any thread may call. A forked child must open its own store
    (otherwise RuntimeError is raised). Any number of processes may open the database; one of them
    at a time is its coordinator.

    **Damage.** Rows have hashes, which are checked when they are read. A damaged row is not served
    (None, or left out), a line is logged to `tilewright.db`, `check` lists the row, and storing the
    same value again repairs it if possible.

    **Errors.** Any call may raise StoreError: the database cannot be used, temporarily if
    `transient` (StoreBusy after `timeout_secs` of waiting, StoreFull, StoreUnreachable after some
    seconds of retries). RefusedError means that the database works and the call is not valid.
    """

    @cached_property
    def catalogue(self) -> Catalogue:
        """The lists of jobs, bests and trials for pages and the command line, which never write."""
        return Catalogue(self._database)

    @property
    def url(self) -> str:
        """The URL that opens the same database. It may contain a password: never display it."""
        return self._database.url

    def close(self) -> None:
        """Close the connections, and release the coordinator's lock."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
