"""Boosted regression trees as NumPy arrays, which predict without XGBoost.

P is the number of rows, F the number of features. Every tree is padded to a complete binary tree of
`depth` levels. Instead of following one path per row, which needs a gather per level, all tests of
all trees are evaluated with vector instructions; bit operations then select the result of each test
on the path. Source of the idea: Lucchese et al., "QuickScorer" (SIGIR 2015), which also evaluates
all tests by feature.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import FloatArray, IntArray

Columns: TypeAlias = npt.NDArray[np.float32]
"""Features by column, shape (F, P)."""

ROWS_PER_CHUNK = 512
"""Rows evaluated together. The bits of a chunk then fit into the L2 cache."""

MAX_DEPTH = 8
"""Largest depth: the number of a leaf is an 8-bit integer."""


class ModelError(ValueError):
    """A document is not a model that this version can use. The message is one line for users."""


@dataclass(frozen=True)
class Forest:
    """T trees of one depth. A test is `column[feature] >= threshold`, and true leads to the right.

    `features`: names of the columns. `tested` (N,) and `thresholds` (N,): feature and threshold of
    each distinct test, sorted by feature. `nodes` (2**depth - 1, T): number of the test of each
    inner node, level by level from the root, left to right. `leaves` (T, 2**depth): values from
    left to right. `base`: a constant that is added to the sum of the leaves.
    """

    features: tuple[str, ...]
    base: float
    tested: IntArray
    thresholds: npt.NDArray[np.float32]
    nodes: IntArray
    leaves: npt.NDArray[np.float32]

    @property
    def depth(self) -> int:
        return (len(self.nodes) + 1).bit_length() - 1

    def predict(self, columns: Columns) -> FloatArray:
        """Return the sum of `base` and the leaf of each tree, shape (P,), for `columns` (F, P)."""
        result = np.empty(columns.shape[1])
        for start in range(0, columns.shape[1], ROWS_PER_CHUNK):
            end = start + ROWS_PER_CHUNK
            result[start:end] = self._predicted(columns[:, start:end])
        return result

    def _predicted(self, columns: Columns) -> FloatArray:
        tests = np.empty((len(self.tested), columns.shape[1]), np.bool_)
        for feature, first, end in self._spans:
            thresholds = self.thresholds[first:end, None]
            np.greater_equal(columns[feature], thresholds, out=tests[first:end])
        bits = tests.view(np.uint8)[self.nodes]
        path: list[npt.NDArray[np.uint8]] = []
        leaf = np.zeros(bits.shape[1:], np.uint8)
        for level in range(self.depth):
            here = bits[2**level - 1 : 2 ** (level + 1) - 1]
            for taken in path:  # keep the half of the nodes that this step leads to
                left, right = np.split(here, 2)
                here = left ^ ((left ^ right) & taken)
            path.append(here[0])
            leaf = (leaf << 1) | here[0]
        first_leaf = (np.arange(len(self.leaves)) << self.depth)[:, None]
        found = self.leaves.ravel()[first_leaf + leaf]
        return np.asarray(self.base + found.sum(axis=0, dtype=np.float64))

    @cached_property
    def _spans(self) -> list[tuple[int, int, int]]:
        """Feature, first and end number of the tests of each feature that is tested."""
        used, first = np.unique(self.tested, return_index=True)
        ends = [*first[1:].tolist(), len(self.tested)]
        return list(zip(used.tolist(), first.tolist(), ends, strict=True))

    def to_document(self) -> dict[str, Any]:
        """Return the forest as JSON data; arrays are base64 of little-endian numbers."""
        return {
            "features": list(self.features),
            "base": self.base,
            "trees": len(self.leaves),
            "tested": _text(self.tested, "<u2"),
            "thresholds": _text(self.thresholds, "<f4"),
            "nodes": _text(self.nodes, "<u4"),
            "leaves": _text(self.leaves, "<f4"),
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Return the forest of a document written by `to_document`. Raise ModelError for any
        other document."""
        try:
            trees, base = int(document["trees"]), float(document["base"])
            features = tuple(str(name) for name in document["features"])
            found = cls(
                features,
                base,
                _numbers(document["tested"], "<u2").astype(np.int64),
                _numbers(document["thresholds"], "<f4").astype(np.float32),
                _numbers(document["nodes"], "<u4").astype(np.int64).reshape(-1, trees),
                _numbers(document["leaves"], "<f4").astype(np.float32).reshape(trees, -1),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"the model is damaged: {type(error).__name__} {error}") from error
        if not found._is_consistent():
            raise ModelError("the model is damaged: its arrays do not fit together")
        return found

    def _is_consistent(self) -> bool:
        depth = self.depth
        return bool(
            1 <= depth <= MAX_DEPTH
            and len(self.nodes) == 2**depth - 1
            and self.leaves.shape[1] == 2**depth
            and len(self.tested) == len(self.thresholds) > self.nodes.max(initial=0)
            and (np.diff(self.tested) >= 0).all()
            and self.tested.max(initial=0) < len(self.features)
            and np.isfinite(self.leaves).all()
            and np.isfinite(self.thresholds).all()
            and isfinite(self.base)
        )


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree as lists by node, of which node 0 is the root. `left` and `right`: numbers of the
    children, -1 for a leaf. `feature` and `value`: the test of an inner node; `value` of a leaf is
    its output."""

    left: Sequence[int]
    right: Sequence[int]
    feature: Sequence[int]
    value: Sequence[float]


def forest_of(features: tuple[str, ...], base: float, trees: Sequence[Tree]) -> Forest:
    """Return the forest of `trees`, padded to the depth of the deepest one, at least 1."""
    depth = max([1, *map(_depth, trees)])
    nodes = np.zeros((2**depth - 1, len(trees), 2))
    leaves = np.zeros((len(trees), 2**depth), np.float32)
    for number, tree in enumerate(trees):
        _fill(tree, 0, 0, nodes[:, number], leaves[number])
    tests, places = np.unique(nodes.reshape(-1, 2), axis=0, return_inverse=True)
    return Forest(
        features,
        base,
        tests[:, 0].astype(np.int64),
        tests[:, 1].astype(np.float32),
        places.reshape(nodes.shape[:2]),
        leaves,
    )


def _depth(tree: Tree, node: int = 0) -> int:
    if tree.left[node] < 0:
        return 0
    return 1 + max(_depth(tree, tree.left[node]), _depth(tree, tree.right[node]))


def _fill(tree: Tree, node: int, place: int, nodes: FloatArray, leaves: Columns) -> None:
    """Write the subtree of `node` at heap position `place` of `nodes`. A leaf above the last level
    is repeated below itself, so that the tests there, of which the first one is used, do not
    matter."""
    if tree.left[node] >= 0:
        nodes[place] = tree.feature[node], np.float32(tree.value[node])
        _fill(tree, tree.left[node], 2 * place + 1, nodes, leaves)
        _fill(tree, tree.right[node], 2 * place + 2, nodes, leaves)
        return
    first = end = place
    while first < len(nodes):
        first, end = 2 * first + 1, 2 * end + 2
    leaves[first - len(nodes) : end - len(nodes) + 1] = tree.value[node]


def _text(array: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()


def _numbers(text: str, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), kind)
