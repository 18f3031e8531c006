"""Rows of tails: no size of a matrix product may fall off a cliff.

In each neighbourhood of 16 sizes along M, N and K some products are tuned with few trials on one
thread; the slowest operation must take at most twice as long as the fastest one.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from benchmarks.suite.context import Context, Row, run_json

LEAST, MOST, REACH = 33, 160, 16
NEIGHBOURHOODS, SAMPLES, TRIALS = 8, 10, 8
SECS_A_SAMPLE = 2.2
Size = tuple[int, int, int]


def neighbourhood(number: int) -> list[Size]:
    """The sizes (M, N, K) of one neighbourhood: the whole multiples of 16 in it, those beside, then
    random ones. The same every time; the first lies at the smallest sizes."""
    rng = np.random.default_rng(number)
    corner = rng.integers(LEAST, MOST - REACH + 2, 3) if number else np.full(3, LEAST)
    whole = -(-corner // REACH) * REACH  # the only multiple of 16 in reach
    beside = np.where(whole > corner, whole - 1, whole + 1)
    sizes = [tuple(whole), tuple(beside)]
    while len(set(sizes)) < SAMPLES:
        sizes.append(tuple(corner + rng.integers(0, REACH, 3)))
    return [(int(m), int(n), int(k)) for m, n, k in dict.fromkeys(sizes)]


def tail_rows(context: Context) -> list[Row]:
    """One row a neighbourhood."""
    count = 1 if context.quick else NEIGHBOURHOODS
    return [
        Row(f"tails/{number}", partial(_measure, number=number), _summary, SAMPLES * SECS_A_SAMPLE)
        for number in range(count)
    ]


def _measure(context: Context, *, number: int) -> dict[str, Any]:
    sizes = neighbourhood(number)[: 3 if context.quick else None]
    command = [
        sys.executable, "-m", "benchmarks.suite.tune_sizes", str(2 if context.quick else TRIALS),
        *(",".join(map(str, size)) for size in sizes),
    ]  # fmt: skip
    products, _ = run_json(command, context.folder, 600.0)
    return {"products": products, **worst_pair(products)}


def worst_pair(products: list[dict[str, Any]]) -> dict[str, Any]:
    """How many times longer an operation takes in the slowest product than in the fastest."""
    slowest = min(products, key=lambda product: product["gflops"])
    fastest = max(products, key=lambda product: product["gflops"])
    return {
        "ratio": fastest["gflops"] / slowest["gflops"],
        "slowest": slowest,
        "fastest": fastest,
    }


def named(product: dict[str, Any]) -> str:
    """A product and its speed: `65x33x47 at 101 GFLOP/s`."""
    return f"{'x'.join(map(str, product['size']))} at {product['gflops']:.0f} GFLOP/s"


def _summary(data: dict[str, Any]) -> str:
    return f"{data['ratio']:.2f}: {named(data['slowest'])}, {named(data['fastest'])}"
