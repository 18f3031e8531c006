"""What other libraries are asked to compute is the workload, in their idiom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.peers.racing import choose_only, record_variants
from tilewright.peers.forms.convolution import ConvolutionForm, convolution_form
from tilewright.peers.forms.epilogue import EpilogueForm, epilogue_form
from tilewright.peers.numpy_peer import peer as numpy_peer
from tilewright.peers.numpy_peer.peer import NumpyPeer
from tilewright.peers.variants import NoPeerError
from tilewright.schedules import operators
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.workload.computation import with_constants
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge.oracle import Oracle

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


def check_numpy(workload: Workload) -> None:
    """NumPy computes the workload, and again in outputs that hold something else."""
    case = Oracle(workload, 3).quick
    peer = NumpyPeer(workload, case.inputs)
    for _ in range(2):
        for output in peer.outputs:
            output.fill(7)
        peer.call()
        assert case.check(peer.outputs) is None


@pytest.mark.parametrize("name", SMALL)
def test_numpy_computes_the_workload_again_and_again(name: str) -> None:
    check_numpy(operators.build(name, SMALL[name]).normalised())


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize(
    "text",
    [
        "S[i,k] = cumsum(X[i,k], k)",
        "S[i,k] = cumprod(X[i,k], i, reverse)",
        "S[i,k] = cummax(X[i,k] * 2, k, exclusive)",
        "A[i] = argmin(X[i,k], k, last)",
    ],
)
def test_numpy_accumulates_scans(text: str, dtype: str) -> None:
    check_numpy(parse_workload(text, tensors=[f"X={dtype}[5,9]"]).normalised())


def test_a_plain_product_is_written_in_place_by_the_fastest_way() -> None:
    workload = operators.build("matmul", M=7, N=5, K=6)
    case = Oracle(workload, 0).quick
    peer = NumpyPeer(workload, case.inputs)
    (output,) = peer.outputs
    output.fill(7)
    peer.call()
    assert case.check([output]) is None
    assert peer.variant in ("np.matmul", "np.dot", "operands exchanged")
    assert peer.dropped == {}


def test_ways_are_compared_on_what_earlier_stages_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that was never written may hold anything, NaN too."""
    real = NumpyPeer._allocated

    def poisoned(self: NumpyPeer, shape: Any, dtype: Any) -> Any:
        made = real(self, shape, dtype)
        made.fill(np.nan)
        return made

    monkeypatch.setattr(NumpyPeer, "_allocated", poisoned)
    workload = operators.build("softmax_mn", M=4, N=33).normalised()
    case = Oracle(workload, 0).quick
    peer = NumpyPeer(workload, case.inputs)
    peer.call()
    assert case.check(peer.outputs) is None
    assert peer.dropped == {}


def test_constant_weights_may_lie_as_numpy_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = with_constants(operators.build("matmul", M=7, N=5, K=6), ["B"]).normalised()
    raced = record_variants(monkeypatch, numpy_peer)
    NumpyPeer(workload, Oracle(workload, 0).quick.inputs)
    assert "weights turned" in raced


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
    """What a library does with a form, in NumPy."""
    tensors = dict(zip((t.name for t in workload.inputs), inputs, strict=True))
    data, weight = form.image(tensors[form.data]), form.kernel(tensors[form.weight])
    around = [
        (max(0, -lo), max(0, hi - n + 1))
        for n, (lo, hi) in zip(data.shape[2:], form.spans, strict=True)
    ]
    padded = np.pad(data, [(0, 0), (0, 0), *around])
    taps = zip(weight.shape[2:], form.dilation, strict=True)
    window = [d * (n - 1) + 1 for n, d in taps]
    spatial = tuple(range(2, data.ndim))
    views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=spatial)
    steps: Any = (..., *(slice(None, None, d) for d in form.dilation))
    strides = (slice(None), slice(None), *(slice(None, None, s) for s in form.stride))
    part = views[strides][steps]
    grouped = part.reshape(part.shape[0], form.groups, -1, *part.shape[2:])
    kernels = weight.reshape(form.groups, -1, *weight.shape[1:])
    at, around_it = "xyz"[: len(form.stride)], "uvw"[: len(form.stride)]
    result = np.einsum(f"bgc{at}{around_it},goc{around_it}->bgo{at}", grouped, kernels)
    return form.unfolded(result.reshape(result.shape[0], -1, *result.shape[3:]))


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


NUMPY = {
    "grouped": ("Y[n,h,g,o] += X[n,2*h+r-1,g,c] * W[r,g,c,o]",
                ["X=f32[2,9,3,4]", "W=f32[3,3,4,2]"], ["h=5"],
                "columns and np.matmul for each group"),
    "depthwise": ("Y[c,h,w] += X[c,h+r-1,w+2*s] * W[c,r,s]",
                  ["X=f32[5,9,8]", "W=f32[5,3,2]"], ["h=9", "w=6"], "one tap at a time"),
    "reversed": ("Y[n,o,h] += X[n,c,h-r] * W[o,c,r]", ["X=f32[2,3,8]", "W=f32[4,3,3]"],
                 ["h=10"], "columns and np.matmul for each group"),
    "transposed": ("Y[n,o,y,x] += X[n,c,i,j] * W[c,o,y+1-2*i,x+1-2*j]",
                   ["X=f32[2,3,5,4]", "W=f32[3,2,4,4]"], ["y=10", "x=9"], "product, taps added"),
    "max pool": ("Y[n,h,w,c] max= X[n,2*h+r-1,w+2*s,c]", ["X=f32[2,9,8,3]"],
                 ["h=5", "w=4", "r=3", "s=3"], "one tap at a time"),
    "min pool": ("Y[c,h] min= X[c,h+2*r]", ["X=f32[3,12]"], ["h=8", "r=3"], "one tap at a time"),
    "three factors": ("Y[i,r] += T[i,j,k] * B[j,r] * C[k,r]",
                      ["T=f32[5,6,7]", "B=f32[6,4]", "C=f32[7,4]"], [], "np.einsum"),
    "columns": ("Y[j] += X[i,j]", ["X=f32[5,6]"], [], "product with ones"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_is_asked_as_a_practised_user_would(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, tensors, ranges, expected = NUMPY[name]
    workload = parse_workload(expr=text, tensors=tensors, ranges=ranges).normalised()
    seen = choose_only(monkeypatch, numpy_peer, expected)
    case = Oracle(workload, 0).quick
    peer = NumpyPeer(workload, case.inputs)
    assert expected in seen
    peer.outputs[0].fill(7)
    peer.call()
    assert case.check(peer.outputs) is None


TORCH: dict[str, tuple[dict[str, Any], str]] = {
    "matmul": ({"M": 7, "N": 5, "K": 6, "epilogue": "bias+relu"}, "oneDNN linear"),
    "matmul_nt": ({"M": 7, "N": 5, "K": 6, "epilogue": "bias+gelu"}, "oneDNN linear"),
    "matmul_tn": ({"M": 7, "N": 5, "K": 6, "constant": "B"}, "oneDNN linear, weights packed"),
    "gemv": ({"N": 7, "K": 5}, "torch.mv"),
    "batch_matmul": ({"B": 3, "M": 4, "N": 5, "K": 6, "epilogue": "relu"}, "torch.bmm"),
    "transpose_batch_matmul": (
        {"batch": 2, "seq": 4, "heads": 3, "dim": 5}, "torch.matmul of views"
    ),
    "conv1d_nlc": (CONVOLUTIONS["conv1d_nlc"], "as an image, oneDNN pointwise"),
    "conv2d_nhwc": (
        {"N": 2, "H": 9, "W": 8, "CI": 4, "CO": 6, "K": 3, "stride": 2, "pad": 1, "groups": 2,
         "epilogue": "bias+add+relu", "constant": "W"},
        "oneDNN pointwise, weights packed",
    ),
    "conv3d_ndhwc": (CONVOLUTIONS["conv3d_ndhwc"], "oneDNN convolution, weights channels last"),
    "depthwise_conv2d_nhwc": (
        {**CONVOLUTIONS["depthwise_conv2d_nhwc"], "epilogue": "bias+relu6"}, "oneDNN pointwise"
    ),
    "conv2d_transpose_nhwc": (
        {"N": 1, "H": 5, "W": 6, "CI": 3, "CO": 4, "K": 4, "stride": 2, "pad": 1},
        "oneDNN pointwise, weights channels last",
    ),
    "softmax_mn": ({"M": 4, "N": 33}, "torch.softmax along 1"),
    "layernorm_mn": ({"M": 4, "N": 33}, "layer_norm(1e-05)"),
    "norm_bmn": ({"B": 2, "M": 3, "N": 5}, "torch.linalg.vector_norm along (1, 2)"),
    "elementwise_add_relu": ({"M": 3, "N": 5}, "element-wise"),
    "max_pool2d_nhwc": (
        {"N": 2, "H": 9, "W": 8, "C": 5, "K": 3, "stride": 2, "pad": 1}, "max_pool2d"
    ),
    "global_avg_pool_nhwc": ({"N": 2, "H": 5, "W": 4, "C": 3}, "torch.mean along (1, 2)"),
    "colsum_mn": ({"M": 7, "N": 5}, "torch.mv with ones along (0,)"),
    "transpose_mn": ({"M": 7, "N": 5}, "contiguous"),
}  # fmt: skip
"""Sizes, and a way that must have been raced."""


@pytest.mark.parametrize("name", TORCH)
def test_torch_computes_the_workload_in_every_way_it_has(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from tilewright.peers.torch_peer import peer as torch_peer

    raced = record_variants(monkeypatch, torch_peer)
    sizes, expected = TORCH[name]
    workload = parse_workload(f"{name}:" + ",".join(f"{k}={v}" for k, v in sizes.items()))
    case = Oracle(workload.normalised(), 0).quick
    peer = torch_peer.TorchPeer(workload.normalised(), case.inputs, 1)
    peer.call()
    assert case.check(peer.outputs()) is None
    assert expected in raced
    assert peer.variant.split("; ")[-1] in raced


def test_a_softmax_is_found_however_it_is_spelled() -> None:
    pytest.importorskip("torch")
    from tilewright.peers.torch_peer.peer import TorchPeer

    text = (
        "m[b,j] max= X[b,i,j]; s[b,j] += exp(X[b,i,j] - m[b,j]);"
        " Y[b,i,j] = exp(X[b,i,j] - m[b,j]) / s[b,j]"
    )
    workload = parse_workload(expr=text, tensors=["X=f32[3,40,50]"]).normalised()
    case = Oracle(workload, 0).quick
    peer = TorchPeer(workload, case.inputs, 1)
    peer.call()
    assert case.check(peer.outputs()) is None
    assert peer.variant.startswith("torch.softmax along 1")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_reduction_may_go_step_by_step(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cube of all terms would leave the caches, where a matrix a step does not."""
    if library == "torch":
        pytest.importorskip("torch")
    from tilewright.peers.torch_peer import peer as torch_peer

    text = "C[i,j] max= A[i,k] + abs(B[k,j])"
    workload = parse_workload(expr=text, tensors=["A=f32[5,6]", "B=f32[6,7]"]).normalised()
    wanted = "one step of the reduction at a time"
    for module in (numpy_peer, torch_peer):
        choose_only(monkeypatch, module, wanted)
    case = Oracle(workload, 0).quick
    peer: Any = (
        NumpyPeer(workload, case.inputs)
        if library == "numpy"
        else torch_peer.TorchPeer(workload, case.inputs, 1)
    )
    peer.call()
    assert peer.variant == wanted
    assert case.check(peer.outputs if library == "numpy" else peer.outputs()) is None


RELU6 = ["min(6, max(0, C[i,j] + b[j]))", "where(b[j] + C[i,j] >= 6, 6, max(C[i,j] + b[j], 0))"]


@pytest.mark.parametrize("spelled", RELU6)
def test_what_follows_is_recognised_by_its_values(spelled: str) -> None:
    tensors = ["A=f32[4,5]", "B=f32[5,6]", "b=f32[6]"]
    text = f"C[i,j] += A[i,k] * B[k,j]; D[i,j] = {spelled}"
    stages = parse_workload(expr=text, tensors=tensors).normalised().stages
    form = epilogue_form(stages[-1], stages[0].name, 1)
    assert form == EpilogueForm("i2", None, "relu6")


@pytest.mark.parametrize("spelled", ["C[i,j] * b[j]", "max(C[i,j], b[j])", "C[i,j] + exp(b[j])"])
def test_what_no_call_can_do_is_no_epilogue(spelled: str) -> None:
    tensors = ["A=f32[4,5]", "B=f32[5,6]", "b=f32[6]"]
    text = f"C[i,j] += A[i,k] * B[k,j]; D[i,j] = {spelled}"
    stages = parse_workload(expr=text, tensors=tensors).normalised().stages
    assert epilogue_form(stages[-1], stages[0].name, 1) is None
