"""Steepest descent over pairs of knobs, which refines the best settings that annealing found.

Annealing rejects infeasible moves, and limits couple knobs: a tile of more rows needs fewer
unrolled taps. Such a step changes two knobs simultaneously. Annealing finds it by chance; an
enumeration of all pairs always finds it. There are some thousands of pairs, of which a few hundred
are feasible.
"""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray

from .annealing_walk import Score
from .setting_grid import SettingGrid

MAX_NEIGHBOURS = 8192
"""Number of settings scored per round; for programs with more pairs of knobs, a random sample."""

ROUNDS = 6


def descend(
    grid: SettingGrid, score: Score, start: IntArray, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Descend from the feasible setting `start` (J,) until no change of one or two knobs improves
    the score, at most `ROUNDS` steps.

    Return the codes and scores of all feasible settings that were scored; a higher score is better.
    """
    here, best = start, float(score(start[None])[0])
    codes, scores = [grid.encode(start[None])], [np.array([best])]
    for _ in range(ROUNDS):
        near = neighbours(grid, here, rng)
        near = near[grid.sketch.feasible(near)]
        if not len(near):
            break
        found = score(near)
        codes.append(grid.encode(near))
        scores.append(found)
        top = int(np.argmax(found))
        if found[top] <= best:
            break
        here, best = near[top], float(found[top])
    return np.concatenate(codes), np.concatenate(scores)


def neighbours(grid: SettingGrid, setting: IntArray, rng: np.random.Generator) -> IntArray:
    """Return the settings that differ from `setting` (J,) in one or two knobs, at most
    `MAX_NEIGHBOURS` of them, shape (N, J)."""
    knob = np.repeat(np.arange(len(grid.sizes)), grid.sizes)
    value = np.concatenate([np.arange(size) for size in grid.sizes])
    changes = np.flatnonzero(value != setting[knob])
    first, second = (changes[i] for i in np.triu_indices(len(changes)))
    apart = (knob[first] != knob[second]) | (first == second)
    first, second = first[apart], second[apart]
    if len(first) > MAX_NEIGHBOURS:
        drawn = rng.choice(len(first), MAX_NEIGHBOURS, replace=False)
        first, second = first[drawn], second[drawn]
    near = np.repeat(setting[None], len(first), axis=0)
    rows = np.arange(len(first))
    near[rows, knob[first]] = value[first]
    near[rows, knob[second]] = value[second]
    return near
