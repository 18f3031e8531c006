"""The committed comparison of strategies: its machines open, its table is what the docs show."""

from __future__ import annotations

import json

from benchmarks import search_comparison
from tests.support.paths import ROOT
from tilewright.tuner.measure.mocked.simulated import read_simulated

SEARCH_PAGE = ROOT / "docs" / "search.md"


def committed() -> list[dict[str, object]]:
    text = search_comparison.RESULTS.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_every_machine_opens_and_is_used() -> None:
    names = {path.stem for path in search_comparison.MACHINES.glob("*.json")}
    assert names == {case.machine for case in search_comparison.cases()}
    for name in names:
        read_simulated(search_comparison.MACHINES / f"{name}.json")


def test_docs_show_the_committed_results() -> None:
    assert search_comparison.tables(committed()) in SEARCH_PAGE.read_text(encoding="utf-8")


def test_annealing_leads_wherever_it_is_compared() -> None:
    lines = committed()
    for held_back in (False, True):
        part = [line for line in lines if line["held_back"] is held_back]
        means = search_comparison.means(part)
        for name, found in means.items():
            if name != "annealing":
                assert all(a < b for a, b in zip(means["annealing"], found, strict=True))
