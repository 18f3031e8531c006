"""Analyses of parts with few settings come from tables, and are the same as without."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.schedules.spaces import drawn, target
from tests.support.schedules.stencils import stencil_program
from tests.support.schedules.workloads import matmul
from tilewright.costmodel.analysis import Analysis
from tilewright.costmodel.part_tables import CALLS_BEFORE, PartTables
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import SpacePart


def check_alike(one: Analysis, other: Analysis) -> None:
    assert np.array_equal(one.secs, other.secs)
    assert np.array_equal(one.components, other.components)
    assert np.array_equal(one.imbalance, other.imbalance)
    for name, column in one.columns.items():
        assert np.array_equal(column, other.columns[name]), name


@pytest.mark.parametrize("seed", range(12))
def test_tables_change_no_analysis(seed: int) -> None:
    space = space_for(stencil_program(random.Random(seed)), target(2, 512, 32))
    kept = Prior(space)
    for number, sketch in enumerate(space.sketches):
        some = drawn(sketch, 40)
        some = some[sketch.feasible(some)]
        for rows in (some[:7], some[7:9], some[:0], some[3:], some):
            if len(rows):
                check_alike(kept.analyse(number, rows), Prior(space).analyse(number, rows))


def asked_of(part: SpacePart, calls: int) -> list[int]:
    """The numbers of settings that are analysed if the default is asked for so many times."""
    space, asked = space_for(matmul(64, 64, 64), target()), list[int]()
    prior, tables = Prior(space), PartTables()

    def analyse(part: SpacePart, settings: IntArray) -> Analysis:
        asked.append(len(settings))
        return prior._one(part, settings)

    for _ in range(calls):
        tables.find(part, np.asarray([part.default()]), analyse)
    return asked


def test_all_settings_are_analysed_at_once_after_a_few_calls() -> None:
    space = space_for(stencil_program(random.Random(3)), target())
    (part, *_) = space.sketches[0].parts
    assert asked_of(part, CALLS_BEFORE) == [1] * CALLS_BEFORE
    *single, every = asked_of(part, CALLS_BEFORE + 5)
    assert single == [1] * CALLS_BEFORE
    assert every > 1


def test_parts_with_many_settings_have_no_table() -> None:
    (part,) = space_for(matmul(64, 64, 64), target()).sketches[0].parts
    assert asked_of(part, 2 * CALLS_BEFORE) == [1] * 2 * CALLS_BEFORE
