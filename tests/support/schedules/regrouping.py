"""Expressions and their rewritten forms, which must mean the same."""

from __future__ import annotations

import json

import numpy as np

from tests.support.interpreter.interpret import interpret_for
from tilewright.schedules.form import Form
from tilewright.schedules.lowering.lower import lower, start, stated_error
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.rewrites import Rewrite
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload

MACHINE = Target(
    triple="x86_64-unknown-linux-gnu", cpu="x", features=("avx2",), vector_bits=256,
    vector_registers=16, cores=2, threads=2,
    caches=(Cache(1 << 15, 64, 8, shared=False), Cache(1 << 19, 64, 8, shared=False)),
)  # fmt: skip

SCATTERED = "O[b,y,x,f] += W[y+1-2*i,x+1-2*j,c,f] * I[b,i,j,c]"
TRANSPOSED = "conv2d_transpose_nhwc:N=1,H=6,W=7,CI=3,CO=5,K=4,stride=2,pad=1"
TWICE = "M[i] max= A[i,k]; S[i] += exp(A[i,k]-M[i]); Y[i,j] = exp(A[i,j]-M[i]) / S[i]"


def expression(text: str, tensors: str, **ranges: int) -> Workload:
    return parse_workload(
        "",
        expr=text,
        tensors=tensors.split(),
        ranges=[f"{name}={extent}" for name, extent in ranges.items()],
    ).normalised()


def inputs_of(workload: Workload, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal(t.shape).astype(t.dtype.numpy)
        if t.dtype.is_float
        else rng.integers(-9, 9, t.shape).astype(t.dtype.numpy)
        for t in workload.inputs
    ]


def same_meaning(workload: Workload, steps: tuple[Rewrite, ...]) -> Workload:
    """The rewritten form, valid, and as near to the same values as its own bound says."""
    form = Form(workload).after(*steps).workload
    validate(form)
    if all(step.keeps_shapes for step in steps):
        assert [t.shape for t in form.arguments] == [t.shape for t in workload.arguments]
    assert [t.elements for t in form.arguments] == [t.elements for t in workload.arguments]
    assert stated_error(workload, steps) == 0.0
    assert Trace.from_json(json.loads(json.dumps(Trace(steps).to_json()))) == Trace(steps)
    assert start(workload, Trace(steps))[0] == form
    inputs = inputs_of(workload)
    shaped = [a.reshape(t.shape) for a, t in zip(inputs, form.inputs, strict=True)]
    rewritten = [
        (values.reshape(t.shape), np.reshape(bound, t.shape))
        for (values, bound), t in zip(
            evaluate_with_bound(form, shaped), workload.output_tensors, strict=True
        )
    ]
    bounded = zip(evaluate_with_bound(workload, inputs), rewritten, strict=True)
    for (values, bound), (others, other_bound) in bounded:
        assert np.all(_differences(values, others) <= bound + other_bound)
    nest = lower(workload, Trace(steps))
    for found, (values, bound) in zip(
        interpret_for(workload, nest, inputs), rewritten, strict=True
    ):
        assert np.all(_differences(found, values) <= 2 * bound + 1e-30)
    return form


def _differences(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Absolute differences; equal infinities do not differ."""
    with np.errstate(invalid="ignore"):
        return np.where(one == other, 0.0, np.abs(one - other))
