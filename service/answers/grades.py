"""Answers and their grades: how closely a stored record matches the request.

- `exact`: made for this target (same key) by this code generator and LLVM.
- `same-cpu`: made for this CPU and features, with other threads or caches.
- `compatible`: made for a CPU whose features this machine has; or made by another code generator or
  LLVM, so that `verify` or `tune` must check the record before it is exact.
- `default`: chosen without measurement.

Records with mocked timings (replayed, simulated) are graded by their target only. They have a note
about this, and are never verified.

A better grade wins over a faster time; among equal grades the faster record wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.schedules.full_checks import MOCKED
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.service.grade import Grade

if TYPE_CHECKING:
    from tilewright.schedules.target import Target
    from tilewright.schedules.trace import Trace


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A best record, the target for which it is the best, and its key."""

    record: TuningRecord
    made_for: Target
    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for a workload on a target: a schedule, where it is from, and its files."""

    grade: Grade
    workload: dict[str, Any]
    """The short description of the workload, as JSON data."""
    target: dict[str, Any]
    """The short description of the target, as JSON data."""
    steps: list[Any]
    """The schedule as records store it."""
    record_key: str | None = None
    run_secs: float | None = None
    """The measured time of a call, or None for a default answer."""
    run_secs_with_packing: float | None = None
    """The time of a call that packs constant inputs itself; None if there are no constant inputs.
    """
    verified: bool = False
    """Whether the record passed the full check under the installed toolchain."""
    evidence: dict[str, Any] | None = None
    """The scope of the record's full check (`Evidence`), or None if unknown."""
    note: str = ""
    made_for: dict[str, Any] | None = None
    artefacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The stored files of the record, by kind."""
    created_at: str | None = None
    rewritten: dict[str, Any] | None = None
    """The accuracy cost of a rewritten schedule (`tilewright.schedules.rewritten`), or None if
    there are no rewrites."""
    ticket: str | None = None
    """The id of the job that tunes the workload."""
    pending: bool = False
    """Whether the preparation of this answer is not finished."""

    @property
    def trace(self) -> Trace:
        """The parsed schedule. Raise ScheduleError if `steps` are of another version. It is parsed
        on demand, because importing the parser takes as long as the rest of `best`."""
        found: Trace = import_module("tilewright.schedules.trace").Trace.from_json(self.steps)
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "grade": self.grade.value,
            "workload": self.workload,
            "target": self.target,
            "record_key": self.record_key,
            "run_secs": self.run_secs,
            "run_secs_with_packing": self.run_secs_with_packing,
            "gflops": (
                float(self.workload["flops"]) / self.run_secs / 1e9 if self.run_secs else None
            ),
            "rewritten": self.rewritten,
            "verified": self.verified,
            "evidence": self.evidence,
            "note": self.note,
            "made_for": self.made_for,
            "created_at": self.created_at,
            "artefacts": self.artefacts,
            "ticket": self.ticket,
            "pending": self.pending,
            "trace": self.steps,
        }

    def summary(self) -> str:
        """Return one line on the origin of this schedule."""
        if self.grade is Grade.DEFAULT and self.record_key is None:
            return "the schedule chosen without measurement (grade default): nothing stored"
        if self.run_secs is None:
            return self.note
        note = f"; {self.note}" if self.note else ""
        return f"stored best, grade {self.grade.value}, record {self.record_key}{note}"


def same_toolchain(made: Toolchain, here: Toolchain) -> bool:
    """Return whether both toolchains generate the same code. A release of llvmlite implies its
    LLVM."""
    return made.codegen_version == here.codegen_version and made.llvmlite == here.llvmlite


def grade_of(made_for: Target, host: Target) -> Grade | None:
    """Return the grade on `host` of a record made for `made_for`, or None if its code does not run
    there. The record's toolchain is not considered here; see `choose`."""
    if made_for.key == host.key:
        return Grade.EXACT
    if made_for.triple != host.triple or made_for.vector_bits > host.vector_bits:
        return None
    ours, theirs = set(host.features), set(made_for.features)
    if made_for.cpu == host.cpu and ours == theirs:
        return Grade.SAME_CPU
    return Grade.COMPATIBLE if theirs <= ours else None


def choose(
    candidates: Iterable[StoredRecord], host: Target, toolchain: Toolchain | None, minimum: Grade
) -> tuple[Grade, StoredRecord, str] | None:
    """Return the best of `candidates` on `host`, with its grade and a note, or None if none is
    acceptable. `toolchain` None accepts records of every toolchain."""
    graded: list[tuple[Grade, float, str, StoredRecord]] = []
    for stored in candidates:
        grade = grade_of(stored.made_for, host)
        secs = stored.record.result.run_secs_estimate
        if grade is None or secs is None:
            continue
        note = ""
        made_by = stored.record.toolchain
        if made_by.codegen_version == MOCKED:
            note = f"timings are mocked ({made_by.llvmlite}), not measured"
        elif toolchain is not None and not same_toolchain(made_by, toolchain):
            grade = max(grade, Grade.COMPATIBLE, key=lambda g: g.rank)
            note = f"made by {toolchain_text(made_by)}; not verified with this one"
        if grade.satisfies(minimum):
            graded.append((grade, secs, note, stored))
    if not graded:
        return None
    grade, _, note, stored = min(graded, key=lambda g: (g[0].rank, g[1], g[3].key))
    return grade, stored, note


def toolchain_text(toolchain: Toolchain) -> str:
    return f"code generator {toolchain.codegen_version} with llvmlite {toolchain.llvmlite}"
