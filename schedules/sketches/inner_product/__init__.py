"""The inner-product sketch: reductions vectorised along the reduction axis."""
