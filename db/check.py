"""Consistency: everything the code above relies on, looked at from the outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from schedules.errors import TilewrightError

from .artefact_rows import sound as sound_artefact
from .best import FULL
from .blobs import intact
from .engine import Database, quick_check
from .errors import StoreBroken
from .job_states import JobState
from .keys import sound as sound_key
from .models import (
    ApiKeyRow,
    ArtefactRow,
    BestMoveRow,
    BestRow,
    BlobRow,
    JobRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    TargetRow,
    WithdrawnRow,
    WorkloadRow,
)
from .preparations import prepared_files, sound_preparation
from .rows import key_of, record_of, sound
from .works import sound_target, sound_workload, target_key_of, workload_key_of

_CHANGED = "the row is not what was written (its hash differs)"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that should not be. `kind` is stable; `subject` is the key or id concerned."""

    kind: str
    subject: str
    detail: str


def problems(database: Database) -> list[Problem]:
    """Everything found wrong, worst first; empty for a sound database."""
    found: list[Problem] = []
    try:
        found += (Problem("file", str(database.path), line) for line in quick_check(database))
    except StoreBroken as error:
        found.append(Problem("file", str(database.path), str(error)))
    for part in (
        _works,
        _records,
        _bests,
        _history,
        _blobs,
        _artefacts,
        _preparations,
        _jobs,
        _keys,
    ):
        try:
            with database.reading() as session:
                found.extend(part(session))
        except StoreBroken as error:
            found.append(Problem("file", part.__name__.strip("_"), str(error)))
    return found


def _works(session: Session) -> Iterator[Problem]:
    for workload in session.scalars(select(WorkloadRow)):
        if not sound_workload(workload):
            yield Problem("workload", workload.key, _CHANGED)
            continue
        yield from _other_key("workload", workload.key, workload_key_of, workload.document)
    for target in session.scalars(select(TargetRow)):
        if not sound_target(target):
            yield Problem("target", target.key, _CHANGED)
            continue
        yield from _other_key("target", target.key, target_key_of, target.document)


def _other_key(
    kind: str, key: str, key_of_document: Callable[[Any], str], document: str
) -> Iterator[Problem]:
    try:
        made = key_of_document(json.loads(document))
    except (ValueError, TilewrightError) as error:
        yield Problem(kind, key, f"document is not a {kind}: {error}")
    else:
        if made != key:
            yield Problem(kind, key, f"document has the key {made}")


def _records(session: Session) -> Iterator[Problem]:
    statement = select(RecordRow).order_by(RecordRow.id).execution_options(yield_per=500)
    for row in session.scalars(statement):
        if not sound(row):
            yield Problem("record", row.key, _CHANGED)
            continue
        try:
            document = json.loads(row.document)
            record_of(document)
        except (ValueError, TilewrightError) as error:
            yield Problem("record", row.key, f"document is not a record: {error}")
        else:
            if key_of(document) != row.key:
                yield Problem("record", row.key, f"document has the key {key_of(document)}")


def _bests(session: Session) -> Iterator[Problem]:
    statement = (
        select(BestRow, RecordRow, WithdrawnRow.reason)
        .join(RecordRow, RecordRow.key == BestRow.record_key, isouter=True)
        .join(WithdrawnRow, WithdrawnRow.record_key == BestRow.record_key, isouter=True)
    )
    for best, record, reason in session.execute(statement):
        subject = f"{best.workload_key}/{best.target_key}"
        if best.record_key is None:
            continue
        if record is None:
            yield Problem("best", subject, f"points at {best.record_key}, which is not stored")
            continue
        if (record.workload_key, record.target_key) != (best.workload_key, best.target_key):
            yield Problem("best", subject, f"points at {record.key}, a record of other work")
        if record.status != "ok" or record.verified_level != FULL:
            yield Problem(
                "best",
                subject,
                f"points at {record.key}: status {record.status}, verified {record.verified_level}",
            )
        if reason is not None:
            yield Problem("best", subject, f"points at {record.key}, withdrawn: {reason}")


def _history(session: Session) -> Iterator[Problem]:
    """Each pointer is where its last move took it, and its moves form a chain."""
    chains: dict[tuple[str, str], list[BestMoveRow]] = {}
    for move in session.scalars(select(BestMoveRow).order_by(BestMoveRow.version)):
        chains.setdefault((move.workload_key, move.target_key), []).append(move)
    for best in session.scalars(select(BestRow)):
        moves = chains.pop((best.workload_key, best.target_key), [])
        subject = f"{best.workload_key}/{best.target_key}"
        at: str | None = None
        for number, move in enumerate(moves, start=1):
            if move.version != number or move.from_record_key != at:
                yield Problem("history", subject, f"move {move.version} does not follow {at}")
                break
            at = move.to_record_key
        else:
            if len(moves) != best.version or at != best.record_key:
                yield Problem("history", subject, f"the last move leads to {at}, not to the best")
    for work in chains:
        yield Problem("history", "/".join(work), "moves of a best that does not exist")


def _blobs(session: Session) -> Iterator[Problem]:
    for row in session.scalars(select(BlobRow).execution_options(yield_per=20)):
        if not intact(row):
            yield Problem("blob", row.sha256, "the bytes do not have this hash")


def _artefacts(session: Session) -> Iterator[Problem]:
    statement = select(ArtefactRow, BlobRow.sha256, func.length(BlobRow.data)).join(
        BlobRow, BlobRow.sha256 == ArtefactRow.sha256, isouter=True
    )
    for row, blob, size in session.execute(statement):
        subject = f"{row.record_key}/{row.kind}"
        if not sound_artefact(row):
            yield Problem("artefact", subject, _CHANGED)
        elif blob is None or size != row.bytes:
            yield Problem("artefact", subject, f"blob {row.sha256} is missing or of another size")


def _preparations(session: Session) -> Iterator[Problem]:
    for row in session.scalars(select(PreparationRow)):
        if not sound_preparation(row):
            yield Problem("preparation", row.key, _CHANGED)
    statement = select(PreparedFileRow, BlobRow.sha256, func.length(BlobRow.data)).join(
        BlobRow, BlobRow.sha256 == PreparedFileRow.sha256, isouter=True
    )
    for file, blob, size in session.execute(statement):
        subject = f"{file.preparation_key}/{file.kind}"
        if not prepared_files([file]):
            yield Problem("prepared file", subject, _CHANGED)
        elif blob is None or size != file.bytes:
            yield Problem("prepared file", subject, f"blob {file.sha256} is missing or damaged")


def _jobs(session: Session) -> Iterator[Problem]:
    for row in session.scalars(select(JobRow)):
        state = JobState(row.state)
        if (row.finished_at is not None) != state.final:
            yield Problem("job", row.id, f"{state} with finished_at {row.finished_at}")
        leased = state in (JobState.RUNNING, JobState.CANCELLING)
        if (row.owner is not None) != leased:
            yield Problem("job", row.id, f"{state} with owner {row.owner}")
        if row.flight_key is not None and not state.joinable:
            yield Problem("job", row.id, f"{state} but still joined by equal requests")


def _keys(session: Session) -> Iterator[Problem]:
    for row in session.scalars(select(ApiKeyRow)):
        if not sound_key(row):
            yield Problem("key", row.id, _CHANGED)
