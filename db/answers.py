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

from schedules.record import TuningRecord

from .artefact_rows import HASHED as FILE
from .artefact_rows import Artefact, ArtefactLike, artefacts_of
from .engine import Ask, Database
from .rows import HASHED, from_row
from .works import WorkloadEntry, target_document, workload_entry

_KEYS_PER_QUERY = 500
_KEPT_ROWS = 4096

_RECORD = (*HASHED, "row_sha256")
_FILE = (*FILE, "row_sha256")
_WORKLOAD = ("key", "name", "flops", "document", "row_sha256")
_TARGET = ("key", "document", "row_sha256")

_BEST = (
    f"SELECT best.version, {', '.join('record.' + name for name in _RECORD)}"  # noqa: S608  # our names
    " FROM best JOIN record ON record.key = best.record_key"
    " AND record.workload_key = best.workload_key AND record.target_key = best.target_key"
    " AND record.status = 'ok' AND record.verified_level = 'full'"
    " WHERE best.target_key = ? AND best.workload_key IN"
)
_FILES = f"SELECT {', '.join(_FILE)} FROM artefact WHERE record_key IN"  # noqa: S608  # our names
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
        return self._database.rows(lambda ask: self._read(ask, by_target))

    def _read(self, ask: Ask, by_target: dict[str, list[str]]) -> dict[tuple[str, str], BestAnswer]:
        best: dict[tuple[str, str], tuple[int, TuningRecord]] = {}
        keys: dict[tuple[str, str], str] = {}
        for target_key, workload_keys in by_target.items():
            for version, *values in _in_parts(ask, _BEST, workload_keys, target_key):
                record = self._records.value(values[0], tuple(values))
                if record is not None:
                    work = record.workload_key, record.target_key
                    best[work], keys[work] = (version, record), values[0]
        files: defaultdict[str, list[Row]] = defaultdict(list)
        for row in _in_parts(ask, _FILES, list(keys.values())):
            files[row[0]].append(row)
        workloads = {
            row[0]: self._workloads.value(row[0], row)
            for row in _in_parts(
                ask, _WORKLOADS, list({key for some in by_target.values() for key in some})
            )
        }
        targets = {
            row[0]: self._targets.value(row[0], row)
            for row in _in_parts(ask, _TARGETS, list(by_target))
        }
        found = {}
        for target_key, workload_keys in by_target.items():
            for workload_key in workload_keys:
                work = workload_key, target_key
                version, record = best.get(work, (0, None))
                kept = [_like(_FILE, row) for row in files.get(keys.get(work, ""), ())]
                found[work] = BestAnswer(
                    workload=workloads.get(workload_key),
                    target=targets.get(target_key),
                    record=record,
                    artefacts=tuple(artefacts_of(cast(list[ArtefactLike], kept))),
                    version=version,
                )
        return found


class _Known(Generic[T]):
    """What sound rows meant, by key, for as long as the row reads the same; the latest ones."""

    def __init__(self, read: Callable[[Row], T | None]) -> None:
        self._read = read
        self._rows: OrderedDict[str, tuple[Row, T]] = OrderedDict()
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
                self._rows[key] = row, value
                if len(self._rows) > _KEPT_ROWS:
                    self._rows.popitem(last=False)
        return value


def _in_parts(ask: Ask, query: str, keys: Sequence[str], *before: str) -> list[Row]:
    """The rows of `query` for all `keys`, however many a statement may name."""
    rows: list[Row] = []
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        part = keys[start : start + _KEYS_PER_QUERY]
        rows += ask(f"{query} ({', '.join('?' * len(part))})", (*before, *part))
    return rows


def _like(names: Sequence[str], row: Sequence[Any]) -> Any:
    return SimpleNamespace(**dict(zip(names, row, strict=True)))
