"""Feature columns of candidates, thousands at a time, without lowering one.

`FEATURES` lists every column in order. Quantities that span decades are log2; a share lies in 0..1.
The first groups mean the same for every workload; `knob_*` are positions within one sketch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.arrays import IntArray
from schedules.space import ScheduleSpace

from .prior import COMPONENTS, Analysis, Prior, total

FEATURE_VERSION = 4
"""Raised whenever a column changes its place or meaning."""

MAX_KNOBS, MAX_ACCESSES = 32, 4
"""How many knobs with a choice, and how many accesses, have columns: a tile has up to 19 knobs, of
which most programs leave no choice in half, and knobs of further parts follow."""

FeatureArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Feature:
    """One column: what it says, and in which unit."""

    name: str
    meaning: str
    unit: str


_PER_CACHE = ("L1", "L2", "L3")

FEATURES: tuple[Feature, ...] = (
    Feature("flops", "operations executed, padding included", "log2"),
    Feature("padding", "operations executed over operations wanted", "log2"),
    Feature("flops_per_vector_op", "how full vector instructions are", "log2"),
    Feature(
        "lost_per_op",
        "time lost to tests and short tiles, in operations a vector operation",
        "ratio",
    ),
    Feature("loads_per_op", "vector loads a vector operation", "ratio"),
    Feature("stores_per_op", "vector stores a vector operation", "ratio"),
    Feature("scalars_per_op", "element-wise accesses a vector operation", "ratio"),
    Feature("math_per_op", "math function calls a vector operation", "ratio"),
    Feature("accumulators", "independent accumulators", "count"),
    Feature("live_registers", "registers needed over registers there are", "ratio"),
    Feature("held_values", "accumulators and shared operands over registers there are", "ratio"),
    Feature("spilled_registers", "registers needed beyond those there are", "count"),
    Feature("inner_trips", "trips of the innermost loop", "log2"),
    Feature("inner_entries", "entries into the innermost loop", "log2"),
    Feature("code_ops", "instructions of the innermost body", "log2"),
    Feature("conflict_misses", "lines lost to crowded sets, an operation", "log2 of 1 + x"),
    Feature("exposed_lines", "lines waited for, a vector operation", "log2 of 1 + x"),
    Feature("masked_share", "masked vector operations", "share"),
    Feature("packed_bytes", "bytes copied an operation", "log2"),
    Feature("strided_packed_share", "part of the copies that goes element by element", "share"),
    Feature("turned_packed_share", "part of the copies that is transposed", "share"),
    Feature("passing_packed_share", "part of the copies that first tiles make", "share"),
    Feature("tasks", "iterations of the parallel loop", "log2"),
    Feature("regions", "parallel regions entered", "count"),
    Feature("imbalance", "slowest thread over the mean", "ratio"),
    *(Feature(f"moved_{c}", f"bytes brought into {c} an operation", "log2") for c in _PER_CACHE),
    *(
        Feature(f"moved_{c}_{a}", f"the same of access {a} alone", "log2")
        for c in _PER_CACHE[:2]
        for a in range(MAX_ACCESSES)
    ),
    *(
        Feature(f"fit_{c}", f"depth of the outermost loop that fits {c}", "share")
        for c in _PER_CACHE
    ),
    *(
        Feature(f"filled_{c}", f"bytes touched inside that loop over the size of {c}", "log2")
        for c in _PER_CACHE
    ),
    *(Feature(f"prior_{c}", f"share of {c} in the predicted time", "share") for c in COMPONENTS),
    Feature("bottleneck", "index of the largest component of the prior", "index"),
    Feature("sketch", "number of the sketch", "index"),
    *(
        Feature(
            f"knob_{j}",
            f"place of the knob in its values, {j} before it; -1 if there is none",
            "share",
        )
        for j in range(MAX_KNOBS)
    ),
)


def log2_plus(values: npt.ArrayLike) -> FeatureArray:
    """log2 of values >= 0 with a floor at 2**-20, so that nothing gives a finite number."""
    array: FeatureArray = np.log2(np.maximum(np.asarray(values, np.float32), np.float32(2.0**-20)))
    return array


class Featuriser:
    """Features and prior of the candidates of one space, from one analysis."""

    def __init__(self, space: ScheduleSpace, prior: Prior | None = None) -> None:
        self.space = space
        self.prior = prior if prior is not None else Prior(space)
        self.wanted_flops = float(max(space.workload.flops, 1))

    def __call__(self, sketch: int, settings: IntArray) -> tuple[FeatureArray, Analysis]:
        """(P, len(FEATURES)) float32 and the analysis they were made from."""
        analysis = self.prior.analyse(sketch, settings)
        return self._table(sketch, settings, analysis), analysis

    def _table(self, sketch: int, settings: IntArray, analysis: Analysis) -> FeatureArray:
        columns, machine = analysis.columns, self.prior.machine
        flops = np.maximum(columns["flops"], 1.0)
        ops = np.maximum(columns["vector_ops"] + columns["math_calls"], 1.0)
        packed = np.maximum(columns["packed_bytes"], 1.0)
        live = columns["live_registers"]
        table = np.empty((len(FEATURES), len(settings)), np.float32)
        rows: list[npt.NDArray[Any]] = [
            log2_plus(flops),
            log2_plus(flops / self.wanted_flops),
            log2_plus(flops / ops),
            columns["lost_ops"] / ops,
            columns["vector_loads"] / ops,
            columns["vector_stores"] / ops,
            columns["scalar_accesses"] / ops,
            columns["math_calls"] / ops,
            columns["accumulators"],
            live / machine.vector_registers,
            (columns["accumulators"] + columns["held_values"]) / machine.vector_registers,
            np.maximum(live - machine.vector_registers, 0.0),
            log2_plus(columns["inner_trips"]),
            log2_plus(columns["inner_entries"]),
            log2_plus(columns["code_ops"]),
            np.log2(1.0 + columns["conflict_misses"] / ops),
            np.log2(1.0 + columns["exposed_lines"] / ops),
            columns["masked_share"],
            log2_plus(columns["packed_bytes"] / flops),
            columns["strided_packed_bytes"] / packed,
            columns["turned_packed_bytes"] / packed,
            columns["passing_packed_bytes"] / packed,
            log2_plus(columns["tasks"]),
            columns["regions"],
            analysis.imbalance,
            *self._memory_rows(analysis, flops.astype(np.float32)),
            *self._prior_rows(analysis),
        ]
        for row, values in enumerate(rows):
            table[row] = values
        table[len(rows)] = sketch
        table[len(rows) + 1 :] = self._knob_rows(sketch, settings)
        return np.ascontiguousarray(table.T)

    def _memory_rows(self, analysis: Analysis, flops: FeatureArray) -> list[FeatureArray]:
        """Traffic and fits, three caches always: one that is missing repeats the last."""
        traffic, machine = analysis.traffic, self.prior.machine
        caches = [min(i, traffic.moved.shape[0] - 1) for i in range(3)]
        count = traffic.moved.shape[1]
        missing = np.zeros_like(flops)
        loops = max(traffic.footprint.shape[0] - 1, 1)
        every = np.arange(len(flops))
        rows = [log2_plus(total(traffic.moved[c]) / flops) for c in caches]
        rows += [
            log2_plus((traffic.moved[c, a] if a < count else missing) / flops)
            for c in caches[:2]
            for a in range(MAX_ACCESSES)
        ]
        rows += [(traffic.fit_level[c] / loops).astype(np.float32) for c in caches]
        rows += [
            log2_plus(traffic.footprint[traffic.fit_level[c], every] / machine.cache_bytes[c])
            for c in caches
        ]
        return rows

    def _prior_rows(self, analysis: Analysis) -> list[FeatureArray]:
        parts = analysis.components
        shares = parts / np.maximum(total(parts), np.float32(1e-30))
        return [*shares, np.argmax(parts, axis=0).astype(np.float32)]

    def _knob_rows(self, sketch: int, settings: IntArray) -> FeatureArray:
        knobs = self.space.sketches[sketch].knobs
        choices = [k for k, knob in enumerate(knobs) if len(knob.values) > 1]
        rows = np.full((MAX_KNOBS, len(settings)), -1.0, np.float32)
        for row, k in zip(rows, choices, strict=False):
            row[:] = settings[:, k] / (len(knobs[k].values) - 1)
        return rows
