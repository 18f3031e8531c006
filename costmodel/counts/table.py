"""Names, meanings and units of the counts of a setting's nest."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import FloatArray

Counts = dict[str, FloatArray]
"""Values of COUNTS by name, each (P,)."""

TOTALS: dict[str, str] = {
    "flops": "arithmetic operations executed, on idle lanes too",
    "vector_ops": "arithmetic instructions (an FMA is one) and shuffles, without copies'",
    "lost_ops": "multiply-adds in the time lost to branches, short chains and small tiles",
    "chained_ops": "operations in dependence chains of reductions, executed at latency",
    "test_ops": "comparisons that decide whether padding is read, each with its branch",
    "vector_loads": "loads executed, of vectors or single elements, without those of packing",
    "prefetches": "software prefetches, one per line",
    "vector_stores": "stores executed, of vectors or single elements, without those of packing",
    "scalar_accesses": "lanes that are loaded or stored one by one: gathers and scatters",
    "conflict_misses": "conflict misses, in lines from the second cache",
    "exposed_lines": "lines that no prefetch brings in time, in lines from where all data is",
    "math_calls": "vector evaluations of exp, tanh, erf and the like",
    "packed_bytes": "bytes written by packing and other private copies, in total",
    "strided_packed_bytes": "the part of packed_bytes that is copied element by element",
    "transposed_packed_bytes": "the part of packed_bytes that is transposed in registers",
    "fused_packed_bytes": "the part of packed_bytes that a first tile copies while it computes",
    "streamed_bytes": "bytes of the output that are stored past the caches",
    "regions": "parallel regions entered in a call; 0 if nothing is parallel",
}
"""Counts that are summed over the parts of a program."""

SHAPES: dict[str, str] = {
    "accumulators": "accumulator registers of one reduction in the innermost loop; 0 if none",
    "live_registers": "live vector registers in one step of the innermost loop",
    "kept_values": "further vectors that are kept for a later unrolled step",
    "inner_trips": "average trip count of innermost loops, not unrolled or vectorised",
    "inner_entries": "executions of these loops",
    "code_ops": "instructions in the unrolled innermost body",
    "panel_bytes": "bytes of the largest private copy",
    "masked_share": "fraction of vector_ops under branches (not masks of lanes), 0..1",
    "tasks": "iterations of the parallel loop, a shorter one as a fraction; 1 if none is",
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
