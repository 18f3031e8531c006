"""The model of the database on recorded timings of real machines, without any search.

The timings are those of `benchmarks.prior`. Training leaves each structure of workloads out once
and states the cost of the choice that the prior makes there, and of the choice of the prior
corrected by the model: the expected time of the setting predicted to be fastest over the fastest
recorded time; 1 is optimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from benchmarks.prior.dataset import FILES, read
from benchmarks.prior.judging import known
from tilewright.costmodel.correction import FEATURES, columns_of
from tilewright.costmodel.prior import Prior
from tilewright.costmodel.training import TrialGroup, train
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.schedules.workload.structure import structure_of

MACHINE = "xeon"
EVERY = 2
"""One of so many recorded workloads is judged: identifying the settings takes the time."""

CORRELATION = "recorded timings, 1 - correlation"


def groups(every: int = EVERY) -> list[TrialGroup]:
    """Return the recorded timings as input of training, one group per workload."""
    chosen = islice(read(FILES[MACHINE]), 0, None, every)
    return [group_of(one.space, one.found) for one in known(chosen)]


def group_of(space: ScheduleSpace, found: Sequence[tuple[Candidate, float]]) -> TrialGroup:
    """Return the settings and their seconds as input of training."""
    prior = Prior(space)
    columns = np.empty((len(FEATURES), len(found)), np.float32)
    log2_prior = np.empty(len(found))
    sketches = np.array([candidate.sketch for candidate, _ in found])
    for sketch in np.unique(sketches):
        rows = np.flatnonzero(sketches == sketch)
        settings = np.array([found[int(row)][0].setting for row in rows], np.int64)
        analysis = prior.analyse(int(sketch), settings)
        columns[:, rows] = columns_of(analysis)
        log2_prior[rows] = np.log2(analysis.secs)
    secs = np.log2([secs for _, secs in found])
    return TrialGroup(structure_of(space.workload).key, columns, log2_prior, secs)


def shuffled(group: TrialGroup, seed: int) -> TrialGroup:
    """Return the same settings, with the errors of the prior permuted among them."""
    errors = (group.log2_secs - group.log2_prior)[
        np.random.default_rng(seed).permutation(len(group.log2_secs))
    ]
    return replace(group, log2_secs=group.log2_prior + errors)


def figures(found: Sequence[TrialGroup]) -> dict[str, float]:
    """Return the cost of the prior's choice, that of the corrected prior, and how little the
    predictions of the model correlate with the errors of the prior, which says more than a few
    choices."""
    _, quality = train(found)
    return {
        "recorded timings, prior": 2.0**quality.prior_cost,
        "recorded timings, corrected prior": 2.0**quality.model_cost,
        CORRELATION: 1.0 - quality.correlation,
    }
