"""Whatever people write in PyTorch's layouts has a space, with a price for every sketch and a legal
default of each; and the permutations are right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.interpreter.interpret import interpret_for
from tests.support.schedules.public_chains import public_chains
from tests.support.schedules.spaces import drawn, target
from tilewright.costmodel.counts.counting import program_counts
from tilewright.costmodel.counts.table import COUNTS
from tilewright.costmodel.prior import Prior
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.nest.verify_nest import verify
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload

CHAINS = public_chains()


def chain(name: str) -> Workload:
    text, tensors, ranges = CHAINS[name]
    return from_notation(text, tensors, ranges)


@pytest.mark.parametrize("name", CHAINS)
def test_every_sketch_of_a_public_chain_is_priced_and_legal(name: str) -> None:
    space = space_for(chain(name), target())
    assert not space.dropped
    for number, sketch in enumerate(space.sketches):
        _, nest = sketch.lowered(sketch.default())
        verify(nest)
        assert not unproven_accesses(nest)
        settings = drawn(sketch, 20)
        settings = settings[sketch.feasible(settings)]
        settings = np.concatenate([settings, [sketch.default()]])
        assert program_counts(sketch, settings).keys() == COUNTS.keys()
        assert np.isfinite(Prior(space).log2_secs(number, settings)).all()


@pytest.mark.parametrize("name", [name for name in CHAINS if name.startswith("permuted")])
def test_a_permutation_with_arithmetic_is_right_by_every_sketch(name: str) -> None:
    workload = chain(name)
    order = ["abcd".index(axis) for axis in name.removeprefix("permuted ")]
    (tensor,) = workload.inputs
    given = np.arange(np.prod(tensor.shape), dtype=np.float32).reshape(tensor.shape)
    for sketch in space_for(workload, target(1, 128)).sketches:
        nest = sketch.lowered(sketch.default())[1]
        (found,) = interpret_for(workload, nest, [given])
        assert np.array_equal(found, np.transpose(given, np.argsort(order)) * 2)
