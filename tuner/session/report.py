"""The budget, the events, the record sink and the report of a tuning run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.schedules.record import MeasureResult, TuningRecord
from tilewright.schedules.related import RelatedRecords, StoredModel
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

if TYPE_CHECKING:
    from tilewright.schedules.space import Candidate


@dataclass(frozen=True, slots=True)
class Budget:
    """The trials and the time that a run may use.

    `trials` counts every candidate measured for this workload and target by this strategy and seed,
    earlier runs included. `seconds` is the wall time of this run, without the time in which other
    jobs of a service use the machine; None for no limit.
    """

    trials: int = 64
    seconds: float | None = None


MAX_KNOBS_REPORTED = 48
"""Programs of many parts have hundreds of knobs; the trace contains all of them."""


@dataclass(frozen=True, slots=True)
class PreviousTrial:
    """A trial that an earlier process of the same run reported."""

    candidate: Candidate
    record_key: str


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """The end of one trial, which is durably stored. `reused` means that an earlier run measured
    it.

    Trials are reported in the order of their numbers; `eta_secs` is None before a trial was
    measured. `fraction_of_bound` is None also if the best time proves the bound wrong.
    `predicted_secs` is the strategy's prediction before the measurement, or None if it made none.
    `sketch` and `knobs` are the candidate's setting: the value of each knob that has a choice, at
    most `MAX_KNOBS_REPORTED` of them. `candidate` serves to resume the run
    (`SessionOptions.previous_trials`); its numbers have a meaning only in this space.
    """

    trial: int
    of_trials: int
    result: MeasureResult
    is_best: bool
    best_run_secs: float | None
    fraction_of_bound: float | None
    wall_secs: float
    eta_secs: float | None
    record_key: str
    reused: bool = False
    predicted_secs: float | None = None
    sketch: str = ""
    knobs: dict[str, Any] = field(default_factory=dict)
    candidate: Candidate | None = None


class RecordSink(Protocol):
    """The store of a session's records, and the source of earlier ones. `db` implements it."""

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Store records; they are durable when this returns. Adding a record that is already stored
        changes nothing."""
        ...

    def records(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        """Return every record of exactly this workload and target, oldest first."""
        ...

    def related(
        self, workload: Workload, target: Target, count: int, before: str = ""
    ) -> list[RelatedRecords]:
        """Return the successful records of tasks that resemble `workload` on `target`: the `count`
        nearest workloads of the same structure on this target, then up to `count` tasks of this
        workload elsewhere, then others up to `count`. Records created at the time `before` (RFC
        3339) or later are left out, if it is given."""
        ...

    def model(self, target: Target, timings: str, before: str = "") -> StoredModel | None:
        """Return the newest learned model of the target that was trained on these timings
        (`schedules.full_checks.timings_of`), or that of a similar target, or None. Models stored at
        the time `before` (RFC 3339) or later are left out, if it is given."""
        ...

    def promote(self, record: TuningRecord) -> bool:
        """Make a stored, fully verified record the best unless a faster one is; return whether it
        is the best."""
        ...


@dataclass(frozen=True, slots=True)
class BestFound:
    """The winner of a run, rebuilt and verified in full.

    `packed_ahead` means that inputs are constant, and that `run_secs` is the time of a call with
    prepacked inputs. `run_secs_with_packing` is then the time of a call that packs them itself, or
    None if it was not timed.
    """

    record_key: str
    run_secs: float
    gflops: float
    fraction_of_bound: float
    bound: str
    trial: int
    verified: bool
    trace: list[Any]
    packed_ahead: bool = False
    run_secs_with_packing: float | None = None
    rewritten: dict[str, Any] | None = None
    """For a trace that begins with rewrites that state an error:
    `tilewright.schedules.rewritten`."""
    evidence: dict[str, Any] | None = None
    """The comparisons of its full check, `tilewright.schedules.record.Evidence`, or None if
    unknown."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was faster than the best and failed the full check.

    `record_key` is the record of that check, or the record of the trial if the check was lost and
    left none.
    """

    trial: int
    status: str
    detail: str
    record_key: str


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The document that `tune --json` prints, field for field; `to_json` returns it."""

    workload: dict[str, Any]
    target: dict[str, Any]
    strategy: str
    seed: int
    space_size: int
    trials: dict[str, Any]
    wall_secs: float
    wall_secs_by_phase: dict[str, float]
    stopped_because: str
    best: BestFound | None
    default: dict[str, float] | None
    curve: list[dict[str, float]] = field(default_factory=list)
    cost_model: dict[str, float | None] = field(default_factory=dict)
    final_race: list[dict[str, Any]] = field(default_factory=list)
    """The fastest few candidates, timed again in turns at the end: `trial` (None: from an earlier
    run) and `run_secs`, fastest first. Empty if no candidate was close to the fastest."""
    bound: dict[str, Any] = field(default_factory=dict)
    """The bound that `best.fraction_of_bound` refers to: `roofline_bound.RooflineBound.to_json`."""
    out_of_time: dict[str, Any] | None = None
    """If the time budget ended the run during an activity: `during` which phase (`control.PHASES`),
    `done` of its `total` parts, and `would_do_secs`, a budget that should suffice."""
    dropped_sketches: list[dict[str, str]] = field(default_factory=list)
    """`name` and `reason` of the sketches that were not searched: `ScheduleSpace.dropped`."""
    rejected: list[Rejected] = field(default_factory=list)
    """The candidates that were faster than the best, or all candidates if there is no best."""

    database_model: dict[str, Any] = field(default_factory=dict)
    """The model of the database that corrected the prior, `database_model.ModelInUse.to_json`;
    empty if the database has none."""

    related: list[dict[str, Any]] = field(default_factory=list)
    """The related tasks whose records the search used, `lent_trials.LentTrials.to_json`."""

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)
