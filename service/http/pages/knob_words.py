"""What knobs of schedules are called on pages: records and events keep the names of the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KNOB_WORDS = {
    "block": "rows interleaved",
    "blocks": "reduction blocks",
    "chunk": "reduction chunk",
    "collect": "gathered blocks",
    "columns": "tile columns",
    "copy_rows": "padded copy",
    "k_blocks": "reduction blocks",
    "merge": "loops fused",
    "pack": "packing",
    "pack_columns": "packing",
    "pack_on_the_way": "pack in first tile",
    "parallel": "parallel loop",
    "place": "computed at",
    "prefetch": "prefetching",
    "row2_blocks": "row blocks, axis 2",
    "row_tiles_inside": "row tiles innermost",
    "rows": "tile rows",
    "rows2": "tile rows, axis 2",
    "rows_outside": "row blocks outermost",
    "skip_padding": "padding skipped",
    "split_k": "split reduction",
    "stagger": "software pipelining",
    "stream": "non-temporal stores",
    "tails": "tails cut off",
    "tap_unroll": "window unrolled",
    "unroll": "reduction unrolled",
    "vectors": "vectors wide",
}
"""The field's words for knobs whose own names are not, short enough to stand above an axis of a
drawing."""


def in_words(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """A setting by words in place of names. In a program of several parts a name says whose it is,
    `1.rows`."""
    found = {}
    for name, value in knobs.items():
        part, _, knob = name.rpartition(".")
        words = KNOB_WORDS.get(knob, knob.replace("_", " "))
        found[f"{words} ({int(part) + 1})" if part.isdecimal() else words] = value
    return found
