"""The primitives: steps that change a nest and keep its meaning, or raise ScheduleError."""

from __future__ import annotations

from .copies import BlockRead, CacheRead, CacheWrite, TransformLayout
from .loops import Fuse, Partition, Reorder, Split
from .marks import PackAhead, Parallel, Stream, Unroll, Vectorize
from .overlap import Merge, Stagger
from .prefetching import Prefetch
from .primitive import Primitive
from .reductions import RFactor, SkipZeros, Solve
from .stages import ComputeAt, Inline

PRIMITIVES: tuple[type[Primitive], ...] = (
    Split, Fuse, Reorder, Partition, Merge, Stagger, Vectorize, Unroll, Parallel, CacheRead,
    BlockRead, CacheWrite, TransformLayout, PackAhead, ComputeAt, Inline, RFactor, Solve, Prefetch,
    SkipZeros, Stream,
)  # fmt: skip
"""All of them: what a trace can hold. A new primitive is named in this file, nowhere else."""

__all__ = [
    "PRIMITIVES", "BlockRead", "CacheRead", "CacheWrite", "ComputeAt", "Fuse", "Inline", "Merge",
    "PackAhead", "Parallel", "Partition", "Prefetch", "Primitive", "RFactor", "Reorder",
    "SkipZeros", "Solve", "Split", "Stagger", "Stream", "TransformLayout", "Unroll", "Vectorize",
]  # fmt: skip
