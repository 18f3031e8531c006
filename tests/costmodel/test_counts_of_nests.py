"""What sketches count, against the nests that their settings are lowered to.

`MISSES` is what they count wrongly today. It can only shrink: a miss that no longer occurs fails
the test as one that is not listed does. `python -m benchmarks.counts` shows the sizes.
"""

from __future__ import annotations

import pytest

from benchmarks.counts.compare import compared
from benchmarks.counts.drawing import FAMILIES, drawn

SETTINGS = {
    "products": 25, "windows": 25, "dots": 12, "rows": 40, "columns": 25, "turns": 25,
    "transforms": 3, "programs": 8,
}  # fmt: skip
"""Drawn of each family; several hundred parts of programs together."""

MISSES: dict[str, tuple[str, ...]] = {
    "products": (
        "rows vector_stores",
        "tile packed_bytes",
        "tile panel_bytes",
        "tile regions",
        "tile tasks",
        "tile vector_stores",
    ),
    "windows": (
        "tile packed_bytes",
        "tile panel_bytes",
        "tile tasks",
        "tile vector_stores",
    ),
    "dots": (
        "tile packed_bytes",
        "tile panel_bytes",
        "tile regions",
        "tile vector_stores",
    ),
    "rows": (
        "rows regions",
        "rows streamed_bytes",
        "rows tasks",
        "rows vector_stores",
    ),
    "columns": (
        "columns panel_bytes",
        "columns tasks",
        "columns vector_stores",
        "rows regions",
        "rows tasks",
        "rows vector_stores",
    ),
    "turns": (
        "rows regions",
        "rows tasks",
        "rows vector_stores",
        "turn packed_bytes",
        "turn panel_bytes",
        "turn tasks",
        "turn vector_stores",
        "turned_sum vector_stores",
    ),
    "transforms": (
        "tile packed_bytes",
        "tile panel_bytes",
        "tile vector_stores",
        "transform packed_bytes",
        "transform tasks",
        "transform vector_stores",
    ),
    "programs": (
        "rows vector_stores",
        "tile packed_bytes",
        "tile panel_bytes",
        "tile regions",
        "tile tasks",
        "tile vector_stores",
    ),
}
"""Kinds of sketches and columns that are outside their bound in some of these settings."""


def test_all_families_are_drawn() -> None:
    assert SETTINGS.keys() == FAMILIES.keys() == MISSES.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_are_those_of_the_lowered_nest(family: str) -> None:
    parts = [part for n in range(SETTINGS[family]) for part in drawn(family, f"test {n}")]
    assert parts
    found = {
        f"{each.kind} {each.column}": f"said {each.said:g}, found {each.recounted:g}: {each.where}"
        for part in parts
        for each in compared(part)
        if not each.is_within
    }
    listed = set(MISSES[family])
    new = [f"{name}: {text}" for name, text in found.items() if name not in listed]
    assert not new, "\n".join(new)
    gone = sorted(listed - found.keys())
    assert not gone, f"counted rightly now, so no longer misses: {', '.join(gone)}"
