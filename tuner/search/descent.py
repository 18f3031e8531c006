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
    grid: SettingGrid, score: Score, starts: IntArray, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Descend from each of the feasible settings `starts` (D, J) until no change of one or two
    knobs improves its score, at most `ROUNDS` steps.

    Return the codes and scores of all feasible settings that were scored; a higher score is better.
    The descents are independent, but their neighbours are scored together: a calculation of the
    model takes about as long for a thousand settings as for one.
    """
    here, best = starts.copy(), score(starts)
    codes, scores = [grid.encode(here)], [best.copy()]
    descending = list(range(len(here)))
    for _ in range(ROUNDS):
        each = [neighbours(grid, here[number], rng) for number in descending]
        near, owner = np.concatenate(each), np.repeat(descending, [len(rows) for rows in each])
        feasible = grid.sketch.feasible(near)
        near, owner = near[feasible], owner[feasible]
        if not len(near):
            break
        found = score(near)
        codes.append(grid.encode(near))
        scores.append(found)
        tops = {n: _top(found, np.flatnonzero(owner == n)) for n in descending}
        descending = [n for n, top in tops.items() if top >= 0 and found[top] > best[n]]
        if not descending:
            break
        for n in descending:
            here[n], best[n] = near[tops[n]], found[tops[n]]
    return np.concatenate(codes), np.concatenate(scores)


def _top(scores: FloatArray, places: IntArray) -> int:
    """Return the first of `places` with the highest of these `scores`, or -1 if there is none."""
    return int(places[np.argmax(scores[places])]) if len(places) else -1


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
