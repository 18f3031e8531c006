"""The budget, the events, the record sink and the report of a tuning run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.schedules.record import MeasureResult, TuningRecord

if TYPE_CHECKING:
    from tilewright.schedules.space import Candidate


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run.

    `trials` counts every candidate measured for this workload and target by this strategy and seed,
    earlier runs included. `seconds` is the wall time of this run, without the time in which other
    jobs of a service use the machine; None for no limit.
    """

    trials: int = 64
    seconds: float | None = None


MAX_KNOBS_REPORTED = 48
"""The most knobs in an event: programs of many parts have hundreds, all of which are in the
trace."""


@dataclass(frozen=True, slots=True)
class PreviousTrial:
    """A trial that an earlier process of the same run reported."""

    candidate: Candidate
    record_key: str


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """One trial ended and is durably stored. `reused`: by an earlier run, not measured now.

    Trials are reported in the order of their numbers; `eta_secs` is None before one was measured.
    `fraction_of_bound` is None also if the best time proves the bound wrong. `predicted_secs` is
    the strategy's prediction before the measurement, None if it made none. `sketch` and
    `knobs` are the candidate's settings: of each knob with a choice its value, at most
    `MAX_KNOBS_REPORTED` of them. `candidate` serves to resume the run
    (`SessionOptions.previous_trials`); its numbers are valid in this space only.
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
    """Stores the records of a session and returns earlier ones. `db` implements it."""

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Store records durably. Adding a stored record again changes nothing."""
        ...

    def records(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        """All records of this workload and target, oldest first."""
        ...

    def promote(self, record: TuningRecord) -> bool:
        """Make a stored, fully verified record the best unless a faster one is; true if it is."""
        ...


@dataclass(frozen=True, slots=True)
class BestFound:
    """The winner of a run, rebuilt and verified in full.

    `packed_ahead`: inputs are constant, and `run_secs` is of a call that finds them packed.
    `run_secs_with_packing` is then a call that packs them itself; None if it was not timed.
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
    """The error of a trace that begins with rewrites: `tilewright.schedules.rewritten`."""
    evidence: dict[str, Any] | None = None
    """The comparisons of its full check, `tilewright.schedules.record.Evidence`; None if
    unknown."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was faster than the best and failed the full check.

    `record_key` is that check's record, or the trial's if the check was lost without a record.
    """

    trial: int
    status: str
    detail: str
    record_key: str


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The fields of the document of `tune --json`, which `to_json` returns."""

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
    """The fastest few, timed once more in turns at the end: `trial` (None: of an earlier run) and
    `run_secs`, fastest first. Empty if none was close to the fastest."""
    bound: dict[str, Any] = field(default_factory=dict)
    """The bound of `best.fraction_of_bound`: `roofline_bound.RooflineBound.to_json`."""
    out_of_time: dict[str, Any] | None = None
    """Set if the seconds of the budget interrupted an activity: `during` is the phase
    (`control.PHASES`), `done` of `total` parts were finished, `would_do_secs` should suffice."""
    dropped_sketches: list[dict[str, str]] = field(default_factory=list)
    """`name` and `reason` of those that were not searched: `ScheduleSpace.dropped`."""
    rejected: list[Rejected] = field(default_factory=list)
    """Rejected candidates that were faster than the best, or all if there is no best."""

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)
