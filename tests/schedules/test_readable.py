"""Nests with the author's names: only the names differ."""

from __future__ import annotations

import numpy as np

from tests.support.interpreter.interpret import interpret
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.lowering.readable import readable
from tilewright.schedules.nest.loop_ir import loops
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import CacheRead, ComputeAt, Partition, Split, Stream
from tilewright.schedules.trace import Trace


def test_names_are_the_authors_and_nothing_else_changes() -> None:
    workload = from_notation(
        "P[row, col] += A[row, t] * B[t, col]; R[row, col] = max(P[row, col] + c[col], 0)",
        {"A": ("f32", (5, 4)), "B": ("f32", (4, 3)), "c": ("f32", (3,))},
    )
    trace = Trace((Split("s0.d1", 2), CacheRead("i0", "s0.d0", "s0.rows")))
    nest = lower(workload, trace)
    shown = readable(workload, trace).nest
    text = to_text(shown)
    for name in ("P.row", "P.colo", "P.coli", "P.t", "R.row", "A: f32[5, 4]", "P.rows"):
        assert name in text
    assert "s0" not in text
    assert "i0" not in text
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, t.shape).astype("float32") for t in workload.inputs]
    for a, b in zip(interpret(nest, inputs), interpret(shown, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_loops_are_called_by_their_axes_whatever_made_them() -> None:
    workload = from_notation(
        "P[row, col] += A[row, t] * B[t, col]; R[row, col] = max(P[row, col], 0)",
        {"A": ("f32", (5, 4)), "B": ("f32", (4, 6))},
    )
    steps = (
        ComputeAt("s0", "s1.d0"), Split("s0.1", 2), CacheRead("i1", "s1.d0", "b"),
        Partition("s1.d1", 5),
    )  # fmt: skip
    shown = readable(workload, Trace(steps))
    made = {loop.var: shown.axes[loop.var] for loop in loops(shown.nest.body)}
    assert made == {
        "R.row": "R.row", "b.0": "axis 0 of b", "b.1": "axis 1 of b", "P.colo": "P.col",
        "P.coli": "P.col", "P.t": "P.t", "R.col": "R.col",
    }  # fmt: skip


def test_what_is_streamed_is_shown() -> None:
    workload = from_notation("P[i] = A[i] + 1.0", {"A": ("f32", (64,))})
    shown = readable(workload, Trace((Stream("s0"),)))
    assert "P: f32[64] streamed" in to_text(shown.nest)
