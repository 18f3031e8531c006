"""The model of the database learns an error that workloads share, and nothing from noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.contracts.cost_model_contract import SPACE, drawn
from tilewright.costmodel.base import Sample
from tilewright.costmodel.blend import BlendedModel
from tilewright.costmodel.correction import FEATURE_VERSION, FEATURES, Correction, columns_of
from tilewright.costmodel.forest import ModelError
from tilewright.costmodel.prior import Prior
from tilewright.costmodel.training import (
    UNTESTED_SHARE,
    TooFewSamplesError,
    TrialGroup,
    cost_of_choice,
    folds,
    train,
)
from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.space import Candidate

SEVERAL = (3, 9, 17)
"""Features of an error that few trials of the target are not enough to learn."""


def groups(
    seed: int, planted: float, count: int = 12, trials: int = 60, features: tuple[int, ...] = (9,)
) -> list[TrialGroup]:
    """Groups whose prior errs by up to `planted` log2 units, as many of `features` as are high,
    and by noise."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        columns = rng.normal(size=(len(FEATURES), trials)).astype(np.float32)
        log2_prior = rng.normal(scale=0.5, size=trials) - 10.0
        is_high = columns[list(features)] > 0
        error = planted * is_high.mean(axis=0) + rng.normal(scale=0.1, size=trials)
        level = rng.normal(scale=3.0)  # a workload may be slower throughout
        found.append(TrialGroup(f"s{number % 6}", columns, log2_prior, log2_prior + error + level))
    return found


def groups_of_candidates(planted: float) -> list[TrialGroup]:
    """Groups of candidates of SPACE, whose prior errs by `planted` log2 units where the feature
    that varies most is above its median."""
    found = []
    for number in range(12):
        analysis = Prior(SPACE).analyse(0, drawn(60, seed=100 + number))
        columns, log2_prior = columns_of(analysis), np.log2(analysis.secs)
        varies = columns[int(np.argmax(columns.std(axis=1)))]
        error = planted * (varies > np.median(varies))
        found.append(TrialGroup(f"s{number % 6}", columns, log2_prior, log2_prior + error))
    return found


def shuffled(group: TrialGroup, seed: int) -> TrialGroup:
    order = np.random.default_rng(seed).permutation(len(group.log2_secs))
    errors = (group.log2_secs - group.log2_prior)[order]
    return TrialGroup(group.family, group.columns, group.log2_prior, group.log2_prior + errors)


def chosen_cost(correction: Correction | None, held: list[TrialGroup]) -> float:
    costs = []
    for group in held:
        predicted = group.log2_prior
        if correction is not None:
            found = correction.forest.predict(group.columns)
            predicted = predicted + correction.share * found
        costs.append(cost_of_choice(predicted, group.log2_secs))
    return float(np.mean(costs))


def test_training_recovers_an_error_that_workloads_share() -> None:
    correction, quality = train(groups(0, planted=1.0))
    assert quality.share >= 0.75
    assert quality.model_error < 0.6 * quality.prior_error
    assert (quality.groups, quality.samples, quality.families) == (12, 720, 6)
    held = groups(1, planted=1.0)
    assert chosen_cost(correction, held) < 0.6 * chosen_cost(None, held)


def test_shuffled_errors_teach_nothing() -> None:
    shares = []
    for seed in range(4):
        pairs = [shuffled(group, seed) for group in groups(seed, planted=1.0)]
        correction, quality = train(pairs)
        shares.append(quality.share)
        held = groups(50 + seed, planted=1.0)
        assert chosen_cost(correction, held) < 1.25 * chosen_cost(None, held)
    assert np.mean(shares) <= 0.2


def test_a_machine_that_reports_half_the_time_changes_nothing() -> None:
    whole = groups(0, planted=1.0)
    halved = [
        TrialGroup(g.family, g.columns, g.log2_prior, g.log2_secs - (number % 2))
        for number, g in enumerate(whole)
    ]
    one, two = train(whole)[0], train(halved)[0]
    held = groups(1, planted=1.0)[0]
    assert np.allclose(one.forest.predict(held.columns), two.forest.predict(held.columns))


@pytest.mark.parametrize("planted", [0.0, 1.0])
def test_half_of_the_trials_being_noise_costs_under_5_percent(planted: float) -> None:
    rng = np.random.default_rng(5)
    noise = [
        replace(g, log2_secs=g.log2_secs + (np.arange(60) % 2) * rng.normal(size=60))
        for g in groups(0, planted)
    ]
    correction, _ = train(noise)
    held = groups(1, planted)
    assert chosen_cost(correction, held) < chosen_cost(None, held) + np.log2(1.05)


def test_groups_weigh_alike_and_fast_candidates_more() -> None:
    few, many = groups(0, 0.0, trials=10)[0], groups(0, 0.0, trials=90)[0]
    assert few.weights.sum() == pytest.approx(many.weights.sum()) == pytest.approx(1.0)
    assert few.weights.argmax() == few.log2_secs.argmin()


def elsewhere(
    planted: float,
    origin: str,
    weight: float = 0.25,
    seed: int = 7,
    features: tuple[int, ...] = (9,),
) -> list[TrialGroup]:
    found = groups(seed, planted, features=features)
    return [replace(group, origin=origin, weight=weight) for group in found]


@pytest.mark.parametrize("seed", range(4))
def test_other_machines_get_the_weight_that_helps_here(seed: int) -> None:
    own = groups(seed, planted=1.0, count=4, trials=12, features=SEVERAL)
    like = elsewhere(1.0, "like", seed=100 + seed, features=SEVERAL)
    unlike = elsewhere(-1.0, "unlike", seed=200 + seed, features=SEVERAL)
    _, alone = train(own)
    correction, quality = train([*own, *like, *unlike])
    assert quality.weights["like"] > 0.0
    assert quality.weights["unlike"] == 0.0
    assert quality.is_tested
    assert quality.correlation > alone.correlation
    held = groups(300 + seed, planted=1.0, features=SEVERAL)
    assert chosen_cost(correction, held) < chosen_cost(None, held)


def test_a_machine_of_noise_gets_no_weight() -> None:
    own = groups(0, planted=1.0)
    noise = [shuffled(group, 3) for group in groups(9, planted=1.0)]
    _, quality = train([*own, *(replace(g, origin="broken") for g in noise)])
    assert quality.weights == {"broken": 0.0}
    assert quality == replace(train(own)[1], weights={"broken": 0.0})


def test_without_own_trials_others_teach_with_half_the_share() -> None:
    lent = elsewhere(1.0, "like")
    _, quality = train([*groups(0, 1.0, count=1), *lent])
    assert not quality.is_tested
    assert 0.0 < quality.share <= UNTESTED_SHARE
    with pytest.raises(TooFewSamplesError):
        train(elsewhere(1.0, "other vectors", weight=0.0))


def test_a_family_is_in_one_fold() -> None:
    names = [f"s{n % 7}" for n in range(40)]
    fold = folds(names)
    assert len(set(fold)) == 5
    assert all(
        len({f for f, n in zip(fold, names, strict=True) if n == name}) == 1 for name in names
    )
    assert len(set(folds(["s"] * 8))) == 5


@pytest.mark.parametrize(("count", "trials"), [(0, 60), (2, 60), (12, 3), (12, 1)])
def test_too_few_samples_are_said(count: int, trials: int) -> None:
    with pytest.raises(TooFewSamplesError, match=r"too few to learn from: 48 of 3 are needed"):
        train(groups(0, 1.0, count, trials))


def test_a_model_keeps_its_name_and_its_predictions() -> None:
    correction, _ = train(groups(0, planted=1.0))
    again = Correction.from_document(correction.to_document())
    assert again.key == correction.key
    assert again.share == correction.share


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": FEATURE_VERSION + 1}, "this program uses version"),
        ({"share": 2.0}, "damaged: its share"),
        ({"share": "x"}, "damaged: its share"),
        ({"forest": None}, "damaged"),
    ],
)
def test_a_stale_or_damaged_model_is_refused(changes: dict[str, object], message: str) -> None:
    document = train(groups(0, planted=1.0))[0].to_document()
    with pytest.raises(ModelError, match=message):
        Correction.from_document({**document, **changes})
    with pytest.raises(ModelError, match="not an object"):
        Correction.from_document([])
    forest = {**document["forest"], "features": ["other", *FEATURES[1:]]}
    with pytest.raises(ModelError, match="other features"):
        Correction.from_document({**document, "forest": forest})


def test_the_search_starts_from_the_corrected_prior() -> None:
    correction = Correction(train(groups(0, planted=1.0))[0].forest, 0.5)
    rows = drawn(200, seed=1)
    plain, corrected = Prior(SPACE), Prior(SPACE, correction=correction)
    analysis = plain.analyse(0, rows)
    added = 0.5 * np.clip(correction.forest.predict(columns_of(analysis)), -2.0, 2.0)
    assert np.ptp(added) > 0.0
    np.testing.assert_allclose(
        corrected.log2_secs(0, rows), plain.log2_secs(0, rows) + added, rtol=1e-9
    )
    before = BlendedModel(SPACE, correction)
    before.fit([])
    np.testing.assert_allclose(
        before.predict(0, rows).log2_secs, corrected.log2_secs(0, rows), rtol=1e-9
    )


def test_the_samples_of_a_run_overrule_a_wrong_model() -> None:
    """The Gaussian process starts from the corrected prior; its samples show where that errs."""
    rows = drawn(80, seed=2)
    wrong = Correction(train(groups_of_candidates(planted=2.0))[0].forest, 1.0)
    plain = Prior(SPACE)
    truth: FloatArray = plain.log2_secs(0, rows)
    samples = [
        Sample(Candidate(0, tuple(row.tolist())), float(2.0**secs))
        for row, secs in zip(rows[:40], truth[:40], strict=True)
    ]
    model = BlendedModel(SPACE, wrong)
    before = np.abs(_centred(model.predict(0, rows[40:]).log2_secs - truth[40:])).mean()
    model.fit(samples)
    after = np.abs(_centred(model.predict(0, rows[40:]).log2_secs - truth[40:])).mean()
    assert after < before


def _centred(values: FloatArray) -> FloatArray:
    return np.asarray(values - np.median(values))
