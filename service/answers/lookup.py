"""Answers over HTTP: by keys alone, and many at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from schedules.errors import TilewrightError
from schedules.record import Toolchain, TuningRecord
from schedules.target import Target
from schedules.workload import Workload
from service.answers import analytic
from service.answers.find import find_answer
from service.answers.grades import Answer, Grade
from service.answers.links import links
from service.errors import InvalidField, Located, NoAnswer, Problem, problem_of
from service.exit_codes import ExitCode
from service.limits import Limits
from service.resolve import targets, toolchains, workloads
from service.resolve.requests import LookupIn, admit, located
from service.settings import Settings

if TYPE_CHECKING:
    from db import Store

log = logging.getLogger("tilewright.lookup")
UNAVAILABLE = 503


def answer_by_keys(
    store: Store, workload_key: str, target_key: str, minimum: Grade, secs: float | None = None
) -> Answer:
    """The best answer for two keys. NoAnswer if nothing will do, or if a grade below exact is
    asked for a target or workload this service has never seen; DeadlineError if a default is not
    chosen in `secs`."""
    workload_key, target_key = bare(workload_key), bare(target_key)
    entry, document = store.workload(workload_key), store.target(target_key)
    if entry is None:
        raise NoAnswer(
            f"workload {workload_key}: never tuned here",
            advice="Tune it, or ask POST /v1/best:lookup with its document.",
        )
    if document is None:
        raise NoAnswer(
            f"target {target_key}: never tuned for here",
            advice="Tune for it, or ask POST /v1/best:lookup with its document.",
        )
    target = Target.from_json(document)
    summary = {"key": entry.key, "name": entry.name, "flops": entry.flops}
    found = find_answer(store, workload_key, target, minimum, toolchains.toolchain())
    if found is not None:
        answer = found.answer(
            summary, targets.target_summary(target), lambda: workloads.workload_of(entry.document)
        )
        return replace(answer, artefacts=links(store.artefacts(found.stored.record.key)))
    if minimum is not Grade.DEFAULT:
        raise NoAnswer(f"no {minimum.value} answer stored for these keys")
    return default_answer(workloads.workload_of(entry.document), target, secs)


def default_answer(workload: Workload, target: Target, secs: float | None = None) -> Answer:
    """The schedule chosen without measurement. DeadlineError after `secs`."""
    return Answer(
        grade=Grade.DEFAULT,
        workload=workloads.workload_summary(workload),
        target=targets.target_summary(target),
        trace=analytic.default_trace(workload, target, secs),
        note="chosen without measurement",
    )


def look_up(store: Store, settings: Settings, asked: LookupIn) -> list[dict[str, Any]]:
    """One item a workload, in order. What goes wrong with one spoils its own item, not others."""
    target = located("/target", lambda: _target(store, asked))
    minimum = Grade(asked.min_grade)
    wanted = [_read(settings, number, spelled) for number, spelled in enumerate(asked.workloads)]
    question = _Question(
        store, target, minimum, toolchains.toolchain(), settings.limits, time.monotonic()
    )
    keys = [key for key, _, _ in wanted if key]
    exact = store.best_many([(key, target.key) for key in dict.fromkeys(keys)])
    items = [
        problem
        if problem is not None
        else _item(
            number,
            partial(_one, question, key, workload, exact.get((key, target.key))),
        )
        for number, (key, workload, problem) in enumerate(wanted)
    ]
    _name_files(store, [item["answer"] for item in items if item["found"]])
    return items


def _name_files(store: Store, answers: list[dict[str, Any]]) -> None:
    """Fill in the files of every record, with one question for all of them."""
    keys = {answer["record_key"] for answer in answers if answer["record_key"]}
    known = store.artefacts_many(sorted(keys))
    for answer in answers:
        answer["artefacts"] = links(known.get(answer["record_key"], ()))


def bare(key: str) -> str:
    """A workload or target key without `sha256:`."""
    return key.removeprefix("sha256:")


def is_key(text: str) -> bool:
    digits = bare(text)
    return len(digits) == 64 and all(c in "0123456789abcdef" for c in digits)


def _read(
    settings: Settings, number: int, spelled: str | dict[str, Any]
) -> tuple[str, Workload | None, dict[str, Any] | None]:
    """Key, workload if it was spelled out, and the item of a bad one."""
    if isinstance(spelled, str) and is_key(spelled):
        return bare(spelled), None, None
    try:
        workload = workloads.workload_of(spelled)
        admit(workload, settings)
        return workload.key, workload, None
    except TilewrightError as error:
        return "", None, _miss(number, error)
    except Exception as error:  # noqa: BLE001  # logged, and told for this item
        return "", None, _bug(number, error)


def _item(number: int, make: Callable[[], Answer]) -> dict[str, Any]:
    try:
        answer = make()
    except TilewrightError as error:
        if problem_of(error).status == UNAVAILABLE:  # the database: it is everybody's
            raise
        return _miss(number, error)
    except Exception as error:  # noqa: BLE001  # logged, and told for this item
        return _bug(number, error)
    return {"found": True, "answer": answer.to_json(), "problem": None}


def _miss(number: int, error: TilewrightError) -> dict[str, Any]:
    problem = problem_of(Located(error, f"/workloads/{number}"))
    return {"found": False, "answer": None, "problem": problem.to_json()}


def _bug(number: int, error: Exception) -> dict[str, Any]:
    """The item of a workload that met a bug of ours: told, logged, and nobody else's problem."""
    log.error("lookup of workload %d: a bug of the service", number, exc_info=error)
    problem = Problem(
        status=500,
        code="internal_error",
        title="A bug of the service",
        detail=f"{type(error).__name__}: the service's log has the details",
        advice="Report it with the workload; the same one will fail again.",
        exit_code=ExitCode.FAILED,
        pointer=f"/workloads/{number}",
    )
    return {"found": False, "answer": None, "problem": problem.to_json()}


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of every workload of a lookup."""

    store: Store
    target: Target
    minimum: Grade
    toolchain: Toolchain
    limits: Limits
    started: float

    @property
    def secs_for_default(self) -> float:
        """How long a default may take now: less, towards the end of what the lookup may take."""
        left = self.limits.lookup_secs - (time.monotonic() - self.started)
        return max(min(self.limits.default_secs, left), 0.0)


def _one(
    question: _Question, key: str, workload: Workload | None, exact: TuningRecord | None
) -> Answer:
    store, target, minimum = question.store, question.target, question.minimum
    found = find_answer(store, key, target, minimum, question.toolchain, exact=exact)
    if found is not None:
        return found.answer(
            _summary(store, key, workload),
            targets.target_summary(target),
            lambda: workload or _known(store, key),
        )
    if minimum is not Grade.DEFAULT:
        raise NoAnswer(f"no {minimum.value} answer stored")
    if workload is None:
        workload = _known(store, key)
    return default_answer(workload, target, question.secs_for_default)


def _known(store: Store, key: str) -> Workload:
    """The workload of a key. NoAnswer if it was never tuned here."""
    entry = store.workload(key)
    if entry is None:
        raise NoAnswer(
            "this service has never seen the workload of this key",
            advice="Send the workload's document: then there is always an answer.",
        )
    return workloads.workload_of(entry.document)


def _summary(store: Store, key: str, workload: Workload | None) -> dict[str, Any]:
    if workload is not None:
        return workloads.workload_summary(workload)
    entry = store.workload(key)
    if entry is None:
        return {"key": key, "name": "", "flops": 0}
    return {"key": key, "name": entry.name, "flops": entry.flops}


def _target(store: Store, asked: LookupIn) -> Target:
    if isinstance(asked.target, str) and asked.target != "native":
        document = store.target(bare(asked.target)) if is_key(asked.target) else None
        if document is None:
            raise InvalidField(
                f"target {asked.target[:80]!r}: must be 'native', a target document, or the key of"
                " a target this service has tuned for",
                pointer="/target",
            )
        return Target.from_json(document)
    return targets.target_of(asked.target, asked.threads)
