"""The tables of a file of cold runs: time, quality of the first trial, effect of stopping early,
effect of what a shared database knows, and speed relative to libraries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cold_runs.measuring import has_best
from benchmarks.suite.machine import QUIET_SHARE
from tilewright.peers.library_versions import described
from tilewright.tuner.search.strategies.annealing import OPENING

Result = dict[str, Any]

STOPS = (1, 4, 8, 12, 16, 24, 32)
WORST = 10

FIRST_BATCH = OPENING[0]
"""Trials that are chosen before any result of the run is known."""

NEW, RELATED = "first workloads of their structure", "later workloads of a structure"
"""The two groups of a run with a shared database: of a workload in NEW, the database has trials of
other structures only."""

LIMITS = (1.0, 0.97)
"""Ratios to a library under which rows are counted."""


def summary(results: Sequence[Result], structures: Mapping[str, str]) -> str:
    """Return the report of all results, in the order of measuring; failed ones are listed by name.

    `structures` has the key of the structure of each workload (`Structure.key`), by name.
    """
    lines: list[str] = []
    done = [result for result in results if has_best(result)]
    for result in results:
        if result not in done:
            reason = result.get("error") or result.get("stopped_because")
            lines.append(f"{result['name']}: no best schedule; {reason}")
    if not done:
        return "\n".join([*lines, "no results"])
    parts = [part(done) for part in (_times, _trials, _first_trials, _stopping, _reasons)]
    if done[0]["database"] == "shared":
        parts.append(_by_structure(results, structures))
    if any("race" in result for result in done):
        parts.append(_races([result for result in done if "race" in result]))
    lines += [line for part in parts for line in ("", *part)]
    return "\n".join(lines).strip()


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value of this rank; no interpolation, so that it is the value of a row."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def geomean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def first_over_best(result: Result) -> float | None:
    """Return speed of the schedule chosen without a run / speed of the final best, or None.

    It is 1 if the first trial is the best. It is None if the first trial failed.
    """
    if result["default"] is None:
        return None
    return float(result["best"]["run_secs"] / result["default"]["run_secs"])


def kept_after(result: Result, trials: int) -> float | None:
    """Return speed of the best of the first `trials` trials / speed of the best of all trials.

    Both are times of the search, which the final race does not correct. It is None if none of the
    first trials succeeded.
    """
    reached = [point["best_run_secs"] for point in result["curve"] if point["trial"] <= trials]
    return float(result["curve"][-1]["best_run_secs"] / reached[-1]) if reached else None


def groups_of_structure(
    results: Sequence[Result], structures: Mapping[str, str]
) -> dict[str, list[Result]]:
    """Return the results in the groups NEW and RELATED. `results` are in the order of measuring; a
    workload belongs to RELATED if a trial of an earlier one of its structure succeeded."""
    groups: dict[str, list[Result]] = {NEW: [], RELATED: []}
    known: set[str] = set()
    for result in results:
        structure = structures[result["name"]]
        groups[RELATED if structure in known else NEW].append(result)
        if result.get("trials", {}).get("ok"):
            known.add(structure)
    return groups


def better_library(result: Result) -> str | None:
    """Return the name of the library whose fastest call is faster, or None if none was timed."""
    against = result["race"].get("against", {})
    ratios = {name: side["speedup"] for name, side in against.items() if side["speedup"]}
    return min(ratios, key=ratios.__getitem__, default=None)


def _times(done: Sequence[Result]) -> Iterator[str]:
    first = done[0]
    yield (
        f"{len(done)} workloads, {first['cpu']} ({first['machine']}), {first['threads']} threads,"
        f" {first['database']} database {' '.join(first['more'])}".rstrip()
    )
    yield f"{'seconds':22} {'median':>8} {'p90':>8} {'max':>8} {'share':>6}"
    walls = [result["command_secs"] for result in done]
    waits = [result["wall_secs_by_phase"].get("wait", 0.0) for result in done]
    yield _time_line("command", walls, sum(walls))
    without = [wall - wait for wall, wait in zip(walls, waits, strict=True)]
    yield _time_line("command without wait", without, sum(walls))
    outside = [result["command_secs"] - result["wall_secs"] for result in done]
    yield _time_line("outside the session", outside, sum(walls))
    phases = sorted({phase for result in done for phase in result["wall_secs_by_phase"]})
    spent = {p: [r["wall_secs_by_phase"].get(p, 0.0) for r in done] for p in phases}
    for phase in sorted(phases, key=lambda phase: -sum(spent[phase])):
        yield _time_line(phase, spent[phase], sum(walls))


def _time_line(name: str, values: Sequence[float], total: float) -> str:
    return (
        f"{name:22} {quantile(values, 0.5):8.2f} {quantile(values, 0.9):8.2f} {max(values):8.2f}"
        f" {sum(values) / total:6.1%}"
    )


def _trials(done: Sequence[Result]) -> Iterator[str]:
    counts = [result["trials"]["total"] for result in done]
    failed = sum(result["trials"]["total"] - result["trials"]["ok"] for result in done)
    yield (
        f"trials: median {quantile(counts, 0.5)}, p90 {quantile(counts, 0.9)},"
        f" max {max(counts)}, sum {sum(counts)}; {failed} failed"
    )
    shares = [result["best"]["fraction_of_bound"] for result in done]
    known = [share for share in shares if share]
    if known:
        yield f"fraction of the bound: geomean {geomean(known):.3f}, least {min(known):.3f}"


def _first_trials(done: Sequence[Result]) -> Iterator[str]:
    ratios = [(ratio, r) for r in done if (ratio := first_over_best(r)) is not None]
    if not ratios:
        yield "trial 1 / final best: no first trial succeeded"
        return
    ratios.sort(key=lambda pair: pair[0])
    values = [ratio for ratio, _ in ratios]
    yield (
        f"trial 1 / final best (speed): geomean {geomean(values):.3f}, 5th percentile"
        f" {quantile(values, 0.05):.3f}, least {values[0]:.3f};"
        f" {len(done) - len(ratios)} first trials failed"
    )
    for ratio, result in ratios[:WORST]:
        yield f"  {ratio:.3f}  {result['name']} (best: trial {result['best']['trial']})"
    yield from _families(ratios)


def _families(ratios: Sequence[tuple[float, Result]]) -> Iterator[str]:
    for family, own in sorted(_by_family(ratios).items(), key=lambda entry: geomean(entry[1])):
        yield f"  {family:18} {len(own):3} rows, geomean {geomean(own):.3f}, least {min(own):.3f}"


def _by_family(ratios: Sequence[tuple[float, Result]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for ratio, result in ratios:
        found.setdefault(result["family"], []).append(ratio)
    return found


def _stopping(done: Sequence[Result]) -> Iterator[str]:
    yield "stopping after n trials / all trials (speed, times of the search):"
    for trials in STOPS:
        kept = {r["name"]: share for r in done if (share := kept_after(r, trials)) is not None}
        if not kept:
            continue
        longer = sum(result["trials"]["total"] > trials for result in done)
        worst = min(kept, key=lambda name: kept[name])
        values = list(kept.values())
        yield (
            f"  {trials:3}: geomean {geomean(values):.3f}, 5th percentile"
            f" {quantile(values, 0.05):.3f}, least {kept[worst]:.3f} ({worst});"
            f" {longer} runs were longer"
        )


def _reasons(done: Sequence[Result]) -> Iterator[str]:
    yield "reasons for the end of the run:"
    for reason, count in Counter(_kind(r["stopped_because"]) for r in done).most_common():
        yield f"  {count:3}  {reason}"


def _kind(reason: str) -> str:
    """Return the reason with its numbers replaced, so that equal kinds are counted together."""
    words = ("N" if any(c.isdigit() for c in word) else word for word in reason.split())
    return " ".join(words)[:110]


def _by_structure(results: Sequence[Result], structures: Mapping[str, str]) -> Iterator[str]:
    yield "with a shared database (speed):"
    for name, group in groups_of_structure(results, structures).items():
        done = [result for result in group if has_best(result)]
        yield f"  {name}: {len(done)} rows"
        firsts = [first_over_best(result) for result in done]
        batches = [kept_after(result, FIRST_BATCH) for result in done]
        for title, values in (
            ("trial 1 / final best", firsts),
            (f"best of the first {FIRST_BATCH} trials / best of all", batches),
        ):
            known = [value for value in values if value is not None]
            if known:
                yield (
                    f"    {title}: geomean {geomean(known):.3f}, 5th percentile"
                    f" {quantile(known, 0.05):.3f}; {len(values) - len(known)} failed"
                )
        if any("related" in result for result in done):  # absent in older files
            related = sum(bool(result.get("related")) for result in done)
            model = sum(bool(result["database_model"].get("share")) for result in done)
            yield (
                f"    {related} used trials of related workloads, {model} the model of the database"
            )


def _races(done: Sequence[Result]) -> Iterator[str]:
    """The ratio of a row is the seconds of the better library / the seconds of the best kernel."""
    better = [(name, result) for result in done if (name := better_library(result)) is not None]
    sides = [(result["race"]["against"][name], name, result) for name, result in better]
    sides.sort(key=lambda row: row[0]["speedup"])
    busy = sum(result["race"]["busy_share"] > QUIET_SHARE for _, result in better)
    yield (
        f"best kernel against the better library (speed): {len(sides)} rows,"
        f" {busy} on a busy machine"
    )
    if sides:
        ratios = [side["speedup"] for side, _, _ in sides]
        yield f"  geomean {geomean(ratios):.3f}, least {ratios[0]:.3f} ({sides[0][2]['name']})"
        for limit in LIMITS:
            surely = sum(side["speedup_high"] < limit for side, _, _ in sides)
            under = sum(ratio < limit for ratio in ratios)
            yield f"  under {limit:g}: {under} rows, {surely} with their whole interval"
    for side, name, result in sides[: max(WORST, sum(side["speedup"] < 1 for side, _, _ in sides))]:
        yield (
            f"  {side['speedup']:.3f} [{side['speedup_low']:.3f}, {side['speedup_high']:.3f}]"
            f"  {result['name']}: {1e6 * result['race']['kernel']['run_secs']:.4g} us,"
            f" {name} {1e6 * side['run_secs']:.4g} us ({side['way']})"
        )
    yield from _families([(side["speedup"], result) for side, _, result in sides])
    yield from _library_lines(done)


def _library_lines(done: Sequence[Result]) -> Iterator[str]:
    """What the libraries say they run, and why some were not timed, with numbers of rows."""
    said: Counter[str] = Counter()
    for result in done:
        race = result["race"]
        said[" ".join(f"{k}={v}" for k, v in race.get("environment", {}).items())] += 1
        if "error" in race:
            said[f"{result['name']}: no race; {race['error']}"] += 1
        for name, side in race.get("against", {}).items():
            said[described(side["libraries"]) or f"no {name}: {side['detail']}"] += 1
    yield "libraries:"
    for text, count in said.most_common():
        if text:
            yield f"  {count:3} rows  {text}"
