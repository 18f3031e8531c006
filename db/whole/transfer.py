"""Export and import of records as JSON lines: one header, then workloads, targets and records.

    {"format": "tilewright-records", "version": 1}
    {"kind": "workload", "key": ..., "name": ..., "flops": ..., "document": {...}}
    {"kind": "target", "key": ..., "document": {...}}
    {"kind": "record", "key": "sha256:...", "record": {...}}

A workload or target precedes the first record that refers to it. An imported record is a claim: it
is stored with `verified_level` "imported" and is never best until it was rebuilt, verified and
timed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TextIO

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.full_checks import FULL
from tilewright.schedules.workload.strict_json import parse_json_text

from ..core.models import BestRow, RecordRow, WithdrawnRow
from ..core.parts import StorePart
from ..errors import InvalidRecord, StoreError
from ..records.records import insert_records, record_row
from ..records.rows import from_row, key_of, record_of
from ..records.works import (
    find_target,
    find_workload,
    register_target,
    register_workload,
    target_key_of,
    workload_key_of,
)
from ..values.records import IMPORTED
from ..values.whole import (
    FORMAT,
    FORMAT_VERSION,
    BadLine,
    ImportReport,
    RecordState,
    Selection,
)

MAX_LINE_BYTES = 4 * 1024 * 1024
LINES_PER_COMMIT = 500


@dataclass(slots=True)
class _ImportTally:
    added: int = 0
    known: int = 0
    bad: list[BadLine] = field(default_factory=list)


class TransferStore(StorePart):
    """The methods of a store that export and import records."""

    def export(self, out: TextIO, selection: Selection | None = None) -> int:
        """Write the selected records to `out` as JSON lines, in the order of arrival; return their
        number. Damaged records are omitted."""
        with self._database.reading() as session:
            return _export(session, out, selection or Selection())

    def import_(self, lines: Iterable[str]) -> ImportReport:
        """Import an export, and commit batch by batch. Invalid lines are reported, and the other
        lines are stored. Raise InvalidRecord if the first line is not the header of a supported
        format."""
        importer, source = Importer(), iter(lines)
        while batch := list(islice(source, LINES_PER_COMMIT)):
            importer = self._database.write(partial(importer.taking, batch, self._clock()))
            self._database.tend()
        return importer.report


def _export(session: Session, out: TextIO, selection: Selection) -> int:
    _write(out, {"format": FORMAT, "version": FORMAT_VERSION})
    written: set[str] = set()
    count = 0
    for row in _selected(session, selection):
        record = from_row(row)
        if record is None:
            continue
        workload = find_workload(session, record.workload_key)
        target = find_target(session, record.target_key)
        if workload is None or target is None:
            continue
        if workload.key not in written:
            named = {"key": workload.key, "name": workload.name, "flops": workload.flops}
            _write(out, {"kind": "workload", **named, "document": workload.document})
        if record.target_key not in written:
            _write(out, {"kind": "target", "key": record.target_key, "document": target})
        written |= {workload.key, record.target_key}
        document = json.loads(row.document)
        _write(out, {"kind": "record", "key": row.key, "record": document})
        count += 1
    return count


class Importer:
    """Imports lines in batches. A line is imported completely or not at all."""

    def __init__(self) -> None:
        self._tally = _ImportTally()
        self._line = 0
        self._header_seen = False
        self._works: set[str] = set()  # keys of stored workloads and targets

    @property
    def report(self) -> ImportReport:
        return ImportReport(self._tally.added, self._tally.known, tuple(self._tally.bad))

    def taking(self, lines: Sequence[str], now: datetime, session: Session) -> Importer:
        """Return a copy of this importer after `take`. The original is used again if the database
        rolls back the batch, so that each line is counted once."""
        after = deepcopy(self)
        after.take(session, lines, now)
        return after

    def take(self, session: Session, lines: Iterable[str], now: datetime) -> None:
        """Store the contents of `lines`; records that are stored already are skipped."""
        for line in lines:
            self._line += 1
            if not self._header_seen:
                _check_header(line)
                self._header_seen = True
            elif line.strip():
                try:
                    self._take_line(session, line, now)
                except StoreError:
                    raise
                except (TilewrightError, ValueError, KeyError, TypeError) as error:
                    said = error if isinstance(error, TilewrightError) else _described(error)
                    self._tally.bad.append(BadLine(self._line, str(said)))

    def _take_line(self, session: Session, line: str, now: datetime) -> None:
        entry = _parsed(line)
        match entry.get("kind"):
            case "workload":
                document, flops = _object(entry, "document"), entry["flops"]
                made = workload_key_of(document)
                if made != entry["key"]:
                    raise InvalidRecord(
                        f"key: this document has the key {made}, the line says {entry['key']}"
                    )
                if not isinstance(flops, int) or isinstance(flops, bool):
                    raise InvalidRecord(f"flops: must be a whole number, got {flops!r}")
                register_workload(session, made, document, _text(entry, "name"), flops, now)
            case "target":
                document = _object(entry, "document")
                made = target_key_of(document)
                if made != entry["key"]:
                    raise InvalidRecord(
                        f"key: this description has the key {made}, the line says {entry['key']}"
                    )
                if find_target(session, made) is None:  # imported probes never replace stored ones
                    register_target(session, made, document, now)
            case "record":
                self._take_record(session, entry, now)
            case kind:
                raise InvalidRecord(f"kind: must be workload, target or record, got {kind!r}")

    def _take_record(self, session: Session, entry: dict[str, Any], now: datetime) -> None:
        record, key = record_of(entry["record"]), key_of(entry["record"])
        if key != entry["key"]:
            raise InvalidRecord(f"key: this record has the key {key}, the line says {entry['key']}")
        for name, asked, find in (
            ("workload_key", record.workload_key, find_workload),
            ("target_key", record.target_key, find_target),
        ):
            if asked not in self._works and find(session, asked) is None:
                raise InvalidRecord(f"{name}: no earlier line has {asked}")
            self._works.add(asked)
        if record_row(session, key) is not None:
            self._tally.known += 1
            return
        claim = replace(record, verified_level=IMPORTED, object_sha256=None)
        new = insert_records(session, [claim], now)
        self._tally.added += new
        self._tally.known += 1 - new


def _selected(session: Session, selection: Selection) -> Iterator[RecordRow]:
    statement = select(RecordRow).order_by(RecordRow.id)
    if selection.workload_key is not None:
        statement = statement.where(RecordRow.workload_key == selection.workload_key)
    if selection.target_key is not None:
        statement = statement.where(RecordRow.target_key == selection.target_key)
    if selection.state is not None:
        statement = statement.where(*_in_state(selection.state))
    yield from session.scalars(statement.execution_options(yield_per=500))


def _in_state(state: RecordState) -> list[ColumnElement[bool]]:
    withdrawn = RecordRow.key.in_(select(WithdrawnRow.record_key))
    own, ok = RecordRow.verified_level != IMPORTED, RecordRow.status == "ok"
    conditions: dict[RecordState, list[ColumnElement[bool]]] = {
        RecordState.BEST: [RecordRow.key.in_(select(BestRow.record_key))],
        RecordState.VERIFIED: [RecordRow.verified_level == FULL, ok, ~withdrawn],
        RecordState.OK: [own, ok],
        RecordState.FAILED: [own, ~ok],
        RecordState.IMPORTED: [~own],
        RecordState.WITHDRAWN: [withdrawn],
    }
    return conditions[state]


def _write(out: TextIO, entry: dict[str, Any]) -> None:
    out.write(canonical_bytes(entry).decode() + "\n")


def _check_header(line: str) -> None:
    try:
        header = _parsed(line)
    except TilewrightError as error:
        raise InvalidRecord(
            f"line 1: must be the header of an export "
            f'({{"format": "{FORMAT}", "version": {FORMAT_VERSION}}}): {error}'
        ) from error
    if header.get("format") != FORMAT or header.get("version") != FORMAT_VERSION:
        raise InvalidRecord(
            f"line 1: this version reads {FORMAT} version {FORMAT_VERSION}, found "
            f"{header.get('format')!r} version {header.get('version')!r}"
        )


def _parsed(line: str) -> dict[str, Any]:
    entry = parse_json_text(line, max_bytes=MAX_LINE_BYTES)
    if not isinstance(entry, dict):
        raise InvalidRecord(f"a line is a JSON object, got {type(entry).__name__}")
    return entry


def _object(entry: dict[str, Any], name: str) -> dict[str, Any]:
    value = entry[name]
    if not isinstance(value, dict):
        raise InvalidRecord(f"{name}: must be an object, got {type(value).__name__}")
    return value


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry[name]
    if not isinstance(value, str):
        raise InvalidRecord(f"{name}: must be text, got {type(value).__name__}")
    return value


def _described(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the field {error} is missing"
    return str(error)
