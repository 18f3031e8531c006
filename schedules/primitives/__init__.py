"""The primitives: steps that change a nest and keep its meaning, or raise ScheduleError."""

from __future__ import annotations

from .block_read import BlockRead as BlockRead
from .cache_read import CacheRead as CacheRead
from .cache_write import CacheWrite as CacheWrite
from .layout import TransformLayout as TransformLayout
from .loops import Fuse as Fuse
from .loops import Partition as Partition
from .loops import Reorder as Reorder
from .loops import Split as Split
from .marks import Parallel as Parallel
from .marks import Stream as Stream
from .marks import Unroll as Unroll
from .marks import Vectorize as Vectorize
from .merging import Merge as Merge
from .pack_ahead import PackAhead as PackAhead
from .placement import ComputeAt as ComputeAt
from .placement import Inline as Inline
from .prefetching import Prefetch as Prefetch
from .primitive import Primitive as Primitive
from .reduction import RFactor as RFactor
from .solving import Solve as Solve
from .staggering import Stagger as Stagger
from .zeros import SkipZeros as SkipZeros

PRIMITIVES: tuple[type[Primitive], ...] = (
    Split,
    Fuse,
    Reorder,
    Partition,
    Merge,
    Stagger,
    Vectorize,
    Unroll,
    Parallel,
    CacheRead,
    BlockRead,
    CacheWrite,
    TransformLayout,
    PackAhead,
    ComputeAt,
    Inline,
    RFactor,
    Solve,
    Prefetch,
    SkipZeros,
    Stream,
)
"""All of them: what a trace can hold. A new primitive is imported and named here, nowhere else."""
