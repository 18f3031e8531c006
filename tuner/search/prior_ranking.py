"""A ranking of a space by the analytic prior, before the first measurement."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.costmodel.prior import Corrects, Prior
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering.storage import WorkspaceTooLargeError, plan_storage
from tilewright.schedules.sketches.program import structure
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.trace import Trace

from .annealing_walk import Cooling, anneal
from .descent import descend
from .setting_grid import CHUNK, SettingGrid, keep_best, setting_grids

MAX_LISTED_POINTS = 1_500_000
"""A space of more points, feasible or not, is not enumerated (the enumeration takes well under a
second)."""

MAX_SCORED_POINTS = 200_000
"""A space of more feasible points is sampled by annealing instead of scored completely."""

DESCENTS = 8
"""Number of descents. They start from the best annealed settings that are far from each other."""

MANY_PARTS = 8
"""Programs of more parts have more combinations of the parts' settings than a few steps reach."""

MIN_KNOBS_APART = 4

MAX_DEFAULTS_TRIED = 16
"""Number of settings tried as the default, best first, before the default of each sketch."""

CHAINS = 512
"""Number of annealing chains in a larger space."""

STEPS, STEPS_OF_MANY_PARTS = 6, 40
"""Number of annealing steps. Descents find better settings than more steps do: over 85 workloads, 6
steps and 8 descents lose 0.0006 log2 units to a search that is seven times as long, and 40 steps
and 4 descents 0.0039 in twice the time."""


@dataclass(frozen=True, slots=True)
class PriorRanking:
    """The best `codes` of each sketch by the prior, best first, and their `log2_secs`.

    `feasible` is the number of feasible points if the space was enumerated, otherwise None.
    `default` is the best legal candidate.
    """

    codes: tuple[IntArray, ...]
    log2_secs: tuple[FloatArray, ...]
    feasible: int | None
    default: Candidate
    default_trace: Trace


def rank_by_prior(space: ScheduleSpace, prior: Prior, keep: int = 16384) -> PriorRanking:
    """Rank the space by the prior: completely if it is small, otherwise by annealing on the prior.

    Deterministic and independent of any seed: the default schedule is promised to users and must be
    the same in every run.
    """
    grids = setting_grids(space)
    listed = _listed(grids)
    codes, costs = [], []
    known: dict[Hashable, IntArray] = {}
    for grid in grids:
        if listed is not None:
            found, scores = _rank_all(grid, listed[grid.index], prior, keep)
        else:
            chains = max(CHAINS // len(grids), 128)
            found, scores = _rank_by_annealing(grid, prior, keep, chains, known)
        codes.append(found)
        costs.append(-scores)
    best_first = list(_best_first(grids, codes, costs))
    trace = _legal_trace(space, best_first[0])
    if trace is None and keep < MAX_DEFAULTS_TRIED:
        return rank_by_prior(space, prior, MAX_DEFAULTS_TRIED)  # with alternatives
    default = best_first[0]
    if trace is None:
        default, trace = _first_legal(space, best_first[1:])
    feasible = None if listed is None else sum(len(c) for c in listed)
    return PriorRanking(tuple(codes), tuple(costs), feasible, default, trace)


def rank_for_default(space: ScheduleSpace, correction: Corrects | None = None) -> PriorRanking:
    """Return the ranking with only the default schedule, which is chosen without measurement, by
    the prior with the `correction`, if any."""
    return rank_by_prior(space, Prior(space, correction=correction), keep=1)


def _best_first(
    grids: tuple[SettingGrid, ...], codes: list[IntArray], costs: list[FloatArray]
) -> Iterator[Candidate]:
    """Yield the best few candidates of all sketches by the prior, then the default of each
    sketch."""
    best = sorted(
        (float(cost), grid.index, n)
        for grid, found in zip(grids, costs, strict=True)
        for n, cost in enumerate(found[:MAX_DEFAULTS_TRIED])
    )
    for _, sketch, n in best[:MAX_DEFAULTS_TRIED]:
        yield grids[sketch].candidate(codes[sketch][n])
    for grid in grids:
        yield Candidate(grid.index, grid.sketch.default())


def _first_legal(space: ScheduleSpace, candidates: list[Candidate]) -> tuple[Candidate, Trace]:
    """Return the first legal candidate and its trace.

    If none is legal, raise WorkloadError "too_large" if workspaces are too large, as for a workload
    with large intermediate tensors, otherwise the ScheduleError of the last candidate.
    """
    refusals: list[ScheduleError] = []
    for candidate in candidates:
        try:
            return candidate, _checked_trace(space, candidate)
        except ScheduleError as error:
            refusals.append(error)
    too_large = [error for error in refusals if isinstance(error, WorkspaceTooLargeError)]
    if too_large:
        least = min(too_large, key=lambda error: error.needed_bytes)
        raise WorkloadError(f"the workspace of all stages {least.reason}", code="too_large")
    raise refusals[-1]


def _legal_trace(space: ScheduleSpace, candidate: Candidate) -> Trace | None:
    """Return the trace of a candidate, or None if it is not legal."""
    try:
        return _checked_trace(space, candidate)
    except ScheduleError:
        return None


def _checked_trace(space: ScheduleSpace, candidate: Candidate) -> Trace:
    """Return the trace of a candidate. Raise ScheduleError if a primitive or the storage plan
    refuses it.

    Primitives and storage plan are authoritative, because `feasible` uses rules that a new kind of
    expression may not satisfy.
    """
    sketch = space.sketches[candidate.sketch]
    trace, nest = sketch.lowered(candidate.setting)
    plan_storage(nest)
    return trace


def _listed(grids: tuple[SettingGrid, ...]) -> list[IntArray] | None:
    """Return all feasible codes of every sketch, or None if there are too many to score."""
    if sum(grid.points for grid in grids) > MAX_LISTED_POINTS:
        return None
    result, total = [], 0
    for grid in grids:
        chunks = []
        for chunk in grid.feasible_codes():
            total += len(chunk)
            if total > MAX_SCORED_POINTS:
                return None
            chunks.append(chunk)
        result.append(np.concatenate(chunks))
    return result


def _rank_all(
    grid: SettingGrid, codes: IntArray, prior: Prior, keep: int
) -> tuple[IntArray, FloatArray]:
    scores = [
        -prior.log2_secs(grid.index, grid.decode(codes[start : start + CHUNK]))
        for start in range(0, len(codes), CHUNK)
    ]
    return keep_best(codes, np.concatenate([np.empty(0), *scores]), keep)


def _rank_by_annealing(
    grid: SettingGrid, prior: Prior, keep: int, chains: int, known: dict[Hashable, IntArray]
) -> tuple[IntArray, FloatArray]:
    """Return the best codes and their scores. `known` has the best settings of parts of other
    sketches by their structure, and gets those of this one."""
    rng = np.random.default_rng(0)
    default = np.array([grid.sketch.default()], np.int64)
    near = grid.near(default, rng, chains // 4)[: chains // 8]  # includes the default
    made = _best_of_parts(grid, prior, chains, known)
    has_many_parts = len(grid.parts) > MANY_PARTS
    steps = STEPS_OF_MANY_PARTS if has_many_parts else STEPS
    if len(made) and has_many_parts:  # only the combination of parts remains to be found
        chains, steps = chains // 2, steps // 2
    near = np.concatenate([made, near])[:chains]
    start = np.concatenate([near, grid.sample(rng, chains - len(near))])
    cooling = Cooling(steps=steps, keep=keep)

    def score(x: IntArray) -> FloatArray:
        return -prior.log2_secs(grid.index, x)

    walked = anneal(grid, score, start, rng, cooling)
    codes, scores = [walked.codes], [walked.scores]
    # Descents of several parts are made for each part, because their times add up
    # (`_best_of_parts`).
    if len(walked.codes) and len(grid.parts) == 1:
        found, theirs = descend(grid, score, _far_apart(grid.decode(walked.codes)), rng)
        codes.append(found)
        scores.append(theirs)
    return keep_best(np.concatenate(codes), np.concatenate(scores), keep)


def _far_apart(settings: IntArray) -> IntArray:
    """Return the first of `settings` (P, J), sorted best first, that differ from each other in more
    than `MIN_KNOBS_APART` knobs, at most `DESCENTS` of them.

    Two steps of a descent then do not lead from one to another.
    """
    taken = settings[:1]
    while len(taken) < DESCENTS:
        apart = (settings[:, None, :] != taken[None, :, :]).sum(axis=2).min(axis=1)
        others = np.flatnonzero(apart > MIN_KNOBS_APART)
        if not len(others):
            break
        taken = np.concatenate([taken, settings[others[:1]]])
    return taken


def _best_of_parts(
    grid: SettingGrid, prior: Prior, chains: int, known: dict[Hashable, IntArray]
) -> IntArray:
    """Return settings of a program that combine the best settings of each part, at most `chains` /
    4 of them.

    Times of parts add up, and annealing over all knobs together hardly finds the best setting of
    each part.
    """
    program = prior.space.sketches[grid.index]
    if len(program.parts) == 1:
        return np.empty((0, len(grid.sizes)), np.int64)
    count = max(chains // 4 // (len(program.parts) + 1), 1)
    best: dict[int, IntArray] = {}
    for group in program.equivalence_classes:
        found = structure(program.parts[group[0]])
        if found not in known:
            own, part_prior = part_alone(prior, grid.index, group[0])
            codes, _ = _best_of_part(own, part_prior, chains // len(program.parts))
            known[found] = own.decode(codes)
        rows = known[found]
        best |= dict.fromkeys(group, rows[np.arange(count) % len(rows)])
    each = [best[number] for number in range(len(program.parts))]
    first = [np.repeat(rows[:1], count, axis=0) for rows in each]
    mixed = [np.hstack(each)]
    mixed += [np.hstack([*first[:i], rows, *first[i + 1 :]]) for i, rows in enumerate(each)]
    return grid.decode(np.unique(grid.encode(np.concatenate(mixed))))


def part_alone(prior: Prior, sketch: int, number: int) -> tuple[SettingGrid, Prior]:
    """Return the grid of part `number` of a sketch, and the prior of a space with only that
    part."""
    program, target = prior.space.sketches[sketch], prior.space.target
    alone = ScheduleSpace(program.workload, target, (program.single_part(number),))
    (own,) = setting_grids(alone)
    return own, prior.for_space(alone)


def _best_of_part(own: SettingGrid, prior: Prior, chains: int) -> tuple[IntArray, FloatArray]:
    listed = _listed((own,)) if own.points <= CHUNK else None
    if listed is not None:
        return _rank_all(own, listed[0], prior, chains)
    return _rank_by_annealing(own, prior, chains, max(chains, 64), {})
