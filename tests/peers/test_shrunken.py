"""The same computation on next to nothing has the same structure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.peers.forms.convolution import convolution_form
from tilewright.peers.numpy_peer.peer import NumpyPeer
from tilewright.peers.shrunken import shrunken
from tilewright.peers.variants import ChosenVariants, NoPeerError
from tilewright.schedules.algebra.scalar import loads
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.spelling import parse_workload
from tilewright.tuner.judge.oracle import Oracle

SHAPES = {
    "matmul:M=300,N=200,K=100": [(4, 16), (16, 16)],
    "conv2d_nhwc:N=8,H=56,W=57,CI=64,CO=96,K=3,stride=2,pad=1": [(2, 4, 3, 16), (3, 3, 16, 16)],
    "depthwise_conv2d_nhwc:H=56,W=56,C=64,K=3,pad=1": [(1, 4, 4, 16), (3, 3, 16)],
    "softmax_mn:M=512,N=1000": [(4, 16)],
    "max_pool2d_nhwc:H=112,W=112,C=64,K=3,stride=2,pad=1": [(1, 8, 8, 16)],
}
"""As much padding is read at the end as before: of 57 columns one, of 56 lines none."""


@pytest.mark.parametrize("spelled", SHAPES)
def test_extents_are_cut_and_windows_are_not(spelled: str) -> None:
    workload = parse_workload(spelled).normalised()
    cut = shrunken(workload)
    assert cut is not None
    assert [tensor.shape for tensor in cut.inputs] == SHAPES[spelled]
    assert [stage.body for stage in cut.stages] == [stage.body for stage in workload.stages]
    for before, after in zip(workload.stages, cut.stages, strict=True):
        whole, small = convolution_form(before), convolution_form(after)
        if whole is not None:
            assert small is not None
            assert (small.stride, small.dilation) == (whole.stride, whole.dilation)
            assert small.spans[0][0] == whole.spans[0][0]


def test_what_cannot_be_cut_says_nothing_of_calls() -> None:
    text = "Y[f,h] += X[c+64*(f//64),h+r] * W[f,c,r]"
    tensors = ["X=f32[128,40]", "W=f32[128,64,38]"]
    workload = parse_workload(expr=text, tensors=tensors, ranges=["c=64"]).normalised()
    assert shrunken(workload) is None


@pytest.mark.parametrize(
    ("text", "tensors", "ranges"),
    [
        ("Y[i,j] = X[i//4,j%5] + X[i,j]", ["X=f32[64,64]"], []),
        ("A[n,h] += X[n,h+r]*V[r]; B[n,o,h] += A[n,h+r-1]*W[o,r]",
         ["X=f32[9,42]", "V=f32[3]", "W=f32[7,3]"], ["h=40"]),
        ("Y[f,h] += X[c+4*(f//8),h+r] * W[f,c,r]", ["X=f32[16,40]", "W=f32[32,4,3]"], ["c=4"]),
        ("Y[i] = X[50-i] * 2", ["X=f32[51]"], ["i=51"]),
        ("Y[y,f] += W[y+1-2*i,f]*I[i]", ["W=f32[4,48]", "I=f32[8]"], ["y=16"]),
    ],
)  # fmt: skip
def test_what_is_cut_is_still_a_computation(
    text: str, tensors: list[str], ranges: list[str]
) -> None:
    """Indices stay consistent, whatever they are: it can be evaluated, and NumPy asked the same."""
    workload = parse_workload(expr=text, tensors=tensors, ranges=ranges).normalised()
    cut = shrunken(workload)
    assert cut is not None
    for stage in cut.stages:
        for load in loads(stage.body):
            assert len(load.index) == len(cut.tensors[load.tensor].shape)
    case = Oracle(cut.normalised(), 0).quick
    (expected,) = evaluate(cut, list(case.inputs))
    assert expected.shape == cut.output_tensors[0].shape
    peer = NumpyPeer(cut, case.inputs)
    peer.call()
    assert case.check(peer.outputs) is None


def test_a_way_that_is_none_at_other_sizes_has_no_dispatch() -> None:
    workload = parse_workload("softmax_mn:M=8,N=20").normalised()
    inputs = Oracle(workload, 0).quick.inputs
    asked = NumpyPeer(workload, inputs).chosen
    assert NumpyPeer(workload, inputs, like=asked).chosen == asked
    with pytest.raises(NoPeerError, match="no variant of this name"):
        NumpyPeer(workload, inputs, like=ChosenVariants(asked.steps[:1]))
    other = ChosenVariants(tuple(replace(step, variant="by hand") for step in asked.steps))
    with pytest.raises(NoPeerError, match="no variant of this name"):
        NumpyPeer(workload, inputs, like=other)
