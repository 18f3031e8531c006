"""The model of the database: boosted trees that correct the prior for every workload of a target.

The trees read features that mean the same for every sketch and every shape: counts, those that grow
with the workload divided by its operations, and the share of each component in the prior's time.
They predict log2 of the measured time over the prior's time, up to a constant per workload.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from tilewright.schedules.arrays import FloatArray
from tilewright.schedules.canonical import canonical_bytes

from .analysis import Analysis
from .counts.table import COUNTS, TOTALS
from .forest import Columns, Forest, ModelError
from .prior import COMPONENTS

PER_OPERATION = (*(name for name in TOTALS if name not in ("flops", "regions")), "inner_entries")
"""Counts that grow with the workload."""

OTHERS = tuple(name for name in COUNTS if name not in (*PER_OPERATION, "flops"))

FEATURES = (
    *(f"share of {name}" for name in COMPONENTS),
    *(f"{name} per operation" for name in PER_OPERATION),
    *OTHERS,
    "imbalance",
)

FEATURE_VERSION = 9
"""Raised whenever the prior, a count or a feature changes its meaning: a model of another version
is not used, and is trained anew. `tests/costmodel/test_features_of_models.py` finds changes."""

MAX_CORRECTION = 2.0
"""Largest correction in log2 units. Trees have seen no larger errors, see `training.py`."""


@dataclass(frozen=True)
class Correction:
    """Trees, and the share of their prediction, 0..1, that is added to the prior. The share is the
    one that helps most on workloads left out of the training."""

    forest: Forest
    share: float

    def __call__(self, analysis: Analysis) -> FloatArray:
        """Return the correction in log2 seconds of P analysed settings, shape (P,)."""
        if not self.share:
            return np.zeros(len(analysis.secs))
        found = self.forest.predict(columns_of(analysis))
        return self.share * np.clip(found, -MAX_CORRECTION, MAX_CORRECTION)

    @cached_property
    def key(self) -> str:
        """`sha256:...` of the document."""
        return "sha256:" + hashlib.sha256(canonical_bytes(self.to_document())).hexdigest()

    def to_document(self) -> dict[str, Any]:
        return {
            "version": FEATURE_VERSION,
            "share": self.share,
            "forest": self.forest.to_document(),
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Return the correction of a document written by `to_document`. Raise ModelError for a
        document of another version, and for a damaged one."""
        if not isinstance(document, dict):
            raise ModelError("the model is damaged: it is not an object")
        if document.get("version") != FEATURE_VERSION:
            raise ModelError(
                f"the model is of version {document.get('version')}, this program uses version"
                f" {FEATURE_VERSION}: `tilewright db train` makes a new one"
            )
        forest, share = Forest.from_document(document.get("forest")), document.get("share")
        if forest.features != FEATURES:
            raise ModelError(
                "the model was trained with other features: `tilewright db train` makes a new one"
            )
        if not isinstance(share, float | int) or not 0.0 <= share <= 1.0:
            raise ModelError(f"the model is damaged: its share is {share!r}")
        return cls(forest, float(share))


def columns_of(analysis: Analysis) -> Columns:
    """Return the features of P analysed settings, shape (len(FEATURES), P)."""
    total = np.maximum(analysis.components.sum(axis=0), 1e-30)
    log2 = {name: np.log2(1.0 + column) for name, column in analysis.columns.items()}
    rows = [
        *np.log2(np.maximum(analysis.components / total, 1e-6)),
        *(log2[name] - log2["flops"] for name in PER_OPERATION),
        *(log2[name] for name in OTHERS),
        analysis.imbalance,
    ]
    return np.stack(rows).astype(np.float32)
