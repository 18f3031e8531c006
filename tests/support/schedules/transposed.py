"""Random transposed convolutions, and what they are, by adding up what each input element gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.transposed import SPELLINGS, Convolution, upsampled
from tilewright.schedules.workload.workload import Workload


def backwards(c: Convolution) -> Workload:
    return upsampled(c, flipped=False)


ALL_SPELLINGS: dict[str, Callable[[Convolution], Workload]] = {**SPELLINGS, "backwards": backwards}


def random_convolution(rng: random.Random) -> Convolution:
    """One to three axes, strides of 1 to 5, dilated, padded, in groups, in both layouts."""
    rank = rng.choice((1, 1, 2, 2, 3))
    groups = rng.choice((1, 1, 1, 2, 4))
    ci, co = groups * rng.choice((1, 2, 3, 16)), groups * rng.choice((1, 1, 3, 8))
    most = (9, 6, 3)[rank - 1]
    while True:

        def drawn(low: int, high: int) -> tuple[int, ...]:
            return tuple(rng.randint(low, high) for _ in range(rank))

        stride, dilation = drawn(1, (5, 5, 3)[rank - 1]), drawn(1, 3)
        found = Convolution(
            first=rng.random() < 0.5, batch=rng.choice((1, 1, 2)), size=drawn(1, most), ci=ci,
            co=co, kernel=drawn(1, (7, 5, 3)[rank - 1]), stride=stride, pad=drawn(0, 2),
            dilation=dilation,
            out_pad=tuple(
                rng.randrange(max(s, d)) if rng.random() < 0.3 else 0
                for s, d in zip(stride, dilation, strict=True)
            ),
            groups=groups,
        )  # fmt: skip
        if all(extent >= 1 for extent in found.out):
            return found


def scattered(c: Convolution, x: npt.NDArray[Any], w: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The convolution in f64 from its other definition: X[i] * W[r] is added to output i*stride -
    pad + r*dilation."""
    if not c.first:
        x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-2, -1), (0, 1))
    x, w = x.astype(np.float64), w.astype(np.float64)
    ci, co = c.ci // c.groups, c.co // c.groups
    y = np.zeros((c.batch, c.co, *c.out))
    for at in product(*map(range, c.size)):
        for tap in product(*map(range, c.kernel)):
            to = tuple(
                i * s - p + r * d
                for i, s, p, r, d in zip(at, c.stride, c.pad, tap, c.dilation, strict=True)
            )
            if not all(0 <= t < extent for t, extent in zip(to, c.out, strict=True)):
                continue
            for g in range(c.groups):
                given = slice(g * ci, (g + 1) * ci)
                here: Any = (slice(None), slice(g * co, (g + 1) * co), *to)
                where: Any = (slice(None), given, *at)
                weights: Any = (given, slice(None), *tap)
                y[here] += x[where] @ w[weights]
    return y if c.first else np.moveaxis(y, 1, -1)


def spelled(c: Convolution) -> dict[str, Workload]:
    return {name: spelling(c) for name, spelling in ALL_SPELLINGS.items()}
