"""Bulk lookups: each item of a response is an answer or a problem."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.answer_cache import (
    AnswerCache,
    CacheMiss,
    FoundAnswer,
    Outcome,
    Question,
    compact,
)
from tilewright.service.answers.prepare_queue import (
    PrepareRequest,
    is_settled,
    is_to_be_tried_again,
    is_wanted,
    stored_workload,
)
from tilewright.service.errors import ExitCode, InvalidField, Located, NoAnswer, NotPrepared
from tilewright.service.grade import Grade
from tilewright.service.problems import ProblemDetails, problem_of
from tilewright.service.resolve import targets
from tilewright.service.resolve.parsed_workloads import ParsedName, ParsedWorkloads
from tilewright.service.resolve.requests import LookupIn, located

if TYPE_CHECKING:
    from tilewright.db import Store

PENDING = "an answer is being prepared: chosen, built and verified without tuning"

log = logging.getLogger("tilewright.lookup")

Spelling: TypeAlias = str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class LookupEntry:
    """One workload of a lookup: as sent, and its parsed name or its problem."""

    sent: Spelling
    parsed: ParsedName | None
    problem: ProblemDetails | None = None

    @property
    def defines_workload(self) -> bool:
        """Whether the item defines the workload; a key only identifies it."""
        return not (isinstance(self.sent, str) and is_key(self.sent))


@dataclass(frozen=True, slots=True)
class Lookup:
    """A parsed lookup: the target, the lowest acceptable grade, and one entry per workload, in
    order."""

    target: Target
    minimum: Grade
    items: tuple[LookupEntry, ...]

    def question(self, key: str) -> Question:
        return Question(key, self.target.key, self.minimum, self.target)


def read_lookup(
    store: Store, parsed_workloads: ParsedWorkloads, lookup_request: LookupIn
) -> Lookup:
    """Parse a lookup. An invalid workload affects its own entry only. Raise InvalidField or
    TargetError if the target is unknown or invalid."""
    target = located("/target", lambda: _target(store, lookup_request))
    items = tuple(
        _read(parsed_workloads, number, one) for number, one in enumerate(lookup_request.workloads)
    )
    return Lookup(target, Grade(lookup_request.min_grade), items)


def find_all(cache: AnswerCache, lookup_request: Lookup) -> dict[str, Outcome]:
    """Return the outcome of every workload, by key."""
    keys = list(dict.fromkeys(item.parsed.key for item in lookup_request.items if item.parsed))
    outcomes = cache.find([lookup_request.question(key) for key in keys])
    return dict(zip(keys, outcomes, strict=True))


def prepare_requests(
    store: Store,
    parsed_workloads: ParsedWorkloads,
    lookup_request: Lookup,
    outcomes: dict[str, Outcome],
) -> list[PrepareRequest]:
    """Return the preparations that the outcomes require, one per workload."""
    found: dict[str, PrepareRequest] = {}
    for item in lookup_request.items:
        key = item.parsed.key if item.parsed else ""
        outcome = outcomes.get(key)
        if outcome is None or key in found or not is_wanted(outcome, lookup_request.minimum):
            continue
        if (
            isinstance(outcome, CacheMiss)
            and not outcome.workload_known
            and not item.defines_workload
        ):
            continue  # a key does not define a workload
        read = partial(_workload, store, parsed_workloads, item)
        again = outcome.untried or is_to_be_tried_again(outcome)
        found[key] = PrepareRequest(key, read, again=again)
    return list(found.values())


def lookup_body(
    lookup_request: Lookup, outcomes: dict[str, Outcome], refused: Collection[str] = ()
) -> tuple[bytes, list[str]]:
    """Return the JSON of all items, and the grade of each item ("none" if it has no answer).
    `refused` are the keys of the workloads whose preparation was refused."""
    parts, grades = [], []
    for number, item in enumerate(lookup_request.items):
        outcome = outcomes.get(item.parsed.key) if item.parsed else None
        pending = b"false" if outcome is None or is_settled(outcome) else b"true"
        if item.parsed is not None and isinstance(outcome, FoundAnswer):
            summary = item.parsed.summary or outcome.summary
            answer = outcome.body_for(summary)
            parts.append(
                b'{"found":true,"answer":%b,"problem":null,"pending":%b,"ticket":%b}'
                % (answer, pending, compact(outcome.ticket))
            )
            grades.append(outcome.grade.value)
        else:
            late = item.parsed is not None and item.parsed.key in refused
            problem = item.problem or _miss(number, lookup_request, outcome, late=late)
            ticket = outcome.ticket if outcome is not None else None
            parts.append(
                b'{"found":false,"answer":null,"problem":%b,"pending":%b,"ticket":%b}'
                % (compact(problem.to_json()), b"true" if late else pending, compact(ticket))
            )
            grades.append("none")
    return b'{"items":[' + b",".join(parts) + b"]}", grades


def bare_key(key: str) -> str:
    """Return a workload or target key without `sha256:`."""
    return key.removeprefix("sha256:")


def is_key(text: str) -> bool:
    digits = bare_key(text)
    return len(digits) == 64 and all(c in "0123456789abcdef" for c in digits)


def _read(parsed_workloads: ParsedWorkloads, number: int, one: Spelling) -> LookupEntry:
    if isinstance(one, str) and is_key(one):
        return LookupEntry(one, ParsedName(bare_key(one), b""))
    try:
        return LookupEntry(one, parsed_workloads.parsed_name(one))
    except TilewrightError as error:
        return LookupEntry(one, None, problem_of(Located(error, f"/workloads/{number}")))
    except Exception as error:  # noqa: BLE001  # logged, and reported for this item
        return LookupEntry(one, None, bug(number, error))


def _workload(
    store: Store, parsed_workloads: ParsedWorkloads, item: LookupEntry
) -> Workload | None:
    """Return the workload that an item defines, or the stored workload of its key."""
    if item.defines_workload:
        return parsed_workloads.read(item.sent)
    return stored_workload(store, bare_key(str(item.sent)))


def _miss(
    number: int, lookup_request: Lookup, outcome: Outcome | None, *, late: bool
) -> ProblemDetails:
    pointer = f"/workloads/{number}"
    lacking = outcome if isinstance(outcome, CacheMiss) else CacheMiss(True, True)
    if lacking.preparing or late:
        return ProblemDetails(
            status=202,
            code="answer_pending",
            title="Being prepared",
            detail=PENDING,
            advice="Send the request again after `Retry-After`.",
            exit_code=ExitCode.UNREACHABLE,
            pointer=pointer,
        )
    error: TilewrightError = no_answer(lookup_request.minimum, lacking)
    if lookup_request.minimum is Grade.DEFAULT:
        error = NoAnswer(
            "this service has no workload with this key",
            advice="Send the workload's document; then there is always an answer.",
        )
        if lacking.problem is not None:
            error = not_prepared(lacking.problem)
    return problem_of(Located(error, pointer))


def no_answer(minimum: Grade, lacking: CacheMiss) -> NoAnswer:
    """Return the error that no stored answer has the grade `minimum`, with the reason if all
    candidates of a search failed."""
    reason = f": {lacking.failed}" if lacking.failed else ""
    return NoAnswer(f"no {minimum.value} answer stored for these keys{reason}")


def not_prepared(problem: dict[str, str]) -> NotPrepared:
    return NotPrepared(problem["detail"], code=problem["code"], advice=problem.get("advice", ""))


def bug(number: int, error: Exception) -> ProblemDetails:
    """Log an exception of the service, and return the problem of its item. Other items are
    unaffected."""
    log.error("lookup of workload %d: a bug of the service", number, exc_info=error)
    return ProblemDetails(
        status=500,
        code="internal_error",
        title="A bug of the service",
        detail=f"{type(error).__name__}: the service's log has the details",
        advice="Report it with the workload; the same one will fail again.",
        exit_code=ExitCode.FAILED,
        pointer=f"/workloads/{number}",
    )


def _target(store: Store, lookup_request: LookupIn) -> Target:
    if isinstance(lookup_request.target, str) and lookup_request.target != "native":
        document = (
            store.target(bare_key(lookup_request.target)) if is_key(lookup_request.target) else None
        )
        if document is None:
            raise InvalidField(
                f"target {lookup_request.target[:80]!r}: must be 'native', a target document, or"
                " the key of a target this service has tuned for",
                pointer="/target",
            )
        return Target.from_json(document)
    return targets.target_of(lookup_request.target, lookup_request.threads)
