"""A cache of answers, which makes a repeated request cheap.

An answer depends on the stored rows from which it was made, and on the installed toolchain. The
cache holds the bytes of the response and a digest of those rows, and returns the bytes

- without a query, if nothing was committed to the database since (`Store.change_token`);
- otherwise after reading the rows again, if they have not changed.

The hashes of the rows are checked when an answer is made. If a row is damaged later, its bytes
differ from the digest, so the answer is made and checked again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.db.values.answers import Prepared
from tilewright.schedules.full_checks import MOCKED
from tilewright.schedules.record import Toolchain
from tilewright.schedules.target import Target
from tilewright.service.answers.failed_checks import why_none_passed
from tilewright.service.answers.find import find_answer
from tilewright.service.answers.grades import Answer, same_toolchain
from tilewright.service.answers.links import links
from tilewright.service.grade import Grade
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.bounded_cache import BoundedCache
from tilewright.service.resolve.toolchains import toolchain_name

if TYPE_CHECKING:
    from tilewright.db import Store, StoredEvidence

CACHE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Question:
    """A request for an answer of at least grade `minimum`."""

    workload_key: str
    target_key: str
    minimum: Grade
    target: Target | None = None
    """The description in the request. If it is None, the stored description of `target_key` is
    used."""

    @property
    def work(self) -> tuple[str, str]:
        return self.workload_key, self.target_key

    @property
    def identity(self) -> tuple[str, str, Grade, int]:
        """A value that is equal for requests with equal answers. It contains `vector_bits`, which
        is not part of a target's key."""
        bits = self.target.vector_bits if self.target is not None else 0
        return self.workload_key, self.target_key, self.minimum, bits


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """An answer as bytes, in two parts, because requests may name the workload differently."""

    grade: Grade
    record_key: str | None
    summary: bytes
    """The JSON of the stored description of the workload."""
    rest: bytes
    """The JSON of all other fields."""
    etag: str
    """Identifies the bytes of both parts."""
    untried: bool = False
    """Whether a stored record that the installed toolchain has not checked may be better."""
    preparing: bool = False
    """Whether a better answer is being prepared."""
    ticket: str | None = None
    """The id of the job that tunes the workload."""

    @property
    def body(self) -> bytes:
        """The JSON of the answer."""
        return self.body_for(self.summary)

    def body_for(self, summary: bytes) -> bytes:
        """Return the JSON of the answer, with the caller's description of the workload."""
        return b'{"workload":' + summary + b"," + self.rest[1:]


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """The outcome if no stored answer has the requested grade."""

    workload_known: bool
    """Whether the workload is stored."""
    target_known: bool
    """Whether the target is stored."""
    untried: bool = False
    """Whether a stored record that the installed toolchain has not checked may be an answer."""
    preparing: bool = False
    """Whether an answer is being prepared."""
    prepared: bool = False
    """Whether a preparation finished without an acceptable answer."""
    problem: dict[str, str] | None = None
    """The reason why there is no schedule."""
    ticket: str | None = None
    """The id of the job that tunes the workload."""
    try_again_at: float | None = None
    """The Unix time in seconds of the next preparation."""
    failed: str = ""
    """The reasons why no candidate of a search passed."""


Outcome: TypeAlias = FoundAnswer | CacheMiss


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    token: object
    digest: bytes
    outcome: Outcome


class AnswerCache:
    """Answers from one database under one toolchain. Thread-safe."""

    def __init__(self, store: Store, toolchain: Toolchain, size_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._toolchain = toolchain
        self.name = toolchain_name(toolchain)
        self._entries: BoundedCache[tuple[Any, ...], _CachedAnswer] = BoundedCache(size_bytes)

    def cached(self, question: Question) -> Outcome | None:
        """Return the cached outcome if nothing was committed since it was made, else None."""
        entry = self._entries.get(question.identity)
        if entry is None or entry.token is None or entry.token != self._store.change_token():
            return None
        return entry.outcome

    def find(self, questions: Sequence[Question]) -> list[Outcome]:
        """Return one outcome per question, in order. Outcomes that are not cached are read from the
        database."""
        token = self._store.change_token()
        found: dict[tuple[Any, ...], Outcome] = {}
        to_read: dict[tuple[Any, ...], Question] = {}
        for question in questions:
            name = question.identity
            entry = self._entries.get(name)
            if entry is not None and token is not None and entry.token == token:
                found[name] = entry.outcome
            else:
                to_read[name] = question
        if to_read:
            found |= self._read(token, to_read)
        return [found[question.identity] for question in questions]

    def _read(
        self, token: object, to_read: dict[tuple[Any, ...], Question]
    ) -> dict[tuple[Any, ...], Outcome]:
        """Return outcomes from the current rows. `token` was read before the rows, so a commit in
        between causes another read, not a stale answer."""
        found = {}
        for elsewhere in (False, True):
            part = {n: q for n, q in to_read.items() if (q.minimum is not Grade.EXACT) is elsewhere}
            if not part:
                continue
            works = [question.work for question in part.values()]
            evidence = self._store.evidence(works, toolchain=self.name, elsewhere=elsewhere)
            for name, question in part.items():
                found[name] = self._outcome(token, question, evidence[question.work])
        return found

    def _outcome(self, token: object, question: Question, evidence: StoredEvidence) -> Outcome:
        digest = hashlib.sha256(repr(evidence).encode("utf-8", "surrogatepass")).digest()
        known = self._entries.get(question.identity)
        if known is not None and known.digest == digest:
            outcome = known.outcome
        else:
            outcome = outcome_of(question, evidence, self._toolchain)
        held = len(outcome.rest) + len(outcome.summary) if isinstance(outcome, FoundAnswer) else 0
        self._entries.put(question.identity, _CachedAnswer(token, digest, outcome), held)
        return outcome


def outcome_of(question: Question, evidence: StoredEvidence, toolchain: Toolchain) -> Outcome:
    """Return the outcome of `question` that follows from the stored rows in `evidence`."""
    entry, target = evidence.entry(), question.target
    if target is None:
        document = evidence.target_document()
        target = None if document is None else Target.from_json(document)
    if entry is None or target is None:
        return CacheMiss(workload_known=entry is not None, target_known=target is not None)
    checks = evidence.refusals(target.key)
    prepared = evidence.preparation()
    is_refused = (
        prepared is not None
        and prepared.trace is not None
        and checks.refusal(prepared.trace, toolchain) is not None
    )
    untried = _untried(evidence, prepared, toolchain)
    preparing = prepared is not None and not prepared.state.final
    found = find_answer(evidence, target, question.minimum, toolchain)
    summary = {"key": entry.key, "name": entry.name, "flops": entry.flops}
    if found is not None:
        form = entry.document
        answer = found.answer(
            summary, targets.target_summary(target), lambda: workloads.workload_of(form)
        )
        answer = replace(answer, artefacts=links(evidence.artefacts(found.stored.key)))
    elif (
        question.minimum is Grade.DEFAULT
        and prepared is not None
        and prepared.trace is not None
        and not is_refused
    ):
        answer = _default(prepared, summary, target)
    else:
        return CacheMiss(
            workload_known=True,
            target_known=True,
            untried=untried or is_refused,  # the prepared schedule must be chosen again
            preparing=preparing,
            prepared=prepared is not None and prepared.state.final,
            problem=prepared.document.get("problem") if prepared is not None else None,
            ticket=prepared.job_id if prepared is not None else None,
            try_again_at=prepared.document.get("try_again_at") if prepared is not None else None,
            failed=why_none_passed(checks, toolchain),
        )
    return replace(finished(answer), untried=untried, preparing=preparing)


def _untried(evidence: StoredEvidence, prepared: Prepared | None, toolchain: Toolchain) -> bool:
    """Return whether there are records of other toolchains, or imported records, that no
    preparation has checked with this toolchain. Return False if there is an exact record."""
    tried = set(prepared.document.get("tried", ())) if prepared is not None else set()
    stale = {
        one.key
        for one in evidence.best()
        if one.record.toolchain.codegen_version != MOCKED
        and not same_toolchain(one.record.toolchain, toolchain)
    }
    exact = any(
        one.record.toolchain.codegen_version == MOCKED
        or same_toolchain(one.record.toolchain, toolchain)
        for one in evidence.best()
    )
    return not exact and not stale.union(evidence.claims) <= tried


def _default(prepared: Prepared, summary: dict[str, Any], target: Target) -> Answer:
    """Return the answer of a preparation."""
    return Answer(
        grade=Grade.DEFAULT,
        workload=summary,
        target=targets.target_summary(target),
        steps=prepared.document["trace"],
        verified=bool(prepared.document["verified"]),
        note=str(prepared.document["note"]),
        artefacts=links(prepared.files),
        ticket=prepared.job_id,
        pending=not prepared.state.final,
    )


def finished(answer: Answer) -> FoundAnswer:
    """Return an answer as bytes."""
    document = answer.to_json()
    summary = compact(document.pop("workload"))
    rest = compact(document)
    return FoundAnswer(
        grade=answer.grade,
        record_key=answer.record_key,
        summary=summary,
        rest=rest,
        etag=f'"{hashlib.sha256(summary + rest).hexdigest()}"',
        ticket=answer.ticket,
    )


def compact(document: Any) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
