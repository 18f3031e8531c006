"""Trees without XGBoost predict what XGBoost predicts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.costmodel import forest as module
from tilewright.costmodel.forest import Columns, Forest, ModelError, Tree, forest_of
from tilewright.costmodel.training import forest_of_booster

NAMES = ("a", "b", "c", "d", "e", "f")


def data(rows: int, seed: int) -> Columns:
    """Columns with equal values and with values at thresholds."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(len(NAMES), rows)).astype(np.float32)
    columns[1] = np.round(columns[1])
    columns[2] = 1.0
    return columns


def boosted(columns: Columns, depth: int, rounds: int, seed: int = 0) -> Any:
    label = columns[0] * columns[1] + np.sin(3 * columns[3])
    matrix = xgboost.DMatrix(columns.T, label=label, nthread=1)
    parameters = {"max_depth": depth, "nthread": 1, "seed": seed, "subsample": 0.7}
    return xgboost.train(parameters, matrix, rounds)


@settings(max_examples=25, deadline=None)
@given(depth=st.integers(1, 7), rounds=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_forest_agrees_with_xgboost(depth: int, rounds: int, seed: int) -> None:
    booster = boosted(data(300, seed), depth, rounds, seed)
    forest = forest_of_booster(booster, NAMES)
    seen, new = data(300, seed), data(700, seed + 1)
    for columns in (seen, new, new[:, :1], new[:, :0]):
        expected = booster.inplace_predict(np.ascontiguousarray(columns.T))
        np.testing.assert_allclose(forest.predict(columns), expected, rtol=1e-5, atol=1e-5)


def test_rows_do_not_depend_on_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = forest_of_booster(boosted(data(300, 0), 4, 30), NAMES)
    columns = data(500, 1)
    whole = forest.predict(columns)
    monkeypatch.setattr(module, "ROWS_PER_CHUNK", 7)
    assert np.array_equal(forest.predict(columns), whole)
    assert np.array_equal(forest.predict(columns[:, 3:5]), whole[3:5])


def test_a_tree_of_one_leaf_is_a_constant() -> None:
    forest = forest_of(NAMES, 0.5, [Tree([-1], [-1], [0], [0.25])])
    assert forest.predict(data(3, 0)).tolist() == [0.75] * 3


def test_a_document_gives_the_same_forest() -> None:
    forest = forest_of_booster(boosted(data(300, 0), 5, 40), NAMES)
    text = json.dumps(forest.to_document())
    again = Forest.from_document(json.loads(text))
    columns = data(100, 1)
    assert np.array_equal(again.predict(columns), forest.predict(columns))
    assert again.to_document() == forest.to_document()


@pytest.mark.parametrize("name", ["base", "trees", "tested", "nodes", "leaves"])
@pytest.mark.parametrize("value", [None, "AAAA", [], 3, "=", float("nan")])
def test_a_damaged_document_is_refused(name: str, value: Any) -> None:
    document = forest_of_booster(boosted(data(300, 0), 3, 5), NAMES).to_document()
    assert Forest.from_document(document)
    if name == "base" and value == 3:
        return  # another constant is valid
    with pytest.raises(ModelError, match="the model is damaged"):
        Forest.from_document({**document, name: value})
    with pytest.raises(ModelError, match="the model is damaged"):
        Forest.from_document({n: v for n, v in document.items() if n != name})
