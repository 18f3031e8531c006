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
        f"### Suite: ways that won\n\n{ways_table(suite)}",
    ]
    for family in FAMILIES.values():
        rows = results.matching(f"suite/{family.key}/")  # each once, under its own family
        if rows:
            parts.append(f"### Suite: {family.title}\n\n{_case_table(rows)}")
    parts += _tvm_section(results, tvm)
    return parts


def constant_sections(results: ResultsFile) -> list[str]:
    """The table of what is packed ahead; none if nothing was measured. No family counts it."""
    rows = results.matching("constants/")
    if not rows:
        return []
    lines = [
        "| case | threads | time | packing each time | of the bound | NumPy | PyTorch |"
        " against the better | packing each time, against the better |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_constant_line(row.data) for row in rows.values()),
    ]
    found = [row.data["against_best_peer"]["median"] for row in rows.values()
             if "against_best_peer" in row.data]  # fmt: skip
    mean = f" Geomean {geomean(found):.2f}x of {len(found)}." if found else ""
    return [
        f"### Suite: constant weights, packed ahead\n\n{_CONSTANTS}{mean}\n\n" + "\n".join(lines)
    ]


_CONSTANTS = (
    "Tuned with the weights marked constant. Two of our calls race beside the libraries: one that"
    " finds the weights packed, and one of the same kernel that packs them itself. Libraries may"
    " have theirs packed as well, and turned: what they do once is in no time here. No family's"
    " figures count these rows."
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
Speed-ups are over the better of NumPy and PyTorch, beside it in one race. "Of the bound" is the
bound of the design divided by the time in the race; where arithmetic binds, at the peak that ran
beside the kernel, and in brackets by the session's probe alone. A kernel that is faster than its
bound by more than a probe's error proves it wrong: it is then the bound, which "beaten" says by how
much. Packing is inside every time."""


def family_table(figures: list[FamilyFigures]) -> str:
    lines = [
        "| family | threads | cases | speed-up | worst | to reach | met? | of the bound | worst |"
        " to reach | met? |",
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
        "| case | threads | against the better | spread | below 0.97x | asked for as |",
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
"""Rows in which the kernel or the better library takes less show its dispatch apart."""


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
        f"{len(short)} rows; geomean {geomean(speedups):.2f}x with dispatch. What is left without"
        " it holds what a library needs to divide the work among threads.",
        "",
        "| case | threads | time | library | of that dispatch | against it | without dispatch |"
        " asked for as |",
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
    """PyTorch's own calls and what `torch.compile` made of them, beside each other, by family."""
    lines = [
        "| family | rows | compiled, of eager's time | rows it is faster in | kernel against it |",
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
    dropped = [f"- {count} ways dropped: {why}" for why, count in reasons.most_common()]
    return "\n".join([*lines, *(["", *dropped] if dropped else [])])


def ways_table(rows: Mapping[str, Result]) -> str:
    """Which ways of the libraries were the fastest, and in how many rows."""
    won: dict[str, Counter[str]] = {}
    for row in rows.values():
        for peer in ("numpy", "torch"):
            side = row.data["race"].get(peer, {})
            if "ratio" in side and side.get("way"):
                won.setdefault(peer, Counter())[side["way"]] += 1
    if not won:
        return "Not measured."
    lines = ["| library | fastest way | rows |", "|---|---|---|"]
    for peer, counts in won.items():
        often = [(way, n) for way, n in counts.most_common() if n > 1]
        lines += [f"| {peer} | {way.replace('|', '/')} | {n} |" for way, n in often]
        once = len(counts) - len(often)
        lines += [f"| {peer} | ways that won once | {once} |"] if once else []
    return "\n".join(lines)


def _both_means(each: FamilyFigures) -> str:
    if each.of_bound is None or each.of_probed is None:
        return "-"
    return f"{each.of_bound.geomean:.2f} ({each.of_probed.geomean:.2f})"


def _worst(spread: Spread | None, unit: str) -> str:
    return f"{spread.worst:.2f}{unit} {spread.where}" if spread else "-"


def _case_table(rows: Mapping[str, Result]) -> str:
    lines = [
        "| case | threads | time | GFLOP/s | GB/s | of the bound | by | NumPy | PyTorch |"
        " against the better | asked for as | trials |",
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
        "| case | time | TVM elsewhere | TVM raced here | its trials |",
        "|---|---|---|---|---|",
    ]
    for name, each in everyone.items():
        ratios = (each.elsewhere, each.raced)
        cells = [f"{ratio:.2f}x" if ratio is not None else "-" for ratio in ratios]
        time = shown_secs(each.row.data["race"]["kernel"]["run_secs"])
        trials = each.row.data["tvm"]["trials"] if each.raced is not None else "-"
        lines.append(f"| {name} | {time} | {' | '.join(cells)} | {trials} |")
    text = (
        'How many times longer TVM\'s best takes. "Elsewhere" divides a median from a file by our'
        " median sample: it was measured in another run, at another time, maybe at another clock."
        "\n\n"
    )
    return ["### Suite: against TVM MetaSchedule\n\n" + text + "\n".join(lines)]


def shown_secs(secs: float) -> str:
    """A time with three digits and a unit that suits it."""
    return f"{secs * 1e6:.3g} us" if secs < 1e-3 else f"{secs * 1e3:.3g} ms"
