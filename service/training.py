"""Trains the models of a database, in the foreground or in a separate process after a run."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.db.errors import StoreError
from tilewright.schedules.errors import TilewrightError
from tilewright.tuner.process.child_command import module_command

if TYPE_CHECKING:
    from tilewright.costmodel.correction import Correction
    from tilewright.costmodel.training import Quality, TrialGroup
    from tilewright.db import Store

# Start-up: a command that starts the process does not load what trains.

MAX_TRIALS = 20_000
"""Number of trials that a model is trained on at most."""

RELATED_WEIGHT = 0.25
"""Weight of a workload on another target with the same vectors, for a target that has too few
trials to choose the weight."""

MAX_DISAGREEMENT = 1.5
"""Ratio of two times of one setting from which all trials of the task are left out."""


Learned: TypeAlias = "tuple[Correction, Quality] | str"
"""A model and its quality, or one line on why there is none."""

Apply: TypeAlias = Callable[[Callable[[], Learned]], Learned]


def _applied(learn: Callable[[], Learned]) -> Learned:
    return learn()


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of the training for one target. `key` is None if nothing was stored, for the
    reason `note`. `quality` has the numbers of `costmodel.training.Quality`."""

    target_key: str
    timings: str
    key: str | None
    note: str
    quality: dict[str, Any]
    train_secs: float


def train_target(store: Store, target_key: str, timings: str, apply: Apply = _applied) -> Trained:
    """Train and store a model of the target from its trials of these timings
    (`schedules.full_checks.timings_of`). Too few trials are a note, not an error, and are not tried
    again before there are more. `apply` calls the part that takes long, which only reads from the
    database."""
    started = time.monotonic()
    trials = store.model_state(target_key, timings).trials
    known = {"trials_stored": trials, "version": feature_version()}
    learned = apply(lambda: _learned(store, target_key, timings))
    secs = time.monotonic() - started
    if isinstance(learned, str):
        store.add_untrained(target_key, timings, {**known, "note": learned})
        return Trained(target_key, timings, None, learned, {}, secs)
    correction, quality = learned
    document = {**quality.to_json(), **known}
    key = store.add_model(target_key, timings, correction.to_document(), document)
    return Trained(target_key, timings, key, "", document, secs)


def train_all(
    store: Store,
    target_key: str | None = None,
    *,
    due_only: bool = False,
    apply: Apply = _applied,
) -> list[Trained]:
    """Train a model for each target that has trials, or only for `target_key`; with `due_only`,
    only if there are enough new trials."""
    return [
        train_target(store, key, timings, apply)
        for key, timings in store.trained_targets()
        if target_key in (None, key)
        and not (due_only and not store.model_state(key, timings).is_due_for(feature_version()))
    ]


def start_training(store: Store, target_key: str) -> bool:
    """Start a process that trains the models that are due, if the model of `target_key` is due;
    return whether it was started.

    The process is detached and runs at the lowest priority, so it neither delays its caller nor
    takes a core from a measurement. If it cannot be started, the next run tries again.
    """
    try:
        if not store.model_state(target_key).is_due_for(feature_version()):
            return False
        process = subprocess.Popen(
            module_command("tilewright.service.training"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Other users can read the arguments of a process, and the URL may have a password.
            env={**os.environ, "TILEWRIGHT_DB": store.url},
            start_new_session=True,
        )
    except (StoreError, OSError):
        return False
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie in a service
    return True


def feature_version() -> int:
    """Return the version of the features: a model of another version is trained anew."""
    from tilewright.costmodel.correction import FEATURE_VERSION

    return FEATURE_VERSION


def _learned(store: Store, target_key: str, timings: str) -> Learned:
    from tilewright.costmodel.training import TooFewSamplesError, train

    try:
        return train(list(_groups(store, target_key, timings)))
    except TooFewSamplesError as error:
        return str(error)
    except ImportError:
        return "xgboost is not installed (pip install 'tilewright[tune]')"


def _groups(store: Store, target_key: str, timings: str) -> Iterator[TrialGroup]:
    """Yield the trials of each task as input of training. A task with contradictory times, as from
    a machine that reports half the time of others, is left out."""
    from tilewright.schedules.sketches import space_for
    from tilewright.schedules.target import Target
    from tilewright.schedules.workload.workload import Workload
    from tilewright.tuner.session.database_model import disagreement, training_group

    for task in store.training_tasks(target_key, timings, most_trials=MAX_TRIALS):
        if disagreement(task.records) > MAX_DISAGREEMENT:
            continue
        try:
            space = space_for(Workload.from_json(task.workload), Target.from_json(task.target))
        except TilewrightError:  # a workload that this version does not accept any more
            continue
        untested = RELATED_WEIGHT if task.has_same_vectors else 0.0
        weight = 1.0 if task.is_own else untested
        group = training_group(space, task.records, weight, task.origin)
        if group is not None:
            yield group


def main() -> None:
    """Train the models that are due in the database TILEWRIGHT_DB.

    A thread learns, on cores that would be idle. The main thread writes, with its own priority: a
    writer that gets no core would lock the database for everyone.
    """
    from tilewright.db import open_store

    url = os.environ["TILEWRIGHT_DB"]
    with (
        open_store(url, create=False, upgrade=False) as store,
        ThreadPoolExecutor(1, initializer=_take_idle_cores_only) as pool,
    ):
        train_all(store, due_only=True, apply=lambda learn: pool.submit(learn).result())


def _take_idle_cores_only() -> None:
    """Give this thread the lowest priority."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    main()
