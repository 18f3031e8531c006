"""Sums with congruences, evaluated class by class, have the values and bounds of the whole."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.transposed import ROWS, definition
from tests.support.schedules.regrouping import expression, inputs_of
from tests.support.schedules.transposed import random_convolution, spelled
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.reference import residues
from tilewright.schedules.reference.active import active_share
from tilewright.schedules.reference.cost import predicted_secs
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.reads import full_box
from tilewright.schedules.reference.residues import class_count, residue_classes
from tilewright.schedules.reference.sample import Grid, demanded, places_of
from tilewright.schedules.workload.workload import Workload


def grids(workload: Workload, rng: random.Random) -> Grid:
    """A sample of some dimensions of the output."""
    return tuple(
        None
        if rng.random() < 0.4
        else places_of(rng.sample(range(extent), rng.randint(1, extent)), extent)
        for extent in workload.output_tensors[0].shape
    )


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("sampled", [False, True])
def test_classes_change_neither_values_nor_bounds(
    seed: int, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    try:
        workload = rng.choice([*spelled(random_convolution(rng)).values()]).normalised()
    except WorkloadError:  # a read that is always padding
        return
    sample = demanded(workload, {workload.outputs[0]: grids(workload, rng)}) if sampled else None
    inputs = inputs_of(workload, seed)
    if rng.random() < 0.3:
        inputs[rng.randrange(2)].flat[0] = rng.choice((np.nan, np.inf))
    monkeypatch.setattr(residues, "FEWEST_POINTS", 0)
    values, bounded = (
        evaluate(workload, inputs, sample),
        evaluate_with_bound(workload, inputs, sample=sample),
    )
    monkeypatch.setattr(residues, "MOST_CLASSES", 0)
    whole, whole_bounded = (
        evaluate(workload, inputs, sample),
        evaluate_with_bound(workload, inputs, sample=sample),
    )
    np.testing.assert_allclose(values[0], whole[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(bounded[0][0], whole_bounded[0][0], rtol=1e-12, atol=1e-12)
    # A sum of many zeros is bounded by its terms that are not zero, a short one by all its terms.
    bound, whole_bound = bounded[0][1], whole_bounded[0][1]
    np.testing.assert_array_equal(np.isfinite(bound), np.isfinite(whole_bound))
    some = np.isfinite(bound)
    assert np.all(bound[some] <= 8 * whole_bound[some])
    assert np.all(bound[some] >= whole_bound[some] / 50)


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("Y[y] += where((y-r)%2==0, X[(y-r)//2], 0) * W[r]", 2),
        ("Y[y] += where((y-2*r)%4==0, X[(y-2*r)//4], 0) * W[r]", 2),
        ("Y[y] += where((y-3*r)%3==0, X[(y-3*r)//3], 0) * W[r]", 0),
        ("Y[y] += where((2*y-r)%6==0, X[(2*y-r)//6], 0) * W[r]", 3),
        ("Y[y] += where(y-r>=0, X[y-r], 0) * W[r]", 0),
        ("Y[y] max= where((y-r)%2==0, X[(y-r)//2], 0)", 0),
    ],
)
def test_classes_are_the_remainders_that_have_terms(
    text: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residues, "FEWEST_POINTS", 0)
    ranges = {} if "W" in text else {"r": 7}
    workload = expression(
        text, "X=f32[12] W=f32[7]" if "W" in text else "X=f32[12]", y=12, **ranges
    )
    (stage,) = workload.stages
    found = class_count(stage, (None,))
    assert (found[0] if found else 0) == classes
    made = residue_classes(stage, (None,), lambda: True)
    parts = [] if made is None else list(made)
    assert len(parts) == classes
    assert residue_classes(stage, (None,), lambda: False) is None
    positions = [int(y) for part in parts for y in part.where[0]]
    assert len(positions) == len(set(positions))


def test_an_inverse_stft_by_definition_is_evaluated_without_inserted_zeros() -> None:
    """By counts: each class has a fraction 1/stride**2 of the points, and one in stride counts."""
    workload = definition(ROWS["inverse STFT"]).normalised()
    (stage,) = workload.stages
    found = class_count(stage, (None,) * 3)
    assert found is not None
    classes, first = found
    whole, part = full_box(stage.all_axes).points, full_box(first.stage.all_axes).points
    assert classes == 256
    assert classes * part <= 1.01 * whole / 256
    assert active_share(stage, full_box(stage.all_axes)) < 0.01
    assert predicted_secs(workload, bounded=False) < 2
