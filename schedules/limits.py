"""How large a workload, its document and the text of an expression may be."""

from __future__ import annotations

MAX_DIMS = 8
MAX_STAGES = 64
MAX_INPUTS = 64
MAX_EXTENT = 2**31 - 1
MAX_INDEX_CONST = 2**31 - 1
MAX_CONDS = 24
"""Conditions of one guard: two bounds and a divisibility for each of 8 dimensions."""

MAX_ALL_CONDS = 512
"""Conditions of a workload: each one is proved needed, which takes some 100 us."""

MAX_BODY_DEPTH = 56
"""Levels of one expression: with what is around it, a document of at most `MAX_JSON_DEPTH`."""

MAX_JSON_DEPTH = 64
MAX_JSON_NODES = 10_000
MAX_JSON_BYTES = 1 << 20

MAX_INLINED_NODES = MAX_JSON_NODES
MAX_INLINED_DEPTH = 128
"""Operations and levels of a body once other stages are computed inside it. Each use of a stage is
a copy: a chain of n stages that use the one before twice would have 2**n of them."""

MAX_BYTES = 2**48
"""All tensors of a workload together: what an address can name on today's machines."""

MAX_LOOP_EXTENT = MAX_BYTES
"""Iterations of one loop: a fused one walks no more than all elements of a tensor. Indices of loops
within it are exact in 64 bits."""

MIN_FACTOR_BOUND = 4096


def factor_bound(extent: int) -> int:
    """The largest factor by which `extent` iterations or elements may be divided: beyond twice as
    many as there are, and a tile's worth, guards keep everything else from running."""
    return max(2 * extent, MIN_FACTOR_BOUND)


MAX_STATEMENTS = 20_000
"""Loops, allocations and leaves of a nest: steps that cut loops copy what is in them. Traces of the
suite make up to 130."""

MAX_NESTING = 96
"""Loops and allocations that a statement may stand in. Traces of the suite make up to 20."""

MAX_ATOMS = 1000
"""Variables and divisions of one index: each loop that is split and fused again, with divisors that
have nothing in common, doubles them. Traces of the suite make up to 20."""

MAX_COPIES = 1 << 16
"""Statements of a nest once unrolled loops are written out: LLVM takes seconds for so many. Traces
of the suite make up to 400."""

MAX_STEP_INTEGER = MAX_LOOP_EXTENT
MAX_STEP_TEXT = 4096
"""Integers in a step, either way from 0, and characters of a name in it, as they are read."""
