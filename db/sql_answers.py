"""The calls that answers are made with, kept on a SQL database, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from .artefacts import ArtefactFile
from .changes import ChangeCounter
from .engine import Database
from .evidence import Evidence, EvidenceRepository, Work
from .jobs import JobRepository
from .preparations import (
    Demand,
    Preparation,
    PreparationRepository,
    PreparationState,
)


class SqlAnswers:
    """See `AnswerStore`. `evidence` and `preparations` have the rules."""

    _database: Database
    _clock: Callable[[], datetime]
    _entropy: Callable[[int], bytes]
    _changes: ChangeCounter | None
    _jobs: Callable[[Session], JobRepository]

    def change_token(self) -> tuple[int, ...] | None:
        """Equal to an earlier one only if nothing was committed in between, by whomever; None if
        that cannot be told at once. Takes microseconds and never waits."""
        return None if self._changes is None else self._changes.token()

    def evidence(
        self, works: Sequence[Work], *, toolchain: str = "", elsewhere: bool = False
    ) -> dict[Work, Evidence]:
        """Every row that an answer about each (workload_key, target_key) rests on, of one moment.

        With `elsewhere`, the best of the same workload on other targets too; with `toolchain`,
        what was prepared with it.
        """
        with self._database.reading() as session:
            return EvidenceRepository(session).of(works, toolchain, elsewhere=elsewhere)

    def demand(
        self, demands: Sequence[Demand], toolchain: str, *, most_waiting: int, most_jobs: int
    ) -> set[Work]:
        """Have works prepared, each once, and tuned; those that were not taken for lack of room.

        `most_waiting` bounds what waits to be prepared, `most_jobs` what is open of jobs.
        """
        with self._database.writing() as session:
            self._database.serialise(session, "submit")
            return PreparationRepository(session).demand(
                demands,
                toolchain,
                jobs=self._jobs(session),
                most_waiting=most_waiting,
                most_jobs=most_jobs,
                now=self._clock(),
                entropy=self._entropy,
            )

    def preparations_waiting(self, toolchain: str) -> int:
        """How many are not finished."""
        with self._database.reading() as session:
            return PreparationRepository(session).waiting(toolchain)

    def preparation_states(self, keys: Sequence[str]) -> dict[str, PreparationState]:
        """How far each preparation is; those that are gone are left out."""
        with self._database.reading() as session:
            return PreparationRepository(session).states(keys)

    def claim_preparation(self, toolchain: str, owner: str) -> Preparation | None:
        """The next preparation to work on, `owner`'s for `LEASE_SECS`; None if there is none."""
        with self._database.writing() as session:
            return PreparationRepository(session).claim(toolchain, owner, self._clock())

    def renew_preparation(self, key: str, owner: str) -> None:
        """Keep a preparation. StaleLease."""
        with self._database.writing() as session:
            PreparationRepository(session).renew(key, owner, self._clock())

    def settle_preparation(
        self,
        key: str,
        owner: str,
        state: PreparationState,
        document: dict[str, Any],
        files: Sequence[ArtefactFile] = (),
    ) -> None:
        """Note what was found, and give the preparation up. StaleLease, BlobTooLarge."""
        with self._database.writing() as session:
            repository = PreparationRepository(session)
            repository.settle(key, owner, state, document, files, self._clock())

    def drop_preparation(self, key: str, owner: str) -> None:
        """Forget a preparation whose work has a best now. StaleLease."""
        with self._database.writing() as session:
            PreparationRepository(session).drop(key, owner)

    def release_preparations(self, owner: str) -> None:
        """Let others work on what `owner` had."""
        with self._database.writing() as session:
            PreparationRepository(session).release(owner)
