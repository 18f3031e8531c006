"""What sketches count, against the nests that their settings are lowered to.

`MISSES` is what they count wrongly today. It can only shrink: a miss that no longer occurs fails
the test as one that is not listed does. `python -m benchmarks.counts` shows the sizes.
"""

from __future__ import annotations

import pytest

from benchmarks.counts.compare import EXACT, compared
from benchmarks.counts.drawing import FAMILIES, drawn

SETTINGS = {
    "products": 25, "windows": 25, "inner_products": 12, "rows": 40, "columns": 25,
    "statistics": 25, "transposes": 25, "transforms": 3, "programs": 8, "stencils": 25,
}  # fmt: skip
"""Drawn of each family; several hundred parts of programs together."""

MISSES: dict[str, tuple[str, ...]] = {
    "products": (),
    "windows": ("tile footprint", "tile vector_loads"),
    "inner_products": (),
    "rows": ("rows vector_loads",),
    "columns": (),
    "statistics": (),
    "transposes": (),
    "transforms": (),
    "programs": ("tile masked_share",),
    "stencils": ("rows footprint", "stencils footprint"),
}
"""Kinds of sketches and columns that are outside their bound in some of these settings."""


def test_all_families_are_drawn() -> None:
    assert SETTINGS.keys() == FAMILIES.keys() == MISSES.keys()


def test_what_must_be_exact_is_no_miss() -> None:
    columns = {name: name.split()[1] for names in MISSES.values() for name in names}
    assert not {name for name, column in columns.items() if column in EXACT}


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
