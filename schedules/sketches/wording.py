"""The choices of a schedule in words: a term for each knob, and a name for each of its values.

Terms are defined in `docs/glossary.md`. A knob name means the same in every sketch that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .fused.transform import AROUND, OUTSIDE, WITHIN
from .scatter.trace import ALONE, COLUMNS, OUTER, TABLES


@dataclass(frozen=True, slots=True)
class KnobWords:
    """`term`: the name of the choice. `values`: names of values; other values are numbers."""

    term: str
    values: Mapping[int, str] = field(default_factory=dict)


_SWITCH = {0: "off", 1: "on"}

KNOB_WORDS: Mapping[str, KnobWords] = {
    "tile_vectors": KnobWords("vectors per tile row"),
    "tile_rows": KnobWords("tile rows"),
    "tile_rows2": KnobWords("tile rows along the second row axis"),
    "tile_columns": KnobWords("tile columns"),
    "vectors": KnobWords("vectors per iteration"),
    "column_blocks": KnobWords("cache blocks of columns"),
    "row_blocks": KnobWords("cache blocks of rows"),
    "row_blocks2": KnobWords("cache blocks of the second row axis"),
    "reduction_blocks": KnobWords("cache blocks of the reduction"),
    "unroll_reduction": KnobWords("unrolled reduction steps"),
    "unroll_window": KnobWords("unrolled window loops"),
    "row_blocks_outermost": KnobWords("outermost block loop", {0: "columns", 1: "rows"}),
    "row_tiles_innermost": KnobWords("innermost tile loop", {0: "columns", 1: "rows"}),
    "pack_columns": KnobWords(
        "pack columns", {0: "no", 1: "in each call", 2: "once, before the call"}
    ),
    "pack_rows": KnobWords("pack rows", {0: "no", 1: "in each call"}),
    "fuse_packing": KnobWords(
        "fused packing", {0: "off", 1: "the first row of tiles packs while it computes"}
    ),
    "copy_rows": KnobWords(
        "private copies of rows", {0: "off", 1: "on", 2: "one for the batches that share it"}
    ),
    "buffer_output": KnobWords("output buffer", _SWITCH),
    "skip_padding": KnobWords("products with padding", {0: "computed", 1: "skipped"}),
    "peel_remainders": KnobWords(
        "separate remainder code", {0: "none", 1: "rows", 2: "rows and columns"}
    ),
    "nontemporal_stores": KnobWords("non-temporal stores", _SWITCH),
    "parallel": KnobWords("threads", {0: "one", 1: "divide one loop", 2: "divide two loops"}),
    "prefetch": KnobWords("software prefetch", _SWITCH),
    "prefetch_stores": KnobWords("prefetch of stored lines", _SWITCH),
    "split_reduction": KnobWords("parts of a split reduction"),
    "interleave_rows": KnobWords("rows computed together"),
    "interleave": KnobWords("rows or vectors scanned together"),
    "block_vectors": KnobWords("vectors per block of columns"),
    "row_share": KnobWords("steps of a scan per thread", {0: "rows are not divided"}),
    "vectorise": KnobWords("vectors", _SWITCH),
    "reduction_chunk": KnobWords("rows summed at a time", {0: "all"}),
    "software_pipelining": KnobWords("software pipelining", _SWITCH),
    "fuse_loops": KnobWords("shared loop of a reduction and the stage before it", _SWITCH),
    "rows_at_once": KnobWords("rows per iteration"),
    "inline": KnobWords(
        "inlined stages", {0: "those that are cheaper inlined", 1: "all that repeat few operations"}
    ),
    "compute_at": KnobWords(
        "position of earlier stages",
        {AROUND: "outside the formulas", WITHIN: "in each formula", OUTSIDE: "outside all loops"},
    ),
    "unroll": KnobWords("vectors or terms of a scatter per iteration"),
    "threads_divide": KnobWords(
        "what threads of a scatter divide",
        {
            ALONE: "nothing",
            OUTER: "outer axes",
            COLUMNS: "columns",
            TABLES: "terms, with a table of outputs for each thread",
        },
    ),
}

STAGE_WORDS: Mapping[str, str] = {"transpose": " of the transposition"}
"""The stages of a sketch that has several knobs of one name, by the first part of their names."""


def term_of(knob: str) -> str:
    """Return the term of a knob. The knob `1.tile_rows` of a program of several parts becomes `tile
    rows (part 2)`, and `transpose.tile_rows` becomes `tile rows of the transposition`. A knob of an
    earlier version keeps its name, without underscores."""
    *parts, name = knob.split(".")
    words = KNOB_WORDS.get(name)
    term = name.replace("_", " ") if words is None else words.term
    for part in reversed(parts):
        term += f" (part {int(part) + 1})" if part.isdecimal() else STAGE_WORDS.get(part, "")
    return term


def value_text(knob: str, value: Any) -> str:
    """Return the name of a value of a knob."""
    words = KNOB_WORDS.get(knob.rpartition(".")[2])
    return str(value) if words is None else words.values.get(value, str(value))
