"""Stored jobs and trials as the documents that HTTP and the command line show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tilewright.db.values.jobs import StoredJob

if TYPE_CHECKING:
    from tilewright.schedules.full_checks import FullChecks
    from tilewright.schedules.record import TuningRecord


def job_document(
    job: StoredJob, place: tuple[int, str] | None = None, sharing: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the job's JSON. `place` is the result of `queue.position_of`, `sharing` describes the
    job's owners as far as the caller may see them. `best` is the verified best of a finished job.
    `queued_secs` is the time before the first worker. `elapsed_secs` is the time from submission to
    the end, including waits (`progress.wall_secs` excludes them). Both are None until that
    moment."""
    form, result = job.request, job.result
    return {
        "id": job.id,
        "state": str(job.state),
        "done": job.done,
        "workload": form["workload_summary"],
        "target": form["target_summary"],
        "request": {
            **{name: form[name] for name in ("threads", "budget", "strategy", "seed")},
            "measurer": measurer_name(str(form["measurer"])),
            **({"tasks": listed_tasks(form)} if "many" in form else {}),
        },
        "progress": {"trials": form["budget"]["trials"], "trials_done": 0, **job.progress},
        "queue": None if place is None else {"position": place[0], "reason": place[1]},
        "best": result.get("best") if result else None,
        "result": result,
        "error": job.error,
        "sharing": sharing,
        "queued_secs": _secs(job.created_at, job.started_at or job.finished_at),
        "elapsed_secs": _secs(job.created_at, job.finished_at),
        "created_at": moment(job.created_at),
        "started_at": moment(job.started_at),
        "finished_at": moment(job.finished_at),
    }


def listed_tasks(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return `name`, `workload_key`, `weight` and `flops` of each task of a stored request, in
    order; empty for a job of one workload."""
    return list((request.get("many") or {}).get("tasks") or ())


def task_names(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the tasks of a stored request by their workload keys."""
    return {task["workload_key"]: task["name"] for task in listed_tasks(request)}


def _secs(start: datetime, end: datetime | None) -> float | None:
    return None if end is None else round(max((end - start).total_seconds(), 0.0), 3)


def measurer_name(spec: str) -> str:
    """Return the measurer without the folder of its file, such as `simulated:slow.json`."""
    kind, colon, path = spec.partition(":")
    return f"{kind}{colon}{path.rpartition('/')[2]}"


def moment(at: datetime | None) -> str | None:
    """Format a time as RFC 3339 in UTC."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def trial_document(
    trial: int, record: TuningRecord, checks: FullChecks, tasks: Mapping[str, str]
) -> dict[str, Any]:
    """Return one trial of a job, with its samples and schedule. `checks` are the full checks of its
    task; `full_check` is the one of this schedule, or None if it was not checked in full. `tasks`
    are the names of the tasks of a job of many workloads (`task_names`); its trials have a `task`.
    """
    document = record.to_json()
    check = checks.check(record.trace, record.toolchain)
    own = {"task": tasks.get(record.workload_key)} if tasks else {}
    return {
        "trial": trial,
        **own,
        "record_key": record.key,
        "status": str(record.result.status),
        "run_secs": record.result.run_secs_estimate,
        "samples_secs": list(record.result.run_secs),
        "detail": record.result.detail,
        "compile_secs": record.result.compile_secs,
        "verify_secs": record.result.verify_secs,
        "measure_secs": record.result.measure_secs,
        "verified_level": record.verified_level,
        "evidence": document["result"].get("evidence"),
        "full_check": None if check is None else check.to_json(),
        "trace": document["trace"],
        "created_at": record.created_at,
    }
