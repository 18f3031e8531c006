"""Tasks whose schedule became slower with a newer toolchain.

After an upgrade of the code generator or of LLVM, a best is verified and timed again. Both results
are stored as full checks of the same trace, so they can be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import FULL, MOCKED
from tilewright.schedules.record import MeasureStatus, TuningRecord

from ..core.models import RecordRow, TargetRow, WorkloadRow
from ..core.parts import StorePart, reading
from ..records.best import best_of, generation
from ..records.rows import NOT_WITHDRAWN, from_rows
from ..records.works import target_document, workload_entry
from ..values.records import Work
from ..values.whole import SlowerTask

SLOWER_RATIO = 1.05
"""A larger ratio of the times after and before an upgrade is reported. Smaller ones may be due to
the machine."""


_PASSED = (
    RecordRow.verified_level == FULL,
    RecordRow.status == str(MeasureStatus.OK),
    RecordRow.codegen_version != MOCKED,
    text(NOT_WITHDRAWN),
)
"""Conditions of a full check on a real machine that passed."""


class UpgradeStore(StorePart):
    """Comparison of toolchains by the records of a store."""

    @reading
    def slower_after_upgrade(self, session: Session) -> list[SlowerTask]:
        """Return the tasks for which the newest toolchain that checked a trace made it more than
        `SLOWER_RATIO` times as slow as the toolchain before, the largest ratio first.

        A trace of a task counts if full checks with both toolchains passed. Of several traces of a
        task, the one that was fastest before the upgrade counts.
        """
        found = [
            slower
            for work in _works_of_several_toolchains(session)
            if (slower := _slower(session, work)) is not None
        ]
        return sorted(found, key=lambda one: -one.ratio)


def _works_of_several_toolchains(session: Session) -> list[Work]:
    made_by = RecordRow.codegen_version, RecordRow.llvmlite, RecordRow.llvm
    each = (
        select(RecordRow.workload_key, RecordRow.target_key, *made_by)
        .where(*_PASSED)
        .distinct()
        .subquery()
    )
    work = each.c.workload_key, each.c.target_key
    rows = session.execute(select(*work).group_by(*work).having(func.count() > 1).order_by(*work))
    return [(row[0], row[1]) for row in rows]


def _slower(session: Session, work: Work) -> SlowerTask | None:
    pairs = list(_before_and_after(_full_checks(session, work)))
    if not pairs:
        return None
    before, after = min(pairs, key=lambda pair: _secs(pair[0]))
    entry = workload_entry(session.get(WorkloadRow, work[0]))
    document = target_document(session.get(TargetRow, work[1]))
    best = best_of(session, work)
    if _secs(after) <= SLOWER_RATIO * _secs(before) or entry is None or document is None:
        return None
    return SlowerTask(
        workload_key=work[0],
        name=entry.name,
        target_key=work[1],
        target=document,
        threads=after.threads,
        before=before,
        after=after,
        best_secs=None if best is None else _secs(best),
    )


def _full_checks(session: Session, work: Work) -> list[TuningRecord]:
    """Return the passed full checks of a task on real machines, oldest first."""
    statement = (
        select(RecordRow)
        .where(RecordRow.workload_key == work[0], RecordRow.target_key == work[1], *_PASSED)
        .order_by(RecordRow.id)
    )
    return from_rows(session.scalars(statement))


def _before_and_after(records: list[TuningRecord]) -> Iterator[tuple[TuningRecord, TuningRecord]]:
    """Yield, for each trace that several generations of toolchains checked, its fastest record of
    the last generation but one and of the last one."""
    traces: defaultdict[bytes, dict[object, TuningRecord]] = defaultdict(dict)
    for record in records:
        made = traces[record.trace_key]
        age = generation(record.toolchain)
        if age not in made or _secs(record) < _secs(made[age]):
            made[age] = record
    for made in traces.values():
        if len(made) > 1:
            before, after = sorted(made.values(), key=lambda one: generation(one.toolchain))[-2:]
            yield before, after


def _secs(record: TuningRecord) -> float:
    secs = record.result.run_secs_estimate
    assert secs is not None  # guaranteed by `check_record`
    return secs
