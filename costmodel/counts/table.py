"""Names, meanings and units of the counts of a setting's nest."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import FloatArray

Counts = dict[str, FloatArray]
"""Values of COUNTS by name, each (P,)."""

TOTALS: dict[str, str] = {
    "flops": "scalar operations executed, work on idle lanes included",
    "vector_ops": "instructions that compute, an FMA is one, or move between lanes; no copies'",
    "lost_ops": "multiply-adds in the time that choices, and tiles or sums too short, take longer",
    "chained_ops": "operations that are done one after the other, since a sum waits for itself",
    "test_ops": "comparisons that decide whether padding is read, one with their branches",
    "vector_loads": "loads executed, of a vector or of one element; not those of packed copies",
    "prefetches": "lines that are asked for ahead of their use, one by one",
    "vector_stores": "stores executed, of a vector or of one element; not those of packed copies",
    "scalar_accesses": "lanes that are loaded or stored one by one: gathers and scatters",
    "conflict_misses": "lines lost because a stride maps them to few sets, in misses near by",
    "exposed_lines": "lines that nothing brings in time, in lines from the level that holds all",
    "math_calls": "vector evaluations of exp, tanh, erf and the like",
    "packed_bytes": "bytes written by packing and other private copies, in total",
    "strided_packed_bytes": "the part of packed_bytes that is copied element by element",
    "transposed_packed_bytes": "the part of packed_bytes that is transposed in registers",
    "fused_packed_bytes": "the part of packed_bytes that a first tile copies as it computes",
    "streamed_bytes": "bytes of the output that are written past the caches",
    "regions": "parallel regions entered a call; 0 if nothing is parallel",
}
"""Counts that are summed over the parts of a program."""

SHAPES: dict[str, str] = {
    "accumulators": "independent accumulator registers of one sum of the innermost loop; 0 if none",
    "live_registers": "vector registers that a step of the innermost loop needs at once",
    "kept_values": "vectors that wait beside these for a later step of those written out",
    "inner_trips": "trip count of innermost loops that are not unrolled or vectorised, on average",
    "inner_entries": "how often that loop is entered",
    "code_ops": "instructions in the unrolled innermost body",
    "panel_bytes": "bytes of the largest private copy",
    "masked_share": "share of vector_ops under tests, which masks of lanes are not, 0..1",
    "tasks": "iterations of the parallel loop, a shorter one as a part; 1 if nothing is parallel",
}
"""Counts that a program takes from its part with the most operations."""

COUNTS = TOTALS | SHAPES
"""Names and meanings of the counts that `counts` returns, per call, over all threads. `lost_ops`,
`conflict_misses` and `exposed_lines` are costs; `python -m benchmarks.counts` recounts all others
from lowered nests and defines each precisely."""


def with_zeros(some: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return all COUNTS: the given ones, `tasks` among them, and zeros for the others."""
    assert some.keys() <= COUNTS.keys()
    count = len(some["tasks"])
    return {name: some[name] if name in some else np.zeros(count) for name in COUNTS}
