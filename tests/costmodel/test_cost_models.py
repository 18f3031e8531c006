"""The models: each keeps the contract, and the learned one earns its keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from costmodel import model as learned
from costmodel.base import CostModel, Sample
from costmodel.baselines import PriorModel, RandomModel
from costmodel.blend import BlendedModel
from costmodel.gaussian import GaussianModel
from costmodel.metrics import spearman
from costmodel.model import ResidualModel
from schedules.space import ScheduleSpace
from tests.contracts.cost_model_contract import SPACE, CostModelContract, drawn, samples
from tests.synthetic_machine import bent_log2_secs

ROOT = Path(__file__).resolve().parents[2]


class TestResidualModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return ResidualModel(space)


class TestGaussianModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return GaussianModel(space)


class TestBlendedModel(CostModelContract):
    def make(self, space: ScheduleSpace) -> CostModel:
        return BlendedModel(space)


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
    model.fit(samples(64))
    assert abs(ranking(RandomModel(SPACE))) < 0.2
    assert before > 0.4
    assert ranking(model) > before + 0.05


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
from costmodel.model import ResidualModel
from tests.contracts.cost_model_contract import SPACE, drawn, samples
model = ResidualModel(SPACE)
model.fit(samples(40))
print(json.dumps(model.predict(0, drawn(20)).log2_secs.tolist()))
"""

LIGHT = """
import sys
import costmodel, costmodel.model, costmodel.prior, costmodel.features, tuner, tuner.session
import tuner.search.strategies, tuner.measure.choose, tuner.pytest_plugin
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
