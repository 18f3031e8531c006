"""Each function of the table in every spelling, compiled, checked, and in the libraries compared
with: what a new row must be good for without another line anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import scalar_oracles
from tests.support.schedule_fuzz.check import Pair, check_pair, this_machine
from tilewright import schedules
from tilewright.peers.numpy_peer.peer import NumpyPeer
from tilewright.peers.variants import NoPeerError
from tilewright.schedules import Workload, compute, placeholder
from tilewright.schedules.algebra.functions import NAMED, UnaryOp
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.exactness import ValueRange, value_ranges
from tilewright.service.http.openapi import workload_schemas
from tilewright.tuner.search.default import default_trace

SIZE = 200
SPANS = ((0.5, 7.0), (0.1, 0.9), (1.5, 7.0))
"""Ranges of arguments, of which at least one is in the domain of each function."""


def written(op: UnaryOp, dtype: str = "f32") -> Workload:
    return from_notation(f"Y[i] = {op}(X[i])", {"X": (dtype, (SIZE,))})


def span_of(op: UnaryOp) -> tuple[float, float]:
    return next(span for span in SPANS if op.function.defined(*span))


@pytest.mark.parametrize("op", NAMED.values())
def test_it_is_spelt_in_python_notation_and_documents(op: UnaryOp) -> None:
    x = placeholder("X", (SIZE,))
    y = compute("Y", (SIZE,), lambda i: getattr(schedules, op)(x[i]))
    workload = Workload.of(y, inputs=[x])
    assert op in schedules.__all__
    assert getattr(schedules, op).__doc__ == op.function.summary
    assert workload.key == written(op).key == Workload.from_json(workload.to_json()).key
    assert op in workload_schemas()["WorkloadFunction"]["enum"]


@pytest.mark.parametrize("op", NAMED.values())
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_its_kernel_passes_the_full_check(op: UnaryOp, dtype: str) -> None:
    workload = written(op, dtype)
    for bits in (128, 256, 512):
        trace = default_trace(workload, this_machine(1, bits))
        check_pair(Pair(f"{op} {dtype}", workload, trace, 1, bits))


@pytest.mark.parametrize("op", UnaryOp)
def test_its_row_agrees_with_what_others_say(op: UnaryOp) -> None:
    """Meaning, image, and change, over arguments and errors of all sizes."""
    row, known = op.function, scalar_oracles.of_number(op)
    x = np.concatenate([np.linspace(-40, 40, 1001), [1e-8, 1e-3, 100.0, 600.0]])
    x = x[[row.defined(v, v) for v in x]]
    with np.errstate(all="ignore"):
        y = np.asarray(row.values(np, x), np.float64)
        finite = np.isfinite(y)
        for value, found in zip(x[finite], y[finite], strict=True):
            assert found == pytest.approx(known(float(value)), rel=1e-14)
        for width in (1e-6, 0.1, 3.0, 50.0):
            low, high = x - width, x + width
            whole = np.array([row.defined(a, b) for a, b in zip(low, high, strict=True)], bool)
            if not whole.any():
                continue
            points = np.linspace(low, high, 33)[:, whole]
            between = np.asarray(row.values(np, points), np.float64)
            ends = np.array([row.image(a, b) for a, b in zip(low[whole], high[whole], strict=True)])
            for end, found in (
                (-ends[:, 0], -between.min(axis=0)),
                (ends[:, 1], between.max(axis=0)),
            ):
                assert ((end >= found) | np.isclose(end, found, rtol=1e-14, atol=1e-15)).all()
            if row.change is not None:
                moved = row.change(np, x[whole], y[whole], np.full(x[whole].shape, width))
                apart = np.abs(between - y[whole]).max(axis=0)
                noise = 1e-15 * np.abs(between).max(axis=0)
                assert moved is None or (moved + noise >= apart * (1 - 1e-12)).all()


@pytest.mark.parametrize("op", NAMED.values())
def test_ranges_and_bounds_hold_what_it_gives(op: UnaryOp) -> None:
    workload = written(op)
    low, high = span_of(op)
    span = ValueRange(low, high, None)
    data = np.linspace(low, high, SIZE, dtype=np.float32)
    ((values, bound),) = evaluate_with_bound(workload, [data])
    found = value_ranges(workload, {"X": span}).tensors["Y"]
    below, above = found.lo - 1e-14 * abs(found.lo), found.hi * (1 + 1e-14)
    assert below <= values.min() <= values.max() <= above
    assert (bound <= 1e-5 * np.maximum(np.abs(values), 1)).all()


@pytest.mark.parametrize("op", NAMED.values())
def test_numpy_computes_it_or_says_that_it_cannot(op: UnaryOp) -> None:
    workload = written(op)
    known = scalar_oracles.of_array(op)
    data = np.linspace(*span_of(op), SIZE, dtype=np.float32)
    if known is None:
        with pytest.raises(NoPeerError, match=f"NumPy has no {op}"):
            NumpyPeer(workload, [data])
        return
    peer = NumpyPeer(workload, [data])
    peer.call()
    np.testing.assert_allclose(peer.outputs[0], known(data), rtol=1e-5)
