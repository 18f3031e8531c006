"""All trials of a job as a sortable table and as CSV, and the importance of knobs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from tilewright.db.values.jobs import StoredJob
from tilewright.service.http.deps import State
from tilewright.service.http.pages.importance import LEAST_TRIALS, importances
from tilewright.service.http.pages.render import page, wants_part
from tilewright.service.http.pages.views import job_view
from tilewright.service.http.routes.jobs import TaskName, key_of_task, stored_job
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.document import listed_tasks

router = APIRouter(include_in_schema=False)

PAGE = 1000
SHOWN = 1000
"""The largest number of rows on a page. The CSV has all rows."""
MOST_READ = 20_000
"""The largest number of trials that are read for sorting and for importance."""
MOST_KNOBS = 12

COLUMNS = ("trial", "at", "time", "speed", "predicted", "status", "sketch")
"""Sortable columns, in addition to knobs."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial. `at_secs` is the time since the job began. `knobs` has the names of records. For a
    trial of an earlier run, `at_secs`, `predicted_secs` and `knobs` are unknown."""

    trial: int
    status: str
    run_secs: float | None
    record_key: str
    verified_level: str
    at_secs: float | None = None
    predicted_secs: float | None = None
    sketch: str = ""
    detail: str = ""
    knobs: Mapping[str, Any] | None = None
    task: str = ""
    """The name of its workload in a job of many."""
    flops: float = 0.0

    def value(self, column: str) -> Any:
        """Return the sort key of a column."""
        match column:
            case "trial":
                return self.trial
            case "at":
                return self.at_secs
            case "time" | "speed":
                return self.run_secs
            case "predicted":
                return self.predicted_secs
            case "status":
                return self.status
            case "sketch":
                return self.sketch
            case "task":
                return self.task
        return self.settings.get(column)

    @property
    def settings(self) -> dict[str, Any]:
        """The knobs under their display names."""
        return in_words(self.knobs or {})


def in_words(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs with display names. Underscores become spaces. In a program of several
    parts, `1.tile_rows` becomes `tile rows (2)`: the number of the part, counted from 1, is at the
    end."""
    found = {}
    for name, value in knobs.items():
        part, _, knob = name.rpartition(".")
        words = knob.replace("_", " ")
        found[f"{words} ({int(part) + 1})" if part.isdecimal() else words] = value
    return found


def rows_of(state: ServiceState, job: StoredJob, task: str | None = None) -> Iterator[TrialRow]:
    """Yield every trial in order, or those of one task of many. The database is read page by page.
    Raise NotFound for an unknown task."""
    only = "" if task is None else key_of_task(job, task)
    tasks = {one["workload_key"]: one for one in listed_tasks(job.request)}
    flops = float(job.request["workload_summary"].get("flops") or 0)
    events = _events(state, job)
    event = next(events, None)
    last = 0
    while lines := state.store.catalogue.trials(job.id, last, PAGE, only):
        for line in lines:
            while event is not None and event["trial"] < line.trial:
                event = next(events, None)
            mine = event if event is not None and event["trial"] == line.trial else {}
            own = tasks.get(line.workload_key, {})
            yield TrialRow(
                trial=line.trial,
                status=line.status,
                run_secs=line.run_secs,
                record_key=line.record_key,
                verified_level=line.verified_level,
                at_secs=mine.get("at_secs"),
                predicted_secs=mine.get("predicted_secs"),
                sketch=str(mine.get("sketch") or ""),
                detail=str((mine.get("result") or {}).get("detail") or ""),
                knobs=mine.get("knobs") or {},
                task=own.get("name", ""),
                flops=own.get("flops", flops),
            )
        last = lines[-1].trial


def _events(state: ServiceState, job: StoredJob) -> Iterator[dict[str, Any]]:
    """Yield the trial events in the order of the trials, with the seconds since the job began."""
    begun, after = job.started_at or job.created_at, 0
    while events := state.store.events_after(job.id, after, PAGE):
        for event in events:
            if event.kind == "trial":
                at_secs = max((event.created_at - begun).total_seconds(), 0.0)
                yield {**event.data, "at_secs": round(at_secs, 3)}
        after = events[-1].id


def varied(rows: Sequence[TrialRow]) -> list[str]:
    """Return the display names of the knobs that have several values among the trials."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.settings.items():
            values.setdefault(name, set()).add(str(value))
    return [name for name, found in values.items() if len(found) > 1]


@router.api_route("/jobs/{job_id}/trials", methods=["GET", "HEAD"])
def table(
    request: Request,
    state: State,
    job_id: str,
    sort: Annotated[str, Query(max_length=80)] = "trial",
    order: Annotated[str, Query(max_length=4)] = "up",
    task: TaskName = None,
) -> HTMLResponse:
    """All trials, sorted by any column; of a job of many workloads, those of all or of one."""
    job = stored_job(state, job_id)
    rows = _first(rows_of(state, job, task), MOST_READ)
    by_task = "many" in job.request and task is None
    knobs = [] if by_task else varied(rows)[:MOST_KNOBS]
    columns = ("trial", "task", *COLUMNS[1:]) if by_task else COLUMNS
    column = sort if sort in (*columns, *knobs) else "trial"
    down = order == "down"
    known = [row for row in rows if row.value(column) not in (None, "")]
    unknown = [row for row in rows if row.value(column) in (None, "")]
    known.sort(key=lambda row: _sortable(row.value(column)), reverse=down)
    rejected = {one["trial"]: one for one in (job.result or {}).get("rejected") or ()}
    best = (job.result or {}).get("best") or {}
    return page(
        request,
        "trials.html",
        job=job_view(job),
        rows=[*known, *unknown][:SHOWN],
        total=len(rows),
        more=len(rows) == MOST_READ,
        knobs=knobs,
        rejected=rejected,
        best_trial=best.get("trial"),
        heads=[_head(name, column, task, down=down) for name in (*columns, *knobs)],
        task=task,
        by_task=by_task,
    )


@dataclass(frozen=True, slots=True)
class ColumnHeader:
    """A column's name, the query that sorts by it, and its current direction (None: not sorted)."""

    name: str
    query: str
    sorted: str | None


def _head(name: str, column: str, task: str | None, *, down: bool) -> ColumnHeader:
    mine = name == column
    order = "up" if mine and down else "down" if mine else "up"
    now = ("descending" if down else "ascending") if mine else None
    only = {} if task is None else {"task": task}
    return ColumnHeader(name, urlencode({"sort": name, "order": order, **only}), now)


def _sortable(value: Any) -> tuple[int, float, str]:
    """Return a sort key that puts numbers before text."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _first(rows: Iterator[TrialRow], count: int) -> list[TrialRow]:
    return [row for _, row in zip(range(count), rows, strict=False)]


@router.get("/jobs/{job_id}/trials.csv")
def as_csv(state: State, job_id: str) -> StreamingResponse:
    """Every trial with every knob, under the names in records."""
    job = stored_job(state, job_id)
    names = sorted({name for row in rows_of(state, job) for name in row.knobs or {}})
    return StreamingResponse(
        _lines(rows_of(state, job), names, with_task="many" in job.request),
        media_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="trials-{job.id}.csv"',
            "Cache-Control": "private, no-cache",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _lines(rows: Iterator[TrialRow], names: Sequence[str], *, with_task: bool) -> Iterator[str]:
    yield _line([
        "trial", *(["task"] if with_task else []), "at_secs", "status", "run_secs", "gflops",
        "predicted_secs", "record_key", "verified_level", "sketch", "detail",
        *(f"knob.{name}" for name in names),
    ])  # fmt: skip
    for row in rows:
        knobs = row.knobs or {}
        yield _line([
            row.trial, *([row.task] if with_task else []), row.at_secs, row.status, row.run_secs,
            row.flops / row.run_secs / 1e9 if row.run_secs else None, row.predicted_secs,
            row.record_key, row.verified_level, row.sketch, row.detail,
            *(knobs.get(name) for name in names),
        ])  # fmt: skip


def _line(values: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([_cell(value) for value in values])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return the cell's value. If a spreadsheet would interpret it as a formula, it is marked as
    text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


@router.get("/jobs/{job_id}/importance")
def importance(request: Request, state: State, job_id: str) -> HTMLResponse:
    """The importance of each knob. The trials of different workloads cannot be compared."""
    job = stored_job(state, job_id)
    rows = [] if "many" in job.request else _first(rows_of(state, job), MOST_READ)
    passed = [row for row in rows if row.run_secs and row.knobs]
    sketches = len({row.sketch for row in passed}) > 1
    found = importances(
        [
            ({**({"sketch": row.sketch} if sketches else {}), **row.settings}, row.run_secs or 0.0)
            for row in passed
        ]
    )
    return page(
        request,
        "_importance.html" if wants_part(request) else "importance.html",
        job=job_view(job),
        found=found[:MOST_KNOBS],
        others=len(found[MOST_KNOBS:]),
        passed=len(passed),
        least=LEAST_TRIALS,
    )
