"""Values for page templates, made from stored rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import quantiles
from typing import Any

from tilewright.db.values.jobs import StoredJob
from tilewright.db.values.whole import JobLine, KnownBest
from tilewright.schedules.record import Evidence, Toolchain, TuningRecord
from tilewright.service.jobs.document import job_document
from tilewright.service.units import duration

MOCKED = ("simulated", "replay")
"""Kinds of measurers that run no kernel."""

STATES = {
    "QUEUED": "waits in the queue",
    "RUNNING": "is running",
    "CANCELLING": "stops after the current trial",
    "SUCCEEDED": "has a verified best",
    "FAILED": "ended without a best",
    "CANCELLED": "was stopped; its results are kept",
}


ACTIVE = ("RUNNING", "CANCELLING", "QUEUED")
"""States of unfinished jobs; running jobs come first."""


@dataclass(frozen=True, slots=True)
class JobListing:
    """A job in a list. Times are in seconds. `position` is the position in the queue, from 1, or 0
    if the job does not wait."""

    id: str
    state: str
    name: str
    workload_key: str
    flops: float
    cpu: str
    threads: int
    trials: int
    trials_done: int
    best_run_secs: float | None
    fraction_of_bound: float | None
    eta_secs: float | None
    took_secs: float | None
    mocked: bool
    created_at: datetime | None
    error: str = ""
    position: int = 0

    @property
    def done(self) -> bool:
        return self.state not in ACTIVE


@dataclass(frozen=True, slots=True)
class JobView:
    """One job in full. `result` is the document of `tune --json`, or None before the end. `doing`
    is the current activity of a running job."""

    row: JobListing
    min_bytes: float
    target_key: str
    strategy: str
    seed: int
    budget_secs: float | None
    measurer: str
    reused: int
    failed: int
    doing: str
    error: str
    error_code: str
    started_at: datetime | None
    finished_at: datetime | None
    result: dict[str, Any] | None
    queued_secs: float | None = None
    elapsed_secs: float | None = None
    is_many: bool = False
    tasks: tuple[dict[str, Any], ...] = ()
    """The tasks of a job of many workloads that were begun, as in `progress.tasks`."""

    @property
    def tasks_secs(self) -> float:
        """The weighted seconds of the tasks that have a time."""
        return sum(task["weighted_secs"] or 0.0 for task in self.tasks)

    @property
    def waited_secs(self) -> float:
        """The time that the job waited after its start, for the time slices of other jobs."""
        run_secs = float((self.result or {}).get("wall_secs") or 0.0)
        whole = (self.elapsed_secs or 0.0) - (self.queued_secs or 0.0)
        return max(whole - run_secs, 0.0)

    @property
    def decided(self) -> str:
        """How the best was chosen, as text."""
        if self.result is None or self.best is None:
            return ""
        race = self.result.get("final_race")
        if race is None:
            return "not recorded by the version that ran this job"
        if not race:
            return "the search: no other candidate was within 10 % of it, or no trial was new"
        times = ", ".join(f"{_racer(one['trial'])} {duration(one['run_secs'])}" for one in race)
        won = self.best["trial"]
        first = race[0]["trial"]
        text = f"a final race of {len(race)} candidates: {times}"
        if won == first or first is None:
            return text
        return f"{text}; trial {won} is the fastest that passed the full check"

    @property
    def best(self) -> dict[str, Any] | None:
        return self.result.get("best") if self.result else None

    @property
    def compared(self) -> str:
        """The extent of the full check of the best, or "" if it is unknown."""
        evidence = (self.best or {}).get("evidence")
        return str(Evidence(**evidence)) if evidence else ""

    @property
    def rejected(self) -> list[dict[str, Any]]:
        """The candidates that failed the full check, as in the report."""
        return (self.result.get("rejected") or []) if self.result else []

    @property
    def failed_checks(self) -> dict[int, str]:
        """The statuses of the failed full checks, by trial number."""
        return {int(one["trial"]): str(one["status"]) for one in self.rejected}

    @property
    def default_secs(self) -> float | None:
        """The time of the default schedule, or None if it was not measured."""
        default = self.result.get("default") if self.result else None
        return default.get("run_secs") if default else None

    @property
    def gain(self) -> float | None:
        """The speed-up of the best over the default schedule."""
        best = self.row.best_run_secs
        return self.default_secs / best if self.default_secs and best else None

    @property
    def says(self) -> str:
        """The current activity, or the meaning of the state."""
        if self.doing and not self.row.done:
            return self.doing
        if self.row.state == "SUCCEEDED" and self.row.mocked:
            return "has a best, which is not verified, because no kernel was run"
        return STATES[self.row.state]

    @property
    def bound_secs(self) -> float | None:
        """The roofline bound of the time, or None if it is not known yet."""
        bound = (self.result or {}).get("bound") or {}
        if bound.get("secs"):
            return float(bound["secs"])
        row = self.row
        if row.best_run_secs and row.fraction_of_bound:
            return row.best_run_secs * row.fraction_of_bound
        return None


def _racer(trial: int | None) -> str:
    return "one of an earlier run" if trial is None else f"trial {trial}"


def job_row(line: JobLine) -> JobListing:
    row = _row(
        line.id, str(line.state), line.workload, line.target, line.trials, line.measurer,
        line.progress, (line.created_at, line.started_at, line.finished_at),
    )  # fmt: skip
    return replace(row, error=str((line.error or {}).get("detail") or ""))


def in_run_order(rows: Iterable[JobListing], queue: Sequence[str]) -> list[JobListing]:
    """Return unfinished jobs: running ones, then waiting ones in the order of `queue` (job ids)."""
    places = {job_id: number for number, job_id in enumerate(queue, start=1)}
    placed = [replace(row, position=places.get(row.id, 0)) for row in rows]
    return sorted(placed, key=lambda row: (row.state == "QUEUED", row.position))


def job_view(job: StoredJob) -> JobView:
    document = job_document(job)
    request, progress, error = document["request"], document["progress"], job.error or {}
    row = _row(
        job.id, str(job.state), document["workload"], document["target"],
        int(progress["trials"]), str(request["measurer"]), progress,
        (job.created_at, job.started_at, job.finished_at),
    )  # fmt: skip
    return JobView(
        row=row,
        min_bytes=float(document["workload"].get("min_bytes") or 0),
        target_key=str(document["target"]["key"]),
        strategy=str(request["strategy"]),
        seed=int(request["seed"]),
        budget_secs=request["budget"].get("seconds"),
        measurer=str(request["measurer"]),
        reused=int(progress.get("reused") or 0),
        failed=int(progress.get("failed") or 0),
        doing=str(progress.get("doing") or ""),
        error=str(error.get("detail") or error.get("code") or ""),
        error_code=str(error.get("code") or ""),
        started_at=job.started_at,
        finished_at=job.finished_at,
        result=job.result,
        queued_secs=document["queued_secs"],
        elapsed_secs=document["elapsed_secs"],
        is_many="many" in job.request,
        tasks=tuple(progress.get("tasks") or ()),
    )


def _row(
    job_id: str,
    state: str,
    workload: Mapping[str, Any],
    target: Mapping[str, Any],
    trials: int,
    measurer: str,
    progress: Mapping[str, Any],
    moments: tuple[datetime | None, datetime | None, datetime | None],
) -> JobListing:
    created, started, finished = moments
    running = state in ("RUNNING", "CANCELLING")
    took = (finished - started).total_seconds() if started and finished else None
    return JobListing(
        id=job_id,
        state=state,
        name=str(workload.get("name") or workload.get("key", "")),
        workload_key=str(workload.get("key", "")),
        flops=float(workload.get("flops") or 0),
        cpu=str(target.get("cpu", "")),
        threads=int(target.get("threads") or 1),
        trials=trials,
        trials_done=int(progress.get("trials_done") or 0),
        best_run_secs=progress.get("best_run_secs"),
        fraction_of_bound=progress.get("fraction_of_bound"),
        eta_secs=progress.get("eta_secs") if running else None,
        took_secs=took,
        mocked=measurer.partition(":")[0] in MOCKED,
        created_at=created,
    )


@dataclass(frozen=True, slots=True)
class BestListing:
    """The best record of one workload on one target."""

    name: str
    workload_key: str
    flops: float
    cpu: str
    threads: int
    record_key: str
    run_secs: float
    mocked: bool
    stale: bool
    moved_at: datetime


def best_row(best: KnownBest, here: Toolchain) -> BestListing:
    """Return a line of the list of workloads. `here` is the installed toolchain."""
    mocked = best.codegen_version == 0
    made = (best.codegen_version, best.llvmlite)
    return BestListing(
        name=best.name or best.workload_key,
        workload_key=best.workload_key,
        flops=float(best.flops),
        cpu=str(best.target.get("cpu", "")),
        threads=int(best.target.get("threads") or 1),
        record_key=best.record_key,
        run_secs=best.run_secs,
        mocked=mocked,
        stale=not mocked and made != (here.codegen_version, here.llvmlite),
        moved_at=best.moved_at,
    )


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record with its checks. `best_key` is the best of the same task, or "" if there is
    none."""

    key: str
    record: TuningRecord
    name: str
    flops: float
    target: Mapping[str, Any]
    best_key: str
    withdrawn: str | None
    files: Mapping[str, Mapping[str, Any]]
    steps: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def is_best(self) -> bool:
        return self.best_key == self.key

    @property
    def mocked(self) -> bool:
        return self.record.toolchain.codegen_version == 0

    @property
    def run_secs(self) -> float | None:
        return self.record.result.run_secs_estimate

    @property
    def made_by(self) -> str:
        return made_by(self.record)

    @property
    def spread(self) -> float | None:
        """The interquartile range of the samples, as a fraction of their median. A few disturbed
        samples do not change it."""
        samples = self.record.result.run_secs
        if len(samples) < 2:
            return None
        low, middle, high = quantiles(samples, n=4, method="inclusive")
        return (high - low) / middle


def made_by(record: TuningRecord) -> str:
    """Return the toolchain of the measured code. For mocked timings, return their source."""
    tools = record.toolchain
    if tools.codegen_version == 0:
        return f"nothing: {tools.llvmlite} timings ({tools.llvm})"
    return f"code generator {tools.codegen_version}, LLVM {tools.llvm}, llvmlite {tools.llvmlite}"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `state` is "yes", "no" or "none" (does not apply)."""

    name: str
    state: str
    what: str


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of the comparison of two records or jobs."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class CacheListing:
    """A cache level of a machine. `bytes` is the size of one cache."""

    level: str
    bytes: int
    ways: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """A measurement of a machine, one value per thread count."""

    name: str
    values: tuple[float, ...]
    unit: str


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine and its description. `joined` describes its role in the fleet."""

    name: str
    joined: str
    key: str
    cpu: str
    triple: str
    cores: int
    vector: str
    features: tuple[str, ...]
    caches: tuple[CacheListing, ...]
    probes: tuple[Probe, ...] = ()
    region_secs: float = 0.0
    doubtful: bool = False
    silent: bool = False

    def rate(self, name: str) -> str:
        """Return a probe's value with all threads, or `–` if it was not measured."""
        for probe in self.probes:
            if probe.name == name and probe.values:
                return f"{probe.values[-1]:.4g} {probe.unit}"
        return "–"


def machine_view(
    name: str, joined: str, document: Mapping[str, Any], key: str, silent: bool = False
) -> MachineView:
    probes = document.get("probes") or {}
    rates = [(f"peak {dtype}", values, "GFLOP/s")
             for dtype, values in (probes.get("peak_gflops") or {}).items()]  # fmt: skip
    rates += [
        (f"read {level}", values, "GB/s")
        for level, values in (probes.get("bandwidth_gbs") or {}).items()
    ]
    return MachineView(
        name=name,
        joined=joined,
        key=key,
        cpu=str(document["cpu"]),
        triple=str(document["triple"]),
        cores=int(document["cores"]),
        vector=f"{document['vector_registers']} registers of {document['vector_bits']} bits",
        features=tuple(document["features"]),
        caches=tuple(
            CacheListing(f"L{number}", int(c["bytes"]), int(c["ways"]), bool(c.get("shared")))
            for number, c in enumerate(document["caches"], start=1)
        ),
        probes=tuple(Probe(name, tuple(values), unit) for name, values, unit in rates),
        region_secs=float(probes.get("parallel_region_secs") or 0),
        doubtful=bool(probes.get("doubtful")),
        silent=silent,
    )
