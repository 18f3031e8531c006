"""The report of a file of results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

Result = dict[str, Any]
LEAST_RATIO = 0.95
_REASONS = ("cannot_be_expressed", "failed", "wrong")


def summary(results: Sequence[Result]) -> str:
    """Return the figures over all rows of each number of threads, and the table of rows from the
    lowest ratio up."""
    latest = {(each["threads"], each["name"]): each for each in results}
    counts = sorted({threads for threads, _ in latest})
    return "\n\n".join(
        "\n".join(_of_threads(threads, [r for (n, _), r in latest.items() if n == threads]))
        for threads in counts
    )


def _of_threads(threads: int, results: Sequence[Result]) -> Iterator[str]:
    expressible = [r for r in results if "cannot_be_expressed" not in r]
    right = sorted((r for r in results if "ratio" in r), key=lambda r: float(r["ratio"]))
    yield f"{len(results)} rows on {threads} thread{'s' * (threads > 1)}:"
    yield f"- expressible: {len(expressible)}; right and raced: {len(right)}"
    for name, column in (
        ("PyTorch eager", "over_eager"),
        ("torch.compile", "over_compiled"),
        ("the best way", "ratio"),
    ):
        ratios = [float(r[column]) for r in right if column in r]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            yield f"- over {name}: geometric mean {mean:.2f}x of {len(ratios)} rows"
    below = [r for r in right if r["ratio"] < LEAST_RATIO]
    yield f"- below {LEAST_RATIO}x of the best way: {len(below)}"
    secs = sorted(float(r["tune_secs"]) for r in results if "tune_secs" in r)
    if secs:
        last = secs[min(len(secs) - 1, int(0.9 * len(secs)))]
        yield f"- tuning: median {statistics.median(secs):.1f} s, 9 of 10 within {last:.1f} s"
    yield ""
    yield "| row | best way / ours | interval | ours, ms | eager, ms | compiled, ms | best way |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(_line, right)
    failing = [r for r in results if "ratio" not in r]
    if failing:
        yield ""
        yield "| row without a ratio | reason |"
        yield "|---|---|"
        for r in failing:
            reason = next((f"{n}: {r[n]}" for n in _REASONS if n in r), "unknown")
            yield f"| {r['name']} | {' '.join(reason.replace('|', '/').split())} |"


def _line(r: Result) -> str:
    times = [f"{1e3 * r[s]:.3g}" if s in r else "" for s in ("eager_secs", "compiled_secs")]
    low, high = r["ratio_interval"]
    return (
        f"| {r['name']} | {r['ratio']:.2f} | {low:.2f} to {high:.2f} | {1e3 * r['ours_secs']:.3g} |"
        f" {times[0]} | {times[1]} | {r['best_way']} |"
    )
