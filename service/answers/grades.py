"""Answers and their grades: how close a stored record is to what was asked.

- `exact`: made for this target (same key) by this code generator and LLVM.
- `same-cpu`: made for this cpu and features, with other threads or caches.
- `compatible`: its code runs here: its features are among the host's; or a record made by
  another code generator or LLVM, which `verify` or `tune` must check before it is exact.
- `default`: chosen without measurement; verified in full where a machine could run it.

Mocked timings (replayed, simulated) grade by their target alone, say so, and are never verified.

A better grade wins over a faster time; among equals the faster wins.
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
    """A record that is best somewhere, its key, and the machine it was made for."""

    record: TuningRecord
    made_for: Target
    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What is told to who asks. `workload` and `target` are short descriptions (JSON data), `steps`
    is the schedule as records hold it, `trace` the same read.

    `run_secs` is measured, or None for a default; `run_secs_with_packing` is of a call that packs
    constant inputs itself, None where there are none. `verified` says that the record passed the
    full check under the toolchain that is installed here, `evidence` what a full check of it
    compared (`Evidence`), None where that is not known. `artefacts` names the record's stored
    files by kind. `rewritten` is what a rewritten schedule costs in accuracy
    (`tilewright.schedules.rewritten`), None where that is nothing. `ticket` is the id of the job
    that tunes what was not tuned; `pending` says that more of this answer is being prepared.
    """

    grade: Grade
    workload: dict[str, Any]
    target: dict[str, Any]
    steps: list[Any]
    record_key: str | None = None
    run_secs: float | None = None
    run_secs_with_packing: float | None = None
    verified: bool = False
    evidence: dict[str, Any] | None = None
    note: str = ""
    made_for: dict[str, Any] | None = None
    artefacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    created_at: str | None = None
    rewritten: dict[str, Any] | None = None
    ticket: str | None = None
    pending: bool = False

    @property
    def trace(self) -> Trace:
        """ScheduleError where `steps` are not of this version. Answers are told without it: what it
        reads steps with takes as long to import as everything else `best` needs."""
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
        """One line: where this schedule comes from."""
        if self.grade is Grade.DEFAULT and self.record_key is None:
            return "the schedule chosen without measurement (grade default): nothing stored"
        if self.run_secs is None:
            return self.note
        note = f"; {self.note}" if self.note else ""
        return f"stored best, grade {self.grade.value}, record {self.record_key}{note}"


def same_toolchain(made: Toolchain, here: Toolchain) -> bool:
    """Whether code made by `made` is the code made here. The llvmlite release fixes its LLVM."""
    return made.codegen_version == here.codegen_version and made.llvmlite == here.llvmlite


def grade_of(made_for: Target, host: Target) -> Grade | None:
    """The grade of a record made for one machine, asked for on another; None: will not run.

    Only the target counts here; `choose` lowers the grade of another toolchain's record.
    """
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
    """The best of `candidates` on `host` with its grade and a note, or None if none will do.

    `toolchain` None trusts records whoever compiled them.
    """
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
