"""What the operator suite is held against: families, TVM, tails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.families import FAMILIES, SPEEDUP, WORST_SPEEDUP, Family
from benchmarks.suite.goals import Judgement, geomean
from benchmarks.suite.race import HOPELESS_WORDS, PEERS
from benchmarks.suite.results import Result, ResultsFile
from benchmarks.suite.rows_tails import named

TVM_GEOMEAN, TVM_WORST, TVM_WORST_FROM_SECS, TVM_ODD = 1.15, 0.97, 10e-6, 1.8
TAIL_RATIO = 2.0
ALL = "1 and 2"
WHICH = {"1": (1,), "2": (2,), ALL: (1, 2)}
"""How rows are put together: each thread count alone, and all of them."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Geometric mean and worst of some figures, and the row of the worst."""

    count: int
    geomean: float
    worst: float
    where: str

    @staticmethod
    def of(figures: Mapping[str, float]) -> Spread | None:
        """None where there are none."""
        if not figures:
            return None
        where = min(figures, key=figures.__getitem__)
        return Spread(len(figures), geomean(figures.values()), figures[where], where)


@dataclass(frozen=True, slots=True)
class FamilyFigures:
    """A family's rows on one thread count or on all: `speedup` over the better library,
    `of_bound` beside the peak of the same race, `of_probed` by the session's probes alone.
    `against_one` rows have a speed-up over one library, as the other gave no figure at all;
    those `below` are under WORST_SPEEDUP outside of their spread."""

    family: Family
    which: str
    rows: tuple[Result, ...]
    speedup: Spread | None
    of_bound: Spread | None
    of_probed: Spread | None
    against_one: int = 0
    below: tuple[Result, ...] = ()

    @property
    def speedup_met(self) -> bool | None:
        """None without a figure."""
        if self.speedup is None:
            return None
        return self.speedup.geomean > SPEEDUP and not self.below

    @property
    def bound_met(self) -> bool | None:
        goal = self.family.of_bound
        if goal is None or self.of_bound is None:
            return None
        return self.of_bound.geomean >= goal


def family_figures(results: ResultsFile) -> list[FamilyFigures]:
    """Every family that has rows, one thread, two, and together."""
    found = []
    for family in FAMILIES.values():
        rows = rows_of(results, family.key)
        for which, counts in WHICH.items():
            chosen = {k: r for k, r in rows.items() if r.data["threads"] in counts}
            if chosen:
                found.append(_figures(family, which, chosen))
    return found


def rows_of(results: ResultsFile, family: str) -> dict[str, Result]:
    """The rows that count in a family: some count in two."""
    rows = results.matching("suite/")
    return {k: r for k, r in rows.items() if family in r.data.get("families", [r.data["family"]])}


def is_below(row: Result) -> bool:
    """Under WORST_SPEEDUP outside of its spread."""
    best = row.data.get("against_best_peer")
    return best is not None and best["high"] < WORST_SPEEDUP


def _figures(family: Family, which: str, rows: Mapping[str, Result]) -> FamilyFigures:
    speedups = {
        label(r): r.data["against_best_peer"]["median"]
        for r in rows.values()
        if "against_best_peer" in r.data
    }
    return FamilyFigures(
        family,
        which,
        tuple(rows.values()),
        Spread.of(speedups),
        Spread.of({label(r): r.data["of_bound_beside"] for r in rows.values()}),
        Spread.of({label(r): r.data["of_bound"] for r in rows.values()}),
        sum("against_best_peer" in r.data and _one_is_missing(r) for r in rows.values()),
        tuple(r for r in rows.values() if is_below(r)),
    )


def _one_is_missing(row: Result) -> bool:
    """A library gave no figure. One that is far behind the other was timed: it changes nothing."""
    sides = [row.data["race"].get(peer, {}) for peer in PEERS]
    return any(
        "ratio" not in side and HOPELESS_WORDS not in side.get("missing", "") for side in sides
    )


def label(row: Result) -> str:
    return f"{row.data['case']} {row.data['threads']}t"


def judge_suite(results: ResultsFile, tvm: Mapping[str, dict[str, Any]]) -> list[Judgement]:
    """Each family on all thread counts together, then TVM and tails."""
    together = [each for each in family_figures(results) if each.which == ALL]
    return [
        *(judgement for each in together for judgement in _judged(each)),
        *_products(results),
        *_against_tvm(results, tvm),
        *_tails(results.matching("tails/")),
    ]


def _judged(each: FamilyFigures) -> Iterator[Judgement]:
    what = f"suite: {each.family.title}"
    if each.speedup is not None:
        least = f"no case under {WORST_SPEEDUP:.2f}x outside of its spread"
        to_reach = f"> {SPEEDUP:.2f}x the better of NumPy and PyTorch, {least}"
        alone = f"; {each.against_one} against one library" if each.against_one else ""
        under = f"; below: {', '.join(map(label, each.below))}" if each.below else ""
        measured = _said(each.speedup, "x") + alone + under
        yield Judgement(what, to_reach, measured, each.speedup_met, each.rows)
    if each.of_bound is not None and each.family.of_bound is not None:
        to_reach = f">= {each.family.of_bound:.2f} of the bound"
        yield Judgement(what, to_reach, _said(each.of_bound, ""), each.bound_met, each.rows)


PEAK_BY_THREADS = {1: 0.96, 2: 0.95}
"""What products of 512 to 2048 are to reach of the peak beside them: every one of them."""


def _products(results: ResultsFile) -> Iterator[Judgement]:
    for threads, goal in PEAK_BY_THREADS.items():
        rows = [r for r in rows_of(results, "gemm").values() if r.data["threads"] == threads]
        shares = Spread.of({label(r): r.data["of_peak"]["median"] for r in rows})
        if shares is not None:
            what = f"suite: products 512 to 2048, {threads} thread{'s' * (threads > 1)}"
            yield Judgement(what, f">= {goal:.2f} of the peak, each", _said(shares, ""),
                            shares.worst >= goal, tuple(rows))  # fmt: skip


def _said(spread: Spread, unit: str) -> str:
    return (
        f"geomean {spread.geomean:.2f}{unit} of {spread.count}, worst {spread.worst:.2f}{unit}"
        f" ({spread.where})"
    )


def read_tvm(path: Path) -> dict[str, dict[str, Any]]:
    """Lines of medians by `name threads`; only those with a figure of TVM. Empty without a file.

    ValueError names the first line that is none."""
    if not path.exists():
        return {}
    found = {}
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if "tvm_128_trials_median_us" in line:
                float(line["tvm_128_trials_median_us"])
                found[f"{line['name']} {line['threads']}t"] = line
        except (ValueError, TypeError, KeyError) as error:
            what = "an object with name, threads and tvm_128_trials_median_us is expected"
            raise ValueError(f"{path.name}, line {number}: {what}, got {text[:60]!r}") from error
    return found


@dataclass(frozen=True, slots=True)
class AgainstTvm:
    """How many times longer TVM's best takes: `elsewhere` the file's median over our median sample,
    `raced` in a race here. None where not known."""

    row: Result
    elsewhere: float | None
    raced: float | None


def against_tvm(results: ResultsFile, tvm: Mapping[str, dict[str, Any]]) -> dict[str, AgainstTvm]:
    """Every row of the suite that TVM has a figure for."""
    found = {}
    for row in results.matching("suite/").values():
        line, side = tvm.get(label(row)), row.data["race"].get("tvm", {})
        raced = side["ratio"]["median"] if "ratio" in side else None
        if line is None and raced is None:
            continue
        median_secs = row.data["race"]["kernel"]["median_sample_secs"]  # a median, as the file's
        elsewhere = line["tvm_128_trials_median_us"] * 1e-6 / median_secs if line else None
        found[label(row)] = AgainstTvm(row, elsewhere, raced)
    return found


def _against_tvm(results: ResultsFile, tvm: Mapping[str, dict[str, Any]]) -> Iterator[Judgement]:
    everyone = against_tvm(results, tvm)
    elsewhere = {k: v.elsewhere for k, v in everyone.items() if v.elsewhere is not None}
    raced = {k: v.raced for k, v in everyone.items() if v.raced is not None}
    rows = {k: v.row for k, v in everyone.items()}
    yield from _tvm_lines(
        "TVM's best of 128 trials, measured elsewhere at another time", elsewhere, rows
    )
    trials = sorted({rows[k].data["tvm"]["trials"] for k in raced})
    of_trials = " or ".join(map(str, trials))
    yield from _tvm_lines(f"TVM's best of {of_trials} trials, raced here", raced, rows)


def _tvm_lines(
    what: str, ratios: Mapping[str, float], rows: Mapping[str, Result]
) -> Iterator[Judgement]:
    long = {
        k: v
        for k, v in ratios.items()
        if rows[k].data["race"]["kernel"]["run_secs"] >= TVM_WORST_FROM_SECS
    }
    odd = {k: v for k, v in ratios.items() if rows[k].data["family"] == "gemm_odd"}
    for part, figures, goal in (("", ratios, TVM_GEOMEAN), (", odd sizes", odd, TVM_ODD)):
        spread = Spread.of(figures)
        if spread is not None:
            chosen = tuple(rows[k] for k in figures)
            to_reach, met = f">= {goal:.2f}x", spread.geomean >= goal
            yield Judgement(f"suite: {what}{part}", to_reach, _said(spread, "x"), met, chosen)
    worst = Spread.of(long)
    if worst is not None:
        below = sum(ratio < TVM_WORST for ratio in long.values())
        measured = f"worst {worst.worst:.2f}x ({worst.where}), {below} of {worst.count} below"
        to_reach = f"no case of 10 us or more under {TVM_WORST:.2f}x"
        yield Judgement(f"suite: {what}", to_reach, measured, not below,
                        tuple(rows[k] for k in long))  # fmt: skip


def _tails(rows: Mapping[str, Result]) -> Iterator[Judgement]:
    if not rows:
        return
    worst = max(rows.values(), key=lambda row: float(row.data["ratio"]))
    ratio, count = worst.data["ratio"], sum(len(r.data["products"]) for r in rows.values())
    measured = (
        f"worst {ratio:.2f}x: {named(worst.data['slowest'])} beside"
        f" {named(worst.data['fastest'])}; {count} products in {len(rows)} neighbourhoods"
    )
    yield Judgement(
        "tails: products of M, N, K in 33..160, slowest operation in a neighbourhood of 16",
        f"within {TAIL_RATIO:.0f}x of the fastest", measured, ratio <= TAIL_RATIO,
        tuple(rows.values()),
    )  # fmt: skip
