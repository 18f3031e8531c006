"""Buffers the progress of a running job. It is stored a few times a second, not at every trial.

A trial's record is stored before the trial is reported. The trial's event, its entry in the job and
the progress follow within `JOURNAL_FLUSH_SECS`, in one transaction. If the process dies before,
only events are lost: the job finds the records when it resumes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.db.values.jobs import StoredJob
from tilewright.service import timeouts

if TYPE_CHECKING:
    from tilewright.db import Store

MOST_UNTOLD = 512


class Journal:
    """The journal of one lease of a job. Progress continues from the stored progress.
    Thread-safe."""

    def __init__(
        self, store: Store, job: StoredJob, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._job_id = job.id
        self._epoch = job.epoch
        self._clock = clock
        self._lock = threading.Lock()
        self._trials: list[tuple[int, str]] = []
        self._candidates: dict[int, list[int]] = {}
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._progress = dict(job.progress)
        self._failures: int | None = None
        self._is_reported = True
        self._flushed = clock()

    def note(
        self,
        *,
        trial: tuple[int, str] | None = None,
        candidate: list[int] | None = None,
        event: dict[str, Any] | None = None,
        kind: str = "trial",
        progress: dict[str, Any] | None = None,
        activity: dict[str, Any] | None = None,
        failures: int | None = None,
    ) -> None:
        """Buffer an entry. `event` is an event of `kind`. `candidate` is the one that the search
        proposed at `trial`. `progress` updates these fields only. `activity` is the activity that
        begins. `failures` is the argument of `report_job`. Flush if it is time; StoreError or
        StaleLease may then be raised."""
        with self._lock:
            if trial is not None:
                self._trials.append(trial)
                if candidate is not None:
                    self._candidates[trial[0]] = candidate
            if event is not None:
                self._events.append((kind, event))
            if activity is not None:
                self._events.append(("activity", activity))
            if progress is not None:
                self._progress |= progress
                self._is_reported = False
            if failures is not None:
                self._failures = failures
            due = self._clock() - self._flushed >= timeouts.JOURNAL_FLUSH_SECS
        if due or len(self._trials) >= MOST_UNTOLD:
            self.flush()

    def flush(self, *, if_due: bool = False) -> None:
        """Store the buffer; with `if_due`, only if `JOURNAL_FLUSH_SECS` have passed. If StoreError
        is raised, the buffer is retained for another attempt. Raise StaleLease if the lease was
        lost."""
        with self._lock:
            news = self._trials or self._events or self._failures is not None
            if not news and self._is_reported:
                return
            if if_due and self._clock() - self._flushed < timeouts.JOURNAL_FLUSH_SECS:
                return
            self._store.report_job(
                self._job_id,
                self._epoch,
                trials=self._trials,
                candidates=self._candidates,
                events=list(self._events),
                progress=None if self._is_reported else dict(self._progress),
                failures=self._failures,
            )
            self._trials, self._candidates = [], {}
            self._events, self._failures, self._is_reported = [], None, True
            self._flushed = self._clock()
