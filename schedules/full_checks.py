"""Results of full checks of the schedules of one workload, and which schedules may still be served.

The full check rebuilds a candidate in a fresh process before it may become best. Its result, pass
or fail, is a record of `verified_level` "full", so the records of a workload on a target determine
what is known of each schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .record import MeasureStatus, Toolchain, TuningRecord
from .trace_document import trace_key

FULL = "full"

DISPROVED = frozenset({MeasureStatus.WRONG_RESULT, MeasureStatus.OUT_OF_BOUNDS})
"""Results that a later check cannot revoke. Other failures (a deadline, memory) may be due to the
machine, and count until the same code has passed."""

MOCKED = 0
"""The code generator version of replayed and simulated timings, for which no code was run. A
schedule that fails under it is not served until code of it has passed a check."""

WITHDRAWN = MeasureStatus.WRONG_RESULT
"""The detail of a withdrawn record: a later check, which left no record, disproved it."""

_Made: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True)
class FullCheck:
    """The result of a full check, and the record that holds it."""

    status: MeasureStatus
    detail: str
    record_key: str

    @property
    def ok(self) -> bool:
        return self.status is MeasureStatus.OK

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}" if self.detail else str(self.status)

    def to_json(self) -> dict[str, Any]:
        return {
            "status": str(self.status),
            "detail": self.detail,
            "record_key": self.record_key,
        }


def outweighs(new: MeasureStatus, known: MeasureStatus) -> bool:
    """Whether the result of one full check replaces that of another check of the same code: a wrong
    result is final, and after a pass neither a deadline nor a lack of memory counts."""
    ranks = dict.fromkeys(DISPROVED, 2) | {MeasureStatus.OK: 1}
    return ranks.get(new, 0) > ranks.get(known, 0)


@dataclass(frozen=True, slots=True)
class FullChecks:
    """The full checks of one workload on one target, by schedule and by what made the code (code
    generator and llvmlite release, which fixes LLVM, or a file of mocked timings)."""

    known: Mapping[tuple[bytes, _Made], FullCheck]

    @classmethod
    def of(cls, records: Iterable[tuple[TuningRecord, str | None]]) -> FullChecks:
        """From records of the work, each with the reason for which it was withdrawn, or None. Those
        that are no full check and were not withdrawn say nothing."""
        known: dict[tuple[bytes, _Made], FullCheck] = {}
        for record, withdrawn in records:
            found = _said_by(record, withdrawn)
            if found is None:
                continue
            place = record.trace_key, _made(record.toolchain)
            before = known.get(place)
            if before is None or outweighs(found.status, before.status):
                known[place] = found
        return cls(known)

    def check(self, trace: list[Any], toolchain: Toolchain) -> FullCheck | None:
        """What is known of the code that `toolchain` makes of a trace, as records hold it; None
        where it was never checked in full."""
        if not self.known:
            return None
        key, made = trace_key(trace), _made(toolchain)
        found = self.known.get((key, made))
        if found is not None:
            return found
        mocked = (c for (of, by), c in self.known.items() if of == key and by[0] == MOCKED)
        return next((check for check in mocked if not check.ok), None)

    def refusal(self, trace: list[Any], toolchain: Toolchain) -> FullCheck | None:
        """The failed check for which the code is not handed out; None where there is none."""
        found = self.check(trace, toolchain)
        return None if found is None or found.ok else found

    def failures(self, toolchain: Toolchain) -> Iterator[FullCheck]:
        """Every failed check of code of `toolchain`, and of mocked timings."""
        made = _made(toolchain)
        told = ((by, check) for (_, by), check in self.known.items() if not check.ok)
        return (check for by, check in told if by == made or by[0] == MOCKED)


NONE_KNOWN = FullChecks({})


def _said_by(record: TuningRecord, withdrawn: str | None) -> FullCheck | None:
    if withdrawn is not None:
        return FullCheck(WITHDRAWN, f"withdrawn: {withdrawn}", record.key)
    if record.verified_level != FULL or record.result.status is MeasureStatus.LOST:
        return None
    return FullCheck(record.result.status, record.result.detail, record.key)


def _made(toolchain: Toolchain) -> _Made:
    return toolchain.codegen_version, toolchain.llvmlite
