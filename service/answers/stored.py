"""Answers from a database for commands: the best schedule, or the schedule of one record."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.db.errors import StoreError, StoreMissing
from tilewright.schedules.full_checks import NONE_KNOWN, FullChecks
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.target import Target
from tilewright.service import database
from tilewright.service.answers import analytic
from tilewright.service.answers.failed_checks import (
    record_refusal,
    safe_trace,
    unverified_note,
    why_none_passed,
)
from tilewright.service.answers.find import StoredAnswer, evidence_document, find_answer
from tilewright.service.answers.grades import Answer, StoredRecord, choose, grade_of
from tilewright.service.answers.links import links
from tilewright.service.errors import NoAnswer, UsageProblem
from tilewright.service.grade import Grade
from tilewright.service.resolve.targets import target_summary
from tilewright.service.resolve.toolchains import toolchain
from tilewright.service.resolve.workloads import workload_summary

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload


# Start-up: a query loads neither SQLAlchemy nor a compiler; functions that need them import them.


def answer(
    db: str | None,
    workload: Workload,
    target: Target,
    min_grade: str,
    *,
    any_toolchain: bool = False,
) -> Answer:
    """Return the best answer of at least `min_grade` in the database that `--db` names. Raise
    NoAnswer if there is none. With `any_toolchain`, a record of another toolchain counts as made by
    the installed one: `verify` rebuilds records."""
    from tilewright.db import artefacts_of_record, full_checks_of

    minimum = Grade(min_grade)
    found = _stored_answer(db, workload, target, minimum, None if any_toolchain else toolchain())
    if found is not None:
        summary = workload_summary(workload)
        answer = found.answer(summary, target_summary(target), lambda: workload)
        files = artefacts_of_record(database.database_url(db), found.stored.key)
        return replace(answer, artefacts=links(files))
    try:
        checks = full_checks_of(database.database_url(db), workload.key, target.key)
    except StoreMissing:
        checks, is_there = NONE_KNOWN, False
    else:
        is_there = True
    if minimum is not Grade.DEFAULT:
        raise _no_answer(db, workload, target, minimum, checks)
    known = _known(db, workload, target) if is_there else analytic.NOTHING_KNOWN
    return default_answer(workload, target, checks, known)


def _known(db: str | None, workload: Workload, target: Target) -> analytic.Knowledge:
    """Return what the database knows about similar tasks: nothing if it cannot be read, because the
    default schedule does not need it."""
    from tilewright.db import related_records, stored_model

    url = database.database_url(db)
    try:
        related = related_records(url, workload, target)
        return analytic.Knowledge(related, stored_model(url, target))
    except StoreError:
        return analytic.NOTHING_KNOWN


def default_answer(
    workload: Workload,
    target: Target,
    checks: FullChecks,
    known: analytic.Knowledge = analytic.NOTHING_KNOWN,
) -> Answer:
    """Choose a schedule in this process without measuring `workload`, with what is `known` about
    similar tasks, and return it as an answer. Raise DeadlineError or WorkloadError if choosing
    fails, NoAnswer if `checks` exclude every schedule."""
    chosen = analytic.default_schedule(workload, target, known)
    trace, note = safe_trace(workload, chosen, checks, toolchain())
    return Answer(
        grade=Grade.DEFAULT,
        workload=workload_summary(workload),
        target=target_summary(target),
        steps=trace.to_json(),
        note=note,
    )


def answer_of_claim(db: str | None, workload: Workload, target: Target) -> Answer | None:
    """Return the schedule of the fastest imported record, or None if there is none. The record is
    not verified here."""
    from tilewright.db import open_store

    try:
        with open_store(database.database_url(db), create=False, upgrade=False) as store:
            claims = store.claims(workload.key, target.key)
    except StoreMissing:
        return None
    return answer_of_record(db, workload, target, claims[0].key) if claims else None


def answer_of_record(db: str | None, workload: Workload, target: Target, key: str) -> Answer:
    """Return the schedule of record `key`, which any machine may have measured. Raise NoAnswer or
    UsageProblem."""
    name = "sha256:" + key.removeprefix("sha256:")
    with database.session(db) as store:
        record = store.record(name)
        document = store.target(record.target_key) if record is not None else None
        failed = record and record_refusal(store, record, target.key, toolchain())
    if record is None or document is None:
        raise NoAnswer(f"no record {name} stored", advice="`tilewright export` lists the records.")
    if record.workload_key != workload.key:
        raise UsageProblem(f"record {name} is of another workload ({record.workload_key})")
    made_for = Target.from_json(document)
    return Answer(
        grade=grade_of(made_for, target) or Grade.DEFAULT,
        workload=workload_summary(workload),
        target=target_summary(target),
        steps=record.trace,
        record_key=name,
        evidence=evidence_document(record),
        run_secs=record.result.run_secs_estimate if made_for.key == target.key else None,
        note=f"the schedule of {name}, made for {made_for.cpu}"
        + (f"; it failed its full check ({failed}), and is never served" if failed else ""),
        made_for=target_summary(made_for),
        created_at=record.created_at or None,
    )


def _no_answer(
    db: str | None, workload: Workload, target: Target, minimum: Grade, checks: FullChecks
) -> NoAnswer:
    """Return the error that no answer is stored, with the reason and a command that creates an
    answer."""
    from tilewright.db import best_record, default_url, file_is_there, open_claims, sqlite_path

    threads = "1 thread" if target.threads == 1 else f"{target.threads} threads"
    message = (
        f"no {minimum.value} answer stored for {workload.name or workload.key}"
        f" on {target.cpu} with {threads}"
    )
    named = database.database_url(db)
    spelled = workload.name if ":" in workload.name else "WORKLOAD"
    where = ["--threads", str(target.threads)] if target.threads > 1 else []
    where += ["--db", db] if db else []
    command = shlex.join(["tilewright", "tune", spelled, *where])
    if named is not None and "://" not in named.replace("sqlite://", ""):
        path = sqlite_path(named or default_url())
        if not file_is_there(path):
            return NoAnswer(
                f"{message}: there is no database at {path}",
                advice=f"Check the name; `{command}` creates it.",
            )
    work = workload.key, target.key
    try:
        waiting = unverified_note(best_record(named, *work), open_claims(named, *work), toolchain())
    except StoreMissing:
        waiting = ""
    if waiting:
        verify = shlex.join(["tilewright", "verify", spelled, *where])
        return NoAnswer(
            f"{message}: {waiting}",
            advice=f"`{verify}` checks it without tuning; `tilewright verify --all` checks all such"
            " records.",
        )
    failed = why_none_passed(checks, toolchain())
    if failed:
        return NoAnswer(
            f"{message}: {failed}",
            advice=f"Other candidates may pass: `{command} --trials N` with more trials.",
        )
    return NoAnswer(
        message, advice=f"Tune it: `{command}`; or accept a lower grade: `--min-grade default`."
    )


def _stored_answer(
    db: str | None,
    workload: Workload,
    target: Target,
    minimum: Grade,
    made_by: Toolchain | None,
) -> StoredAnswer | None:
    """Return the acceptable stored record, or None. An exact one is found without SQLAlchemy, whose
    import takes longer than the rest of the command."""
    from tilewright.db import best_record

    url = database.database_url(db)
    try:
        record = best_record(url, workload.key, target.key)
    except StoreMissing:
        return None
    if record is not None and not _is_refused(url, record, made_by):
        chosen = choose([StoredRecord(record, target, record.key)], target, made_by, Grade.EXACT)
        if chosen is not None:
            return StoredAnswer(*chosen)
    if minimum is Grade.EXACT:
        return None
    from tilewright.db import open_store

    with open_store(url, create=False, upgrade=False) as store:
        work = workload.key, target.key
        return find_answer(store.evidence([work], elsewhere=True)[work], target, minimum, made_by)


def _is_refused(url: str | None, record: TuningRecord, made_by: Toolchain | None) -> bool:
    """Return whether the schedule of a stored best failed its full check. Such a best may exist in
    databases of versions that did not record failed checks."""
    from tilewright.db import full_checks_of

    checks = full_checks_of(url, record.workload_key, record.target_key)
    toolchains = {record.toolchain, made_by or record.toolchain}
    return any(checks.refusal(record.trace, by) is not None for by in toolchains)
