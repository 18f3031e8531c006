"""All that an answer needs, in one question: for programs that ask a thousand times a second.

The rows come past SQLAlchemy's sessions, in one transaction however many are asked for. A row that
is the same, value by value, as one that was already held to its hash is not parsed again: that is
the stricter comparison, and the cheaper one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

from tilewright.schedules.record import TuningRecord

from .artefact_rows import HASHED as FILE
from .artefact_rows import Artefact, ArtefactLike, artefacts_of
from .engine import Database, Question
from .rows import HASHED, from_row
from .works import WorkloadEntry, target_document, workload_entry

_KEYS_PER_QUERY = 500
_KEPT_BYTES = 16 * 1024 * 1024
"""Text of rows remembered of each kind; what they mean takes a few times as much."""

_RECORD = (*HASHED, "row_sha256")
_FILE = (*FILE, "row_sha256")
_WORKLOAD = ("key", "name", "flops", "document", "row_sha256")
_TARGET = ("key", "document", "row_sha256")

_BEST = (
    f"SELECT best.version, {', '.join('record.' + name for name in _RECORD)}"  # noqa: S608  # our names
    " FROM best JOIN record ON record.key = best.record_key"
    " AND record.workload_key = best.workload_key AND record.target_key = best.target_key"
    " AND record.status = 'ok' AND record.verified_level = 'full'"
    " AND NOT EXISTS (SELECT 1 FROM withdrawn WHERE withdrawn.record_key = record.key)"
    " WHERE best.target_key = ? AND best.workload_key IN"
)
_FILES = (
    f"SELECT {', '.join('artefact.' + name for name in _FILE)}"  # noqa: S608  # our names
    " FROM best JOIN artefact ON artefact.record_key = best.record_key"
    " WHERE best.target_key = ? AND best.workload_key IN"
)
_WORKLOADS = f"SELECT {', '.join(_WORKLOAD)} FROM workload WHERE key IN"  # noqa: S608
_TARGETS = f"SELECT {', '.join(_TARGET)} FROM target WHERE key IN"  # noqa: S608

Row = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BestAnswer:
    """What is known of one workload on one target; None or empty where nothing is.

    `version` counts the moves of the best, 0 where there is none: with it, `record` and `artefacts`
    an answer is as it was.
    """

    workload: WorkloadEntry | None
    target: dict[str, Any] | None
    record: TuningRecord | None
    artefacts: tuple[Artefact, ...] = ()
    version: int = 0


class AnswerReader:
    """Asks, for any thread. What it hands out is shared: nobody changes it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records: _Known[TuningRecord] = _Known(lambda row: from_row(_like(_RECORD, row)))
        self._files: _Known[Artefact] = _Known(_artefact)
        self._workloads: _Known[WorkloadEntry] = _Known(
            lambda row: workload_entry(_like(_WORKLOAD, row))
        )
        self._targets: _Known[dict[str, Any]] = _Known(
            lambda row: target_document(_like(_TARGET, row))
        )

    def answers(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], BestAnswer]:
        """The answer for each (workload_key, target_key)."""
        by_target: defaultdict[str, list[str]] = defaultdict(list)
        for workload_key, target_key in dict.fromkeys(keys):
            by_target[target_key].append(workload_key)
        bests, files, workloads, targets = self._read(by_target)
        found = {}
        for target_key, workload_keys in by_target.items():
            target = targets.get(target_key)
            for workload_key in workload_keys:
                version, key, record = bests.get((workload_key, target_key), (0, "", None))
                kept = sorted(files.get(key, ()), key=lambda artefact: artefact.kind)
                workload = workloads.get(workload_key)
                found[workload_key, target_key] = BestAnswer(
                    workload, target, record, tuple(kept), version
                )
        return found

    def _read(
        self, by_target: dict[str, list[str]]
    ) -> tuple[
        dict[tuple[str, str], tuple[int, str, TuningRecord]],
        dict[str, list[Artefact]],
        dict[str, WorkloadEntry | None],
        dict[str, dict[str, Any] | None],
    ]:
        """The sound rows behind the answers: bests, files by record, documents by key."""
        works = list(dict.fromkeys(key for some in by_target.values() for key in some))
        queries = [
            [part for t, some in by_target.items() for part in _in_parts(_BEST, some, t)],
            [part for t, some in by_target.items() for part in _in_parts(_FILES, some, t)],
            _in_parts(_WORKLOADS, works),
            _in_parts(_TARGETS, list(by_target)),
        ]
        rows = iter(self._database.rows([question for part in queries for question in part]))
        best_rows, file_rows, workload_rows, target_rows = (
            [row for _ in part for row in next(rows)] for part in queries
        )
        bests = {}
        for version, *values in best_rows:
            record = self._records.value(values[0], tuple(values))
            if record is not None:
                bests[record.workload_key, record.target_key] = version, values[0], record
        files: defaultdict[str, list[Artefact]] = defaultdict(list)
        for row in file_rows:
            artefact = self._files.value(f"{row[0]}/{row[1]}", row)
            if artefact is not None:
                files[row[0]].append(artefact)
        workloads = {row[0]: self._workloads.value(row[0], row) for row in workload_rows}
        targets = {row[0]: self._targets.value(row[0], row) for row in target_rows}
        return bests, files, workloads, targets


class _Known(Generic[T]):
    """What sound rows meant, by key, for as long as the row reads the same; the latest ones."""

    def __init__(self, read: Callable[[Row], T | None]) -> None:
        self._read = read
        self._rows: OrderedDict[str, tuple[Row, T]] = OrderedDict()
        self._bytes = 0
        self._turn = threading.Lock()

    def value(self, key: str, row: Row) -> T | None:
        """What `row` means; None if it is damaged."""
        with self._turn:
            known = self._rows.get(key)
            if known is not None and known[0] == row:
                self._rows.move_to_end(key)
                return known[1]
        value = self._read(row)
        if value is not None:
            with self._turn:
                self._forget(self._rows.pop(key, None))
                self._rows[key] = row, value
                self._bytes += _bytes(row)
                while self._bytes > _KEPT_BYTES:
                    self._forget(self._rows.popitem(last=False)[1])
        return value

    def _forget(self, entry: tuple[Row, T] | None) -> None:
        if entry is not None:
            self._bytes -= _bytes(entry[0])


def _bytes(row: Row) -> int:
    return 100 + sum(len(value) for value in row if isinstance(value, str))


def _in_parts(query: str, keys: Sequence[str], *before: str) -> list[Question]:
    """`query` for all `keys`, in as many statements as it takes."""
    parts = [
        keys[start : start + _KEYS_PER_QUERY] for start in range(0, len(keys), _KEYS_PER_QUERY)
    ]
    return [(f"{query} ({', '.join('?' * len(part))})", (*before, *part)) for part in parts]


def _artefact(row: Row) -> Artefact | None:
    return next(iter(artefacts_of([cast(ArtefactLike, _like(_FILE, row))])), None)


def _like(names: Sequence[str], row: Sequence[Any]) -> Any:
    return SimpleNamespace(**dict(zip(names, row, strict=True)))
