"""`AnswerStore`: the part of `Store` that answers are made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .artefacts import ArtefactFile
    from .evidence import StoredEvidence, Work
    from .job_owners import JobQuota
    from .preparations import Demand, Preparation, PreparationQuota, PreparationState


class AnswerStore(Protocol):
    """What is known about works, and what is found of those that nobody tuned.

    **Preparations.** `preparations.py` is the table of states. One a work and toolchain, whoever
    asks and however often. A process has one for as long as it renews its lease; what it writes
    after somebody else was given it raises StaleLease.
    """

    def change_token(self) -> tuple[int, ...] | None:
        """Equal to an earlier one only if nothing was committed in between, by whomever; None if
        that cannot be told at once. Takes microseconds and never waits."""
        ...

    def evidence(
        self, works: Sequence[Work], *, toolchain: str = "", elsewhere: bool = False
    ) -> dict[Work, StoredEvidence]:
        """Every row that an answer about each (workload_key, target_key) rests on, of one moment.

        With `elsewhere`, the best of the same workload on other targets too; with `toolchain`,
        what was prepared with it and what of others could be tried.
        """
        ...

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
        """Have works prepared, each once, and tuned; those that were not taken for lack of room.

        `most_waiting` bounds what waits to be prepared, `most_jobs` what is open of jobs. These are
        `owner`'s, as far as `quota` goes; what is above it is prepared without being tuned. What
        waits of `owner`'s own is bound by `own` as well, and the oldest of what was prepared for it
        gives way. Those who ask take turns in being served.
        """
        ...

    def preparations_waiting(self, toolchain: str) -> int:
        """How many are not finished."""
        ...

    def preparation_counts(self) -> dict[PreparationState, int]:
        """How many preparations are in each state, those of other toolchains included; every state
        is there."""
        ...

    def preparation_states(self, keys: Sequence[str]) -> dict[str, PreparationState]:
        """How far each preparation is; those that are gone are left out."""
        ...

    def claim_preparation(self, toolchain: str, owner: str) -> Preparation | None:
        """The next preparation to work on, `owner`'s for `LEASE_SECS`; None if there is none."""
        ...

    def renew_preparation(self, key: str, owner: str) -> None:
        """Keep a preparation. StaleLease."""
        ...

    def settle_preparation(
        self,
        key: str,
        owner: str,
        state: PreparationState,
        document: dict[str, Any],
        files: Sequence[ArtefactFile] = (),
    ) -> None:
        """Note what was found, and give the preparation up. StaleLease, BlobTooLarge."""
        ...

    def drop_preparation(self, key: str, owner: str) -> None:
        """Forget a preparation whose work has a best now. StaleLease."""
        ...

    def release_preparations(self, owner: str) -> None:
        """Let others work on what `owner` had."""
        ...
