"""The answers that were given, ready to be given again: what makes a warm one cheap.

An answer follows from the rows it rests on and from the toolchain installed here. It is kept as
the bytes that are sent, with a digest of those rows, and is given again

- at once, while nothing was committed to the database (`Store.change_token`);
- else after its rows were read again and are, byte by byte, what they were.

It was made of rows whose hashes were right. A row that was changed since has other bytes, is read
and checked anew, and not served if it is damaged.
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

BOOK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: the least grade that will do for a workload on a target, by their keys.

    `target` is its description where the asker gave one; else the stored one counts.
    """

    workload_key: str
    target_key: str
    minimum: Grade
    target: Target | None = None

    @property
    def work(self) -> tuple[str, str]:
        return self.workload_key, self.target_key

    @property
    def identity(self) -> tuple[str, str, Grade, int]:
        """Equal for questions with equal answers: `vector_bits` is not part of a target's key."""
        bits = self.target.vector_bits if self.target is not None else 0
        return self.workload_key, self.target_key, self.minimum, bits


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """An answer as it is sent: `rest` is its JSON without the workload, which askers may call by
    other names; `summary` is the workload as it is stored. `etag` is of both together.

    `untried`: a stored record may be better, which nobody checked with the toolchain installed
    here. `preparing`: something better than this is being looked for.
    """

    grade: Grade
    record_key: str | None
    summary: bytes
    rest: bytes
    etag: str
    untried: bool = False
    preparing: bool = False
    ticket: str | None = None

    @property
    def body(self) -> bytes:
        """The JSON of the answer."""
        return self.told(self.summary)

    def told(self, summary: bytes) -> bytes:
        """The JSON of the answer, with the workload as the asker knows it."""
        return b'{"workload":' + summary + b"," + self.rest[1:]


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """Nothing stored will do.

    `workload_known`, `target_known`: whether they are stored here. `untried`, `preparing` as in
    `FoundAnswer`. `prepared`: a preparation has come to an end, with nothing that would do;
    `problem` says why there is no schedule at all, and `try_again_at` (seconds since 1970) when
    that is worth another try. `ticket`: the job that tunes it. `failed`: why no candidate of a
    search passed.
    """

    workload_known: bool
    target_known: bool
    untried: bool = False
    preparing: bool = False
    prepared: bool = False
    problem: dict[str, str] | None = None
    ticket: str | None = None
    try_again_at: float | None = None
    failed: str = ""


Outcome: TypeAlias = FoundAnswer | CacheMiss


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    token: object
    digest: bytes
    outcome: Outcome


class AnswerCache:
    """Answers of one store under one toolchain. Threads may share it."""

    def __init__(self, store: Store, toolchain: Toolchain, size_bytes: int = BOOK_BYTES) -> None:
        self._store = store
        self._toolchain = toolchain
        self.name = toolchain_name(toolchain)
        self._entries: BoundedCache[tuple[Any, ...], _CachedAnswer] = BoundedCache(size_bytes)

    def at_once(self, question: Question) -> Outcome | None:
        """What is known without asking the database; None if it must be asked."""
        entry = self._entries.get(question.identity)
        if entry is None or entry.token is None or entry.token != self._store.change_token():
            return None
        return entry.outcome

    def find(self, questions: Sequence[Question]) -> list[Outcome]:
        """An outcome a question, in order. Asks the database for those not known at once."""
        token = self._store.change_token()
        found: dict[tuple[Any, ...], Outcome] = {}
        asked: dict[tuple[Any, ...], Question] = {}
        for question in questions:
            name = question.identity
            entry = self._entries.get(name)
            if entry is not None and token is not None and entry.token == token:
                found[name] = entry.outcome
            else:
                asked[name] = question
        if asked:
            found |= self._read(token, asked)
        return [found[question.identity] for question in questions]

    def _read(
        self, token: object, asked: dict[tuple[Any, ...], Question]
    ) -> dict[tuple[Any, ...], Outcome]:
        """Outcomes from the rows as they are now. `token` is older than the rows: what is
        committed in between makes them be read again, never be believed for too long."""
        found = {}
        for elsewhere in (False, True):
            part = {n: q for n, q in asked.items() if (q.minimum is not Grade.EXACT) is elsewhere}
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
    """What follows from the rows."""
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
            untried=untried or is_refused,  # what was prepared is to be chosen anew
            preparing=preparing,
            prepared=prepared is not None and prepared.state.final,
            problem=prepared.document.get("problem") if prepared is not None else None,
            ticket=prepared.job_id if prepared is not None else None,
            try_again_at=prepared.document.get("try_again_at") if prepared is not None else None,
            failed=why_none_passed(checks, toolchain),
        )
    return replace(finished(answer), untried=untried, preparing=preparing)


def _untried(evidence: StoredEvidence, prepared: Prepared | None, toolchain: Toolchain) -> bool:
    """Whether a record of another toolchain, or of others, may pass the check of this one."""
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
    """What was prepared, as an answer."""
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
    """An answer as it is sent."""
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
    """JSON without spaces."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
