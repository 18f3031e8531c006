"""The trials that a search borrows from the records of related tasks: other workloads, other
machines, other code generators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2

from tilewright.schedules.full_checks import MOCKED
from tilewright.schedules.named_setting import NamedSetting
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.related import RelatedRecords

from .adaptation import RelatedTrial

OTHER_TOOLCHAIN = "another code generator"

FASTEST, OTHERS = 8, 8
"""Trials per related task: the fastest ones, and others at equal steps of their order. The
others show which settings are slow."""


def related_trials(found: Sequence[RelatedRecords], toolchain: Toolchain) -> list[RelatedTrial]:
    """Return the trials of related tasks, in the order of `found`, without those of other spellings
    (see `spellings.samples_of_spellings`). Simulated and replayed timings are used only for a run
    with the same ones. Of this workload on this target, only records of other toolchains are used:
    a run reuses its own."""
    result: list[RelatedTrial] = []
    works: dict[str, int] = {}
    machines = {"": 0}
    for source, (one, records) in enumerate(comparable(found, toolchain), start=1):
        if one.spelling is not None:
            continue
        work = (
            0 if one.is_same_workload else works.setdefault(records[0].workload_key, len(works) + 1)
        )
        machine = machines.setdefault(origin_of(one), len(machines))
        result += [
            RelatedTrial(
                NamedSetting.from_json(record.setting),
                log2(record.result.run_secs_estimate / record.prior_secs),
                source,
                one.distance,
                work,
                machine,
            )
            for record in chosen(records)
            if record.setting is not None
            and record.prior_secs is not None
            and record.result.run_secs_estimate is not None
        ]
    return result


def comparable(
    found: Sequence[RelatedRecords], toolchain: Toolchain
) -> Iterator[tuple[RelatedRecords, list[TuningRecord]]]:
    """Yield each related task that has records which a run with `toolchain` can use, and these
    records."""
    for one in found:
        own = one.is_same_workload and not one.origin
        records = [
            record
            for record in one.records
            if _is_comparable(record.toolchain, toolchain)
            and not (own and _is_same(record.toolchain, toolchain))
        ]
        if records:
            yield one, records


def origin_of(one: RelatedRecords) -> str:
    """Return where the records of a related task come from, as a name for users; "" for this
    target and, unless they are of this workload, any version of the code generator."""
    if one.is_same_workload and not one.origin:
        return OTHER_TOOLCHAIN
    return one.origin


def _is_comparable(made_by: Toolchain, toolchain: Toolchain) -> bool:
    mocked = MOCKED in (made_by.codegen_version, toolchain.codegen_version)
    return made_by == toolchain if mocked else True


def _is_same(made_by: Toolchain, toolchain: Toolchain) -> bool:
    """Return whether the code is the same: the release of llvmlite determines that of LLVM, which
    is "" if it was not asked."""
    if toolchain.codegen_version == MOCKED:
        return made_by == toolchain
    same = made_by.codegen_version, made_by.llvmlite
    return same == (toolchain.codegen_version, toolchain.llvmlite)


def chosen(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """Return the FASTEST records and up to OTHERS of the others, one of each trace."""
    distinct = list({record.trace_key: record for record in reversed(records)}.values())[::-1]
    rest = distinct[FASTEST:]
    step = max(-(-len(rest) // OTHERS), 1)
    return [*distinct[:FASTEST], *rest[step - 1 :: step]]
