"""`verify --all`: check records of other toolchains, and imported ones, with this toolchain.

A record that passes becomes an answer of this toolchain, so after an interruption the command
continues with the remaining records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.db.values.answers import MAX_CLAIMS
from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.service import database
from tilewright.service.answers.grades import same_toolchain
from tilewright.service.answers.verification import Verification, verify_stored
from tilewright.service.problems import problem_of
from tilewright.service.resolve import toolchains, workloads

if TYPE_CHECKING:
    from tilewright.db import Store

# Start-up: wrong usage is reported before SQLAlchemy and the checker are loaded.


@dataclass(frozen=True, slots=True)
class UnverifiedTask:
    """A task without an answer of this toolchain."""

    name: str
    workload_document: dict[str, Any]
    target: Target
    records: tuple[TuningRecord, ...]
    """The records that may provide an answer, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class CheckedTask:
    """A task after checking its records, up to the first that passed. `error` states why the checks
    ended early, or is ""."""

    waiting: UnverifiedTask
    checks: tuple[Verification, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        return any(check.result.ok for check in self.checks)

    @property
    def outcome(self) -> str:
        if self.error:
            return self.error
        last = self.checks[-1]
        if last.result.ok:
            return "verified"
        end = "; withdrawn" if last.withdrawn else ""
        detail = f": {last.result.detail}" if last.result.detail else ""
        return f"{last.result.status}{detail}{end}"

    def to_json(self) -> dict[str, Any]:
        first = self.waiting.records[0]
        return {
            "name": self.waiting.name,
            "workload_key": first.workload_key,
            "target_key": first.target_key,
            "threads": first.threads,
            "verified": self.passed,
            "error": self.error,
            "checks": [check.to_json() for check in self.checks],
        }


def unverified_tasks(store: Store, fits: Callable[[Target], bool]) -> Iterator[UnverifiedTask]:
    """Yield the tasks to verify, for targets that `fits` accepts. Tasks whose best is of another
    toolchain come first."""
    here = toolchains.toolchain()
    for workload_key, target_key in store.works_to_verify(here):
        entry, document = store.workload(workload_key), store.target(target_key)
        if entry is None or document is None:
            continue  # damaged; `db check` reports it
        target = Target.from_json(document)
        if not fits(target):
            continue
        best = store.best(workload_key, target_key)
        stale = best is not None and not same_toolchain(best.toolchain, here)
        own = [best] if best is not None and stale else []
        records = [*own, *store.claims(workload_key, target_key)[:MAX_CLAIMS]]
        if records:
            yield UnverifiedTask(entry.name or entry.key, entry.document, target, tuple(records))


def check_task(db: str | None, work: UnverifiedTask, seed: int) -> CheckedTask:
    """Check the records of a task until one passes. An error of the task is stored in the result.
    Raise StoreError if the database cannot be used."""
    checks: list[Verification] = []
    try:
        workload = workloads.workload_of(work.workload_document).named(work.name)
        for record in work.records:
            trace = Trace.from_json(record.trace)
            checks.append(verify_stored(db, workload, work.target, record.key, trace, seed))
            if checks[-1].result.ok:
                break
    except TilewrightError as error:
        if problem_of(error).status == 503:  # the database, not this task
            raise
        return CheckedTask(work, tuple(checks), str(error))
    return CheckedTask(work, tuple(checks))


def find_unverified(db: str | None, fits: Callable[[Target], bool]) -> list[UnverifiedTask]:
    """Return `unverified_tasks` of the database that `--db` names; none if there is no database."""
    with database.open_existing(db) as store:
        return [] if store is None else list(unverified_tasks(store, fits))
