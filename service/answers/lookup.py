"""Many questions at once: what of a lookup's items is known, and how the others are told."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from schedules.errors import TilewrightError
from schedules.target import Target
from service.answers.book import AnswerBook, Finished, Lacking, Outcome, Question, compact
from service.answers.grades import Grade
from service.errors import InvalidField, Located, NoAnswer, Problem, problem_of
from service.exit_codes import ExitCode
from service.resolve import targets
from service.resolve.requests import LookupIn, located
from service.resolve.spelled import Named, SpelledWorkloads

if TYPE_CHECKING:
    from db import Store

log = logging.getLogger("tilewright.lookup")

Spelled: TypeAlias = str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One workload of a lookup: what was sent, and the name or the problem it came to."""

    spelled: Spelled
    named: Named | None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup as read: the target, the least grade, and an item a workload, in order."""

    target: Target
    minimum: Grade
    items: tuple[Item, ...]

    def question(self, key: str) -> Question:
        return Question(key, self.target.key, self.minimum, self.target)


def read_lookup(store: Store, spelled: SpelledWorkloads, asked: LookupIn) -> Lookup:
    """The lookup of a request. What is wrong with one workload is its own item's problem.

    InvalidField, TargetError: there is no such target."""
    target = located("/target", lambda: _target(store, asked))
    items = tuple(_read(spelled, number, one) for number, one in enumerate(asked.workloads))
    return Lookup(target, Grade(asked.min_grade), items)


def find_all(book: AnswerBook, asked: Lookup) -> dict[str, Outcome]:
    """What is known of every workload, by key."""
    keys = list(dict.fromkeys(item.named.key for item in asked.items if item.named))
    outcomes = book.find([asked.question(key) for key in keys])
    return dict(zip(keys, outcomes, strict=True))


def told(asked: Lookup, outcomes: dict[str, Outcome]) -> tuple[bytes, list[str]]:
    """The JSON of all items, and the grade of each ("none" for a miss)."""
    parts, grades = [], []
    for number, item in enumerate(asked.items):
        outcome = outcomes.get(item.named.key) if item.named else None
        if item.named is not None and isinstance(outcome, Finished):
            summary = item.named.summary or outcome.summary
            parts.append(b'{"found":true,"answer":' + outcome.told(summary) + b',"problem":null}')
            grades.append(outcome.grade.value)
        else:
            problem = item.problem or _miss(number, asked, outcome)
            parts.append(
                b'{"found":false,"answer":null,"problem":' + compact(problem.to_json()) + b"}"
            )
            grades.append("none")
    return b'{"items":[' + b",".join(parts) + b"]}", grades


def bare(key: str) -> str:
    """A workload or target key without `sha256:`."""
    return key.removeprefix("sha256:")


def is_key(text: str) -> bool:
    digits = bare(text)
    return len(digits) == 64 and all(c in "0123456789abcdef" for c in digits)


def _read(spelled: SpelledWorkloads, number: int, one: Spelled) -> Item:
    if isinstance(one, str) and is_key(one):
        return Item(one, Named(bare(one), b""))
    try:
        return Item(one, spelled.named(one))
    except TilewrightError as error:
        return Item(one, None, problem_of(Located(error, f"/workloads/{number}")))
    except Exception as error:  # noqa: BLE001  # logged, and told for this item
        return Item(one, None, bug(number, error))


def _miss(number: int, asked: Lookup, outcome: Outcome | None) -> Problem:
    error = NoAnswer(f"no {asked.minimum.value} answer stored")
    if isinstance(outcome, Lacking) and asked.minimum is Grade.DEFAULT:
        error = NoAnswer(
            "this service has never seen the workload of this key",
            advice="Send the workload's document: then there is always an answer.",
        )
    return problem_of(Located(error, f"/workloads/{number}"))


def bug(number: int, error: Exception) -> Problem:
    """What is told of a workload that met a bug of ours: logged, and nobody else's problem."""
    log.error("lookup of workload %d: a bug of the service", number, exc_info=error)
    return Problem(
        status=500,
        code="internal_error",
        title="A bug of the service",
        detail=f"{type(error).__name__}: the service's log has the details",
        advice="Report it with the workload; the same one will fail again.",
        exit_code=ExitCode.FAILED,
        pointer=f"/workloads/{number}",
    )


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
