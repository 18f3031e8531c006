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
    """What a run may use.

    `trials` counts every candidate measured for this workload and target by this strategy and seed,
    earlier runs included. `seconds` is the wall time of this run, without the time in which other
    jobs of a service use the machine; None for no limit.
    """

    trials: int = 64
    seconds: float | None = None


MAX_KNOBS_REPORTED = 48
"""Programs of many parts have hundreds of knobs; the trace has them all."""


@dataclass(frozen=True, slots=True)
class PreviousTrial:
    """A trial that an earlier process of the same run reported."""

    candidate: Candidate
    record_key: str


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """One trial ended and is durably stored. `reused`: by an earlier run, not measured now.

    Trials are reported in the order of their numbers; `eta_secs` is None before one was measured.
    `fraction_of_bound` is None also where the best time proves the bound wrong. `predicted_secs` is
    the strategy's prediction before the measurement, None where it made none. `sketch` and
    `knobs` are the candidate's settings: of each knob with a choice its value, at most
    `MAX_KNOBS_REPORTED` of them. `candidate` serves to resume the run
    (`SessionOptions.previous_trials`); its numbers have a meaning in this space alone.
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
    """Where a session stores records and finds earlier ones. `db` satisfies it."""

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Durable when it returns. Adding a record that is there already changes nothing."""
        ...

    def records(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        """Every record of exactly this work, oldest first."""
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
    """Of a trace that begins with rewrites of their own error: `tilewright.schedules.rewritten`."""
    evidence: dict[str, Any] | None = None
    """What its full check compared, `tilewright.schedules.record.Evidence`; None if unknown."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that was faster than the best and failed the full check.

    `record_key` is that check's record, or the trial's where the check was lost and left none.
    """

    trial: int
    status: str
    detail: str
    record_key: str


@dataclass(frozen=True, slots=True)
class TuneReport:
    """All that `tune --json` prints, field for field; `to_json` gives that document."""

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
    `run_secs`, fastest first. Empty where none was close to the fastest."""
    bound: dict[str, Any] = field(default_factory=dict)
    """Of what `best.fraction_of_bound` is a share: `roofline_bound.RooflineBound.to_json`."""
    out_of_time: dict[str, Any] | None = None
    """Where the seconds of the budget ended the run in the midst of something: `during` which phase
    (`control.PHASES`), `done` of `total` parts of it, and seconds that `would_do_secs`."""
    dropped_sketches: list[dict[str, str]] = field(default_factory=list)
    """`name` and `reason` of those that were not searched: `ScheduleSpace.dropped`."""
    rejected: list[Rejected] = field(default_factory=list)
    """Of candidates that were faster than the best, or of all where there is none."""

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)
