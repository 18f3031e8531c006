"""The trials that a search borrows from the records of related workloads."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from tilewright.schedules.full_checks import MOCKED
from tilewright.schedules.named_setting import NamedSetting
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.related import RelatedRecords

from .adaptation import RelatedTrial

FASTEST, OTHERS = 8, 8
"""Trials per related workload: the fastest ones, and others at equal steps of their order. The
others show which settings are slow."""


def related_trials(found: Sequence[RelatedRecords], toolchain: Toolchain) -> list[RelatedTrial]:
    """Return the trials of related workloads, the nearest workload first. Simulated and replayed
    timings are used only for a run with the same ones."""
    result = []
    for source, one in enumerate(found, start=1):
        records = [r for r in one.records if _is_comparable(r.toolchain, toolchain)]
        result += [
            RelatedTrial(
                NamedSetting.from_json(record.setting),
                log2(record.result.run_secs_estimate / record.prior_secs),
                source,
                one.distance,
            )
            for record in _chosen(records)
            if record.setting is not None
            and record.prior_secs is not None
            and record.result.run_secs_estimate is not None
        ]
    return result


def _is_comparable(made_by: Toolchain, toolchain: Toolchain) -> bool:
    mocked = MOCKED in (made_by.codegen_version, toolchain.codegen_version)
    return made_by == toolchain if mocked else True


def _chosen(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """Return the FASTEST records and up to OTHERS of the others, one of each trace."""
    distinct = list({record.trace_key: record for record in reversed(records)}.values())[::-1]
    rest = distinct[FASTEST:]
    step = max(-(-len(rest) // OTHERS), 1)
    return [*distinct[:FASTEST], *rest[step - 1 :: step]]
