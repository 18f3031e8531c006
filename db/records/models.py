"""Learned models of targets, and the trials that they are trained on."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, text
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.full_checks import MOCKED
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.related import StoredModel
from tilewright.schedules.target import Target

from ..core.engine import insert_ignore
from ..core.hashes import MODEL, is_intact, row_hash
from ..core.models import ModelRow, RecordRow, TargetRow, WorkloadRow
from ..core.parts import StorePart, reading, writing
from ..errors import NotRegistered
from ..values.models import ModelState, TrainingTask
from ..values.moments import rfc3339
from ..values.records import IMPORTED
from .family import is_of_family, machine_name, vectors_differ
from .newest_model import UNTRAINED, find_model
from .rows import from_rows
from .works import find_target, target_document, workload_entry

KEPT = 8
"""Models kept per target; older ones are deleted. A search that is repeated uses the model that was
the newest when it first began."""

_PER_TASK = 256
"""Trials of one workload that are returned for training, the fastest ones."""


class ModelStore(StorePart):
    """The learned models of a store.

    Models are trained on the times of kernels that were run, or on those of one mocked toolchain.
    The argument `timings` names which, see `schedules.full_checks.timings_of`.
    """

    @writing
    def add_model(
        self,
        session: Session,
        target_key: str,
        timings: str,
        document: dict[str, Any],
        quality: dict[str, Any],
    ) -> str:
        """Store a model and what is known about it; return its key, a hash of `document`. It is the
        newest of its target then. Raise NotRegistered if the target is unknown."""
        if session.get(TargetRow, target_key) is None:
            raise NotRegistered(f"target {target_key} is not registered")
        written = canonical_bytes(document).decode()
        row = {
            "target_key": target_key,
            "timings": timings,
            "key": model_key(written),
            "created_at": rfc3339(self._clock()),
            "document": written,
            "quality": canonical_bytes(quality).decode(),
        }
        row["row_sha256"] = row_hash([row[name] for name in MODEL])
        own = _of(target_key, timings)
        untracked = {"synchronize_session": False}
        same = delete(ModelRow).where(*own, ModelRow.key == row["key"])
        session.execute(same, execution_options=untracked)
        insert_ignore(session, ModelRow, [row])
        newest = select(ModelRow.id).where(*own).order_by(ModelRow.id.desc()).limit(KEPT)
        kept = session.scalars(newest).all()
        older = delete(ModelRow).where(*own, ModelRow.id.not_in(kept))
        session.execute(older, execution_options=untracked)
        return row["key"]

    def add_untrained(self, target_key: str, timings: str, quality: dict[str, Any]) -> None:
        """Note a training without a result, so that it is not repeated before there are more
        trials. `quality` has their number, as for a model, and the reason."""
        self.add_model(target_key, timings, UNTRAINED, quality)

    @reading
    def model(
        self, session: Session, target: Target, timings: str = "", before: str = ""
    ) -> StoredModel | None:
        """Return the model that `target` uses, see `newest_model.find_model`."""
        return find_model(
            lambda sql, values: session.execute(text(sql), values), target, timings, before
        )

    @reading
    def trained_targets(self, session: Session) -> list[tuple[str, str]]:
        """Return the targets that have trials to learn from, and the names of their timings."""
        columns = RecordRow.codegen_version != MOCKED, RecordRow.llvmlite, RecordRow.llvm
        rows = session.execute(
            select(RecordRow.target_key, *columns)
            .where(RecordRow.status == str(MeasureStatus.OK), RecordRow.verified_level != IMPORTED)
            .distinct()
        )
        found = {(key, "" if real else f"{llvmlite}:{llvm}") for key, real, llvmlite, llvm in rows}
        return sorted(found)

    @reading
    def model_state(
        self, session: Session, target_key: str, timings: str | None = None
    ) -> ModelState:
        """Return how many successful trials a target has, of any timings, and how many there were
        at its last training on `timings` (None: on any), whether a model resulted or not."""
        # These columns are in an index, so the rows are not read.
        timed = (
            RecordRow.target_key == target_key,
            RecordRow.verified_level != IMPORTED,
            RecordRow.estimate_secs.is_not(None),
        )
        trials = session.scalar(select(func.count()).select_from(RecordRow).where(*timed))
        of = (ModelRow.target_key == target_key,) if timings is None else _of(target_key, timings)
        newest = select(ModelRow).where(*of).order_by(ModelRow.id.desc()).limit(1)
        row = session.scalars(newest).first()
        quality = json.loads(row.quality) if row is not None and is_intact(row, MODEL) else {}
        trained_on, version = quality.get("trials_stored", 0), quality.get("version")
        return ModelState(
            int(trials or 0),
            trained_on if isinstance(trained_on, int) else 0,
            version if isinstance(version, int) else None,
        )

    @reading
    def training_tasks(
        self, session: Session, target_key: str, timings: str = "", *, most_trials: int
    ) -> list[TrainingTask]:
        """Return the successful trials with a setting, by task: those of the target, then those of
        other targets of the same architecture; the tasks with the newest trials first. At most
        `most_trials` trials in all, the fastest ones of each task. Imported records and records of
        other timings are left out."""
        document = find_target(session, target_key)
        if document is None:
            return []
        own = Target.from_json(document)
        rows = session.scalars(select(TargetRow).where(TargetRow.key != target_key))
        others = {row.key: target_document(row) for row in rows}
        related = [key for key, found in others.items() if found and is_of_family(own, found)]
        related.sort(key=lambda key: (vectors_differ(own, others[key] or {}), key))
        found: list[TrainingTask] = []
        for key in (target_key, *related):
            target = document if key == target_key else others[key]
            assert target is not None
            is_own = key == target_key
            origin = "" if is_own else f"{machine_name(own, target)} ({key[:8]})"
            same = not vectors_differ(own, target)
            newest = (
                select(RecordRow.workload_key)
                .where(*_trained_on(key, timings))
                .group_by(RecordRow.workload_key)
                .order_by(func.max(RecordRow.id).desc())
            )
            for workload_key in session.scalars(newest).all():
                left = most_trials - sum(len(task.records) for task in found)
                if left <= 0:
                    return found
                entry = workload_entry(session.get(WorkloadRow, workload_key))
                fastest = (
                    select(RecordRow)
                    .where(*_trained_on(key, timings), RecordRow.workload_key == workload_key)
                    .order_by(RecordRow.estimate_secs)
                    .limit(min(left, _PER_TASK))
                )
                records = [r for r in from_rows(session.scalars(fastest)) if r.setting is not None]
                if entry is not None and records:
                    task = TrainingTask(entry.document, target, origin, same, tuple(records))
                    found.append(task)
        return found


def model_key(document: str) -> str:
    """Return the key of a model's canonical JSON text."""
    return "sha256:" + hashlib.sha256(document.encode()).hexdigest()


def _of(target_key: str, timings: str) -> tuple[ColumnElement[bool], ...]:
    return ModelRow.target_key == target_key, ModelRow.timings == timings


def _trained_on(target_key: str, timings: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of records that a model of these timings can be trained on."""
    found: tuple[ColumnElement[bool], ...] = (
        RecordRow.target_key == target_key,
        RecordRow.status == str(MeasureStatus.OK),
        RecordRow.verified_level != IMPORTED,
    )
    if not timings:
        return (*found, RecordRow.codegen_version != MOCKED)
    llvmlite, _, llvm = timings.partition(":")
    return (
        *found,
        RecordRow.codegen_version == MOCKED,
        RecordRow.llvmlite == llvmlite,
        RecordRow.llvm == llvm,
    )
