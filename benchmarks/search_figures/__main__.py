"""Figures of the whole search, which a test compares with the committed ones.

    python -m benchmarks.search_figures              # measures and compares, one to two minutes
    python -m benchmarks.search_figures --write      # writes values and tolerances, four times that
    python -m benchmarks.search_figures --write-all  # finds the best known settings anew, too

Simulated machines judge whole tuning sessions, from an empty and from a filled database
(`simulated.py`); recorded timings judge the model of the database (`recorded.py`). Smaller figures
are better. Everything is computed: no figure depends on the speed of this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from .figures import FILE, SEEDS, Committed, Figures, means, measure, tolerances
from .simulated import MACHINE_NAMES, Settings, best_settings


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_figures", description=(__doc__ or "").partition("\n")[0]
    )
    writing = parser.add_mutually_exclusive_group()
    writing.add_argument(
        "--write", action="store_true", help=f"write values and tolerances to {FILE.name}"
    )
    writing.add_argument(
        "--write-all", action="store_true", help="find best settings anew, and write everything"
    )
    given = parser.parse_args(arguments)
    if given.write_all:
        _over_seeds({name: dict(best_settings(name, SEEDS[:2])) for name in MACHINE_NAMES}).write()
        return 0
    committed = Committed.read()
    if given.write:
        _over_seeds(committed.best).write()
        return 0
    measured = measure(committed.best)
    print(_table(committed, measured.figures, measured.shuffled))
    found = committed.worse(measured.figures)
    print("\n".join(["", *(f"worse: {line}" for line in found)]) if found else "none is worse")
    return 1 if found else 0


def _over_seeds(best: Settings) -> Committed:
    with ProcessPoolExecutor() as pool:
        measured = list(pool.map(partial(_figures, best), SEEDS))
    return Committed(_rounded(means(measured)), tolerances(measured), best)


def _figures(best: Settings, seed: int) -> Figures:
    return measure(best, seed).figures


def _rounded(figures: Mapping[str, float]) -> Figures:
    return {name: round(value, 4) for name, value in figures.items()}


def _table(committed: Committed, figures: Figures, shuffled: Figures) -> str:
    lines = [f"{'':40} {'now':>7} {'before':>7} {'allowed':>7} {'shuffled':>8}"]
    for name, value in figures.items():
        before = committed.values.get(name, float("nan"))
        allowed = before * (1.0 + committed.tolerances.get(name, 0.0))
        labels = f"{shuffled[name]:8.3f}" if name in shuffled else ""
        lines.append(f"{name:40} {value:7.3f} {before:7.3f} {allowed:7.3f} {labels}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
