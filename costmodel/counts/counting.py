"""What is counted of settings, whatever kind of part they are of."""

from __future__ import annotations

from functools import singledispatch

from schedules.arrays import IntArray
from schedules.sketches.fused.columns import ColumnSketch
from schedules.sketches.fused.elementwise import ElementwiseSketch
from schedules.sketches.fused.reduction import ReductionSketch
from schedules.sketches.fused.rows import RowSketch
from schedules.sketches.fused.transform import TransformSketch
from schedules.sketches.inner_product.sketch import InnerProductSketch
from schedules.sketches.plain import PlainSketch
from schedules.sketches.tile.sketch import TileSketch
from schedules.sketches.transpose.copies import TransposeSketch
from schedules.sketches.transpose.sums import TransposedSumSketch
from schedules.space import Part

from .columns import column_counts
from .dots import dot_counts
from .plain import plain_counts
from .plans import plan_counts
from .rows import elementwise_counts, reduction_counts, row_counts
from .table import Counts
from .tile import tile_counts
from .transform import transform_counts
from .transpose import transpose_counts, transposed_sum_counts


@singledispatch
def counts(part: Part, settings: IntArray) -> Counts:
    """COUNTS of (P, J) `settings` of `part`, each (P,)."""
    return plan_counts(part, settings)


counts.register(ColumnSketch, column_counts)
counts.register(InnerProductSketch, dot_counts)
counts.register(PlainSketch, plain_counts)
counts.register(ElementwiseSketch, elementwise_counts)
counts.register(ReductionSketch, reduction_counts)
counts.register(RowSketch, row_counts)
counts.register(TileSketch, tile_counts)
counts.register(TransformSketch, transform_counts)
counts.register(TransposeSketch, transpose_counts)
counts.register(TransposedSumSketch, transposed_sum_counts)
