"""Names, meanings and units of the counts of a setting's nest."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import FloatArray

Counts = dict[str, FloatArray]
"""The values of COUNTS by name, each of shape (P,)."""

TOTALS: dict[str, str] = {
    "flops": "scalar operations executed, work on idle lanes included",
    "vector_ops": "arithmetic instructions (an FMA is one) and shuffles; without packing copies",
    "lost_ops": "time lost to selects, short tiles and short sums, in multiply-adds",
    "chained_ops": "operations of the longest dependence chain of a sum, by innermost loop",
    "test_ops": "comparisons of padding conditions, each fused with its branch",
    "vector_loads": "executed loads of a vector or an element; without packing copies",
    "prefetches": "software prefetches of lines in other pages, one line each",
    "near_prefetches": "software prefetches of lines to be stored or in the same pages",
    "vector_stores": "executed stores of a vector or an element; without packing copies",
    "scalar_accesses": "lanes loaded or stored one by one: gathers and scatters",
    "conflict_misses": "misses in L1 on lines evicted because a stride maps them to few cache sets",
    "far_conflict_misses": "such misses in L2",
    "exposed_lines": "lines that no prefetch loads in time, in lines of the level that holds all",
    "contended_lines": "lines that two threads write in turn, in lines of the level that holds all",
    "latency_cycles": "cycles in which a chain of dependent operations waits for its latency",
    "math_calls": "vector evaluations of exp, tanh, erf and similar functions",
    "packed_bytes": "bytes written by packing and other private copies, in total",
    "strided_packed_bytes": "the part of packed_bytes that is copied element by element",
    "transposed_packed_bytes": "the part of packed_bytes that is transposed in registers",
    "fused_packed_bytes": "the part of packed_bytes that the first tile copies while it computes",
    "collected_bytes": "the part of packed_bytes that are results, copied to the output afterwards",
    "streamed_bytes": "bytes of the output written with non-temporal stores",
    "regions": "parallel regions entered per call; 0 if nothing is parallel",
}
"""Counts that are summed over the parts of a program."""

SHAPES: dict[str, str] = {
    "accumulators": "independent accumulator registers of one sum of the innermost loop; 0 if none",
    "live_registers": "vector registers that a step of the innermost loop needs concurrently",
    "kept_values": "further vectors that stay live for a later unrolled step",
    "inner_trips": "average trip count of innermost loops that are not unrolled or vectorised",
    "inner_entries": "number of entries into these loops",
    "code_ops": "instructions in the unrolled innermost body",
    "panel_bytes": "bytes of the largest private copy",
    "masked_share": "share of vector_ops under branches (lane masks do not count), 0..1",
    "tasks": "iterations of the parallel loop, a partial one as a fraction; 1 if not parallel",
}
"""Counts that a program takes from the part with the most operations."""

COUNTS = TOTALS | SHAPES
"""The names and meanings of the counts that `counts` returns. They are per call, over all threads.

`lost_ops`, exposed and contended lines, and the conflict misses are costs.
`python -m benchmarks.counts` recounts all others from lowered nests, and defines each of them
precisely.
"""


def with_zeros(some: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return all COUNTS: those in `some`, which must include `tasks`, and zeros for the others."""
    assert some.keys() <= COUNTS.keys()
    count = len(some["tasks"])
    return {name: some[name] if name in some else np.zeros(count) for name in COUNTS}
