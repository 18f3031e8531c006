"""What sketches count, against the nests that their settings are lowered to.

`MISSES` is what they count wrongly today. It can only shrink: a miss that no longer occurs fails
the test as one that is not listed does. `python -m benchmarks.counts` shows the sizes.
"""

from __future__ import annotations

import pytest

from benchmarks.counts.compare import EXACT, compared
from benchmarks.counts.drawing import FAMILIES, drawn

SETTINGS = {
    "products": 25, "windows": 25, "dots": 12, "rows": 40, "columns": 25, "turns": 25,
    "transforms": 3, "programs": 8,
}  # fmt: skip
"""Drawn of each family; several hundred parts of programs together."""

MISSES: dict[str, tuple[str, ...]] = {
    "products": (
        "rows accumulators",
        "rows code_ops",
        "rows footprint",
        "rows held_values",
        "rows inner_entries",
        "rows live_registers",
        "rows masked_share",
        "tile flops",
        "tile footprint",
        "tile inner_entries",
        "tile live_registers",
        "tile masked_share",
        "tile vector_loads",
        "tile vector_ops",
    ),
    "windows": (
        "tile accumulators",
        "tile code_ops",
        "tile flops",
        "tile footprint",
        "tile held_values",
        "tile inner_entries",
        "tile inner_trips",
        "tile live_registers",
        "tile masked_share",
        "tile tasks",
        "tile vector_loads",
        "tile vector_ops",
    ),
    "dots": ("tile live_registers",),
    "rows": (
        "rows accumulators",
        "rows code_ops",
        "rows flops",
        "rows footprint",
        "rows held_values",
        "rows inner_entries",
        "rows inner_trips",
        "rows live_registers",
        "rows masked_share",
        "rows scalar_accesses",
        "rows vector_loads",
        "rows vector_ops",
    ),
    "columns": (
        "columns accumulators",
        "columns code_ops",
        "columns footprint",
        "columns inner_entries",
        "columns inner_trips",
        "columns live_registers",
        "columns masked_share",
        "columns vector_loads",
        "columns vector_ops",
        "rows accumulators",
        "rows code_ops",
        "rows flops",
        "rows footprint",
        "rows held_values",
        "rows inner_entries",
        "rows inner_trips",
        "rows live_registers",
        "rows masked_share",
        "rows vector_loads",
        "rows vector_ops",
    ),
    "turns": (
        "rows accumulators",
        "rows code_ops",
        "rows flops",
        "rows footprint",
        "rows held_values",
        "rows inner_entries",
        "rows inner_trips",
        "rows live_registers",
        "rows masked_share",
        "rows scalar_accesses",
        "rows vector_loads",
        "rows vector_ops",
        "turn flops",
        "turn footprint",
        "turn inner_entries",
        "turn inner_trips",
        "turn live_registers",
        "turn scalar_accesses",
        "turn vector_loads",
        "turn vector_ops",
        "turned_sum footprint",
        "turned_sum held_values",
        "turned_sum vector_ops",
    ),
    "transforms": (
        "tile flops",
        "tile footprint",
        "transform code_ops",
        "transform flops",
        "transform footprint",
        "transform inner_entries",
        "transform inner_trips",
        "transform live_registers",
        "transform masked_share",
        "transform vector_loads",
        "transform vector_ops",
    ),
    "programs": (
        "rows accumulators",
        "rows code_ops",
        "rows flops",
        "rows footprint",
        "rows inner_entries",
        "rows inner_trips",
        "rows live_registers",
        "rows masked_share",
        "rows vector_loads",
        "tile flops",
        "tile footprint",
        "tile masked_share",
    ),
}
"""Kinds of sketches and columns that are outside their bound in some of these settings."""


def test_all_families_are_drawn() -> None:
    assert SETTINGS.keys() == FAMILIES.keys() == MISSES.keys()


def test_what_must_be_exact_is_no_miss() -> None:
    """But tasks of transposed convolutions, whose phases have rows of different numbers."""
    columns = {name: name.split()[1] for names in MISSES.values() for name in names}
    assert {name for name, column in columns.items() if column in EXACT} == {"tile tasks"}


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
