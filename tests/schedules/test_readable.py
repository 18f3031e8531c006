"""Nests with the author's names: only the names differ."""

from __future__ import annotations

import numpy as np

from schedules.frontend.notation import from_notation
from schedules.lowering.lower import lower
from schedules.lowering.readable import readable
from schedules.nest.interpret import interpret
from schedules.nest.printer import to_text
from schedules.primitives import CacheRead, Split, Stream
from schedules.trace import Trace


def test_names_are_the_authors_and_nothing_else_changes() -> None:
    workload = from_notation(
        "P[row, col] += A[row, t] * B[t, col]; R[row, col] = max(P[row, col] + c[col], 0)",
        {"A": ("f32", (5, 4)), "B": ("f32", (4, 3)), "c": ("f32", (3,))},
    )
    trace = Trace((Split("s0.d1", 2), CacheRead("i0", "s0.d0", "s0.rows")))
    nest = lower(workload, trace)
    shown = readable(nest, workload)
    text = to_text(shown)
    for name in ("P.row", "P.colo", "P.coli", "P.t", "R.row", "A: f32[5, 4]", "P.rows"):
        assert name in text
    assert "s0" not in text
    assert "i0" not in text
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, t.shape).astype("float32") for t in workload.inputs]
    for a, b in zip(interpret(nest, inputs), interpret(shown, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_streamed_is_shown() -> None:
    workload = from_notation("P[i] = A[i] + 1.0", {"A": ("f32", (64,))})
    nest = lower(workload, Trace((Stream("s0"),)))
    assert "P: f32[64] streamed" in to_text(readable(nest, workload))
