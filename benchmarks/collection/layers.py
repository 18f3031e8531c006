"""Layers of channels-first images, written with `compute` and `windows` as a user of arrays does.

Images are [N, C, spatial axes...], weights [CO, CI/groups, taps...] and, of transposed
convolutions, [CI, CO/groups, taps...]. Sizes are given once for all spatial axes or as a tuple.
Each layer takes any array, and returns an array. Convolutions are tensors, named after their
weights, which must be tensors, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tilewright as tw

Sizes = int | Sequence[int]


def conv(
    x: Any, w: Any, stride: Sizes = 1, pad: Sizes = 0, dilation: Sizes = 1, groups: int = 1
) -> Any:
    """Return the convolution of `x` with `w`, as F.conv1d, F.conv2d and F.conv3d."""
    rank = x.ndim - 2
    s, p, d = (_each(v, rank) for v in (stride, pad, dilation))
    per_group, taps = w.shape[1], w.shape[2:]
    outs = _outs(x.shape[2:], taps, s, p, d)
    c, r = tw.reduce_axis(per_group, "c"), _taps(taps)
    inside = _padded(x, p)
    out_per_group = w.shape[0] // groups

    def element(n: Any, o: Any, *at: Any) -> Any:
        channel = c + (o // out_per_group) * per_group if groups > 1 else c
        read = inside[(n, channel, *_positions(at, r, s, d))]
        return tw.sum(read * w[(o, c, *r)], axis=(c, *r))

    return tw.compute(f"conv_{w.name}", (x.shape[0], w.shape[0], *outs), element)


def conv_transpose(
    x: Any, w: Any, stride: Sizes = 1, pad: Sizes = 0, out_pad: Sizes = 0, dilation: Sizes = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    """Return the transposed convolution of `x` with `w`, as F.conv_transpose2d."""
    rank = x.ndim - 2
    s, p, more, d = (_each(v, rank) for v in (stride, pad, out_pad, dilation))
    taps, out_per_group, per_group = w.shape[2:], w.shape[1], w.shape[0] // groups
    reach = [d[a] * (taps[a] - 1) for a in range(rank)]
    outs = [(x.shape[2 + a] - 1) * s[a] - 2 * p[a] + reach[a] + more[a] + 1 for a in range(rank)]
    c, r = tw.reduce_axis(per_group, "c"), _taps(taps)
    # Output h gets x[i] * w[r] where h = i*stride - pad + r*dilation. The inputs that some output
    # and tap ask for, at both ends:
    before = [-((p[a] - reach[a]) // s[a]) for a in range(rank)]
    after = [(outs[a] - 1 + p[a]) // s[a] - (x.shape[2 + a] - 1) for a in range(rank)]
    widths = [(max(b, 0), max(e, 0)) for b, e in zip(before, after, strict=True)]
    inside = tw.pad(x, [(0, 0), (0, 0), *widths]) if any(map(any, widths)) else x

    def element(n: Any, o: Any, *at: Any) -> Any:
        channel, out = (
            (c + (o // out_per_group) * per_group, o % out_per_group) if groups > 1 else (c, o)
        )
        starts = [at[a] + p[a] - r[a] * d[a] for a in range(rank)]
        read = inside[(n, channel, *(starts[a] // s[a] + widths[a][0] for a in range(rank)))]
        for a in range(rank):
            if s[a] > 1:
                read = tw.select(tw.eq(starts[a] % s[a], 0), read, 0.0)
        return tw.sum(read * w[(channel, out, *r)], axis=(c, *r))

    return tw.compute(f"conv_{w.name}", (x.shape[0], out_per_group * groups, *outs), element)


def max_pool(
    x: Any, size: Sizes, stride: Sizes | None = None, pad: Sizes = 0, dilation: Sizes = 1
) -> Any:
    """Return the greatest element of each window, as F.max_pool1d, 2d and 3d."""
    return _windows(x, size, stride, pad, dilation, -float("inf")).max(_taps_of(x))


def avg_pool(x: Any, size: Sizes, stride: Sizes | None = None, pad: Sizes = 0) -> Any:
    """Return the mean of each window, in which the padding counts, as F.avg_pool1d, 2d and 3d."""
    return _windows(x, size, stride, pad, 1, 0.0).mean(_taps_of(x))


def _windows(
    x: Any, size: Sizes, stride: Sizes | None, pad: Sizes, dilation: Sizes, fill: float
) -> Any:
    rank = x.ndim - 2
    taps = _each(size, rank)
    step = taps if stride is None else stride
    return tw.windows(_padded(x, _each(pad, rank), fill), taps, stride=step, dilation=dilation)


def _taps_of(x: Any) -> tuple[int, ...]:
    """Return the axes of the taps of windows on all spatial axes of `x`."""
    return tuple(range(2 - x.ndim, 0))


def _each(value: Sizes, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _taps(taps: Sequence[int]) -> tuple[Any, ...]:
    return tuple(tw.reduce_axis(extent, f"r{a}") for a, extent in enumerate(taps))


def _outs(
    sizes: Sequence[int], taps: Sequence[int], stride: Sequence[int], pad: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:  # fmt: skip
    return [
        (i + 2 * p - d * (k - 1) - 1) // s + 1
        for i, k, s, p, d in zip(sizes, taps, stride, pad, dilation, strict=True)
    ]


def _positions(at: Any, taps: Any, stride: Sequence[int], dilation: Sequence[int]) -> list[Any]:
    """Return the positions in the padded image that the taps read for the output at `at`."""
    return [h * s + r * d for h, r, s, d in zip(at, taps, stride, dilation, strict=True)]


def _padded(x: Any, pad: Sequence[int], value: float = 0.0) -> Any:
    return tw.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)], value=value) if any(pad) else x
