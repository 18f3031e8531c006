"""The tables of a comparison, from its raw results alone.

A ratio of times is old over new: above 1 the new commit is faster. Of a row it is the median over
the rounds of its race, and its spread are the quartiles of these; where a row was tuned with
several seeds, the geometric mean of the medians, and the spread that holds all of theirs. Kernels
of the same machine code have the ratio 1, and nothing was timed for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.suite.results import ResultsFile
from tilewright.peers.bench import speedup_interval

RESAMPLES = 2000
LEAST_RATIO = 0.95
"""No row may be below it beyond its spread, to reach what is asked of a change."""
WORST = 8
SIDES = ("old", "new")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median with its quartiles. `equal`: of one machine code, so 1 by nature."""

    median: float
    low: float
    high: float
    equal: bool = False


ONE = Ratio(1.0, 1.0, 1.0, equal=True)


@dataclass(frozen=True, slots=True)
class RowAt:
    """A row on a number of threads: what one line of a list is about."""

    row: str
    family: str
    threads: int

    def __str__(self) -> str:
        return f"{self.row}, {self.threads} thread{'s' if self.threads > 1 else ''}"


def ratio(data: Mapping[str, Any], above: str, below: str) -> Ratio:
    """Seconds of kernel `above` over those of `below`, by what `objects` calls them."""
    one, other = data["objects"][above], data["objects"][below]
    if one == other:
        return ONE
    found = [each[one] / each[other] for each in data["rounds"]]
    low, median, high = (float(q) for q in np.percentile(found, [25, 50, 75]))
    return Ratio(median, low, high)


def joined(ratios: Sequence[Ratio]) -> Ratio:
    """One ratio of a row that was measured several times."""
    return Ratio(
        geomean([each.median for each in ratios]),
        min(each.low for each in ratios),
        max(each.high for each in ratios),
        equal=all(each.equal for each in ratios),
    )


def geomean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def geomean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The percentile bootstrap's 95 % interval of the geometric mean, rows drawn again.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    logs = np.log(np.asarray(values))
    drawn = np.random.default_rng(0).choice(logs, (RESAMPLES, logs.size)).mean(axis=1)
    low, high = np.exp(np.percentile(drawn, [2.5, 97.5]))
    return float(low), float(high)


def by_row(
    results: ResultsFile, part: str, figure: Callable[[Mapping[str, Any]], Ratio]
) -> dict[RowAt, Ratio]:
    """A figure of every row of `part` that has one."""
    found: dict[RowAt, list[Ratio]] = defaultdict(list)
    for result in results.matching(f"{part}/").values():
        data = result.data
        found[RowAt(data["row"], data["family"], data["threads"])].append(figure(data))
    return {place: joined(ratios) for place, ratios in found.items()}


def final_bests(results: ResultsFile) -> dict[RowAt, Ratio]:
    """Old time over new time of what each commit found by tuning."""
    return by_row(results, "race", lambda data: ratio(data, "old best", "new best"))


def too_slow(ratios: Mapping[RowAt, Ratio]) -> list[RowAt]:
    """Rows that lost more than is allowed, beyond their spread; the worst first."""
    found = [place for place, each in ratios.items() if each.high < LEAST_RATIO]
    return sorted(found, key=lambda place: ratios[place].median)


def share_of_best(side: str, of: str = "") -> Callable[[Mapping[str, Any]], Ratio]:
    """Time of the final best of commit `of` (its own) over that of what `side` proposes."""
    return lambda data: ratio(data, f"{of or side} best", f"{side} proposal")


def share_of_better(side: str) -> Callable[[Mapping[str, Any]], Ratio]:
    """The same, of the faster one of both commits' final bests."""

    def figure(data: Mapping[str, Any]) -> Ratio:
        shares = [share_of_best(side, of)(data) for of in SIDES]
        return min(shares, key=lambda each: each.median)

    return figure


def summary(results: ResultsFile, *, every_row: bool = False) -> str:
    """All tables, as text."""
    parts = [_head(results), _race(results, every_row), _proposals(results, every_row)]
    return "\n\n".join(part for part in (*parts, _latency(results), _failed(results)) if part)


def _head(results: ResultsFile) -> str:
    if not results.sessions:
        return "Nothing was measured."
    machine = list(results.sessions.values())[-1]
    commits = machine["commits"]
    return (
        f"old {commits['old'][:12]}, new {commits['new'][:12]}; {machine['trials']} trials a row; "
        f"{machine['model']}, {machine['cores']} cores"
    )


def _line(name: str, ratios: Mapping[RowAt, Ratio]) -> str:
    values = [each.median for each in ratios.values()]
    low, high = geomean_interval(values)
    equal = sum(each.equal for each in ratios.values())
    return (
        f"{name:24s} {len(values):5d} {equal:6d} {geomean(values):8.3f} "
        f"[{low:.3f}, {high:.3f}] {min(values):8.3f} {max(values):8.3f}"
    )


_COLUMNS = f"{'':24s}  rows  equal  geomean  95 % interval     least     most"


def _table(name: str, ratios: Mapping[RowAt, Ratio]) -> list[str]:
    """All rows, those of a number of threads, and each family."""
    lines = [_line(name, ratios)]
    counts = sorted({place.threads for place in ratios})
    for threads in counts if len(counts) > 1 else ():
        own = {p: r for p, r in ratios.items() if p.threads == threads}
        lines.append(_line(f"  {threads} thread{'s' if threads > 1 else ''}", own))
    return lines


def _families(ratios: Mapping[RowAt, Ratio]) -> list[str]:
    families = dict.fromkeys(place.family for place in ratios)
    return [
        _line(f"  {family}", {p: r for p, r in ratios.items() if p.family == family})
        for family in families
    ]


def _rows(ratios: Mapping[RowAt, Ratio], places: Iterable[RowAt]) -> list[str]:
    return [
        f"  {ratios[place].median:6.3f} [{ratios[place].low:.3f}, {ratios[place].high:.3f}]"
        f"{' equal' if ratios[place].equal else ''}  {place}"
        for place in places
    ]


def _worst(ratios: Mapping[RowAt, Ratio], every_row: bool) -> list[str]:
    places = sorted(ratios, key=lambda place: ratios[place].median)
    title = "every row, by its median" if every_row else f"the {WORST} rows with the least median"
    return [f"{title}, with quartiles:", *_rows(ratios, places if every_row else places[:WORST])]


def _race(results: ResultsFile, every_row: bool) -> str:
    ratios = final_bests(results)
    if not ratios:
        return ""
    slow = too_slow(ratios)
    below = [f"rows below {LEAST_RATIO} beyond their spread: {len(slow)}", *_rows(ratios, slow)]
    return "\n".join(
        [
            "Final bests, old time over new time",
            _COLUMNS,
            *_table("all rows", ratios),
            *_families(ratios),
            _left_out(results),
            *below,
            *_worst(ratios, every_row),
        ]
    )


def _left_out(results: ResultsFile) -> str:
    races = [result.data for result in results.matching("race/").values()]
    counted = sum(len(data["rounds"]) for data in races)
    left_out = sum(data["left_out"] for data in races)
    return f"rounds that counted: {counted}; left out for disturbed cores: {left_out}"


def _proposals(results: ResultsFile, every_row: bool) -> str:
    own = {side: by_row(results, "proposals", share_of_best(side)) for side in SIDES}
    if not own["new"]:
        return ""
    lines = ["Schedules proposed with no measurement: time of the final best over theirs", _COLUMNS]
    for side in SIDES:
        lines += _table(f"{side}, its own best", own[side])
        better = by_row(results, "proposals", share_of_better(side))
        lines += _table(f"{side}, the better best", better)
    gain = by_row(results, "proposals", lambda data: ratio(data, "old proposal", "new proposal"))
    lines += _table("old proposal over new", gain)
    lines += ["new, its own best: " + _worst(own["new"], every_row)[0]]
    lines += _worst(own["new"], every_row)[1:]
    lines += ["old proposal over new: " + _worst(gain, every_row)[0], *_worst(gain, every_row)[1:]]
    return "\n".join(lines)


def _latency(results: ResultsFile) -> str:
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results.matching("latency/").values():
        for name in result.data["new"]:
            pairs[f"{result.data['kind']} {name}", result.data["row"]].append(
                {side: result.data[side][name] for side in SIDES}
            )
    if not pairs:
        return ""
    lines = [
        "Before anything is measured: medians over pairs of processes, ms, and their quartiles;",
        "of the ratio within a pair the median and its 95 % interval",
        f"{'':40s} pairs  {'old':>24s} {'new':>24s} {'old over new':>24s}",
    ]
    for (kind, row), found in pairs.items():
        old, new = (np.array([each[side] for each in found]) for side in SIDES)
        low, middle, high = speedup_interval(old / new, np.random.default_rng(0))
        said = f"{middle:.3f} [{low:.3f}, {high:.3f}]"
        name = f"{kind}, {row}"
        lines.append(f"{name:40s} {len(found):5d}  {_ms(old):>24s} {_ms(new):>24s} {said:>24s}")
    return "\n".join(lines)


def _ms(values: NDArray[np.float64]) -> str:
    low, median, high = np.percentile(values, [25, 50, 75])
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


def _failed(results: ResultsFile) -> str:
    lines = [f"  {r.key}: {r.failed}" for r in results.rows.values() if r.failed is not None]
    return "\n".join(["Without a figure:", *lines]) if lines else ""
