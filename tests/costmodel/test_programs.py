"""Programs of several parts: each part's time counts, and search begins with the best of each."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tests.support.schedules.workloads import notation
from tilewright.costmodel.counts.counting import joined, program_counts
from tilewright.costmodel.counts.table import COUNTS, SHAPES, TOTALS
from tilewright.costmodel.features import FEATURES, Featuriser
from tilewright.costmodel.prior import Prior
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.search.prior_ranking import rank_by_prior

TWO_PRODUCTS = notation(
    "T[i,j] += A[i,k] * B[k,j]; U[i,j] += A[i,k] * D[k,j]; Y[i,j] = T[i,j] * U[i,j]",
    A="f32[128,256]",
    B="f32[256,384]",
    D="f32[256,384]",
)
SQUARES = notation(
    "D[i,j] += (A[i,k] - B[j,k]) * (A[i,k] - B[j,k])", A="f32[220,64]", B="f32[260,64]"
)


def space_of(workload: Workload) -> ScheduleSpace:
    return space_for(workload, target(2, 512, 32))


def program_of(space: ScheduleSpace) -> ProgramSketch:
    (program,) = space.sketches
    assert isinstance(program, ProgramSketch)
    return program


def test_every_part_has_threads_of_its_own() -> None:
    """Of two products of one size, either one that is left to one thread costs as much."""
    space = space_of(TWO_PRODUCTS)
    program, prior = program_of(space), Prior(space)
    names = [knob.name for knob in program.knobs]
    even = np.asarray([program.default()])
    for part in range(2):
        at = names.index(f"{part}.column_blocks"), names.index(f"{part}.row_blocks")
        even[0, at[0]] = program.knobs[at[0]].values.index(2)
        even[0, at[1]] = 0
        even[0, names.index(f"{part}.parallel")] = 1
    secs = float(prior.analyse(0, even).secs[0])
    for part in range(2):
        alone = even.copy()
        alone[0, names.index(f"{part}.column_blocks")] = 0
        assert float(prior.analyse(0, alone).secs[0]) > 1.3 * secs


def test_counts_of_parts_add_up_or_are_those_of_the_largest() -> None:
    one, two = ({name: np.asarray([n]) for name in COUNTS} for n in (3.0, 5.0))
    found = joined([one, two])
    assert {name for name, count in found.items() if count[0] == 8.0} == TOTALS.keys()
    assert {name for name, count in found.items() if count[0] == 5.0} == SHAPES.keys()


def test_times_of_parts_add_up() -> None:
    space = space_of(TWO_PRODUCTS)
    program, prior = program_of(space), Prior(space)
    setting = np.asarray([program.default()])
    whole = prior.analyse(0, setting)
    each = [
        Prior(ScheduleSpace(space.workload, space.target, (program.single_part(n),))).analyse(
            0, own
        )
        for n, own in enumerate(program.split_settings(setting))
    ]
    assert float(whole.secs[0]) == pytest.approx(sum(float(a.secs[0]) for a in each))
    assert whole.components.sum() == pytest.approx(sum(float(a.components.sum()) for a in each))


def test_a_program_begins_with_the_best_of_each_part() -> None:
    space = space_of(TWO_PRODUCTS)
    program, prior = program_of(space), Prior(space)
    look = rank_by_prior(space, prior)
    best = 2.0 ** float(look.log2_secs[0][0])
    alone = 0.0
    for n in range(len(program.parts)):
        own = ScheduleSpace(space.workload, space.target, (program.single_part(n),))
        alone += 2.0 ** float(rank_by_prior(own, Prior(own)).log2_secs[0][0])
    assert best <= 1.02 * alone


def test_values_between_operand_and_sum_need_registers_in_every_step() -> None:
    """A difference is used twice and computed once; steps written out compute theirs ahead."""
    space = space_of(SQUARES)
    program = program_of(space)
    (tile,) = program.parts
    assert isinstance(tile, TileSketch)
    assert tile.view.operations == 3
    names = [knob.name for knob in program.knobs]

    def live(unroll: int) -> float:
        setting = list(program.default())
        for name, value in {"tile_vectors": 2, "tile_rows": 11, "unroll_reduction": unroll}.items():
            at = names.index(name)
            setting[at] = program.knobs[at].values.index(value)
        return float(program_counts(program, np.asarray([setting]))["live_registers"][0])

    assert live(1) <= space.target.vector_registers < live(2)


def test_every_choice_of_every_part_is_a_feature() -> None:
    space = space_of(TWO_PRODUCTS)
    (program,) = space.sketches
    default = list(program.default())
    rows = [default]
    for k, knob in enumerate(program.knobs):
        if len(knob.values) > 1:
            other = default.copy()
            other[k] = (default[k] + 1) % len(knob.values)
            rows.append(other)
    features = Featuriser(space)
    table = features(0, np.asarray(rows)).features
    assert table is not None
    knobs = table[:, len(FEATURES) + 1 :]
    assert len(np.unique(knobs, axis=0)) == len(rows)
