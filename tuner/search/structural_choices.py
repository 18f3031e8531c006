"""Candidates that differ from the default schedule in one structural choice, such as whether an
operand is copied into a packed buffer or read in place.

The prior's errors are much the same for all candidates of one structure: if it underestimates reads
in place, then all candidates that it ranks first read in place. So early trials include the best
candidates with other choices, and the model learns what each choice is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import Candidate

from .batch import Scored
from .descent import descend, neighbours
from .prior_ranking import PriorRanking, part_alone
from .setting_grid import SettingGrid

MAX_SLOWDOWN = 1.6
"""Largest predicted time of a candidate with another choice, as a multiple of the default's time:
the prior is rarely further off."""

MIN_CHANGE = 0.1
"""Smallest difference of the components' times from those of another candidate, in total and
relative to the predicted time."""

MAX_VALUES = 3
"""Knobs with more values are sizes, and the values between them are no other structure."""

MAX_KNOBS = 16
"""Largest number of knobs whose other values are tried, the first ones of the sketch."""

_OTHER_CHOICE = 1e3  # score of a setting without the choice, in log2 units below its own


def structural_choices(
    grids: tuple[SettingGrid, ...],
    prior: Prior,
    look: PriorRanking,
    chosen: Sequence[Candidate],
    count: int,
) -> list[Scored]:
    """Return up to `count` candidates, best first: the best one of each other sketch, and the best
    ones with another value of one knob of the default schedule.

    The times of their components differ from those of the `chosen` candidates and of each other.
    Otherwise measurements would tell nothing new about the prior.
    """
    limit = float(_analysis(prior, look.default)[1]) + np.log2(MAX_SLOWDOWN)
    choices = {
        own: _analysis(prior, own) for own in _choices(grids, prior, look) if own not in chosen
    }
    known = [_analysis(prior, candidate)[0] for candidate in (look.default, *chosen)]
    found: list[Scored] = []
    for candidate, (components, log2_secs) in sorted(
        choices.items(), key=lambda item: (item[1][1], item[0].sketch, item[0].setting)
    ):
        if len(found) == count or log2_secs > limit:
            break
        if all(np.abs(components - other).sum() > MIN_CHANGE * 2.0**log2_secs for other in known):
            known.append(components)
            found.append(Scored(candidate, log2_secs, 0.0, -log2_secs))
    return found


def _analysis(prior: Prior, candidate: Candidate) -> tuple[npt.NDArray[np.float32], float]:
    """Return the predicted seconds of each component, and log2 of the total."""
    analysis = prior.analyse(candidate.sketch, np.array([candidate.setting], np.int64))
    return analysis.components[:, 0], float(prior.log2_of(analysis)[0])


def _choices(
    grids: tuple[SettingGrid, ...], prior: Prior, look: PriorRanking
) -> Iterator[Candidate]:
    """Yield the best candidate of each other sketch and with each other value of a knob. Only
    settings of the part that has the knob are changed with it, because times of parts add up."""
    default = look.default
    for grid, codes in zip(grids, look.codes, strict=True):
        if grid.index != default.sketch and len(codes):
            yield grid.candidate(codes[0])
    parts = _parts(grids[default.sketch], prior, default)
    known = grids[default.sketch].decode(look.codes[default.sketch])
    left = MAX_KNOBS
    for number, (own, alone, here) in enumerate(parts):
        others = known if len(parts) == 1 else here[None]
        for knob, size in enumerate(own.sizes):
            if not 1 < size <= MAX_VALUES or not left:
                continue
            left -= 1
            for value in range(size):
                if value != here[knob]:
                    found = _best_with(own, alone, here, others, knob, value)
                    if found is not None:
                        every = [part for _, _, part in parts]
                        every[number] = found
                        yield Candidate(default.sketch, tuple(np.concatenate(every).tolist()))


def _parts(
    grid: SettingGrid, prior: Prior, default: Candidate
) -> list[tuple[SettingGrid, Prior, IntArray]]:
    """Return the grid, the prior and the setting (J,) of each part of a program."""
    program = prior.space.sketches[default.sketch]
    each = program.split_settings(np.array([default.setting], np.int64))
    if len(each) == 1:
        return [(grid, prior, each[0][0])]
    return [(*part_alone(prior, default.sketch, number), own[0]) for number, own in enumerate(each)]


def _best_with(
    grid: SettingGrid, prior: Prior, here: IntArray, known: IntArray, knob: int, value: int
) -> IntArray | None:
    """Return the prior's best setting (J,) near `here` (J,) or among `known` (P, J), which are
    sorted best first, that has `value` of `knob`. Return None if none was found."""

    def score(settings: IntArray) -> FloatArray:
        own = prior.log2_secs(grid.index, settings)
        return np.asarray(-(own + _OTHER_CHOICE * (settings[:, knob] != value)))

    starts = known[known[:, knob] == value][:1]
    if not len(starts):
        changed = here.copy()
        changed[knob] = value
        near = neighbours(grid, changed, np.random.default_rng(0))
        near = np.concatenate([changed[None], near[near[:, knob] == value]])
        near = near[grid.sketch.feasible(near)]
        if not len(near):
            return None
        starts = near[[int(np.argmax(score(near)))]]
    codes, scores = descend(grid, score, starts, np.random.default_rng(0))
    return np.asarray(grid.decode(codes[[int(np.argmax(scores))]])[0])
