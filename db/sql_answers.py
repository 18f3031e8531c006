"""`SqlAnswers`: the contract of `answer_store.py` kept on a SQL database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from .artefacts import ArtefactFile
from .changes import ChangeCounter
from .engine import Database
from .evidence import EvidenceRepository, StoredEvidence, Work
from .job_owners import JobQuota
from .jobs import JobRepository
from .preparations import (
    Demand,
    Preparation,
    PreparationQuota,
    PreparationRepository,
    PreparationState,
)


class SqlAnswers:
    """See `AnswerStore`. `SqlStore` gives the parts it works with."""

    _database: Database
    _clock: Callable[[], datetime]
    _entropy: Callable[[int], bytes]
    _changes: ChangeCounter | None

    def change_token(self) -> tuple[int, ...] | None:
        return None if self._changes is None else self._changes.token()

    def evidence(
        self, works: Sequence[Work], *, toolchain: str = "", elsewhere: bool = False
    ) -> dict[Work, StoredEvidence]:
        return self._database.read(
            lambda session: EvidenceRepository(session).of(works, toolchain, elsewhere=elsewhere)
        )

    def demand(
        self,
        demands: Sequence[Demand],
        toolchain: str,
        *,
        most_waiting: int,
        most_jobs: int,
        owner: str | None = None,
        quota: JobQuota | None = None,
        own: PreparationQuota | None = None,
    ) -> set[Work]:
        now = self._clock()

        def work(session: Session) -> set[Work]:
            self._database.serialise(session, "submit")  # one of two equal demands comes first
            self._database.serialise(session, "blobs")  # those of an owner's oldest may go
            return self._preparations(session).demand(
                demands,
                toolchain,
                JobRepository(session),
                most_waiting=most_waiting,
                most_jobs=most_jobs,
                now=now,
                entropy=self._entropy,
                owner=owner,
                quota=quota,
                own=own,
            )

        return self._database.write(work)

    def preparations_waiting(self, toolchain: str) -> int:
        return self._database.read(lambda session: self._preparations(session).waiting(toolchain))

    def preparation_counts(self) -> dict[PreparationState, int]:
        return self._database.read(lambda session: self._preparations(session).counts())

    def preparation_states(self, keys: Sequence[str]) -> dict[str, PreparationState]:
        return self._database.read(lambda session: self._preparations(session).states(keys))

    def claim_preparation(self, toolchain: str, owner: str) -> Preparation | None:
        return self._database.write(
            lambda session: self._preparations(session).claim(toolchain, owner)
        )

    def renew_preparation(self, key: str, owner: str) -> None:
        self._database.write(lambda session: self._preparations(session).renew(key, owner))

    def settle_preparation(
        self,
        key: str,
        owner: str,
        state: PreparationState,
        document: dict[str, Any],
        files: Sequence[ArtefactFile] = (),
    ) -> None:
        now = self._clock()

        def work(session: Session) -> None:
            self._database.serialise(session, "blobs")  # none is pruned before it is pointed to
            self._preparations(session).settle(key, owner, state, document, files, now)

        self._database.write(work)

    def drop_preparation(self, key: str, owner: str) -> None:
        self._database.write(lambda session: self._preparations(session).drop(key, owner))

    def release_preparations(self, owner: str) -> None:
        self._database.write(lambda session: self._preparations(session).release(owner))

    def _preparations(self, session: Session) -> PreparationRepository:
        return PreparationRepository(session, self._lease_time)

    def _lease_time(self, session: Session) -> float:
        raise NotImplementedError
