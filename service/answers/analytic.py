"""Chooses a schedule without measurement, within a deadline: with the analytic model, and with what
the database knows about similar tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from tilewright.tuner import timeouts

if TYPE_CHECKING:
    from tilewright.schedules.record import TuningRecord
    from tilewright.schedules.related import RelatedRecords, StoredModel
    from tilewright.schedules.target import Target
    from tilewright.schedules.trace import Trace
    from tilewright.schedules.workload.workload import Workload
    from tilewright.tuner.search.default import DefaultChoice

# Start-up: a query loads neither SQLAlchemy nor a compiler; functions that need them import them.


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a database knows about tasks that resemble one: records, and the learned model."""

    related: Sequence[RelatedRecords] = ()
    model: StoredModel | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A schedule that was chosen without measurement. `source` says, in words for users, which
    parts of the database it comes from; "" if none."""

    trace: Trace
    source: str = ""


NOTHING_KNOWN = Knowledge()


def default_schedule(
    workload: Workload, target: Target, known: Knowledge = NOTHING_KNOWN, secs: float | None = None
) -> Chosen:
    """Return the schedule that the analytic model chooses, corrected by what is `known`.

    Raise DeadlineError after `secs` (None: the default deadline). A command (main thread) computes
    it in this process, the service (other threads) in a helper process.
    """
    import threading

    from tilewright.tuner.compiling.deadline import alarm
    from tilewright.tuner.search.default import DefaultChoice, default_choice

    what = "choosing a schedule without measurement"
    lenders: list[tuple[RelatedRecords, list[TuningRecord]]] = []
    trials, spelled, correction, of_model = [], [], None, ""
    if known.related:
        from tilewright.service.resolve.toolchains import toolchain
        from tilewright.tuner.search.related import comparable, related_trials
        from tilewright.tuner.search.spellings import fastest_traces

        lenders = list(comparable(known.related, toolchain()))
        trials = related_trials(known.related, toolchain())
        spelled = fastest_traces(known.related, toolchain())
    if known.model is not None:
        from tilewright.tuner.session.database_model import model_in_use

        in_use = model_in_use(known.model)
        correction, of_model = in_use.correction, in_use.summary
    if threading.current_thread() is threading.main_thread():
        with alarm(timeouts.COMPILE_DEADLINE_SECS if secs is None else secs, what):
            choice = default_choice(workload, target, trials, correction, spelled)
    else:
        from tilewright.tuner.compiling.helper_process import shared_helper

        document = {
            "workload": workload.to_json(),
            "target": target.to_json(),
            "related": [trial.to_json() for trial in trials],
            "correction": None if correction is None else correction.to_document(),
            "spelled": [one.to_json() for one in spelled],
        }
        frame = shared_helper().call(
            "tilewright.tuner.search.default:default_of_document", document, what, secs
        )
        choice = DefaultChoice.from_json(frame.document)
    if choice.source and lenders[choice.source - 1][0].spelling is not None:
        return Chosen(choice.trace, _of_spelling(lenders[choice.source - 1][0]))
    parts = [_of_trials(workload, choice, lenders), of_model]
    return Chosen(choice.trace, "; ".join(part for part in parts if part))


def _of_spelling(one: RelatedRecords) -> str:
    """Return which other spelling of the computation was measured with the chosen schedule."""
    return f"with the schedule of {_name(one)}, another spelling of this computation"


def _of_trials(
    workload: Workload,
    choice: DefaultChoice,
    lenders: Sequence[tuple[RelatedRecords, Sequence[TuningRecord]]],
) -> str:
    """Return which related task has a trial with the chosen setting, or else which tasks lent
    trials, and the predicted difference; "" without related trials.

    The speed of another workload that was measured here is compared with the predicted speed, in
    operations per second. Times of other machines are not compared.
    """
    if not lenders or choice.log2_secs is None:
        return ""
    if not choice.source:
        names = _names([one for one, _ in lenders])
        return f"from trials of {names}{_than_prior(choice)}"
    one, records = lenders[choice.source - 1]
    secs = records[0].result.run_secs_estimate
    if one.is_same_workload or one.origin or secs is None or not one.flops:
        return f"as for {_name(one)}{_than_prior(choice)}"
    faster = log2(workload.flops / one.flops * secs) - choice.log2_secs
    return f"as for {_name(one)}, {_difference(faster)} predicted"


def _than_prior(choice: DefaultChoice) -> str:
    if choice.log2_gain is None:
        return ""
    if abs(choice.log2_gain) < _LEAST_GAIN:
        return ", predicted as fast as the analytic choice"
    return f", predicted {_difference(choice.log2_gain)} than the analytic choice"


_LEAST_GAIN = log2(1.005)


def _difference(log2_faster: float) -> str:
    """Return a difference of speed as text: `2% slower`."""
    return f"{abs(2.0**log2_faster - 1.0):.0%} {'slower' if log2_faster < 0 else 'faster'}"


def _names(related: Sequence[RelatedRecords]) -> str:
    first, others = _name(related[0]), len(related) - 1
    if not others:
        return first
    return f"{first} and {others} other related task{'s' * (others > 1)}"


def _name(one: RelatedRecords) -> str:
    from tilewright.tuner.search.related import origin_of

    name = "this workload" if one.is_same_workload else one.name or "an unnamed workload"
    origin = origin_of(one)
    return f"{name} on {origin}" if one.origin else f"{name} by {origin}" if origin else name
