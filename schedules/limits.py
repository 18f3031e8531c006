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
