"""The primitives: `apply(nest) -> nest` keeps the meaning or raises ScheduleError."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from ..nest.loop_ir import Nest
from .block_read import BlockRead
from .cache_read import CacheRead, CacheReadAlong
from .cache_write import CacheWrite
from .layout import TransformLayout
from .loops import Fuse, Partition, Reorder, Split
from .marks import Parallel, Stream, Unroll, Vectorize
from .merging import Merge
from .pack_ahead import PackAhead
from .placement import ComputeAt, Inline
from .prefetching import FetchAhead, Prefetch
from .reduction import RFactor
from .solving import Solve
from .staggering import Stagger
from .zeros import SkipZeros, SkipZerosAround

Primitive: TypeAlias = (
    Split
    | Fuse
    | Reorder
    | Partition
    | Merge
    | Stagger
    | Vectorize
    | Unroll
    | Parallel
    | CacheRead
    | CacheReadAlong
    | BlockRead
    | CacheWrite
    | TransformLayout
    | PackAhead
    | ComputeAt
    | Inline
    | RFactor
    | Solve
    | Prefetch
    | FetchAhead
    | SkipZeros
    | SkipZerosAround
    | Stream
)

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
    CacheReadAlong,
    BlockRead,
    CacheWrite,
    TransformLayout,
    PackAhead,
    ComputeAt,
    Inline,
    RFactor,
    Solve,
    Prefetch,
    FetchAhead,
    SkipZeros,
    SkipZerosAround,
    Stream,
)
"""All of them; a new primitive is added here, in `Primitive`, and nowhere else."""


class HasApply(Protocol):
    """What a primitive is."""

    def apply(self, nest: Nest) -> Nest:
        """The nest after the step; ScheduleError if the step is not legal."""
        ...


__all__ = [
    "PRIMITIVES",
    "BlockRead",
    "CacheRead",
    "CacheReadAlong",
    "CacheWrite",
    "ComputeAt",
    "FetchAhead",
    "Fuse",
    "Inline",
    "Merge",
    "PackAhead",
    "Parallel",
    "Partition",
    "Prefetch",
    "Primitive",
    "RFactor",
    "Reorder",
    "SkipZeros",
    "SkipZerosAround",
    "Solve",
    "Split",
    "Stagger",
    "Stream",
    "TransformLayout",
    "Unroll",
    "Vectorize",
]
