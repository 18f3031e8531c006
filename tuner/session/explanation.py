"""The explanation of a schedule: the time that each of its choices saves.

One choice at a time is undone, and the resulting schedules are verified and raced against the
original one. If the setting of the schedule is unknown, single steps of its trace are left out
instead, as far as the rest remains legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from tilewright.costmodel.prior import COMPONENTS, Prior
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.lowering.storage import plan_storage
from tilewright.schedules.named_setting import NamedSetting, candidate_of, named_setting
from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
from tilewright.schedules.sketches.wording import term_of, value_text
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.trace import Trace
from tilewright.schedules.trace_document import trace_key

from ..machine.least_work import least_work
from ..measure.protocol import Measurer, MeasureRequest, TakesBound
from ..process.control import Activity, OutOfTime
from ..search.prior_ranking import rank_for_default
from ..search.undo import UndoneChoice, slowest_first, undo_each, without_rewrites
from .options import SessionOptions
from .report import RecordSink
from .roofline_bound import RooflineBound

ROUNDS, TRIMMED = 8, 1
"""Number of times that all schedules are timed in turn, and the number of ratios at each end that
lie outside the interval. With a probability of 93 %, the median of the distribution lies between
the second smallest and the second largest of eight independent ratios (order statistics)."""

MAX_CHOICES = 24
"""Number of choices that are undone, the ones with the largest predicted effect."""

COMPONENT_WORDS = {
    "pipes": "arithmetic",
    "loads": "load ports",
    "issue": "instruction issue",
    "L2": "L2 bandwidth",
    "L3": "L3 bandwidth",
    "memory": "memory bandwidth",
    "packing": "packing",
    "fixed": "latencies, loop entries and parallel regions",
}
"""The components of the prior in words."""


@dataclass(frozen=True, slots=True)
class StepEffect:
    """One choice of the schedule, and its effect.

    `step`: the choice in words. `undone`: the choice without the transformation. `also`: other
    choices that had to change with it. `slower_by`: the time without the choice divided by the time
    of the schedule, the median over the rounds; `slower_low` and `slower_high` are the ends of its
    interval (`ROUNDS`). The times are None unless `status` is "ok"; `detail` is then the reason.
    """

    step: str
    undone: str
    knob: str | None = None
    also: tuple[str, ...] = ()
    status: str = str(MeasureStatus.OK)
    detail: str = ""
    run_secs: float | None = None
    slower_by: float | None = None
    slower_low: float | None = None
    slower_high: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result for one schedule. `run_secs`: its time of a call in this race, in seconds.

    `steps`: the effects, the largest first, failures last. `left_out`: the number of choices that
    were not raced. `bound`: the roofline bound as JSON data. `predicted_secs`: seconds of each
    component that the prior predicts, by its words, the largest first; empty if the setting is
    unknown. `by_setting`: whether knobs were undone, rather than steps of the trace.
    """

    run_secs: float
    fraction_of_bound: float
    rounds: int
    steps: tuple[StepEffect, ...]
    left_out: int
    bound: dict[str, Any]
    predicted_secs: dict[str, float]
    by_setting: bool

    def to_json(self) -> dict[str, Any]:
        """Return the part of `explain --json` that describes the race."""
        return {
            "steps": [asdict(step) for step in self.steps],
            "left_out": self.left_out,
            "by_setting": self.by_setting,
            "rounds": self.rounds,
            "bound": {
                **self.bound,
                "fraction": self.fraction_of_bound,
                "predicted_secs": self.predicted_secs,
            },
        }


@dataclass(frozen=True, slots=True)
class _Variant:
    """A schedule without one choice. `trace` is None if it is not legal; `effect.detail` is then
    the reason. `candidate` is None for a trace without a known setting."""

    effect: StepEffect
    trace: Trace | None
    candidate: Candidate | None = None


def explain_schedule(
    space: ScheduleSpace,
    trace: Trace,
    setting: NamedSetting | None,
    *,
    measurer: Measurer,
    sink: RecordSink,
    seed: int = 0,
    rounds: int = ROUNDS,
    options: SessionOptions | None = None,
) -> Explanation | MeasureResult:
    """Race the schedule `trace` of `space` against the schedules without one of its choices. If the
    schedule itself fails, return its result instead.

    `setting` is the setting that the record of the schedule names, if any. Measured variants are
    stored in `sink`, as trials of later searches. Race rounds end early when the time limit of
    `options.control` approaches. Raise OutOfTime if the limit ends the first round.
    """
    options = options or SessionOptions()
    bound = RooflineBound(least_work(space.workload, space.forms), space.target, options.machine)
    if isinstance(measurer, TakesBound):
        measurer.take_bound(bound.current)
    options.control.doing(Activity("proposing", "undoing one choice at a time"))
    own = _candidate(space, trace, setting)
    prior = Prior(space)
    found = _undone_steps(space, trace) if own is None else _undone_choices(space, prior, own)
    variants, left_out = found[:MAX_CHOICES], len(found[MAX_CHOICES:])
    race = _race(trace, [v.trace for v in variants], measurer, options, rounds)
    sink.add(list(_records(space, prior, variants, race, measurer, seed, options)))
    if not race.results[0].ok:
        return race.results[0]
    secs = min(race.secs[0])
    bound.finalise(secs, keep=False)
    return Explanation(
        run_secs=secs,
        fraction_of_bound=bound.share(secs),
        rounds=len(race.secs[0]),
        steps=tuple(_sorted(_effect(v.effect, race, n) for n, v in enumerate(variants, start=1))),
        left_out=left_out,
        bound=bound.to_json(),
        predicted_secs={} if own is None else _components(prior, own),
        by_setting=own is not None,
    )


# -- the schedules without one choice


def _candidate(
    space: ScheduleSpace, trace: Trace, setting: NamedSetting | None
) -> Candidate | None:
    """Return the candidate whose trace is `trace`: the one that `setting` names or the default."""
    named = None if setting is None else candidate_of(space, setting)
    key = trace_key(trace.to_json())
    try:
        if named is not None and trace_key(space.trace(named).to_json()) == key:
            return named
        default = rank_for_default(space)
    except (ScheduleError, WorkloadError):
        return None
    return default.default if trace_key(default.default_trace.to_json()) == key else None


def _undone_choices(space: ScheduleSpace, prior: Prior, own: Candidate) -> list[_Variant]:
    """Return a variant for each knob that does not have its plain value, and for the rewrites, the
    slowest predicted one first."""
    found = [
        _variant(space, _effect_of(choice), choice.candidate)
        for choice in slowest_first(prior, own, undo_each(space, own))
    ]
    plain = without_rewrites(space, own)
    if plain is not None:
        rewrites = ", ".join(step.label for step in space.trace(own).rewrites)
        effect = StepEffect(f"rewrites: {rewrites}", "none, the best predicted schedule")
        found.insert(0, _variant(space, effect, plain))
    return found


def _effect_of(choice: UndoneChoice) -> StepEffect:
    name = choice.knob
    return StepEffect(
        step=f"{term_of(name)}: {value_text(name, choice.value)}",
        undone=value_text(name, choice.plain),
        knob=name,
        also=tuple(
            f"{term_of(other)}: {value_text(other, after)} instead of {value_text(other, before)}"
            for other, (before, after) in choice.others.items()
        ),
    )


def _variant(space: ScheduleSpace, effect: StepEffect, candidate: Candidate | None) -> _Variant:
    if candidate is None:
        return _illegal(effect, "no feasible setting near the schedule has this value")
    try:
        trace, nest = space.sketches[candidate.sketch].lowered(candidate.setting)
        plan_storage(nest)
    except ScheduleError as error:
        return _illegal(effect, str(error))
    return _Variant(effect, trace, candidate)


def _undone_steps(space: ScheduleSpace, trace: Trace) -> list[_Variant]:
    """Return a variant for each step of the trace without which the others remain legal."""
    found = []
    for number, step in enumerate(trace.steps):
        rest = Trace(trace.steps[:number] + trace.steps[number + 1 :])
        try:
            plan_storage(lower(space.workload, rest))
        except ScheduleError:
            continue
        found.append(_Variant(StepEffect(str(step), "left out"), rest))
    return found


def _illegal(effect: StepEffect, reason: str) -> _Variant:
    return _Variant(replace(effect, status=str(MeasureStatus.NOT_LEGAL), detail=reason), None)


# -- the race


@dataclass(frozen=True, slots=True)
class _Race:
    """Seconds of each complete round and the first result, by position: 0 is the schedule itself,
    then the variants."""

    secs: dict[int, list[float]]
    results: dict[int, MeasureResult]


def _race(
    trace: Trace,
    variants: Sequence[Trace | None],
    measurer: Measurer,
    options: SessionOptions,
    rounds: int,
) -> _Race:
    """Time the schedule and its variants in turns, in alternating order. A variant that fails takes
    no further part."""
    control = options.control
    racing = {0: trace} | {n: one for n, one in enumerate(variants, start=1) if one is not None}
    secs: dict[int, list[float]] = {n: [] for n in racing}
    results: dict[int, MeasureResult] = {}
    for number in range(rounds):
        start = control.clock()
        order = list(racing) if number % 2 == 0 else list(racing)[::-1]
        requests = [MeasureRequest(n + 1, racing[n], compared=True) for n in order]
        try:
            answers = measurer.measure(requests)
        except OutOfTime:
            if number == 0 or control.killed_in_secs <= 0.0:
                raise
            break  # only whole rounds count
        for n, result in zip(order, answers, strict=True):
            results.setdefault(n, result)
            if result.run_secs_estimate is not None:
                secs[n].append(result.run_secs_estimate)
                continue
            results[n] = result
            del racing[n]
        if 0 not in racing:
            break
        if control.left_secs < control.clock() - start:
            break
    return _Race(secs, results)


def _effect(effect: StepEffect, race: _Race, number: int) -> StepEffect:
    """Return `effect` with the result of variant `number`."""
    result = race.results.get(number)
    if result is None:
        return effect
    if not result.ok:
        return replace(effect, status=str(result.status), detail=result.detail)
    pairs = zip(race.secs[number], race.secs[0], strict=True)
    ratios = sorted(own / base for own, base in pairs)
    end = TRIMMED if len(ratios) >= ROUNDS else 0
    return replace(
        effect,
        run_secs=min(race.secs[number]),
        slower_by=median(ratios),
        slower_low=ratios[end],
        slower_high=ratios[-1 - end],
    )


def _sorted(effects: Iterable[StepEffect]) -> list[StepEffect]:
    return sorted(effects, key=lambda effect: -(effect.slower_by or 0.0))


def _records(
    space: ScheduleSpace,
    prior: Prior,
    variants: Sequence[_Variant],
    race: _Race,
    measurer: Measurer,
    seed: int,
    options: SessionOptions,
) -> Iterable[TuningRecord]:
    """Yield the records of the measured variants with a known setting; they are outside a search,
    so their trial is 0."""
    for number, variant in enumerate(variants, start=1):
        result = race.results.get(number)
        candidate, trace = variant.candidate, variant.trace
        lost = result is None or result.status is MeasureStatus.LOST
        if candidate is None or trace is None or result is None or lost:
            continue
        setting = np.array([candidate.setting], np.int64)
        yield TuningRecord(
            workload_key=space.workload.key,
            target_key=space.target.key,
            threads=space.target.threads,
            trace=trace.to_json(),
            result=result,
            toolchain=measurer.toolchain,
            seed=seed,
            trial=0,
            created_at=options.timestamp(),
            setting=named_setting(space, candidate).to_json(),
            prior_secs=float(2.0 ** prior.log2_secs(candidate.sketch, setting)[0]),
        )


def _components(prior: Prior, own: Candidate) -> dict[str, float]:
    """Return the seconds of each component of the prior's prediction that is not 0."""
    analysis = prior.analyse(own.sketch, np.array([own.setting], np.int64))
    secs = dict(zip(COMPONENTS, analysis.components[:, 0].tolist(), strict=True))
    largest = sorted(secs.items(), key=lambda entry: -entry[1])
    return {COMPONENT_WORDS[name]: value for name, value in largest if value > 0.0}
