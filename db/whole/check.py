"""Checks of the invariants of the database, by the numbers of docs/database.md:

I1  every acknowledged trial is stored
I2  there is one row per record, trial of a job, best of a task, and idempotency key
I3  every best record exists, is intact, measured, verified in full and not withdrawn
I4  a best becomes slower only by a move that states a valid reason
I5  no write to a job was made after the end of its lease
I6  every trial of a finished job has a record
I7  only running jobs have leases, and the blobs of all files of records exist
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.full_checks import FULL
from tilewright.schedules.record import Toolchain

from ..core.hashes import (
    ARTEFACT,
    PREPARATION,
    PREPARED_FILE,
    RECORD,
    TARGET,
    WORKLOAD,
    is_intact,
)
from ..core.models import (
    UNKNOWN_MOMENT,
    ApiKeyRow,
    ArtefactRow,
    BestMoveRow,
    BestRow,
    BlobRow,
    JobEventRow,
    JobRequestRow,
    JobRow,
    JobTrialRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    TargetRow,
    WithdrawnRow,
    WorkloadRow,
)
from ..core.parts import StorePart
from ..errors import StoreBroken
from ..jobs.keys import is_intact_key
from ..jobs.rows import is_intact_row
from ..records.best import generation
from ..records.blobs import is_intact_blob
from ..records.full_checks import refusals_of_work
from ..records.rows import from_row, key_of, record_of
from ..records.works import target_key_of, workload_key_of
from ..values.job_states import JobState
from ..values.whole import Inconsistency

_CHANGED = "the row is not what was written (its hash differs)"
_READ_BY = 500


class CheckStore(StorePart):
    """The method of a store that checks its consistency."""

    def check(self, acknowledged: Iterable[str] = ()) -> list[Inconsistency]:
        """Return every inconsistency of the database, one kind after the other. A record with a key
        in `acknowledged` must be stored."""
        database = self._database
        found: list[Inconsistency] = []
        try:
            found += (Inconsistency("file", database.name, line) for line in database.damage())
        except StoreBroken as error:
            found.append(Inconsistency("file", database.name, str(error)))
        parts: list[Callable[[Session], Iterator[Inconsistency]]] = [
            partial(_acknowledged, keys=frozenset(acknowledged)),
            _once,
            _works,
            _records,
            _bests,
            _history,
            _slower,
            _blobs,
            _artefacts,
            _preparations,
            _jobs,
            _job_requests,
            _job_events,
            _job_trials,
            _keys,
        ]
        for part in parts:
            try:
                with database.reading() as session:
                    found.extend(part(session))
            except StoreBroken as error:
                name = getattr(part, "__name__", "_acknowledged").strip("_")
                found.append(Inconsistency("file", name, str(error)))
        return found


def _acknowledged(session: Session, keys: frozenset[str]) -> Iterator[Inconsistency]:
    """Check I1 for the given keys, and for the trials that job events report."""
    stored = set(session.scalars(select(RecordRow.key)))
    for key in sorted(keys - stored):
        yield Inconsistency("missing", key, "was acknowledged and is not stored", "I1")
    trials = select(JobEventRow).where(JobEventRow.kind == "trial").order_by(JobEventRow.id)
    for event in session.scalars(trials.execution_options(yield_per=_READ_BY)):
        found = json.loads(event.data).get("record_key") if is_intact_row(event) else None
        if isinstance(found, str) and found not in stored:
            problem = f"job {event.job_id} reported it, but it is not stored"
            yield Inconsistency("missing", found, problem, "I1")


def _once(session: Session) -> Iterator[Inconsistency]:
    """Check I2: no key is stored twice. Constraints ensure this unless an index is damaged."""
    names: dict[str, tuple[InstrumentedAttribute[Any], ...]] = {
        "record": (RecordRow.key,),
        "best": (BestRow.workload_key, BestRow.target_key),
        "job": (JobRow.id,),
        "job_trial": (JobTrialRow.job_id, JobTrialRow.trial),
        "job_request": (JobRequestRow.idempotency_key,),
    }
    for kind, columns in names.items():
        twice: Select[Any] = select(*columns).group_by(*columns).having(func.count() > 1)
        for row in session.execute(twice):
            yield Inconsistency(kind, "/".join(map(str, row)), "is stored more than once", "I2")


def _works(session: Session) -> Iterator[Inconsistency]:
    for workload in session.scalars(select(WorkloadRow)):
        if not is_intact(workload, WORKLOAD):
            yield Inconsistency("workload", workload.key, _CHANGED)
            continue
        yield from _other_key("workload", workload.key, workload_key_of, workload.document)
    for target in session.scalars(select(TargetRow)):
        if not is_intact(target, TARGET):
            yield Inconsistency("target", target.key, _CHANGED)
            continue
        yield from _other_key("target", target.key, target_key_of, target.document)


def _other_key(
    kind: str, key: str, key_of_document: Callable[[Any], str], document: str
) -> Iterator[Inconsistency]:
    try:
        made = key_of_document(json.loads(document))
    except (ValueError, TilewrightError) as error:
        yield Inconsistency(kind, key, f"document is not a {kind}: {error}")
    else:
        if made != key:
            yield Inconsistency(kind, key, f"document has the key {made}")


def _records(session: Session) -> Iterator[Inconsistency]:
    statement = select(RecordRow).order_by(RecordRow.id).execution_options(yield_per=500)
    for row in session.scalars(statement):
        if not is_intact(row, RECORD):
            yield Inconsistency("record", row.key, _CHANGED)
            continue
        try:
            document = json.loads(row.document)
            record_of(document)
        except (ValueError, TilewrightError) as error:
            yield Inconsistency("record", row.key, f"document is not a record: {error}")
        else:
            if key_of(document) != row.key:
                yield Inconsistency("record", row.key, f"document has the key {key_of(document)}")


def _bests(session: Session) -> Iterator[Inconsistency]:
    """Check I3: the record of every best may be served."""
    statement = (
        select(BestRow, RecordRow, WithdrawnRow.reason)
        .join(RecordRow, RecordRow.key == BestRow.record_key, isouter=True)
        .join(WithdrawnRow, WithdrawnRow.record_key == BestRow.record_key, isouter=True)
    )
    for best, record, reason in session.execute(statement):
        broken = partial(
            Inconsistency, "best", f"{best.workload_key}/{best.target_key}", invariant="I3"
        )
        if best.record_key is None:
            continue
        if record is None:
            yield broken(f"points at {best.record_key}, which is not stored")
            continue
        if not is_intact(record, RECORD):
            yield broken(f"points at {record.key}, which is damaged")
        if (record.workload_key, record.target_key) != (best.workload_key, best.target_key):
            yield broken(f"points at {record.key}, a record of another task")
        if record.status != "ok" or record.verified_level != FULL:
            yield broken(
                f"points at {record.key}: status {record.status}, verified {record.verified_level}"
            )
        if reason is not None:
            yield broken(f"points at {record.key}, withdrawn: {reason}")
            continue
        checks = refusals_of_work(session, (best.workload_key, best.target_key))
        value = from_row(record)
        failed = None if value is None else checks.refusal(value.trace, value.toolchain)
        if failed is not None:
            yield broken(f"points at {record.key}, whose schedule failed its full check: {failed}")


def _history(session: Session) -> Iterator[Inconsistency]:
    """Check that the moves of each pointer form a chain that ends at its present record."""
    chains: dict[tuple[str, str], list[BestMoveRow]] = {}
    for move in session.scalars(select(BestMoveRow).order_by(BestMoveRow.version)):
        chains.setdefault((move.workload_key, move.target_key), []).append(move)
    for best in session.scalars(select(BestRow)):
        moves = chains.pop((best.workload_key, best.target_key), [])
        subject = f"{best.workload_key}/{best.target_key}"
        at: str | None = None
        for number, move in enumerate(moves, start=1):
            if move.version != number or move.from_record_key != at:
                yield Inconsistency(
                    "history", subject, f"move {move.version} does not follow {at}", "I4"
                )
                break
            at = move.to_record_key
        else:
            if len(moves) != best.version or at != best.record_key:
                said = f"the last move leads to {at}, not to the best"
                yield Inconsistency("history", subject, said, "I4")
    for work in chains:
        yield Inconsistency("history", "/".join(work), "moves of a best that does not exist")


def _slower(session: Session) -> Iterator[Inconsistency]:
    """Check I4: the reason that each move states is true."""
    old, new = aliased(RecordRow), aliased(RecordRow)
    statement = (
        select(BestMoveRow, old, new, WithdrawnRow.record_key)
        .join(old, old.key == BestMoveRow.from_record_key)
        .join(new, new.key == BestMoveRow.to_record_key)
        .join(WithdrawnRow, WithdrawnRow.record_key == BestMoveRow.from_record_key, isouter=True)
    )
    for move, before, after, withdrawn in session.execute(statement):
        if not (is_intact(before, RECORD) and is_intact(after, RECORD)):
            continue  # reported as damaged
        was_secs, is_secs = before.estimate_secs or 0.0, after.estimate_secs or 0.0
        age, faster = _generation(after) > _generation(before), is_secs < was_secs
        holds = {
            "faster": faster,
            "newer toolchain": age,
            "incumbent damaged": True,
        }.get(move.reason, move.reason.startswith("withdrawn: ") and withdrawn is not None)
        if not holds:
            yield Inconsistency(
                "history",
                f"{move.workload_key}/{move.target_key}",
                f"move {move.version} from {was_secs:g} to {is_secs:g} s "
                f"states the reason {move.reason!r}, which is wrong",
                "I4",
            )


def _generation(row: RecordRow) -> Any:
    return generation(Toolchain(row.codegen_version, row.llvmlite, row.llvm))


def _blobs(session: Session) -> Iterator[Inconsistency]:
    for row in session.scalars(select(BlobRow).execution_options(yield_per=20)):
        if not is_intact_blob(row):
            yield Inconsistency("blob", row.sha256, "the bytes do not have this hash")
        if row.created_at == UNKNOWN_MOMENT:
            yield Inconsistency("blob", row.sha256, "its timestamp is damaged")


def _artefacts(session: Session) -> Iterator[Inconsistency]:
    statement = select(ArtefactRow, BlobRow.sha256, func.length(BlobRow.data)).join(
        BlobRow, BlobRow.sha256 == ArtefactRow.sha256, isouter=True
    )
    for row, blob, size in session.execute(statement):
        subject = f"{row.record_key}/{row.kind}"
        if not is_intact(row, ARTEFACT):
            yield Inconsistency("artefact", subject, _CHANGED)
        elif blob is None or size != row.bytes:
            yield Inconsistency(
                "artefact", subject, f"blob {row.sha256} is missing or of another size", "I7"
            )


def _preparations(session: Session) -> Iterator[Inconsistency]:
    for row in session.scalars(select(PreparationRow)):
        if not is_intact(row, PREPARATION):
            yield Inconsistency("preparation", row.key, _CHANGED)
    statement = select(PreparedFileRow, BlobRow.sha256, func.length(BlobRow.data)).join(
        BlobRow, BlobRow.sha256 == PreparedFileRow.sha256, isouter=True
    )
    for file, blob, size in session.execute(statement):
        subject = f"{file.preparation_key}/{file.kind}"
        if not is_intact(file, PREPARED_FILE):
            yield Inconsistency("prepared file", subject, _CHANGED)
        elif blob is None or size != file.bytes:
            yield Inconsistency(
                "prepared file", subject, f"blob {file.sha256} is missing or damaged"
            )


def _jobs(session: Session) -> Iterator[Inconsistency]:
    """Check I7 (only running jobs have leases), and that a job's columns match its state."""
    for row in session.scalars(select(JobRow).execution_options(yield_per=_READ_BY)):
        if not is_intact_row(row):
            yield Inconsistency("job", row.id, _CHANGED)
            continue
        state = JobState(row.state)
        if (row.finished_at is not None) != state.final:
            yield Inconsistency("job", row.id, f"{state} with finished_at {row.finished_at}")
        leased = state in (JobState.RUNNING, JobState.CANCELLING)
        if (row.owner is not None) != leased:
            yield Inconsistency("job", row.id, f"{state} with owner {row.owner}", "I7")
        if row.flight_key is not None and not state.joinable:
            yield Inconsistency("job", row.id, f"{state} but still joined by equal requests")


def _keys(session: Session) -> Iterator[Inconsistency]:
    for row in session.scalars(select(ApiKeyRow)):
        if not is_intact_key(row):
            yield Inconsistency("key", row.id, _CHANGED)


def _job_requests(session: Session) -> Iterator[Inconsistency]:
    for row in session.scalars(select(JobRequestRow).execution_options(yield_per=_READ_BY)):
        if not is_intact_row(row):
            yield Inconsistency("job_request", row.idempotency_key, _CHANGED)


def _job_events(session: Session) -> Iterator[Inconsistency]:
    """Check I5: the epochs of a job's events never decrease."""
    now = _epochs(session)
    reached: dict[str, int] = {}
    statement = select(JobEventRow).order_by(JobEventRow.id)
    for row in session.scalars(statement.execution_options(yield_per=_READ_BY)):
        if not is_intact_row(row):
            yield Inconsistency("event", str(row.id), _CHANGED)
            continue
        before, last = reached.get(row.job_id, 0), now.get(row.job_id, row.epoch)
        if not before <= row.epoch <= last:
            said = f"job {row.job_id}: written under lease {row.epoch}, after {before}, of {last}"
            yield Inconsistency("event", str(row.id), said, "I5")
        reached[row.job_id] = max(before, row.epoch)


def _epochs(session: Session) -> dict[str, int]:
    """Return the current epoch of each intact job."""
    jobs = session.scalars(select(JobRow).execution_options(yield_per=_READ_BY))
    return {job.id: job.epoch for job in jobs if is_intact_row(job)}


def _job_trials(session: Session) -> Iterator[Inconsistency]:
    """Check I5 (no trial is newer than its job's lease) and I6 (a succeeded job has all
    records)."""
    now = _epochs(session)
    for row in session.scalars(select(JobTrialRow).execution_options(yield_per=_READ_BY)):
        epoch = now.get(row.job_id, row.epoch)
        subject = f"{row.job_id}/{row.trial}"
        if not is_intact_row(row):
            yield Inconsistency("job_trial", subject, _CHANGED)
        elif row.epoch > epoch:
            said = f"written under lease {row.epoch}, the job is at {epoch}"
            yield Inconsistency("job_trial", subject, said, "I5")
    finished: ColumnElement[bool] = JobRow.state == JobState.SUCCEEDED
    counted = (
        select(JobTrialRow.job_id, func.count(), func.max(JobTrialRow.trial))
        .join(JobRow, JobRow.id == JobTrialRow.job_id)
        .where(finished)
        .group_by(JobTrialRow.job_id)
    )
    for job_id, count, last in session.execute(counted):
        if count != last:
            yield Inconsistency(
                "job", job_id, f"{count} of its {last} trials ended in a record", "I6"
            )
