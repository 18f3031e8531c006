"""The replay of spaces: repeatable, and it tells what differs."""

from __future__ import annotations

from copy import deepcopy

from benchmarks.spaces.__main__ import reference
from benchmarks.spaces.replay import differences, places, replayed
from benchmarks.spaces.workloads import stored


def test_a_few_places_are_as_the_reference_says() -> None:
    expected = reference()
    everything = list(places(stored()))
    assert [place.key for place in everything] == list(expected)
    for place in everything[3::760]:
        assert differences(expected[place.key], replayed(place)) == [], place.key


def test_what_differs_is_named() -> None:
    row = next(row for row in reference().values() if len(row.get("sketches", ())) > 1)
    assert differences(row, row) == []
    changed = deepcopy(row)
    changed["sketches"][1]["counts"]["vector_stores"] = "other"
    changed["sketches"][1]["llvm"][0] = "other"
    name = row["sketches"][1]["name"]
    assert differences(row, changed) == [
        f"sketch 1 {name}: counts.vector_stores",
        f"sketch 1 {name}: llvm",
    ]
    changed["sketches"].pop()
    assert differences(row, changed)[0].startswith("sketches: ")
    assert differences(row, {"place": row["place"], "error": "ScheduleError"}) != []
