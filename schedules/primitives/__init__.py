"""The primitives: steps that change a nest and preserve its semantics, or raise ScheduleError."""

from __future__ import annotations

from inspect import isabstract

from .copies import BlockRead as BlockRead
from .copies import CacheRead as CacheRead
from .copies import CacheWrite as CacheWrite
from .copies import TransformLayout as TransformLayout
from .keeping import KeepElements as KeepElements
from .loops import Extend as Extend
from .loops import Fuse as Fuse
from .loops import Partition as Partition
from .loops import Reorder as Reorder
from .loops import Split as Split
from .marks import PackAhead as PackAhead
from .marks import Parallel as Parallel
from .marks import Stream as Stream
from .marks import Unroll as Unroll
from .marks import Vectorize as Vectorize
from .overlap import Merge as Merge
from .overlap import Stagger as Stagger
from .prefetching import Prefetch as Prefetch
from .prefetching import PrefetchStores as PrefetchStores
from .primitive import Primitive as Primitive
from .reductions import RFactor as RFactor
from .reductions import SkipBlocks as SkipBlocks
from .reductions import SkipZeros as SkipZeros
from .reductions import Solve as Solve
from .scans import CarryScan as CarryScan
from .scans import ScanBlocks as ScanBlocks
from .scatters import Initialise as Initialise
from .scatters import TakeSelected as TakeSelected
from .stages import ComputeAt as ComputeAt
from .stages import Inline as Inline
from .stages import ReverseComputeAt as ReverseComputeAt
from .tensorize import Tensorize as Tensorize

PRIMITIVES: tuple[type[Primitive], ...] = tuple(
    each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, Primitive) and not isabstract(each)
)
"""All primitives. Importing a primitive in this module registers it."""
