"""Convolutions and pooling in channels-first and channels-last layouts, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from tilewright.schedules import operators
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.flops import useful_flops
from tilewright.schedules.workload.workload import Workload

SPATIAL = {1: "L", 2: "HW", 3: "DHW"}
EXTENTS: dict[int, list[tuple[int, ...]]] = {
    1: [(9,), (5,)],
    2: [(7, 5), (5, 9)],
    3: [(5, 3, 6), (3, 5, 4)],
}


def suffix(rank: int, first: bool) -> str:
    axes = SPATIAL[rank].lower()
    return f"nc{axes}" if first else f"n{axes}c"


def integers(workload: Workload) -> list[np.ndarray]:
    """Small integers, whose sums of products are exact."""
    rng = np.random.default_rng(3)
    return [rng.integers(-4, 5, size=t.shape).astype(t.dtype.numpy) for t in workload.inputs]


def run(workload: Workload, *inputs: np.ndarray) -> np.ndarray:
    return np.asarray(evaluate(workload, list(inputs))[0])


def channels_first(image: np.ndarray, first: bool) -> np.ndarray:
    return image if first else np.moveaxis(image, -1, 1)


def last(a: np.ndarray, at: Any) -> Any:
    """The part of `a` at `at` in its last axes."""
    return a[(..., *at)]


def windowed(
    x: np.ndarray, kernel: tuple[int, ...], stride: int, pad: int, dilation: int,
    combine: Callable[[np.ndarray], np.ndarray], fill: float = 0,
) -> np.ndarray:  # fmt: skip
    """`combine` of the window x[N, C, *kernel] of each output position."""
    wide = np.pad(x, ((0, 0), (0, 0), *((pad, pad) for _ in kernel)), constant_values=fill)
    spans = [dilation * (k - 1) + 1 for k in kernel]
    outs = [(e - s) // stride + 1 for e, s in zip(wide.shape[2:], spans, strict=True)]
    found = {}
    for at in product(*map(range, outs)):
        cut = [slice(i * stride, i * stride + s, dilation) for i, s in zip(at, spans, strict=True)]
        found[at] = combine(last(wide, cut))
    some = found[(0,) * len(outs)]
    y = np.empty((*some.shape, *outs), some.dtype)
    for at, value in found.items():
        last(y, at)[...] = value
    return y


def convolved(
    x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int, groups: int
) -> np.ndarray:
    """The convolution of x[N, CI, *] by w[CO, CI/groups, *kernel]."""

    def combine(window: np.ndarray) -> np.ndarray:
        parts = np.split(window, groups, 1)
        weights = np.split(w, groups)
        sums = [
            v.reshape(len(v), -1) @ f.reshape(len(f), -1).T
            for v, f in zip(parts, weights, strict=True)
        ]
        return np.concatenate(sums, 1)

    return windowed(x, w.shape[2:], stride, pad, dilation, combine)


def scattered(
    x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int, groups: int, out_pad: int
) -> np.ndarray:
    """The transposed convolution of x[N, CI, *] by w[CI, CO/groups, *kernel]: every element of x
    adds its products to one window of the result."""
    kernel, inner = w.shape[2:], x.shape[2:]
    ci, co = len(w) // groups, w.shape[1]
    pairs = list(zip(inner, kernel, strict=True))
    full = [(i - 1) * stride + dilation * (k - 1) + 1 + out_pad for i, k in pairs]
    y = np.zeros((len(x), co * groups, *full), x.dtype)
    for at in product(*map(range, inner)):
        for tap in product(*map(range, kernel)):
            to = tuple(i * stride + r * dilation for i, r in zip(at, tap, strict=True))
            for g in range(groups):
                part, inputs = slice(g * co, g * co + co), slice(g * ci, g * ci + ci)
                sums = last(x[:, inputs], at) @ last(w[inputs], tap)
                last(y[:, part], to)[...] += sums
    return np.asarray(last(y, [slice(pad, extent - pad) for extent in full]))


def sizes(rank: int, extents: tuple[int, ...]) -> dict[str, Any]:
    return dict(zip(SPATIAL[rank], extents, strict=True))


WINDOWS: list[dict[str, Any]] = [
    {"K": 3, "stride": 2, "pad": 1, "dilation": 1, "groups": 1},
    {"K": 2, "stride": 1, "pad": 2, "dilation": 2, "groups": 3},
]


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int, first: bool, case: int) -> None:
    options = WINDOWS[case]
    extents = EXTENTS[rank][case]
    workload = operators.build(
        f"conv{rank}d_{suffix(rank, first)}",
        {"N": 2, "CI": 3, "CO": 6, **sizes(rank, extents), **options},
    )
    x, w = integers(workload)
    weights = w if first else np.moveaxis(w, (-1, -2), (0, 1))
    assert weights.shape[:2] == (6, 3 // options["groups"])
    assert weights.shape[2:] == (options["K"],) * rank
    given = {n: v for n, v in options.items() if n != "K"}
    wanted = convolved(channels_first(x, first), weights, **given)
    np.testing.assert_array_equal(channels_first(run(workload, x, w), first), wanted)
    assert workload.flops == 2 * wanted.size * weights[0].size


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions(rank: int, first: bool, case: int) -> None:
    options = {**WINDOWS[case], "pad": 1, "out_pad": 1}
    extents = tuple(max(2, e // 2) for e in EXTENTS[rank][case])
    workload = operators.build(
        f"conv{rank}d_transpose_{suffix(rank, first)}",
        {"N": 2, "CI": 3, "CO": 6, **sizes(rank, extents), **options},
    )
    x, w = integers(workload)
    weights = w if first else np.moveaxis(w, (-2, -1), (0, 1))
    assert weights.shape == (3, 6 // options["groups"], *(options["K"],) * rank)
    given = {n: v for n, v in options.items() if n != "K"}
    wanted = scattered(channels_first(x, first), weights, **given)
    np.testing.assert_array_equal(channels_first(run(workload, x, w), first), wanted)
    assert workload.flops == useful_flops(workload)


@pytest.mark.parametrize(("h", "w", "stride", "dilation"), [(7, 5, 2, 1), (5, 9, 1, 2)])
@pytest.mark.parametrize("first", [True, False])
def test_depthwise_convolutions(first: bool, h: int, w: int, stride: int, dilation: int) -> None:
    workload = operators.build(
        f"depthwise_conv2d_{suffix(2, first)}",
        {"N": 2, "H": h, "W": w, "C": 3, "K": 3, "pad": 1, "stride": stride, "dilation": dilation},
    )
    x, f = integers(workload)
    assert f.shape == ((3, 1, 3, 3) if first else (3, 3, 3))
    weights = f if first else np.moveaxis(f, -1, 0)[:, None]
    wanted = convolved(channels_first(x, first), weights, stride, 1, dilation, 3)
    np.testing.assert_array_equal(channels_first(run(workload, x, f), first), wanted)
    assert workload.flops == 2 * wanted.size * 9


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pooling(rank: int, first: bool, case: int) -> None:
    name = suffix(rank, first)
    given: dict[str, Any] = [
        {"K": 3, "stride": 2, "pad": 1}, {"K": 2, "stride": 1, "pad": 1},
    ][case]  # fmt: skip
    shape: dict[str, Any] = {"N": 2, "C": 3, **sizes(rank, EXTENTS[rank][case])}
    axes = tuple(range(2, rank + 2))
    kernel, stride, pad = (given["K"],) * rank, given["stride"], given["pad"]
    mean = operators.build(f"avg_pool{rank}d_{name}", {**shape, **given})
    (x,) = integers(mean)
    image = channels_first(x, first)
    wanted = windowed(image, kernel, stride, pad, 1, lambda v: v.mean(axes, dtype=np.float64))
    np.testing.assert_allclose(channels_first(run(mean, x), first), wanted, rtol=1e-6)
    assert mean.flops == wanted.size * given["K"] ** rank
    most = operators.build(f"max_pool{rank}d_{name}", {**shape, **given, "dilation": 1 + case})
    best = windowed(image, kernel, stride, pad, 1 + case, lambda v: v.max(axes), fill=-np.inf)
    np.testing.assert_array_equal(channels_first(run(most, x), first), best)
    assert most.flops == best.size * given["K"] ** rank


@pytest.mark.parametrize(("h", "w"), [(5, 3), (1, 7)])
@pytest.mark.parametrize("first", [True, False])
def test_global_pooling(first: bool, h: int, w: int) -> None:
    workload = operators.build(f"global_avg_pool_{suffix(2, first)}", N=2, H=h, W=w, C=3)
    (x,) = integers(workload)
    wanted = channels_first(x, first).mean((2, 3), dtype=np.float64)
    np.testing.assert_allclose(run(workload, x), wanted, rtol=1e-6)


def test_epilogues_of_channels_first_convolutions_are_per_channel() -> None:
    shape = {"N": 2, "H": 5, "W": 3, "CI": 2, "CO": 4, "K": 3, "pad": 1}
    workload = operators.build("conv2d_nchw", shape, epilogue="bias+add+relu")
    x, w, bias, residual = integers(workload)
    assert (bias.shape, residual.shape) == ((4,), (2, 4, 5, 3))
    wanted = convolved(x, w, 1, 1, 1, 1) + bias[:, None, None] + residual
    np.testing.assert_array_equal(run(workload, x, w, bias, residual), np.maximum(wanted, 0))
    normed = operators.build("conv2d_nchw_bn_relu", shape)
    x, w, bias, scale, offset = integers(normed)
    wanted = (convolved(x, w, 1, 1, 1, 1) + bias[:, None, None]) * scale[:, None, None]
    wanted = np.maximum(wanted + offset[:, None, None], 0)
    np.testing.assert_array_equal(run(normed, x, w, bias, scale, offset), wanted)
    requantised = operators.build("conv2d_nchw", shape, dtype="u8s8s32", epilogue="requant")
    assert [t.shape for t in requantised.inputs[2:]] == [(4,), (1,)]


def test_the_layouts_of_one_convolution_have_equal_counts() -> None:
    shape = {"N": 2, "H": 9, "W": 8, "CI": 4, "CO": 6, "KH": 3, "KW": 1, "pad_h": 1, "groups": 2}
    first, last = (operators.build(name, shape) for name in ("conv2d_nchw", "conv2d_nhwc"))
    assert (first.flops, first.min_bytes) == (last.flops, last.min_bytes)
    assert first.key != last.key


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("conv2d_nchw", {"H": 2, "W": 8, "CI": 1, "CO": 1, "K": 3}, "window of H spans 3, more"),
        ("conv1d_ncl", {"L": 8, "CI": 4, "CO": 3, "K": 3, "groups": 2}, "must divide CO=3"),
        ("conv3d_ncdhw", {"D": 1, "H": 1, "W": 1, "CI": 1, "CO": 1, "K": 2}, "window of D spans 2"),
        ("conv2d_transpose_nchw", {"H": 2, "W": 2, "CI": 3, "CO": 4, "K": 2, "groups": 2},
         "groups=2 must divide CI=3"),
        ("conv2d_transpose_nchw", {"H": 2, "W": 2, "CI": 1, "CO": 1, "K": 1, "pad": 1},
         "output of H would have 0 points"),
        ("conv2d_transpose_nchw", {"H": 2, "W": 2, "CI": 1, "CO": 1, "K": 3, "out_pad": 1},
         "out_pad=1 of H must be less than its stride or its dilation"),
        ("avg_pool2d_nchw", {"H": 2, "W": 2, "C": 1, "K": 3}, "window of H spans 3"),
        ("avg_pool2d_nchw", {"H": 2, "W": 2, "C": 1, "K": 1, "dilation": 2}, "has no parameter"),
        ("max_pool1d_ncl", {"L": 3, "C": 1, "K": 2, "dilation": 3}, "window of L spans 4"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_explained(
    name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        operators.build(name, params)
