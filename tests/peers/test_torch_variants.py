"""What PyTorch has a function for is found however a stranger spells it, in any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.peers.racing import record_variants
from tilewright.peers.variants import PeerVariant
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge.oracle import Oracle

torch = pytest.importorskip("torch")

from tilewright.peers.library_peers import torch_peer  # noqa: E402
from tilewright.peers.torch_peer import peer as module  # noqa: E402
from tilewright.peers.torch_peer.peer import TorchPeer  # noqa: E402

IMAGE, MEAN = "X=f32[2,3,9,8]", "m[c] += X[n,c,h,w] / 144;"
BATCH = "(X[n,c,h,w]-m[c])*(X[n,c,h,w]-m[c])/144"
CHANNELS = ["m=f32[3]", "v=f32[3]", "g=f32[3]", "b=f32[3]"]

SPELLED: dict[str, tuple[str, list[str], list[str], str]] = {
    "max pool": (
        "Y[n,c,h,w] max= X[n,c,2*h+r,2*w+s]", [IMAGE], ["h=4", "w=3", "r=3", "s=3"], "max_pool2d"
    ),
    "max pool of zeros outside": (
        "Y[n,h,c] max= X[n,2*h+r-1,c]", ["X=f32[2,9,3]"], ["h=5", "r=3"],
        "pad with zeros, max_pool1d",
    ),
    "min pool": ("Y[c,h] min= X[c,h+2*r]", ["X=f32[3,12]"], ["h=8", "r=3"], "max_pool1d, negated"),
    "average pool": (
        "S[n,c,h,w] += X[n,c,2*h+r,2*w+s]; Y[n,c,h,w] = S[n,c,h,w] / 6", [IMAGE],
        ["h=3", "w=3", "r=2", "s=3"], "avg_pool2d",
    ),
    "average pool with padding": (
        "Y[n,h,w,c] += 0.125 * X[n,h+r-1,w+s,c]", ["X=f32[2,8,8,3]"],
        ["h=9", "w=5", "r=2", "s=4"], "avg_pool2d",
    ),
    "sum pool of a volume": (
        "Y[d,h,w] += X[d+q,h+r,w+s]", ["X=f32[5,6,7]"], ["q=2", "r=2", "s=2"],
        "avg_pool3d, divided by 1",
    ),
    "NCHW": (
        "Y[n,o,h,w] += X[n,c,h+r-1,w+s-1] * W[o,c,r,s]", [IMAGE, "W=f32[4,3,3,3]"],
        ["h=9", "w=8"], "oneDNN convolution, weights channels last",
    ),
    "reversed kernel": (
        "Y[n,o,h] += X[n,c,h-r] * W[o,c,r]", ["X=f32[2,3,8]", "W=f32[4,3,3]"], ["h=10"], "conv1d"
    ),
    "padded at one side": (
        "Y[n,o,h] += X[n,c,h+r] * W[o,c,r]", ["X=f32[2,3,8]", "W=f32[4,3,3]"], ["h=8"], "conv1d"
    ),
    "one image, one kernel": (
        "Y[h,w] += X[h+r,w+s] * K[r,s]", ["X=f32[12,13]", "K=f32[3,4]"], [], "conv2d"
    ),
    "strided pointwise": (
        "Y[n,o,h,w] += X[n,c,2*h,2*w] * W[o,c]", [IMAGE, "W=f32[4,3]"], ["h=5", "w=4"], "conv2d"
    ),
    "pointwise": (
        "Y[n,o,h,w] += X[n,c,h,w] * W[o,c]", [IMAGE, "W=f32[4,3]"], [], "oneDNN pointwise"
    ),
    "depthwise with a multiplier": (
        "Y[n,c,m,h,w] += X[n,c,h+r-1,w+s-1] * W[c,m,r,s]", [IMAGE, "W=f32[3,2,3,3]"],
        ["h=9", "w=8"], "oneDNN pointwise",
    ),
    "groups as an axis": (
        "Y[n,h,g,o] += X[n,h+r,g,c] * W[r,g,c,o]", ["X=f32[2,9,3,4]", "W=f32[3,3,4,2]"], [],
        "conv1d",
    ),
    "transposed by definition": (
        "Y[n,o,y,x] += X[n,c,i,j] * W[c,o,y+1-2*i,x+1-2*j]",
        ["X=f32[2,3,5,4]", "W=f32[3,2,4,4]"], ["y=10", "x=8"], "conv_transpose2d",
    ),
    "transposed with more at the end": (
        "O[y,f] += W[y+1-2*i,f] * I[i]", ["W=f32[3,5]", "I=f32[8]"], ["y=16"], "conv_transpose1d"
    ),
    "batch norm": (
        "Y[n,c,h,w] = (X[n,c,h,w]-m[c])*rsqrt(v[c]+0.001)*g[c]+b[c]", [IMAGE, *CHANNELS], [],
        "batch_norm(0.001) along 1, operands (0, 1, 2, 3)",
    ),
    "batch norm, other order, rectified": (
        "Y[n,h,c] = max(0, b[c] + g[c]*((X[n,h,c]-m[c])/sqrt(0.001+v[c])))",
        ["X=f32[2,7,3]", *reversed(CHANNELS)], [],
        "batch_norm(0.001) along 2, operands (3, 2, 1, 0), relu_",
    ),
    "batch norm of the batch": (
        f"{MEAN} v[c] += {BATCH}; Y[n,c,h,w] = (X[n,c,h,w]-m[c])/sqrt(v[c]+0.001)*g[c]+b[c]",
        [IMAGE, *CHANNELS[2:]], [], "batch_norm(0.001) along 1, of the batch",
    ),
    "group norm": (
        "m[n,k] += X[n,k,c,h]/12; v[n,k] += (X[n,k,c,h]-m[n,k])*(X[n,k,c,h]-m[n,k])/12;"
        "Y[n,k,c,h] = (X[n,k,c,h]-m[n,k])/sqrt(v[n,k]+0.001)*g[k,c]+b[k,c]",
        ["X=f32[2,3,2,6]", "g=f32[3,2]", "b=f32[3,2]"], [], "group_norm(3, 0.001) along 1",
    ),
    "instance norm": (
        "m[n,c] += X[n,c,h]/8; v[n,c] += (X[n,c,h]-m[n,c])*(X[n,c,h]-m[n,c])/8;"
        "Y[n,c,h] = (X[n,c,h]-m[n,c])/sqrt(v[n,c]+0.001)*g[c]+b[c]",
        ["X=f32[2,3,8]", *CHANNELS[2:]], [], "instance_norm(0.001) along 1",
    ),
    "layer norm of channels, after a sum": (
        "R[n,c,h]=X[n,c,h]+Z[n,c,h]; m[n,h] += R[n,c,h]/8;"
        "v[n,h] += (R[n,c,h]-m[n,h])*(R[n,c,h]-m[n,h])/8;"
        "Y[n,c,h]=(R[n,c,h]-m[n,h])/sqrt(v[n,h]+0.00001)*g[c]+b[c]",
        ["X=f32[2,8,7]", "Z=f32[2,8,7]", "g=f32[8]", "b=f32[8]"], [],
        "layer_norm(1e-05) along (1,)",
    ),
    "root mean square norm": (
        "v[n] += X[n,c]*X[n,c]/16; Y[n,c] = X[n,c]*rsqrt(v[n]+0.00001)*g[c]",
        ["X=f32[9,16]", "g=f32[16]"], [], "rms_norm(1e-05)",
    ),
    "log softmax along the first axis": (
        "m[j] max= X[i,j]; s[j] += exp(X[i,j]-m[j]); Y[i,j] = X[i,j]-m[j]-log(s[j])",
        ["X=f32[9,16]"], [], "torch.log_softmax along 0",
    ),
    "gelu": ("Y[i,j] = 0.5*X[i,j]*(1+erf(X[i,j]*0.70710678))", ["X=f32[9,16]"], [], "gelu"),
    "cumulative sum": ("Y[i,j] += where(k<=j, X[i,k], 0)", ["X=f32[5,6]"], ["j=6"],
                       "torch.cumsum along 1"),
    "stencil": ("Y[i,j] = X[i,j]+0.5*(X[i-1,j]-2*X[i,j]+X[i+1,j])", ["X=f32[40,5]"],
                ["i=40", "j=5"], "conv2d with a constant kernel"),
    "three factors": (
        "Y[i,r] += T[i,j,k] * B[j,r] * C[k,r]", ["T=f32[5,6,7]", "B=f32[6,4]", "C=f32[7,4]"], [],
        "einsum",
    ),
    "distances": ("D[i,j] += abs(A[i,k]-B[j,k])", ["A=f32[5,6]", "B=f32[7,6]"], [],
                  "torch.cdist(1)"),
    "matching costs": ("Y[h,w,d] += F[h,w,c] * G[h,w+d,c]", ["F=f32[4,5,6]", "G=f32[4,8,6]"],
                       ["d=4"], "torch.matmul of views"),
    "groups of channels": (
        "Y[n,f,h] += X[n,c+4*(f//8),2*h+r-1] * W[f,c,r]", ["X=f32[16,8,30]", "W=f32[16,4,3]"],
        ["h=15", "c=4"], "oneDNN convolution",
    ),
    "permutation": ("Y[n,c,h,w] = X[n,h,w,c]", ["X=f32[2,5,6,7]"], [], "contiguous"),
}  # fmt: skip
"""Text, tensors, ranges, and a way that must have been raced."""


def asked(
    workload: Workload, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[TorchPeer, set[str]]:
    """A peer that was hardly raced, and the ways that worked."""
    raced = record_variants(monkeypatch, module)
    peer = TorchPeer(workload, Oracle(workload, 0).quick.inputs, 1, **options)
    return peer, raced


def near(workload: Workload, peer: TorchPeer) -> bool:
    """A library's algorithm rounds otherwise than a sum of ours may."""
    (expected,) = Oracle(workload, 0).quick.expected
    (found,) = peer.outputs()
    limit = 1e-5 * float(np.abs(expected.values).max())
    return bool(np.allclose(found, expected.values, rtol=0, atol=limit))


@pytest.mark.parametrize("name", SPELLED)
def test_a_function_of_the_library_is_found_by_structure(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, tensors, ranges, expected = SPELLED[name]
    workload = parse_workload(expr=text, tensors=tensors, ranges=ranges).normalised()
    peer, raced = asked(workload, monkeypatch)
    peer.call()
    assert any(variant.removeprefix("as an image, ") == expected for variant in raced), raced
    assert near(workload, peer)


@pytest.mark.parametrize(
    ("text", "tensors", "ranges"),
    [
        ("Y[o,h] += where(r<=1, X[c,h+r-1]*W[o,c,r], 0)", ["X=f32[3,8]", "W=f32[4,3,3]"], ["h=8"]),
        ("Y[i] = X[i,i] * 2", ["X=f32[6,6]"], []),
        ("Y[i] = X[7-i] * 2", ["X=f32[8]"], ["i=8"]),
        ("Y[i,j] = X[i//2,j%3] + X[i,j]", ["X=f32[8,8]"], ["i=8", "j=8"]),
        ("Y[i,j] = X[j] * 1", ["X=f32[5]"], ["i=4"]),
        ("m[i] max= X[i,k]; Y[i,j] = b[j]", ["X=f32[5,6]", "b=f32[4]"], ["i=5"]),
    ],
)
def test_what_is_no_function_is_asked_for_plainly(
    text: str, tensors: list[str], ranges: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = parse_workload(expr=text, tensors=tensors, ranges=ranges).normalised()
    peer, _ = asked(workload, monkeypatch)
    peer.call()
    assert Oracle(workload, 0).quick.check(peer.outputs()) is None


def test_a_masked_convolution_is_no_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Y[o,h] += where(r<=1, X[c,h+r-1]*W[o,c,r], 0)"
    tensors = ["X=f32[3,8]", "W=f32[4,3,3]"]
    workload = parse_workload(expr=text, tensors=tensors, ranges=["h=8"]).normalised()
    peer, raced = asked(workload, monkeypatch)
    assert not any("conv" in variant for variant in raced)
    assert "gives another result" in peer.dropped["conv1d"]


def test_a_transposition_is_computed_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view would take no time and move nothing."""
    text, tensors, ranges, _ = SPELLED["permutation"]
    workload = parse_workload(expr=text, tensors=tensors, ranges=ranges).normalised()
    peer, _ = asked(workload, monkeypatch)
    peer.call()
    assert peer._tensors.values["s0"].is_contiguous()
    assert peer._tensors.values["s0"].data_ptr() != peer._tensors.values["i0"].data_ptr()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_compiled_way_is_compared_and_uses_the_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.codegen import cpp

    from tilewright.peers.torch_peer import compiled as torch_compiled

    monkeypatch.setattr(torch_compiled, "MODES", ("default",))
    seen: list[int] = []
    real = cpp.parallel_num_threads

    def counted() -> int:
        seen.append(real())
        return seen[-1]

    monkeypatch.setattr(cpp, "parallel_num_threads", counted)
    text = f"Y[i,j] = exp(X[i,j]) * {threads + 2} + Z[j]"  # no code that is cached
    workload = parse_workload(expr=text, tensors=["X=f32[300,400]", "Z=f32[400]"]).normalised()
    inputs = Oracle(workload, 0).quick.inputs
    peer = TorchPeer(workload, inputs, threads, compile_secs=300.0)
    assert set(peer.compiled_secs) == {"eager", "compiled"}, peer.dropped
    assert "torch.compile (default)" in peer.ways_secs
    assert set(seen) <= {threads}
    peer.call()
    assert near(workload, peer)


def test_compiling_is_bounded_and_the_reason_told(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = parse_workload("matmul:M=4,N=16,K=8").normalised()
    peer, raced = asked(workload, monkeypatch, compile_secs=1e-9)
    assert not any("compile" in variant for variant in raced)
    assert "takes more than the limit of 1e-09 s" in peer.dropped["torch.compile (default)"]
    assert peer.compiled_secs == {}


def test_no_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.peers.torch_peer import compiled as torch_compiled

    monkeypatch.setattr(torch_compiled, "which", lambda _: None)
    workload = parse_workload("matmul:M=4,N=16,K=8").normalised()
    peer, _ = asked(workload, monkeypatch, compile_secs=10.0)
    assert "no C++ compiler was found" in peer.dropped["torch.compile (default)"]


def test_a_compiled_way_that_gives_something_else_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = parse_workload("matmul:M=4,N=16,K=8").normalised()

    def wrong(*_: object) -> list[PeerVariant]:
        return [PeerVariant("torch.compile (default)", lambda: lambda: (torch.zeros(4, 16),))]

    monkeypatch.setattr(module, "compiled_variants", wrong)
    peer, _ = asked(workload, monkeypatch, compile_secs=10.0)
    assert "gives another result" in peer.dropped["torch.compile (default)"]
    peer.call()
    assert Oracle(workload, 0).quick.check(peer.outputs()) is None


def test_one_image_keeps_its_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reshape to the same shape gives a dimension of one element another stride, and PyTorch then
    takes code that is thirty times slower."""
    seen: list[bool] = []
    real = torch.nn.functional.max_pool2d

    def pool(image: Any, *how: Any, **more: Any) -> Any:
        seen.append(image.is_contiguous(memory_format=torch.channels_last))
        return real(image, *how, **more)

    monkeypatch.setattr(torch.nn.functional, "max_pool2d", pool)
    workload = parse_workload("max_pool2d_nhwc:H=9,W=8,C=16,K=3,stride=2,pad=1").normalised()
    _, raced = asked(workload, monkeypatch)
    assert "max_pool2d" in raced
    assert seen[0]


def test_ways_are_compared_with_an_exact_enough_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of two long vectors by matmul is off by 2e-4; nothing better may be dropped."""
    workload = parse_workload("norm_bmn:B=2,M=1024,N=1024").normalised()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((2, 1024, 1024), dtype=np.float32)]
    raced = record_variants(monkeypatch, module)
    peer = TorchPeer(workload, inputs, 1)
    assert {"torch.linalg.vector_norm along (1, 2)", "vecdot along (1, 2), sqrt_"} <= raced
    peer.call()
    exact = np.sqrt((inputs[0].astype(np.float64) ** 2).sum((1, 2)))
    np.testing.assert_allclose(peer.outputs()[0], exact, rtol=1e-4)


def test_dispatch_is_of_the_way_that_was_chosen() -> None:
    spelled = "depthwise_conv2d_nhwc:H=30,W=30,C=64,K=3,pad=1"
    workload = parse_workload(spelled).normalised()
    peer = torch_peer(workload, Oracle(workload, 0).quick.inputs, 1, 0.0)
    assert 0 < peer.details["dispatch_secs"] < 1
    assert peer.details["way"] in peer.details["ways_secs"]
