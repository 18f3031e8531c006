"""Size limits of workloads, documents, expressions, nests and traces."""

from __future__ import annotations

MAX_DIMS = 8
MAX_STAGES = 64
MAX_COMPONENTS = 8
MAX_INPUTS = 64
MAX_EXTENT = 2**31 - 1
MAX_INDEX_CONST = 2**31 - 1
MAX_CONDS = 24
"""Most conditions of one guard: two bounds and a divisibility for each of 8 dimensions."""

MAX_ALL_CONDS = 512
"""Most conditions of a workload. Simplification takes about 100 us per condition."""

MAX_BODY_DEPTH = 56
"""Most levels of one expression. Its document then has at most `MAX_JSON_DEPTH` levels."""

MAX_JSON_DEPTH = 64
MAX_JSON_NODES = 10_000
MAX_JSON_BYTES = 1 << 20

MAX_INLINED_NODES = MAX_JSON_NODES
MAX_INLINED_DEPTH = 128
"""`MAX_INLINED_NODES` and `MAX_INLINED_DEPTH`: most operations and levels of a body after other
stages were inlined. Each use of a stage is a copy. A chain of n stages that each use the previous
stage twice would have 2**n operations."""

MAX_CONDITION_NODES = 512
"""Most operations of a condition of values that is written as nested choices, each of which has a
copy of what it chooses."""

MAX_COPIED_NODES = 64
"""Most operations of an array expression that are copied into each expression that uses it. A
larger one that is used twice becomes a stage. A chain of operations that each use the previous
result twice then has a stage for every 6 operations."""

MAX_NESTED_ARRAYS = 100
"""Most array operations that are computed inside each other in one stage: views of views, sums of
sums."""

MAX_BYTES = 2**48
"""Most bytes of all tensors of a workload together: the address space of current machines."""

MAX_LOOP_EXTENT = MAX_BYTES
"""Most iterations of one loop. A fused loop covers at most all elements of a tensor. Indices within
this limit are exact in 64 bits."""

MIN_FACTOR_BOUND = 4096


def factor_bound(extent: int) -> int:
    """Return the largest legal factor of a split of `extent` iterations or elements.

    A factor above twice the extent (or `MIN_FACTOR_BOUND`, if that is larger) only adds iterations
    that guards skip.
    """
    return max(2 * extent, MIN_FACTOR_BOUND)


MAX_STATEMENTS = 20_000
"""Most loops, allocations and leaves of a nest. Each step that splits the range or body of a loop
copies statements. Traces of the benchmark suite have at most 130."""

MAX_NESTING = 96
"""Greatest nesting depth of a statement. Traces of the benchmark suite have at most 20."""

MAX_ATOMS = 1000
"""Most variables and divisions of one index. Splitting and fusing a loop with coprime factors
doubles the number each time. Traces of the benchmark suite have at most 20."""

MAX_COPIES = 1 << 16
"""Most statements of a nest after unrolling. LLVM takes seconds for this number. Traces of the
benchmark suite have at most 400."""

MAX_STEP_INTEGER = MAX_LOOP_EXTENT
"""Largest magnitude of an integer in a step of a trace document."""
MAX_STEP_TEXT = 4096
