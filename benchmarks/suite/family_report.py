"""The operator suite in Markdown: families, then each case."""

from __future__ import annotations

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
