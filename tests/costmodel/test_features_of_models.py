"""The features of the database's model keep their meaning, or their version is raised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.costmodel.correction import FEATURE_VERSION, FEATURES, columns_of
from tilewright.costmodel.prior import Prior
from tilewright.schedules.sketches import space_for
from tilewright.schedules.spelling import parse_operator
from tilewright.tuner.search.setting_grid import setting_grids
from tilewright.tuner.testing import mocked_target

STORED = Path(__file__).with_name("features_of_models.json")
COMMAND = "python -m tests.costmodel.test_features_of_models"
WORKLOADS = (
    "matmul:M=127,N=131,K=137",
    "conv2d_nhwc:N=1,H=14,W=14,CI=32,CO=48,K=3,pad=1",
    "softmax_mn:M=64,N=1000",
    "transpose_mn:M=300,N=500",
)


def computed() -> dict[str, list[float]]:
    """Each feature of a few settings of each sketch, by name."""
    parts = []
    for text in WORKLOADS:
        space = space_for(parse_operator(text), mocked_target(2))
        prior = Prior(space)
        for grid in setting_grids(space):
            rows = grid.sample(np.random.default_rng(0), 2)
            parts.append(columns_of(prior.analyse(grid.index, rows)))
    values = np.concatenate(parts, axis=1).astype(float)
    return {
        name: [float(f"{value:.4g}") for value in row]
        for name, row in zip(FEATURES, values.tolist(), strict=True)
    }


def test_a_feature_that_changes_its_meaning_raises_the_version() -> None:
    """Stored models read the features by name. This file, run as a program, writes the values."""
    stored = json.loads(STORED.read_text("utf-8"))
    found = computed()
    changed = [
        name
        for name in {**stored["features"], **found}
        if stored["features"].get(name) != pytest.approx(found.get(name), rel=2e-3, abs=2e-3)
    ]
    raised = stored["version"] != FEATURE_VERSION
    assert not changed or raised, f"{changed} changed: raise FEATURE_VERSION, and run `{COMMAND}`"
    assert not raised, f"run `{COMMAND}`, which writes {STORED.name}"


if __name__ == "__main__":
    document = {"version": FEATURE_VERSION, "features": computed()}
    STORED.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
