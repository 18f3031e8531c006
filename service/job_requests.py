"""A submitted job as read, checked and put in its one form: what the worker will run.

The form is what is stored with the job. Two requests with the same form are the same work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from schedules.errors import TilewrightError
from schedules.record import canonical_bytes
from schedules.target import Target
from schedules.workload import Workload

from . import wiring
from .errors import InvalidField, Located, ServiceError
from .runs import REAL, TuneOptions, tuning_target
from .schemas import JobIn, read_model

if TYPE_CHECKING:
    from .settings import Settings

FILE_MEASURERS = ("replay", "simulated")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Work that can be run. `native` says that the target was not spelled out: probes are then
    taken by the machine that runs the job."""

    workload: Workload
    target: Target
    native: bool
    options: TuneOptions

    def to_json(self) -> dict[str, Any]:
        """The form that is stored."""
        return {
            "workload": wiring.workload_document(self.workload),
            "workload_summary": wiring.workload_summary(self.workload),
            "target": "native" if self.native else self.target.to_json(),
            "target_summary": wiring.target_summary(self.target),
            "threads": self.target.threads,
            "budget": {"trials": self.options.trials, "seconds": self.options.seconds},
            "strategy": self.options.strategy,
            "seed": self.options.seed,
            "measurer": self.options.measurer,
        }

    @property
    def flight_key(self) -> str:
        """Equal for equal work, whatever names were used."""
        form = self.to_json()
        identity = {
            "workload": self.workload.key,
            "target": self.target.key,
            **{name: form[name] for name in ("budget", "strategy", "seed", "measurer")},
        }
        return hashlib.sha256(canonical_bytes(identity)).hexdigest()


def read_job(document: Any, settings: Settings) -> JobRequest:
    """The request of a body's JSON. InvalidField, WorkloadError, TargetError with pointers."""
    body = read_model(JobIn, document)
    workload = located("/workload", lambda: wiring.workload_of(body.workload))
    located("/workload", lambda: admit(workload, settings))
    target = located(
        "/target" if isinstance(body.target, dict) else "/threads",
        lambda: wiring.target_of(body.target, body.threads),
    )
    measurer = checked_measurer(body.measurer, settings.measurer_folder)
    if measurer != REAL:
        located("/measurer", lambda: wiring.check_measurer(measurer))
    options = TuneOptions(
        trials=body.budget.trials,
        seconds=body.budget.seconds,
        strategy=body.strategy,
        seed=body.seed,
        measurer=measurer,
    )
    if body.target != "native":
        located("/target", lambda: wiring.check_measurable(target, options.measurer))
    return JobRequest(workload, target, body.target == "native", options)


def stored_job(form: dict[str, Any]) -> JobRequest:
    """The request of a form that `to_json` made, for the worker."""
    native = form["target"] == "native"
    return JobRequest(
        workload=wiring.workload_of(form["workload"]),
        target=tuning_target("native", form["threads"], form["measurer"])
        if native
        else Target.from_json(form["target"]),
        native=native,
        options=TuneOptions(
            trials=form["budget"]["trials"],
            seconds=form["budget"]["seconds"],
            strategy=form["strategy"],
            seed=form["seed"],
            measurer=form["measurer"],
        ),
    )


def admit(workload: Workload, settings: Settings) -> None:
    """WorkloadError "too_large" for more memory or work than this service takes on."""
    from schedules.limits import check_limits

    check_limits(
        workload,
        max_bytes=settings.workload_bytes,
        max_iterations=settings.workload_iterations,
    )


def checked_measurer(spec: str, folder: Path | None) -> str:
    """`spec` with its file below `folder`; InvalidField for any other."""
    if spec == REAL:
        return spec
    kind, colon, name = spec.partition(":")
    if kind not in FILE_MEASURERS or not colon:
        raise InvalidField(
            f"measurer: must be local, replay:FILE or simulated:FILE; got {spec[:80]!r}",
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
    """The file `name` below `root`; None if there is none."""
    # A NUL or a bare dot would reach the file system with a meaning of its own.
    if "\0" in name or not name:
        return None
    try:
        path = (root / name).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except OSError:  # a name that is too long, a loop of links
        return None


def located(pointer: str, make: Callable[[], T]) -> T:
    """What `make` gives; its errors get `pointer` before their own."""
    try:
        return make()
    except TilewrightError as error:
        if isinstance(error, ServiceError):
            raise
        raise Located(error, pointer) from error
