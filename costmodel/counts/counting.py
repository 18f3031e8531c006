"""What is counted of settings, whatever kind of part they are of."""

from __future__ import annotations

from functools import singledispatch

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.sketches.fused.transform import TransformSketch
from tilewright.schedules.sketches.inner_product.sketch import InnerProductSketch
from tilewright.schedules.sketches.tile.sketch import TileSketch
from tilewright.schedules.sketches.transpose.copies import TransposeSketch
from tilewright.schedules.space import SpacePart

from .inner_products import inner_product_counts
from .plans import plan_counts
from .table import Counts
from .tile import tile_counts
from .transform import transform_counts
from .transpose import transpose_counts


@singledispatch
def counts(part: SpacePart, settings: IntArray) -> Counts:
    """COUNTS of (P, J) `settings` of `part`, each (P,)."""
    return plan_counts(part, settings)


counts.register(InnerProductSketch, inner_product_counts)
counts.register(TileSketch, tile_counts)
counts.register(TransformSketch, transform_counts)
counts.register(TransposeSketch, transpose_counts)
