"""The models: each keeps the contract, and the learned one earns its keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.baselines import PriorModel
from tests.contracts.cost_model_contract import SPACE, CostModelContract, drawn, samples
from tests.support.paths import ROOT
from tests.support.synthetic_machine import bent_log2_secs
from tilewright.costmodel import model as learned
from tilewright.costmodel.base import BorrowedSample, CostModel, Prediction, Sample, SettingFeatures
from tilewright.costmodel.blend import BlendedModel
from tilewright.costmodel.gaussian import MOST_SAMPLES, GaussianModel, times_on_one_core
from tilewright.costmodel.metrics import spearman
from tilewright.costmodel.model import ResidualModel
from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace


class TestResidualModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return ResidualModel(space)


class TestGaussianModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return GaussianModel(space)


class TestBlendedModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return BlendedModel(space)


class RandomModel(CostModel):
    """A fixed random opinion about each candidate: the floor of every ranking measure."""

    def __init__(self, space: ScheduleSpace, seed: int = 0) -> None:
        knobs = max(len(s.knobs) for s in space.sketches)
        self._weights = np.random.default_rng(seed).standard_normal((len(space.sketches), knobs))

    def fit(self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()) -> None:
        """Learns nothing, on purpose."""

    def describe(self, sketch: int, settings: IntArray) -> SettingFeatures:
        mixed = (settings + 1) @ self._weights[sketch, : settings.shape[1]]
        return SettingFeatures(sketch, settings, None, np.sin(mixed * 12.9898) - 10.0)

    def predict_from(self, description: SettingFeatures) -> Prediction:
        return Prediction.from_prior(description.log2_prior)


class TestPriorModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return PriorModel(space)


class TestRandomModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return RandomModel(space)


def ranking(model: CostModel) -> float:
    """Spearman's correlation on candidates the model has not seen."""
    settings = drawn(400, seed=9)
    truth = bent_log2_secs(SPACE, 0, settings)
    return spearman(model.predict(0, settings).log2_secs, truth) or 0.0


def test_learning_improves_on_the_prior_and_the_prior_on_nothing() -> None:
    model = ResidualModel(SPACE)
    before = ranking(model)
    model.fit(samples(96))
    assert abs(ranking(RandomModel(SPACE))) < 0.2
    assert before > 0.4
    assert ranking(model) > before + 0.02


def test_with_few_samples_only_the_level_is_corrected() -> None:
    model = ResidualModel(SPACE)
    before = model.predict(0, drawn(20)).log2_secs
    few = samples(6)
    model.fit(few)
    shift = model.predict(0, drawn(20)).log2_secs - before
    assert np.ptp(shift) < 1e-9
    assert shift[0] != 0


def test_a_failure_is_learned_as_slower_than_everything() -> None:
    known = samples(40)
    worst = max(s.run_secs or 0.0 for s in known)
    failing = {s.candidate for s in known[::4]}
    model = ResidualModel(SPACE)
    model.fit([Sample(s.candidate, None if s.candidate in failing else 1e-5) for s in known])
    predicted = {
        s.candidate: model.predict(s.candidate.sketch, np.array([s.candidate.setting])).log2_secs[0]
        for s in known
    }
    failed = np.mean([v for c, v in predicted.items() if c in failing])
    ran = np.mean([v for c, v in predicted.items() if c not in failing])
    assert failed > ran
    assert worst > 0


def test_doubt_is_smaller_where_it_was_measured() -> None:
    model = ResidualModel(SPACE)
    seen = samples(80)
    model.fit(seen)
    rows = np.array([s.candidate.setting for s in seen if s.candidate.sketch == 0])
    assert model.predict(0, rows).sigma.mean() < model.predict(0, drawn(400, 5)).sigma.mean()


def test_few_samples_teach_the_process_more_than_the_trees() -> None:
    """24 samples of a landscape that has nothing of the prior."""

    def odd_log2_secs(settings: IntArray) -> FloatArray:
        x = settings.astype(np.float64)
        secs: FloatArray = np.abs(x[:, 0] - 4) + 0.7 * np.abs(x[:, 2] - 1) + 0.5 * (x[:, 4] == 0)
        return secs

    seen, unseen = drawn(24, seed=3), drawn(400, seed=9)
    rows = zip(seen.tolist(), odd_log2_secs(seen).tolist(), strict=True)
    known = [Sample(Candidate(0, tuple(row)), 2.0**z) for row, z in rows]
    found = {}
    for model in (GaussianModel(SPACE), ResidualModel(SPACE)):
        model.fit(known)
        predicted = model.predict(0, unseen).log2_secs
        found[type(model)] = spearman(predicted, odd_log2_secs(unseen)) or 0.0
    assert found[GaussianModel] > 0.8
    assert found[GaussianModel] > found[ResidualModel] + 0.05


def test_left_out_samples_are_missed_by_more_than_shown_ones() -> None:
    model = GaussianModel(SPACE)
    known = samples(40)
    model.fit(known)
    assert model.left_out is not None
    assert model.left_out.shape == (40,)
    assert 0.05 < np.abs(model.left_out).mean() < 2.0


def test_the_process_learns_from_a_bounded_number_of_samples() -> None:
    model = GaussianModel(SPACE)
    many = samples(400)
    model.fit(many)
    assert model.left_out is not None
    assert len(model.left_out) == MOST_SAMPLES


def test_products_in_pieces_are_products(rng: np.random.Generator) -> None:
    one, two = rng.random((1003, 70)), rng.random((70, 90))
    assert np.allclose(times_on_one_core(one, two), one @ two)
    assert times_on_one_core(one[:0], two).shape == (0, 90)
    assert not times_on_one_core(one[:, :0], two[:0]).any()


def test_candidates_that_look_alike_to_the_prior_are_no_trouble() -> None:
    model = GaussianModel(SPACE)
    (candidate, *_) = samples(2)
    model.fit([candidate] * 6)
    assert np.isfinite(model.predict(0, drawn(20)).log2_secs).all()


def test_without_xgboost_the_prior_remains_and_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    model = ResidualModel(SPACE)
    before = model.predict(0, drawn(20)).log2_secs
    model.fit(samples(40))
    assert model.note == learned.MISSING_XGBOOST
    assert np.ptp(model.predict(0, drawn(20)).log2_secs - before) < 1e-9


ELSEWHERE = """
import json
from tilewright.costmodel.model import ResidualModel
from tests.contracts.cost_model_contract import SPACE, drawn, samples
model = ResidualModel(SPACE)
model.fit(samples(40))
print(json.dumps(model.predict(0, drawn(20)).log2_secs.tolist()))
"""

LIGHT = """
import sys
import tilewright.costmodel.model, tilewright.costmodel.prior, tilewright.costmodel.features
import tilewright.tuner.session.run
import tilewright.tuner.search.strategies, tilewright.tuner.testing
import tilewright.tuner.measure.measurer_spec
print(sorted(m for m in ("xgboost", "llvmlite", "sqlalchemy") if m in sys.modules))
"""


def run_elsewhere(code: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": "99", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_another_process_predicts_the_same() -> None:
    model = ResidualModel(SPACE)
    model.fit(samples(40))
    assert json.loads(run_elsewhere(ELSEWHERE)) == model.predict(0, drawn(20)).log2_secs.tolist()


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    assert run_elsewhere(LIGHT).strip() == "[]"
