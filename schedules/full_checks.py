"""Results of full checks of the schedules of one workload, and the schedules that may be served.

The full check rebuilds a candidate in a fresh process before it may become the best schedule. Its
result, pass or fail, is a record of `verified_level` "full", so the records of a workload on a
target determine the known results of each schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .record import MeasureStatus, Toolchain, TuningRecord
from .trace_document import trace_key

FULL = "full"

DISPROVED = frozenset({MeasureStatus.WRONG_RESULT, MeasureStatus.OUT_OF_BOUNDS})
"""Results that a later check cannot revoke. The machine may be the cause of other failures (a
deadline, memory). They are valid until the same code passes a check."""

MOCKED = 0
"""The code generator version of replayed and simulated timings, for which no code was run. If a
schedule failed in them, it is not served until its code has passed a check."""

WITHDRAWN = MeasureStatus.WRONG_RESULT
"""The status of a withdrawn record: a later check failed, but its result is not a record."""

_Made: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True)
class FullCheck:
    """The result of a full check, and the key of its record."""

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
    """Return whether the result `new` replaces the result `known` of the same code.

    A wrong or out-of-bounds result replaces every other result. A pass replaces the remaining
    failures (a deadline, memory).
    """
    ranks = dict.fromkeys(DISPROVED, 2) | {MeasureStatus.OK: 1}
    return ranks.get(new, 0) > ranks.get(known, 0)


@dataclass(frozen=True, slots=True)
class FullChecks:
    """The full checks of one workload on one target, by schedule and by the producer of the code.

    The producer is the code generator and the llvmlite release (which determines the LLVM version),
    or a file of mocked timings.
    """

    known: Mapping[tuple[bytes, _Made], FullCheck]

    @classmethod
    def of(cls, records: Iterable[tuple[TuningRecord, str | None]]) -> FullChecks:
        """Return the full checks in `records`, which belong to one task (workload and target).

        Each record comes with the reason for its withdrawal, or None. Records that are neither full
        checks nor withdrawn are ignored.
        """
        known: dict[tuple[bytes, _Made], FullCheck] = {}
        for record, withdrawn in records:
            found = _check_in(record, withdrawn)
            if found is None:
                continue
            place = record.trace_key, _made(record.toolchain)
            before = known.get(place)
            if before is None or outweighs(found.status, before.status):
                known[place] = found
        return cls(known)

    def check(self, trace: list[Any], toolchain: Toolchain) -> FullCheck | None:
        """Return the known check of the code that `toolchain` generates for `trace` (JSON data).

        If the code was never checked in full, return a failed check of mocked timings of `trace`,
        or None if there is none.
        """
        if not self.known:
            return None
        key, made = trace_key(trace), _made(toolchain)
        found = self.known.get((key, made))
        if found is not None:
            return found
        mocked = (c for (of, by), c in self.known.items() if of == key and by[0] == MOCKED)
        return next((check for check in mocked if not check.ok), None)

    def refusal(self, trace: list[Any], toolchain: Toolchain) -> FullCheck | None:
        """Return the failed check that prevents the code from being served, or None."""
        found = self.check(trace, toolchain)
        return None if found is None or found.ok else found

    def failures(self, toolchain: Toolchain) -> Iterator[FullCheck]:
        """Yield each failed check of code that `toolchain` generates, or of mocked timings."""
        made = _made(toolchain)
        told = ((by, check) for (_, by), check in self.known.items() if not check.ok)
        return (check for by, check in told if by == made or by[0] == MOCKED)


NONE_KNOWN = FullChecks({})


def _check_in(record: TuningRecord, withdrawn: str | None) -> FullCheck | None:
    if withdrawn is not None:
        return FullCheck(WITHDRAWN, f"withdrawn: {withdrawn}", record.key)
    if record.verified_level != FULL or record.result.status is MeasureStatus.LOST:
        return None
    return FullCheck(record.result.status, record.result.detail, record.key)


def _made(toolchain: Toolchain) -> _Made:
    return toolchain.codegen_version, toolchain.llvmlite
