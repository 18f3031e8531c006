"""Families of the operator suite, their goals, and which family a computation belongs to.

The only place that decides this. It goes by what is computed and how large it is, never by where
a case comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.suite.cases import Case
from benchmarks.suite.registry import workload_of


@dataclass(frozen=True, slots=True)
class Family:
    """`of_bound` is a least geomean, None where it is reported without a goal. What is to be
    reached against libraries is the same for all families: `SPEEDUP` and `WORST_SPEEDUP`."""

    key: str
    title: str
    of_bound: float | None = None


SPEEDUP = 1.05
"""Least geomean over the better of NumPy and PyTorch, each at its best."""
WORST_SPEEDUP = 0.97
"""No case may be under it outside of its spread: by the upper end of its interval."""


FAMILIES = {
    family.key: family
    for family in (
        Family("gemm", "GEMM 512 to 2048", 0.93),
        Family("gemm_layouts", "GEMM 256, batched, nt and tn, attention", 0.80),
        Family("gemm_odd", "GEMM odd, prime, 1000", 0.75),
        Family("gemm_small", "GEMM 64 to 160", 0.50),
        Family("gemm_shapes", "GEMM tall, wide, deep-K", 0.75),
        Family("gemv", "GEMV and 8-row GEMM", 0.85),
        Family("conv", "convolutions, dense and dilated, >= 20 MFLOP, CI >= 16", 0.88),
        Family("conv_other", "the other convolutions, grouped, capsule", 0.70),
        Family("depthwise", "depthwise and pooling windows", 0.65),
        Family("conv_transpose", "transposed convolution, H >= 8, CO >= 16", 0.70),
        Family("conv_transpose_rest", "transposed convolution, smaller"),
        Family("rows", "norm, softmax, layer norm, column sum, mean", 0.75),
        Family("elementwise", "elementwise, transpose", 0.85),
        Family("fused", "fused subgraphs", 0.75),
    )
}

BIG_FLOPS, BIG_CHANNELS = 20e6, 16
_FEW_ROWS, _SMALL, _LARGE, _LONG_RATIO = 16, 160, 512, 8
_WHOLE = 16
"""Sizes that are no multiple of this leave a part of a vector or of a register tile over."""
_GEMMS = frozenset({"matmul", "matmul_nt", "matmul_tn", "batch_matmul", "batch_matmul_nt"})
_CONVOLUTIONS = frozenset({"conv1d_nlc", "conv2d_nhwc", "conv3d_ndhwc"})
_BY_KIND = {
    "gemv": "gemv",
    "attention_values": "gemm_layouts",
    "conv2d_capsule_nhwijc": "conv_other",
    "depthwise_conv2d_nhwc": "depthwise",
    "max_pool2d_nhwc": "depthwise",
    "norm_bmn": "rows",
    "softmax_mn": "rows",
    "layernorm_mn": "rows",
    "colsum_mn": "rows",
    "global_avg_pool_nhwc": "rows",
    "elementwise_add_relu": "elementwise",
    "transpose_mn": "elementwise",
    "conv2d_nhwc_bn_relu": "fused",
    "transpose_batch_matmul": "fused",
    "transpose_batch_matmul_softmax": "fused",
}


def family_of(case: Case) -> Family:
    """The family of a suite's case.

    Dense contractions followed by more than a bias are fused subgraphs: a bias alone is part of
    the libraries' own calls. Depthwise stays depthwise whatever follows.
    """
    return FAMILIES[_key(case, case.peer, case.sizes)]


def families_of(case: Case) -> tuple[Family, ...]:
    """Every family that counts a case, its own first: a dense convolution stays one with an
    epilogue, so those are both `fused` and `conv`."""
    home = family_of(case)
    convolves = case.peer in _CONVOLUTIONS or case.peer == "conv2d_nhwc_bn_relu"
    if home.key == "fused" and convolves and _is_dense(case):
        return home, FAMILIES["conv"]
    return (home,)


def _is_dense(case: Case) -> bool:
    """Large enough, and with enough channels, to count among the dense ones."""
    dense = case.sizes.get("groups", 1) == 1 and case.sizes["CI"] >= BIG_CHANNELS
    return dense and workload_of(case).flops >= BIG_FLOPS


def _key(case: Case, kind: str, sizes: Mapping[str, int]) -> str:
    if kind in _GEMMS | _CONVOLUTIONS and case.epilogue not in ("", "bias"):
        return "fused"
    if kind in _GEMMS:
        return _gemm(kind, sizes)
    if kind in _CONVOLUTIONS:
        return "conv" if _is_dense(case) else "conv_other"
    if kind == "conv2d_transpose_nhwc":
        large = sizes["H"] >= 8 and sizes["CO"] >= 16
        return "conv_transpose" if large else "conv_transpose_rest"
    return _BY_KIND[kind]


def _gemm(kind: str, sizes: Mapping[str, int]) -> str:
    extents = [sizes[axis] for axis in "MNK"]
    least, most = min(extents), max(extents)
    if min(sizes["M"], sizes["N"]) <= _FEW_ROWS:
        return "gemv"
    if any(extent % _WHOLE for extent in extents):
        return "gemm_odd"
    if sizes.get("B", 1) > 1 or kind.endswith(("_nt", "_tn")):
        return "gemm_layouts"
    if most <= _SMALL:
        return "gemm_small"
    if most >= _LONG_RATIO * least:
        return "gemm_shapes"
    return "gemm" if least >= _LARGE else "gemm_layouts"
