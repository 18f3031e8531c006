"""Conversion between rows and records or artefacts, and validation, without SQLAlchemy."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.full_checks import FULL
from tilewright.schedules.record import MeasureStatus, TuningRecord

from ..core.hashes import ARTEFACT, RECORD, is_intact, row_hash
from ..errors import InvalidRecord
from ..values.moments import moment_of, rfc3339
from ..values.records import IMPORTED, Artefact

log = logging.getLogger("tilewright.db")

MAX_RUN_SECS = 1e6

NOT_WITHDRAWN = "NOT EXISTS (SELECT 1 FROM withdrawn WHERE withdrawn.record_key = record.key)"

IS_BEST = (
    "best.record_key = record.key AND best.workload_key = record.workload_key"
    " AND best.target_key = record.target_key AND record.status = 'ok'"
    f" AND record.verified_level = '{FULL}' AND {NOT_WITHDRAWN}"
)
"""SQL condition: the row of `best` points to the row of `record`, and the record may be served.
Damage may have changed the pointer, so the keys and the state of the record are compared too."""

IS_OPEN_CLAIM = (
    f"record.verified_level = '{IMPORTED}' AND record.status = 'ok'"  # noqa: S608  # our own text
    f" AND {NOT_WITHDRAWN}"
    " AND NOT EXISTS (SELECT 1 FROM confirmation WHERE confirmation.claim_key = record.key)"
)
"""SQL condition: the row of `record` is a claim that is neither confirmed nor withdrawn."""


def check_record(record: TuningRecord) -> None:
    """Raise InvalidRecord, which names the field, if `record` contradicts itself."""
    result = record.result
    times = [*result.run_secs]
    if result.run_secs_estimate is not None:
        times.append(result.run_secs_estimate)
    if result.run_secs_with_packing is not None:
        times.append(result.run_secs_with_packing)
    if result.ok and result.run_secs_estimate is None:
        raise InvalidRecord("result.run_secs_estimate: a record with status ok needs a time")
    if not result.ok and times:
        raise InvalidRecord(f"result.run_secs: status {result.status} must carry no time")
    for secs in times:
        if not (isinstance(secs, float | int) and 0 < secs < MAX_RUN_SECS):
            raise InvalidRecord(f"result.run_secs: must be in 0..{MAX_RUN_SECS:g} s, got {secs!r}")
    for name in ("compile_secs", "verify_secs", "measure_secs"):
        spent = getattr(result, name)
        if not (isinstance(spent, float | int) and math.isfinite(spent) and spent >= 0):
            raise InvalidRecord(f"result.{name}: must be a duration in seconds, got {spent!r}")
    error = result.error_found
    if error is not None and not (
        isinstance(error, float | int) and math.isfinite(error) and error >= 0
    ):
        raise InvalidRecord(f"result.error_found: must be finite and 0 or more, got {error!r}")
    evidence = result.evidence
    if evidence is not None:
        _check_count("result.evidence.cases", evidence.cases, 1, 2**31)
        fraction = evidence.sampled_fraction
        if not (isinstance(fraction, float | int) and 0 < fraction <= 1):
            raise InvalidRecord(
                f"result.evidence.sampled_fraction: must be in 0..1, got {fraction!r}"
            )
    _check_count("threads", record.threads, 1, 2**16)
    _check_count("trial", record.trial, 0, 2**31)
    _check_count("seed", record.seed, 0, 2**63)
    _check_count("toolchain.codegen_version", record.toolchain.codegen_version, 0, 2**31)
    _check_setting(record)
    if not isinstance(record.trace, list):
        raise InvalidRecord(f"trace: must be a list, got {type(record.trace).__name__}")
    for name, text, limit in (
        ("verified_level", record.verified_level, 16),
        ("toolchain.llvmlite", record.toolchain.llvmlite, 64),
        ("toolchain.llvm", record.toolchain.llvm, 64),
        ("workload_key", record.workload_key, 80),
        ("target_key", record.target_key, 80),
    ):
        if not (isinstance(text, str) and 1 <= len(text) <= limit and "\0" not in text):
            raise InvalidRecord(f"{name}: must be text of 1..{limit} characters, got {text!r}")


def _check_setting(record: TuningRecord) -> None:
    setting, prior_secs = record.setting, record.prior_secs
    if setting is not None and not (
        isinstance(setting, dict)
        and set(setting) == {"sketch", "knobs"}
        and isinstance(setting["sketch"], str)
        and isinstance(setting["knobs"], dict)
    ):
        raise InvalidRecord('setting: must be {"sketch": text, "knobs": {name: value}}')
    if prior_secs is not None and not (
        isinstance(prior_secs, float | int) and 0 < prior_secs < MAX_RUN_SECS
    ):
        raise InvalidRecord(f"prior_secs: must be in 0..{MAX_RUN_SECS:g} s, got {prior_secs!r}")


def _check_count(name: str, value: Any, low: int, end: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < end:
        raise InvalidRecord(f"{name}: must be a whole number in {low}..{end - 1}, got {value!r}")


def to_row(record: TuningRecord, now: datetime) -> dict[str, Any]:
    """Return the columns of a valid record; `now` is used if it has no `created_at`."""
    check_record(record)
    created_at = _created_at(record.created_at) if record.created_at else rfc3339(now)
    document = record.to_json()
    try:
        key = record.key
        text = canonical_bytes(document | {"created_at": created_at}).decode()
    except (ValueError, TypeError) as error:
        raise InvalidRecord(f"trace: not JSON data ({error})") from error
    estimate = record.result.run_secs_estimate
    row: dict[str, Any] = {
        "key": key,
        "workload_key": record.workload_key,
        "target_key": record.target_key,
        "threads": record.threads,
        "status": str(record.result.status),
        "estimate_secs": None if estimate is None else float(estimate),
        "codegen_version": record.toolchain.codegen_version,
        "llvmlite": record.toolchain.llvmlite,
        "llvm": record.toolchain.llvm,
        "seed": record.seed,
        "strategy": document.get("strategy"),
        "trial": record.trial,
        "verified_level": record.verified_level,
        "object_sha256": record.object_sha256,
        "created_at": created_at,
        "document": text,
    }
    row["row_sha256"] = row_hash([row[name] for name in RECORD])
    return row


def key_of(document: dict[str, Any]) -> str:
    """Return the key of a record's JSON document, of any version of Tilewright."""
    identity = {name: part for name, part in document.items() if name != "created_at"}
    return "sha256:" + hashlib.sha256(canonical_bytes(identity)).hexdigest()


def from_row(row: Any) -> TuningRecord | None:
    """Return the record of an intact row. For a damaged row, return None and log a warning."""
    if row is None:
        return None
    if not is_intact(row, RECORD):
        log.warning("record %s is damaged and not served; run `tilewright db check`", row.key)
        return None
    return TuningRecord.from_json(json.loads(row.document))


def from_rows(rows: Iterable[Any]) -> list[TuningRecord]:
    """Return the records of the intact rows, in order."""
    return [record for record in map(from_row, rows) if record is not None]


def artefacts_of(rows: Iterable[Any]) -> list[Artefact]:
    """Return the artefacts of intact rows, by kind. Damaged rows are omitted and logged."""
    found = []
    for row in rows:
        if is_intact(row, ARTEFACT):
            found.append(Artefact(row.kind, row.name, row.sha256, row.bytes))
        else:
            log.warning("an artefact of record %s is damaged and not served", row.record_key)
    return sorted(found, key=lambda artefact: artefact.kind)


def record_of(document: Any) -> TuningRecord:
    """Return the record in untrusted JSON data. Raise InvalidRecord if it is not a record."""
    if not isinstance(document, dict):
        raise InvalidRecord(f"a record is an object, got {type(document).__name__}")
    try:
        record = TuningRecord.from_json(document)
        MeasureStatus(record.result.status)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRecord(f"not a record: {type(error).__name__} {error}") from error
    check_record(record)
    return record


def _created_at(text: str) -> str:
    try:
        return rfc3339(moment_of(text))
    except (TypeError, ValueError) as error:
        raise InvalidRecord(
            f"created_at: must be an RFC 3339 time with its zone, got {text!r}"
        ) from error
