"""The operator suite in Markdown: families, then each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.suite.families import FAMILIES, SPEEDUP, WORST_SPEEDUP
from benchmarks.suite.family_goals import (
    FamilyFigures,
    Spread,
    against_tvm,
    family_figures,
    is_below,
)
from benchmarks.suite.goals import geomean
from benchmarks.suite.results import Result, ResultsFile

WORDS = {True: "yes", False: "**no**", None: "-"}


def suite_sections(results: ResultsFile, tvm: Mapping[str, dict[str, Any]]) -> list[str]:
    """Sections of the report; none if the suite was not measured."""
    figures = family_figures(results)
    if not figures:
        return []
    parts = [f"### Operator suite, by family\n\n{family_table(figures)}"]
    under = under_table(results.matching("suite/"))
    if under:
        parts.append(f"### Suite: rows under 1.00\n\n{under}")
    suite = results.matching("suite/")
    parts += [
        f"### Suite: rows under {SHORT_SECS * 1e6:.0f} us\n\n{short_table(suite)}",
        f"### Suite: torch.compile beside eager\n\n{compiled_table(suite)}",
        f"### Suite: the fastest library calls\n\n{ways_table(suite)}",
    ]
    parts += case_sections(results, level=3)
    parts += _tvm_section(results, tvm)
    return parts


def case_sections(results: ResultsFile, level: int) -> list[str]:
    """A section for each family below a heading of `level`, each case once, in its own family."""
    found = []
    for family in FAMILIES.values():
        rows = results.matching(f"suite/{family.key}/")
        if rows:
            found.append(f"{'#' * level} {family.title}\n\n{_case_table(rows)}")
    return found


def constant_sections(results: ResultsFile) -> list[str]:
    """The table of what is packed ahead; none if nothing was measured. No family counts it."""
    rows = results.matching("constants/")
    if not rows:
        return []
    lines = [
        "| case | threads | time | time with packing | fraction of the bound | over NumPy |"
        " over PyTorch | speed-up | speed-up with packing |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_constant_line(row.data) for row in rows.values()),
    ]
    found = [row.data["against_best_peer"]["median"] for row in rows.values()
             if "against_best_peer" in row.data]  # fmt: skip
    mean = f" Geomean {geomean(found):.2f}x of {len(found)}." if found else ""
    return [
        f"### Suite: constant weights, packed before the call\n\n{_CONSTANTS}{mean}\n\n"
        + "\n".join(lines)
    ]


_CONSTANTS = (
    "Tuned with the weights marked constant. Two calls of the kernel race with the libraries: one"
    " on weights that were packed before, one that packs them in the call. The libraries' weights"
    " are packed or transposed before the call as well, outside of the time. No family counts these"
    " rows."
)


def _constant_line(data: dict[str, Any]) -> str:
    raced, best = data["prepack"]["raced"], data.get("against_best_peer")
    share = raced["run_secs"] / raced["run_secs_with_packing"]
    cells = [
        data["case"],
        str(data["threads"]),
        *(shown_secs(raced[key]) for key in ("run_secs", "run_secs_with_packing")),
        f"{data['of_bound_beside']:.2f} ({data['of_bound']:.2f}) {bound_text(data['bound'])}",
        *(_peer(data["race"].get(peer, {})) for peer in ("numpy", "torch")),
        f"{best['median']:.2f}x" if best else "-",
        f"{best['median'] * share:.2f}x" if best else "-",
    ]
    return "| " + " | ".join(cells) + " |"


def bound_text(bound: Mapping[str, Any]) -> str:
    """What binds, and how far a kernel was ahead of it."""
    beaten = bound.get("beaten_by")
    return f"{bound['binds']}, beaten {beaten:.2f}x" if beaten else str(bound["binds"])


_EXPLANATION = """
The speed-up is over the faster of NumPy and PyTorch, which ran in the same race. The fraction of
the bound is the roofline bound divided by the time in the race. Where arithmetic binds, the peak
measured in the same race stands for the session's probe; the figure with the probe follows in
brackets. A kernel that is faster than its bound by more than the error of a probe shows that the
probe was too low: the kernel's time is then taken as the bound, and "beaten" says by how much. The
time of a kernel includes packing."""


def family_table(figures: list[FamilyFigures]) -> str:
    lines = [
        "| family | threads | cases | speed-up | lowest | goal | met? | fraction of the bound |"
        " lowest | goal | met? |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    named = set[str]()  # once, wherever its first row is: one thread count may be missing
    for each in figures:
        family = each.family
        title = "" if family.key in named else family.title
        named.add(family.key)
        cells = [
            title,
            each.which,
            str(len(each.rows)),
            f"{each.speedup.geomean:.2f}x" if each.speedup else "-",
            _worst(each.speedup, "x"),
            f"{SPEEDUP:.2f}x, each {WORST_SPEEDUP:.2f}x",
            WORDS[each.speedup_met],
            _both_means(each),
            _worst(each.of_bound, ""),
            f"{family.of_bound:.2f}" if family.of_bound else "-",
            WORDS[each.bound_met],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + _EXPLANATION


def under_table(rows: Mapping[str, Result]) -> str:
    """Rows that a library computes faster, the worst first; "" if there are none."""
    slower = [r for r in rows.values() if r.data.get("against_best_peer", {}).get("median", 1) < 1]
    if not slower:
        return ""
    slower.sort(key=lambda row: float(row.data["against_best_peer"]["median"]))
    lines = [
        "| case | threads | speed-up | spread | below 0.97x | library call |",
        "|---|---|---|---|---|---|",
    ]
    for row in slower:
        best = row.data["against_best_peer"]
        cells = [
            row.data["case"],
            str(row.data["threads"]),
            f"{best['median']:.3f}x",
            f"{best['low']:.3f} to {best['high']:.3f}",
            "**yes**" if is_below(row) else "no",
            f"{best['peer']}: {row.data['race'][best['peer']].get('way', '-')}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


SHORT_SECS = 50e-6
"""Where the kernel or the faster library takes less than this, a table separates the library's
dispatch."""


def without_dispatch(side: Mapping[str, Any]) -> float | None:
    """A library's seconds less those of the same calls on next to nothing; None if not known."""
    if side.get("dispatch_secs") is None or "run_secs" not in side:
        return None
    return max(0.0, float(side["run_secs"] - side["dispatch_secs"]))


def short_table(rows: Mapping[str, Result]) -> str:
    """Rows of less than SHORT_SECS with and without the dispatch of the better library, the largest
    part of its time first."""
    short = []
    for row in rows.values():
        best = row.data.get("against_best_peer")
        side = row.data["race"].get(best["peer"], {}) if best else {}
        left = without_dispatch(side)
        kernel_secs = row.data["race"]["kernel"]["run_secs"]
        if left is not None and min(kernel_secs, side["run_secs"]) < SHORT_SECS:
            short.append((left / side["run_secs"], row, side, left))
    if not short:
        return "Not measured."
    speedups = [row.data["against_best_peer"]["median"] for _, row, _, _ in short]
    lines = [
        f"{len(short)} rows; geometric mean of the speed-ups {geomean(speedups):.2f}x with"
        " dispatch. A library's time without dispatch still holds the start of its threads.",
        "",
        "| case | threads | kernel | library | of it dispatch | speed-up | without dispatch |"
        " library call |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for _, row, side, left in sorted(short, key=lambda each: each[0]):
        run_secs, best = row.data["race"]["kernel"]["run_secs"], row.data["against_best_peer"]
        cells = [
            row.data["case"],
            str(row.data["threads"]),
            shown_secs(run_secs),
            shown_secs(side["run_secs"]),
            shown_secs(side["dispatch_secs"]),
            f"{best['median']:.2f}x",
            f"{left / run_secs:.2f}x",
            f"{best['peer']}: {side.get('way', '-')}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compiled_table(rows: Mapping[str, Result]) -> str:
    """PyTorch's own calls and what `torch.compile` makes of them, by family."""
    lines = [
        "| family | rows | compiled time / eager time | rows where compiled is faster |"
        " speed-up over compiled |",
        "|---|---|---|---|---|",
    ]
    reasons: Counter[str] = Counter()
    for family in FAMILIES.values():
        mine = [row for row in rows.values() if row.data["family"] == family.key]
        sides = [row.data["race"].get("torch", {}) for row in mine]
        pairs = [
            (row, side["compiled_secs"])
            for row, side in zip(mine, sides, strict=True)
            if side.get("compiled_secs")
        ]
        reasons.update(
            why
            for side in sides
            for name, why in side.get("dropped", {}).items()
            if name.startswith("torch.compile")
        )
        if not pairs:
            continue
        shares = [secs["compiled"] / secs["eager"] for _, secs in pairs]
        ours = [secs["compiled"] / row.data["race"]["kernel"]["run_secs"] for row, secs in pairs]
        lines.append(
            f"| {family.title} | {len(pairs)} | {geomean(shares):.2f} |"
            f" {sum(share < 1 for share in shares)} | {geomean(ours):.2f}x |"
        )
    if len(lines) == 2 and not reasons:
        return "Not measured."
    dropped = [f"- {count} variants failed: {why}" for why, count in reasons.most_common()]
    return "\n".join([*lines, *(["", *dropped] if dropped else [])])


def ways_table(rows: Mapping[str, Result]) -> str:
    """Which calls of the libraries were the fastest, and in how many rows."""
    won: dict[str, Counter[str]] = {}
    for row in rows.values():
        for peer in ("numpy", "torch"):
            side = row.data["race"].get(peer, {})
            if "ratio" in side and side.get("way"):
                won.setdefault(peer, Counter())[side["way"]] += 1
    if not won:
        return "Not measured."
    lines = ["| library | fastest call | rows |", "|---|---|---|"]
    for peer, counts in won.items():
        often = [(way, n) for way, n in counts.most_common() if n > 1]
        lines += [f"| {peer} | {way.replace('|', '/')} | {n} |" for way, n in often]
        once = len(counts) - len(often)
        lines += [f"| {peer} | calls that were fastest once | {once} |"] if once else []
    return "\n".join(lines)


def _both_means(each: FamilyFigures) -> str:
    if each.of_bound is None or each.of_probed is None:
        return "-"
    return f"{each.of_bound.geomean:.2f} ({each.of_probed.geomean:.2f})"


def _worst(spread: Spread | None, unit: str) -> str:
    return f"{spread.worst:.2f}{unit} {spread.where}" if spread else "-"


def _case_table(rows: Mapping[str, Result]) -> str:
    lines = [
        "| case | threads | time | GFLOP/s | GB/s | fraction of the bound | bound by | over NumPy |"
        " over PyTorch | speed-up (interval) | library call | trials |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_case_line(row.data) for row in rows.values())])


def _case_line(data: dict[str, Any]) -> str:
    run_secs, best = data["race"]["kernel"]["run_secs"], data.get("against_best_peer")
    cells = [
        data["case"],
        str(data["threads"]),
        shown_secs(run_secs),
        f"{data['gflops']:.1f}",
        f"{data['tune']['workload']['min_bytes'] / run_secs / 1e9:.1f}",
        f"{data['of_bound_beside']:.2f} ({data['of_bound']:.2f})",
        bound_text(data["bound"]),
        *(_peer(data["race"].get(peer, {})) for peer in ("numpy", "torch")),
        f"{best['median']:.2f}x ({best['low']:.2f} to {best['high']:.2f})" if best else "-",
        str(data["race"][best["peer"]].get("way", "-")) if best else "-",
        str(data["tune"]["trials"]["total"]),
    ]
    return "| " + " | ".join(cells) + " |"


def _peer(side: dict[str, Any]) -> str:
    """The ratio, or in a word why there is none."""
    if "ratio" in side:
        return f"{side['ratio']['median']:.2f}x"
    return str(side.get("missing", "-")).replace("|", "\\|")[:60]


def _tvm_section(results: ResultsFile, tvm: Mapping[str, dict[str, Any]]) -> list[str]:
    everyone = against_tvm(results, tvm)
    if not everyone:
        return []
    lines = [
        "| case | time | TVM elsewhere | TVM raced here | TVM's trials |",
        "|---|---|---|---|---|",
    ]
    for name, each in everyone.items():
        ratios = (each.elsewhere, each.raced)
        cells = [f"{ratio:.2f}x" if ratio is not None else "-" for ratio in ratios]
        time = shown_secs(each.row.data["race"]["kernel"]["run_secs"])
        trials = each.row.data["tvm"]["trials"] if each.raced is not None else "-"
        lines.append(f"| {name} | {time} | {' | '.join(cells)} | {trials} |")
    text = (
        "TVM's best time divided by the kernel's. \"Elsewhere\" compares medians of two runs: TVM"
        " was measured at another time, maybe at another clock."
        "\n\n"
    )
    return ["### Suite: against TVM MetaSchedule\n\n" + text + "\n".join(lines)]


def shown_secs(secs: float) -> str:
    """A time with three digits and a unit that suits it."""
    return f"{secs * 1e6:.3g} us" if secs < 1e-3 else f"{secs * 1e3:.3g} ms"
