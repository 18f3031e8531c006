"""Records: what a measurement found, as values that go to the database and over the wire."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from .canonical import canonical_bytes

RECORD_VERSION = 1


class MeasureStatus(StrEnum):
    """How the measurement of one candidate ended. Everything but OK carries no time."""

    OK = "ok"
    NOT_LEGAL = "not_legal"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILE_CRASH = "compile_crash"
    RUN_CRASH = "run_crash"
    RUN_TIMEOUT = "run_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_BOUNDS = "out_of_bounds"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What made the code: a record from another one is verified again before it is served."""

    codegen_version: int
    llvmlite: str
    llvm: str


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """What happened to one candidate.

    `run_secs` holds every timed sample, in seconds a call, oldest first; empty unless `status`
    is OK. `run_secs_estimate` is the published estimate of one call in seconds, None unless OK.
    `detail` is one line for people: the signal, the element that was wrong, the deadline.
    Where inputs are constant, times are of calls that find them packed, and
    `run_secs_with_packing` is an estimate of one call that packs them itself, if it was taken.
    `error_found` is the largest error met while a rewritten kernel was verified, relative to what
    its stated error is relative to; None where nothing is rewritten.
    """

    status: MeasureStatus
    run_secs: tuple[float, ...] = ()
    run_secs_estimate: float | None = None
    compile_secs: float = 0.0
    verify_secs: float = 0.0
    measure_secs: float = 0.0
    detail: str = ""
    run_secs_with_packing: float | None = None
    error_found: float | None = None

    @property
    def ok(self) -> bool:
        return self.status is MeasureStatus.OK


@dataclass(frozen=True)
class TuningRecord:
    """One measured candidate, immutable and named by its content (`key`).

    `trace` is the candidate's trace as JSON data. `verified_level` is "quick" for a candidate
    that passed the check before timing, "full" for one rebuilt and checked in a fresh process.
    `created_at` is an RFC 3339 time in UTC; it is not part of the key.
    """

    workload_key: str
    target_key: str
    threads: int
    trace: list[Any]
    result: MeasureResult
    toolchain: Toolchain
    seed: int
    trial: int
    verified_level: str = "quick"
    object_sha256: str | None = None
    created_at: str = field(default="", compare=False)
    version: int = RECORD_VERSION

    @cached_property
    def key(self) -> str:
        """`sha256:...` of the canonical JSON without `created_at`."""
        document = self._document(asdict(self.result), asdict(self.toolchain), self.trace)
        document.pop("created_at")
        return "sha256:" + hashlib.sha256(canonical_bytes(document)).hexdigest()

    @cached_property
    def trace_key(self) -> bytes:
        """What two records of one trace have in common: its canonical text."""
        return canonical_bytes(self.trace)

    def to_json(self) -> dict[str, Any]:
        return self._document(asdict(self.result), asdict(self.toolchain), deepcopy(self.trace))

    def _document(
        self, result: dict[str, Any], toolchain: dict[str, Any], trace: list[Any]
    ) -> dict[str, Any]:
        """The JSON data of this record around these parts."""
        document = {name.name: getattr(self, name.name) for name in fields(self)}
        document |= {"result": result, "toolchain": toolchain, "trace": trace}
        if self.result.run_secs_with_packing is None:
            # Left out, not null: the keys of records that never had it stay what they are.
            del document["result"]["run_secs_with_packing"]
        if self.result.error_found is None:  # as in records of versions that did not know it
            del document["result"]["error_found"]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The record of a document made by `to_json`; KeyError or TypeError if it is not one."""
        result = dict(document["result"])
        result["status"] = MeasureStatus(result["status"])
        result["run_secs"] = tuple(float(s) for s in result["run_secs"])
        return cls(
            **{
                **document,
                "result": MeasureResult(**result),
                "toolchain": Toolchain(**document["toolchain"]),
            }
        )
