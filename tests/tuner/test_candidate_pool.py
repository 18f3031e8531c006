"""The pool of a search: every prediction is the model's newest, and rows keep their places."""

from __future__ import annotations

import numpy as np

from tests.support.synthetic_machine import result_of
from tests.support.synthetic_sketch import synthetic_space
from tilewright.costmodel.base import Sample
from tilewright.costmodel.blend import BlendedModel
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import Candidate
from tilewright.tuner.search.candidate_pool import CandidatePool
from tilewright.tuner.search.setting_grid import setting_grids

SPACE = synthetic_space(128, 128, 128, small=True)
GRID = setting_grids(SPACE)[0]


def fitted(model: BlendedModel, rows: IntArray) -> None:
    candidates = [Candidate(0, tuple(row)) for row in rows.tolist()]
    model.fit([Sample(c, result_of(SPACE, c).run_secs_estimate) for c in candidates])


def assert_current(pool: CandidatePool, model: BlendedModel) -> None:
    found, new = pool.predict(), model.predict(0, GRID.decode(pool.codes))
    np.testing.assert_allclose(found.log2_secs, new.log2_secs, rtol=1e-12)
    np.testing.assert_allclose(found.sigma, new.sigma, rtol=1e-9)


def test_predictions_are_those_of_the_model_after_every_change() -> None:
    rows = GRID.sample(np.random.default_rng(0), 120)
    model = BlendedModel(SPACE)
    pool = CandidatePool(GRID, model)
    assert len(pool.predict().log2_secs) == 0
    fitted(model, rows[:16])
    pool.add(rows[:50])
    assert_current(pool, model)
    asked = np.concatenate([rows[40:90], rows[40:45]])  # known, new and repeated settings
    scores = pool.score(asked, 0.5)
    new = model.predict(0, asked)
    np.testing.assert_allclose(scores, 0.5 * new.sigma - new.log2_secs, rtol=1e-9)
    assert len(pool) == 90
    fitted(model, rows[60:90])
    pool.refitted()
    assert_current(pool, model)
    pool.keep(np.arange(0, 90, 3))
    assert len(pool) == 30
    assert_current(pool, model)
    pool.add(rows)
    assert len(pool) == 120
    assert_current(pool, model)
