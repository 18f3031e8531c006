"""What other libraries are asked to compute is the workload, in their idiom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from schedules import operators
from schedules.reference import evaluate
from schedules.workload import Workload
from tuner.measure.compare import Oracle
from tuner.measure.convolution_form import ConvolutionForm, convolution_form
from tuner.measure.numpy_peer import NoPeerError, NumpyPeer

SMALL: dict[str, dict[str, Any]] = {
    "matmul": {"M": 7, "N": 5, "K": 6},
    "matmul_nt": {"M": 7, "N": 5, "K": 6},
    "matmul_tn": {"M": 7, "N": 5, "K": 6, "dtype": "f64"},
    "gemv": {"N": 7, "K": 5},
    "batch_matmul": {"B": 3, "M": 4, "N": 5, "K": 6, "epilogue": "relu"},
    "conv2d_nhwc": {"N": 2, "H": 9, "W": 8, "CI": 3, "CO": 4, "K": 3, "stride": 2, "pad": 1},
    "depthwise_conv2d_nhwc": {"N": 1, "H": 9, "W": 8, "C": 5, "K": 3, "pad": 1},
    "softmax_mn": {"M": 4, "N": 33},
    "layernorm_mn": {"M": 4, "N": 33},
    "norm_bmn": {"B": 2, "M": 3, "N": 5},
    "elementwise_add_relu": {"M": 3, "N": 5},
}


@pytest.mark.parametrize("name", SMALL)
def test_numpy_computes_the_workload_again_and_again(name: str) -> None:
    workload = operators.build(name, SMALL[name]).normalised()
    case = Oracle(workload, 3).quick
    peer = NumpyPeer(workload, case.inputs)
    for _ in range(2):
        for output in peer.outputs:
            output.fill(7)
        peer.call()
        assert case.check(peer.outputs) is None


def test_a_plain_product_is_one_call_of_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = operators.build("matmul", M=7, N=5, K=6)
    peer = NumpyPeer(workload, Oracle(workload, 0).quick.inputs)
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(np, "matmul", lambda *args, out: seen.append((*args, out)))
    peer.call()
    ((a, b, out),) = seen
    assert (a.shape, b.shape, out.shape) == ((7, 6), (6, 5), (7, 5))
    assert np.shares_memory(out, peer.outputs[0])


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("matmul", {"M": 2, "N": 2, "K": 2, "dtype": "bf16"}, "NumPy has no bf16"),
        ("elementwise_add_relu", {"M": 1 << 16, "N": 1 << 16}, "arrays of more than 8 GiB"),
    ],
)
def test_numpy_may_have_no_way(name: str, sizes: dict[str, Any], message: str) -> None:
    workload = operators.build(name, sizes)
    inputs = [np.broadcast_to(np.zeros(1, t.dtype.numpy), t.shape) for t in workload.inputs]
    with pytest.raises(NoPeerError, match=message):
        NumpyPeer(workload, inputs)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "conv1d_nlc": {"N": 2, "L": 11, "CI": 3, "CO": 4, "K": 3, "stride": 2, "pad": 1},
    "conv2d_nhwc": {"N": 1, "H": 9, "W": 8, "CI": 3, "CO": 4, "K": 3, "pad": 2, "dilation": 2},
    "conv3d_ndhwc": {"N": 1, "D": 4, "H": 5, "W": 6, "CI": 2, "CO": 3, "K": 3, "pad": 1},
    "depthwise_conv2d_nhwc": {"N": 1, "H": 9, "W": 8, "C": 5, "K": 3, "stride": 2, "pad": 1},
}


def convolve(form: ConvolutionForm, workload: Workload, inputs: list[Any]) -> Any:
    """What a library does with a form, in NumPy: NCHW data, OIHW weights."""
    tensors = dict(zip((t.name for t in workload.inputs), inputs, strict=True))
    data = tensors[form.data].transpose(form.data_order)
    weight = tensors[form.weight].transpose(form.weight_order)
    pads = [(0, 0), (0, 0), *((p, p) for p in form.pad)]
    taps = zip(weight.shape[-len(form.pad) :], form.dilation, strict=True)
    window = [d * (n - 1) + 1 for n, d in taps]
    spatial = tuple(range(2, data.ndim))
    views = np.lib.stride_tricks.sliding_window_view(np.pad(data, pads), window, axis=spatial)
    steps: Any = (..., *(slice(None, None, d) for d in form.dilation))
    strides = (slice(None), slice(None), *(slice(None, None, s) for s in form.stride))
    letters = "xyz"[: len(form.pad)], "uvw"[: len(form.pad)]
    channels = "c" if form.depthwise else "oc"
    result = np.einsum(
        f"bc{''.join(letters)},{channels}{letters[1]}->b{channels[0]}{letters[0]}",
        views[strides][steps],
        weight,
    )
    cut = tuple(slice(0, n) for n in form.output_shape)
    return result[cut].transpose(form.output_order)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_recognised_by_its_indices(name: str) -> None:
    workload = operators.build(name, CONVOLUTIONS[name]).normalised()
    inputs = list(Oracle(workload, 0).quick.inputs)
    form = convolution_form(workload.stages[-1])
    assert form is not None
    assert form.depthwise == name.startswith("depthwise")
    assert np.array_equal(convolve(form, workload, inputs), evaluate(workload, inputs)[0])


@pytest.mark.parametrize("name", ["matmul", "gemv", "softmax_mn", "batch_matmul"])
def test_nothing_else_is_taken_for_one(name: str) -> None:
    workload = operators.build(name, SMALL[name])
    assert [convolution_form(stage) for stage in workload.stages] == [None] * len(workload.stages)


@pytest.mark.parametrize("name", [*SMALL])
def test_torch_computes_the_workload(name: str) -> None:
    pytest.importorskip("torch")
    from tuner.measure.torch_peer import TorchPeer

    workload = operators.build(name, SMALL[name])
    case = Oracle(workload, 0).quick
    peer = TorchPeer(workload, case.inputs, 1)
    peer.call()
    assert case.check(peer.outputs()) is None
