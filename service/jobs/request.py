"""A submitted job, parsed, checked and normalised. The normalised request is stored with the
job."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.errors import InvalidField
from tilewright.service.jobs import tuning
from tilewright.service.jobs.tuning import FLEET, REAL, TuneOptions
from tilewright.service.resolve import targets, workloads
from tilewright.service.resolve.requests import JobIn, check_size, located, read_model
from tilewright.tuner.session.report import Budget

if TYPE_CHECKING:
    from tilewright.service.settings import Settings
    from tilewright.tuner.process.control import Control


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A runnable job. `native`: the target was given as `native`, so the machine that runs the job
    measures its probes."""

    workload: Workload
    target: Target
    native: bool
    options: TuneOptions

    def to_json(self) -> dict[str, Any]:
        """Return the normalised request, as stored."""
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
        identity = {
            "workload": self.workload.key,
            "target": self.target.key,
            **{name: form[name] for name in ("budget", "strategy", "seed", "measurer")},
        }
        return hashlib.sha256(canonical_bytes(identity)).hexdigest()


def read_job(document: Any, settings: Settings) -> JobRequest:
    """Parse the body of a request. Raise InvalidField, WorkloadError or TargetError, with the JSON
    pointer of the field."""
    body = read_model(JobIn, document)
    workload = located("/workload", lambda: workloads.workload_of(body.workload))
    located("/workload", lambda: check_size(workload, settings))
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
    return JobRequest(workload, target, native, options)


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
    measurer = f"{FLEET}:{fleet}" if form["measurer"] == FLEET else form["measurer"]
    return JobRequest(
        workload=workloads.workload_of(form["workload"]),
        target=measured_target(form["measurer"], "native", form["threads"], control)
        if native
        else Target.from_json(form["target"]),
        native=native,
        options=TuneOptions(
            budget=Budget(**form["budget"]),
            strategy=form["strategy"],
            seed=form["seed"],
            measurer=measurer,
        ),
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
