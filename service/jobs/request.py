"""A submitted job, parsed, checked and normalised. The normalised request is stored with the
job."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.errors import InvalidField
from tilewright.service.jobs import tuning
from tilewright.service.jobs.options import FLEET, REAL, TuneOptions
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.entries import read_entries
from tilewright.service.resolve.requests import JobIn, check_size, located, read_model
from tilewright.tuner.many.entries import ManyEntry, ManyError, TaskSpec, distinct_tasks
from tilewright.tuner.session.report import Budget

if TYPE_CHECKING:
    from tilewright.service.settings import Settings
    from tilewright.tuner.process.control import Control

MOST_NAMED = 3
"""Number of workloads that the name of a job of many lists."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A runnable job. `native`: the target was given as `native`, so the machine that runs the job
    measures its probes. `entries` are the workloads of a job of many, of which `workload` is the
    first; empty for a job of one."""

    workload: Workload
    target: Target
    native: bool
    options: TuneOptions
    entries: tuple[ManyEntry, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the normalised request, as stored."""
        return self._of_one() if not self.entries else {**self._of_one(), **self._of_many()}

    def _of_many(self) -> dict[str, Any]:
        """Return the fields of a job of many workloads. Its trials are those of all tasks, for
        quotas and progress."""
        tasks = distinct_tasks(self.entries)
        budget = self.options.budget
        return {
            "workload_summary": _many_summary(tasks),
            "budget": {**asdict(budget), "trials": budget.trials * len(tasks)},
            "many": {
                "trials": budget.trials,
                "tasks": [
                    {
                        "name": task.name,
                        "workload_key": task.workload.key,
                        "weight": task.weight,
                        "flops": int(task.workload.flops),
                    }
                    for task in tasks
                ],
                "entries": [
                    {
                        "workload": entry.workload.to_json(),
                        "weight": entry.weight,
                        "name": entry.name,
                    }
                    for entry in self.entries
                ],
            },
        }

    def _of_one(self) -> dict[str, Any]:
        return {
            "workload": self.workload.to_json(),
            "workload_summary": workloads.workload_summary(self.workload),
            "target": "native" if self.native else self.target.to_json(),
            "target_summary": targets.target_summary(self.target),
            "threads": self.target.threads,
            "budget": asdict(self.options.budget),
            "strategy": self.options.strategy,
            "seed": self.options.seed,
            "measurer": self.options.measurer,
        }

    @property
    def flight_key(self) -> str:
        """A hash that is equal for requests of the same task and options. It does not depend on
        names."""
        form = self.to_json()
        identity: dict[str, Any] = {
            "workload": self.workload.key,
            "target": self.target.key,
            **{name: form[name] for name in ("budget", "strategy", "seed", "measurer")},
        }
        if self.entries:
            tasks = distinct_tasks(self.entries)
            identity["workload"] = _list_key(tasks)
        return hashlib.sha256(canonical_bytes(identity)).hexdigest()


def read_job(document: Any, settings: Settings) -> JobRequest:
    """Parse the body of a request. Raise InvalidField, WorkloadError or TargetError, with the JSON
    pointer of the field."""
    body = read_model(JobIn, document)
    entries = _entries(body, settings)
    workload = entries[0].workload if entries else _workload(body, settings)
    spec = body.measurer if "measurer" in body.model_fields_set else settings.default_measurer
    measurer = checked_measurer(spec, settings)
    target = _target(body, measurer, settings)
    if measurer not in (REAL, FLEET):
        located("/measurer", lambda: targets.check_measurer(measurer))
    options = TuneOptions(
        budget=Budget(body.budget.trials, body.budget.seconds),
        strategy=body.strategy,
        seed=body.seed,
        measurer=measurer,
    )
    # In a fleet, the target may be a machine of another kind than this one.
    native = body.target == "native" and measurer != FLEET
    if not native:
        located("/target", lambda: tuning.check_measurable(target, options.measurer))
    return JobRequest(workload, target, native, options, entries)


def _workload(body: JobIn, settings: Settings) -> Workload:
    spelled = body.workload
    if spelled is None:
        raise InvalidField(
            "workload: this field is required, or workloads", code="missing", pointer="/workload"
        )
    workload = located("/workload", lambda: workloads.workload_of(spelled))
    located("/workload", lambda: check_size(workload, settings))
    return workload


def _entries(body: JobIn, settings: Settings) -> tuple[ManyEntry, ...]:
    """Return the workloads of a job of many, or an empty tuple for a job of one."""
    if body.workloads is None:
        return ()
    if body.workload is not None:
        raise InvalidField("give either workload or workloads, not both", pointer="/workloads")

    def read(spelled: Any) -> Workload:
        workload = workloads.workload_of(spelled)
        check_size(workload, settings)
        return workload

    try:
        return tuple(read_entries(body.workloads, read))
    except ManyError as error:
        raise InvalidField(
            f"workloads: {error}",
            code=error.code,
            pointer=f"/workloads{error.pointer}",
            advice=error.advice,
        ) from error


def _list_key(tasks: Sequence[TaskSpec]) -> str:
    """Return a hash of a list of workloads and weights that does not depend on order and names."""
    pairs = sorted([task.workload.key, task.weight] for task in tasks)
    return hashlib.sha256(canonical_bytes(pairs)).hexdigest()


def _many_summary(tasks: Sequence[TaskSpec]) -> dict[str, Any]:
    """Return the summary of a list of workloads: its key, a name that counts them, and weighted
    sums of their operations and bytes."""
    names = ", ".join(task.name for task in tasks[:MOST_NAMED])
    more = ", ..." if len(tasks) > MOST_NAMED else ""
    return {
        "key": _list_key(tasks),
        "name": f"{len(tasks)} workloads: {names}{more}",
        "flops": int(sum(task.weight * task.workload.flops for task in tasks)),
        "min_bytes": int(sum(task.weight * task.workload.min_bytes for task in tasks)),
    }


def _target(body: JobIn, measurer: str, settings: Settings) -> Target:
    if measurer == FLEET:
        find = targets.fleet_target_of
        return located("/target", lambda: find(body.target, body.threads, settings.fleet))
    if isinstance(body.target, str) and body.target != "native":
        raise InvalidField(
            "target: must be native or a target document; a machine's name or the beginning of a "
            "key is for jobs of a fleet (measurer: dask)",
            pointer="/target",
        )
    return located(
        "/target" if isinstance(body.target, dict) else "/threads",
        lambda: targets.target_of(body.target, body.threads),
    )


def stored_job(form: dict[str, Any], fleet: str = "", control: Control | None = None) -> JobRequest:
    """Parse a stored request, in a worker. `fleet` is the address of the service's fleet. A native
    machine without probes is probed; `control` may abort this with MeasurementAborted."""
    # Start-up: registering a job measures nothing.
    from tilewright.tuner.measure.measurer_spec import measured_target

    native = form["target"] == "native"
    many = form.get("many")
    budget = Budget(**form["budget"])
    measurer = f"{FLEET}:{fleet}" if form["measurer"] == FLEET else form["measurer"]
    return JobRequest(
        workload=workloads.workload_of(form["workload"]),
        target=measured_target(form["measurer"], "native", form["threads"], control)
        if native
        else Target.from_json(form["target"]),
        native=native,
        options=TuneOptions(
            budget=replace(budget, trials=many["trials"]) if many else budget,
            strategy=form["strategy"],
            seed=form["seed"],
            measurer=measurer,
        ),
        entries=tuple(read_entries(many["entries"], workloads.workload_of)) if many else (),
    )


def checked_measurer(spec: str, settings: Settings) -> str:
    """Return `spec`, with the path of its file in the service's measurer folder. Raise InvalidField
    if it is not allowed. A fleet has no address here: a client must not choose the server that the
    service connects to."""
    if spec == REAL:
        return spec
    if spec == FLEET:
        if settings.fleet:
            return spec
        raise InvalidField(
            "measurer: this service has no fleet",
            code="measurer_not_allowed",
            pointer="/measurer",
            advice="Start it with `tilewright serve --fleet`.",
        )
    folder = settings.measurer_folder
    kind, colon, name = spec.partition(":")
    if kind not in targets.FILE_MEASURERS or not colon:
        raise InvalidField(
            f"measurer: must be local, dask, replay:FILE or simulated:FILE; got {spec[:80]!r}",
            pointer="/measurer",
        )
    if folder is None:
        raise InvalidField(
            f"measurer: this service reads no {kind} files",
            code="measurer_not_allowed",
            pointer="/measurer",
            advice="Start it with `tilewright serve --measurer-folder DIR`.",
        )
    path = _below(folder.resolve(), name)
    if path is None:
        raise InvalidField(
            f"measurer: no file {name[:80]!r} below the folder this service reads",
            code="measurer_not_allowed",
            pointer="/measurer",
            advice="Name a file relative to the service's --measurer-folder.",
        )
    return f"{kind}:{path}"


def _below(root: Path, name: str) -> Path | None:
    # A NUL or a bare dot has a special meaning for the file system.
    if "\0" in name or not name:
        return None
    try:
        path = (root / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except OSError:  # a name that is too long, or a loop of links
        return None
