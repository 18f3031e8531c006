"""What every `CostModel` promises; a test class per model subclasses this one."""

from __future__ import annotations

import numpy as np

from tests.support.synthetic_machine import bent_log2_secs
from tests.support.synthetic_sketch import synthetic_space
from tilewright.costmodel.base import CostModel, Sample
from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace
from tilewright.tuner.search.setting_grid import setting_grids

SPACE = synthetic_space(128, 128, 128, small=True)


def drawn(count: int, seed: int = 0, sketch: int = 0) -> IntArray:
    """Feasible settings of the test space."""
    return setting_grids(SPACE)[sketch].sample(np.random.default_rng(seed), count)


def samples(count: int, seed: int = 0) -> list[Sample]:
    """Measured candidates of both sketches of the test space."""
    result = []
    for sketch in (0, 1):
        settings = drawn(count // 2, seed, sketch)
        secs = 2.0 ** bent_log2_secs(SPACE, sketch, settings)
        rows = zip(settings.tolist(), secs.tolist(), strict=True)
        result += [Sample(Candidate(sketch, tuple(row)), value) for row, value in rows]
    return result


class CostModelContract:
    """Implement `make`."""

    def make(self, space: ScheduleSpace) -> CostModel:
        raise NotImplementedError

    def test_predicts_with_nothing_learned(self) -> None:
        model = self.make(SPACE)
        prediction = model.predict(0, drawn(50))
        assert prediction.log2_secs.shape == prediction.sigma.shape == (50,)
        assert np.isfinite(prediction.log2_secs).all()
        assert (prediction.sigma >= 0).all()

    def test_takes_any_number_of_samples(self) -> None:
        model = self.make(SPACE)
        for count in (0, 2, 6, 40):
            model.fit(samples(40)[:count])
            for sketch in (0, 1):
                assert np.isfinite(model.predict(sketch, drawn(20, 1, sketch)).log2_secs).all()

    def test_takes_failures(self) -> None:
        model = self.make(SPACE)
        model.fit([Sample(s.candidate, None) for s in samples(4)])
        mixed = [Sample(s.candidate, None if i % 3 else s.run_secs)
                 for i, s in enumerate(samples(60))]  # fmt: skip
        model.fit(mixed)
        assert np.isfinite(model.predict(0, drawn(20)).log2_secs).all()

    def test_same_samples_give_the_same_predictions(self) -> None:
        one, two = self.make(SPACE), self.make(SPACE)
        one.fit(samples(10, seed=3))
        for model in (one, two):
            model.fit(samples(40))
        assert np.array_equal(one.predict(1, drawn(90)).log2_secs,
                              two.predict(1, drawn(90)).log2_secs)  # fmt: skip

    def test_a_prediction_does_not_depend_on_its_batch(self) -> None:
        model = self.make(SPACE)
        model.fit(samples(40))
        rows = drawn(30)
        alone = [model.predict(0, rows[i : i + 1]).log2_secs[0] for i in range(30)]
        assert np.allclose(model.predict(0, rows).log2_secs, alone, rtol=1e-12, atol=1e-6)

    def test_described_once_is_predicted_the_same(self) -> None:
        model = self.make(SPACE)
        described = model.describe(0, drawn(30))
        model.fit(samples(40))
        now = model.predict(0, drawn(30))
        assert np.array_equal(model.predict_from(described).log2_secs, now.log2_secs)
