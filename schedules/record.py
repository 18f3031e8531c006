"""Records: results of measurements, as values for the database and for HTTP."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from .canonical import canonical_bytes
from .trace_document import trace_key

RECORD_VERSION = 1


class MeasureStatus(StrEnum):
    """The outcome of the measurement of one candidate. Only OK results have a time."""

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
    """Versions of the code generator and of LLVM. A record with other versions is verified again
    before it is served."""

    codegen_version: int
    llvmlite: str
    llvm: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The extent of a full check."""

    cases: int
    """Number of sets of inputs for which the outputs were compared with the reference."""
    sampled_fraction: float
    """Smallest fraction of the elements of a case that were compared; 1.0 means all."""

    def __str__(self) -> str:
        inputs = f"{self.cases} set{'s' if self.cases != 1 else ''} of inputs"
        if self.sampled_fraction >= 1.0:
            return f"every element, for {inputs}"
        share = max(round(1 / self.sampled_fraction), 2) if self.sampled_fraction > 0 else 0
        sample = f"1 in {share:,} elements, in every block, lane, remainder and thread,"
        return f"{sample} for {inputs}; two runs were compared in the other elements"


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The result of measuring one candidate."""

    status: MeasureStatus
    run_secs: tuple[float, ...] = ()
    """All timed samples, in seconds per call, oldest first. It is empty unless `status` is OK. With
    constant inputs, the samples are measured with prepacked inputs."""
    run_secs_estimate: float | None = None
    """The published estimate of the time of one call in seconds, or None unless `status` is OK."""
    compile_secs: float = 0.0
    verify_secs: float = 0.0
    measure_secs: float = 0.0
    detail: str = ""
    """One line for the user: the signal, the wrong element, or the deadline."""
    run_secs_with_packing: float | None = None
    """The estimate of the time of one call that also packs constant inputs, in seconds, or None if
    it was not measured."""
    error_found: float | None = None
    """The largest error that the verification of a kernel with a rewrite found, in the unit of its
    stated error. It is None without a rewrite."""
    evidence: Evidence | None = None
    """The evidence of a passed full check. It is None for other results and in records of older
    versions."""

    @property
    def ok(self) -> bool:
        return self.status is MeasureStatus.OK

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        for name in ("run_secs_with_packing", "error_found", "evidence"):
            if document[name] is None:
                # Omitted instead of null, so that keys of older records do not change.
                del document[name]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the result of a document written by `to_json`.

        Raise KeyError, TypeError or ValueError if it was not written by `to_json`.
        """
        fields = dict(document)
        fields["status"] = MeasureStatus(fields["status"])
        fields["run_secs"] = tuple(float(s) for s in fields["run_secs"])
        if fields.get("evidence") is not None:
            fields["evidence"] = Evidence(**fields["evidence"])
        return cls(**fields)


@dataclass(frozen=True)
class TuningRecord:
    """One measured candidate. It is immutable, and `key` is a hash of its content."""

    workload_key: str
    target_key: str
    threads: int
    trace: list[Any]
    """The candidate's trace as JSON data."""
    result: MeasureResult
    toolchain: Toolchain
    seed: int
    trial: int
    verified_level: str = "quick"
    """The value is "quick" after the check before timing, and "full" after a rebuild and check in a
    fresh process."""
    object_sha256: str | None = None
    created_at: str = field(default="", compare=False)
    """An RFC 3339 time in UTC. It is not part of the key."""
    setting: dict[str, Any] | None = None
    """The trace's sketch and the values of its knobs by name: a `NamedSetting` as JSON data. It is
    None in records of older versions."""
    prior_secs: float | None = None
    """The time of one call in seconds that the analytic prior predicted for the trace. It is None
    in records of older versions."""
    version: int = RECORD_VERSION

    @cached_property
    def key(self) -> str:
        """The text `sha256:...` with the hash of the canonical JSON without `created_at`."""
        document = self._document(self.trace)
        document.pop("created_at")
        return "sha256:" + hashlib.sha256(canonical_bytes(document)).hexdigest()

    @cached_property
    def trace_key(self) -> bytes:
        """A key that is equal for all records of one trace (`trace_document.trace_key`)."""
        return trace_key(self.trace)

    def to_json(self) -> dict[str, Any]:
        return self._document(deepcopy(self.trace))

    def _document(self, trace: list[Any]) -> dict[str, Any]:
        document = {name.name: getattr(self, name.name) for name in fields(self)}
        for name in ("setting", "prior_secs"):
            if document[name] is None:
                # Omitted instead of null, so that keys of older records do not change.
                del document[name]
        parts = {"result": self.result.to_json(), "toolchain": asdict(self.toolchain)}
        return document | parts | {"trace": trace}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the record of a document written by `to_json`.

        Raise KeyError or TypeError if it was not written by `to_json`.
        """
        return cls(
            **{
                **document,
                "result": MeasureResult.from_json(document["result"]),
                "toolchain": Toolchain(**document["toolchain"]),
            }
        )
